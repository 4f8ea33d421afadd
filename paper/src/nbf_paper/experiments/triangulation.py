"""The paper's table "Triangulation": Jensen-Shannon divergence of continuous beliefs on a plane.

The paper's reference is a particle filter of 1024. Here a point-mass filter is the truth, and the divergences from both
references are recorded. All beliefs are compared on 100 x 100 cells.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.histogram import cell_probabilities
from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import BeliefModel, Filter
from nbf.environments.rollout import rollout
from nbf.environments.triangulation import ScanPolicy, Triangulation, TriangulationFamily
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.evaluation.divergence import jensen_shannon
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.gaussian import ExtendedKalmanFilter, UnscentedKalmanFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.filters.run import run
from nbf.models.belief_model import ModelConfig, space_config
from nbf.models.flow import CouplingFlowConfig
from nbf.models.mixture import MixtureConfig
from nbf.resampling.weights import normalized_weights
from nbf.sources.filtered import FilterPosteriors
from nbf.sources.pool import BeliefPool
from nbf.training.config import FitConfig
from nbf.training.progress import Progress
from nbf_paper.config import TriangulationConfig
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow, filter_keys, records_by_step, with_training_seconds
from nbf_paper.experiments.settings import model_settings, training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.experiments.walks import WalkConfig, walk
from nbf_paper.pictures import write_picture
from nbf_paper.records import ALL, Record


@dataclass(frozen=True)
class TriangulationArm:
    """A decoder, and the filter whose posteriors it is trained on."""

    decoder: CouplingFlowConfig | MixtureConfig
    teacher: Filter
    teacher_name: str
    """The teacher's name in run keys."""


AFFINE = CouplingFlowConfig("affine", layers=6, width=64, depth=2)
"""The paper's, with the sizes of its table."""
TRUTH = PointMassFilter(100), "PointMassFilter(resolution=100)"
"""The teacher of the other arms, and its name; the truth of the evaluation has a finer grid."""
ARMS = {
    "faithful": TriangulationArm(AFFINE, ParticleFilter(1024), "ParticleFilter(num_particles=1024)"),
    "affine": TriangulationArm(AFFINE, *TRUTH),
    "spline": TriangulationArm(replace(AFFINE, transform="spline"), *TRUTH),
    "mixture": TriangulationArm(MixtureConfig(), *TRUTH),
}
"""`faithful` is the paper's model; the others are trained on point-mass posteriors."""
TRAINING = FitConfig(steps=30_000, batch=32, samples=64, optimizer="adam", learning_rate=1e-3)
"""The paper's table; it does not tell how many samples of a belief a step takes."""
WALL_BAND = 0.5
"""In training, the atoms on the walls are widened to a band of this width beyond them."""
POOL_EPISODES = 4096
"""A model is trained on all beliefs of so many episodes."""
POOL_SAMPLES = 128
"""Samples of each belief that is trained on."""
CELLS = 100


@dataclass(frozen=True)
class TriangulationEvaluation:
    """How the filters are scored."""

    episodes: int = 100
    """Episodes per training seed; every filter sees the same ones."""
    particle_filters: tuple[int, ...] = (32, 64, 128, 256, 1024, 10_000)
    smoothed_filters: tuple[int, ...] = (16, 32, 64, 256, 1024)
    """Particle counts of the particle filters that are scored as kernel densities."""
    neural_filters: tuple[int, ...] = (16, 32, 64)
    approx_samples: int = 64
    resolution: int = 200
    """Cells along each axis of the point-mass filter that is the truth."""
    walk: WalkConfig = field(default_factory=WalkConfig)
    """The agent that walks to the origin."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes,
            "particle_filters": self.particle_filters,
            "smoothed_filters": self.smoothed_filters,
            "neural_filters": self.neural_filters,
            "approx_samples": self.approx_samples,
            "resolution": self.resolution,
            "walk": self.walk.settings,
        }


def filter_rows(arm: str, model: BeliefModel, settings: TriangulationEvaluation) -> list[FilterRow]:
    """Every filter of an arm; the filters without a model are run with the faithful arm."""
    truth = PointMassFilter(settings.resolution)
    rows = [FilterRow(ApproxBeliefs(model, settings.approx_samples, truth=truth), "approx", arm, 0, 0)]
    rows += [FilterRow(NeuralBayesianFilter.faithful(model, n), "nbf", arm, n, n) for n in settings.neural_filters]
    if arm == "faithful":
        rows += [FilterRow(truth, "exact", "", 0, 0)]
        rows += [FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters]
        rows += [FilterRow(ParticleFilter(n), "pf-kde", "", n, n, smooth=True) for n in settings.smoothed_filters]
        rows += [
            FilterRow(ExtendedKalmanFilter(), "ekf", "", 0, 0),
            FilterRow(UnscentedKalmanFilter(), "ukf", "", 0, 0),
        ]
    return rows


class PlaneTrack(eqx.Module):
    """One episode, and both references after each of its steps."""

    environments: Triangulation
    policies: ScanPolicy
    observations: Float[Array, " steps"]
    positions: Float[Array, "steps 2"]
    truth: Float[Array, "steps cells"]
    reference: Float[Array, "steps cells"]
    """The paper's reference: a particle filter of 1024."""


def _seen(
    filter: Filter, key: Key[Array, ""], observations: Array, environments: Triangulation, policies: ScanPolicy,
    smooth: bool = False,
) -> tuple[Float[Array, "steps cells"], Any]:  # fmt: skip
    """The probabilities of the cells after every step of an episode, and what each step reports."""
    space = environments.space

    def look(state: Any) -> Float[Array, " cells"]:
        belief = filter.belief(state, environments)
        if smooth and isinstance(belief, ParticleBelief):
            belief = KernelDensityBelief.of(belief, space)
        return cell_probabilities(belief, space, CELLS)

    return run(filter, key, observations, environments, policies, look=look, changing=True)


def track(family: TriangulationFamily, horizon: int, resolution: int, key: Key[Array, ""]) -> PlaneTrack:
    """A random episode of a family."""
    keys = jax.random.split(key, 4)
    environments, policies = family.schedule(keys[0], horizon)
    positions, observations = rollout(keys[1], environments, policies, horizon, changing=True)
    truth, _ = _seen(PointMassFilter(resolution), keys[2], observations, environments, policies)
    reference, _ = _seen(ParticleFilter(1024), keys[3], observations, environments, policies)
    return PlaneTrack(environments, policies, observations, positions[1:], truth, reference)


@eqx.filter_jit
def scores(
    filter: Filter, smooth: bool, keys: Key[Array, " episodes"], tracks: PlaneTrack
) -> tuple[Float[Array, "episodes steps"], Float[Array, "episodes steps"], Float[Array, "episodes steps"]]:
    """JS to the truth, JS to the particle filter of 1024, and ESS, after every step of each episode."""

    def one(key: Key[Array, ""], track: PlaneTrack) -> tuple[Array, Array, Array]:
        probs, info = _seen(filter, key, track.observations, track.environments, track.policies, smooth)
        to_truth, to_reference = (jax.vmap(jensen_shannon)(of, probs) for of in (track.truth, track.reference))
        return to_truth, to_reference, info.ess

    return jax.vmap(one)(keys, tracks)


@eqx.filter_jit
def distances(
    filter: Filter, settings: WalkConfig, world: Triangulation, keys: Key[Array, " episodes"]
) -> Float[Array, " episodes"]:
    """The distance from the origin at which an agent with this filter stops."""
    return jax.vmap(lambda key: walk(filter, settings, world, key).distance)(keys)


@runtime_checkable
class Scored(Protocol):
    """A job of Triangulation, trained or not."""

    @property
    def seed(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def config(self) -> TriangulationConfig: ...
    @property
    def evaluation(self) -> TriangulationEvaluation: ...


def evaluate(job: Scored, rows: Sequence[FilterRow], bar: Counter) -> list[Record]:
    """Records of some filters on fresh episodes; all filters see the same ones."""
    settings, config = job.evaluation, job.config
    keys = jax.random.split(prng.stream(job.seed, "triangulation", "evaluation"), settings.episodes)
    bar.describe(f"{job.title}: truth")
    batch = min(10, settings.episodes)
    make = jax.jit(jax.vmap(functools.partial(track, config.family(), config.horizon, settings.resolution)))
    tracks = in_batches(make, (keys,), batch=batch, advance=bar.advance)
    walk_keys = jax.random.split(prng.stream(job.seed, "triangulation", "walks"), settings.episodes)
    records: list[Record] = []
    for row in rows:
        bar.describe(f"{job.title}: {row.label}")
        base = Record(
            experiment="triangulation", config="triangulation", filter=row.name, arm=row.arm,
            particles=row.particles, calls=row.calls, seed=job.seed, step=ALL, metric="js", value=0.0, se=None,
            episodes=settings.episodes,
        )  # fmt: skip
        score = functools.partial(scores, row.filter, row.smooth)
        js, js_reference, ess = in_batches(score, (filter_keys(keys), tracks), batch=batch, advance=bar.advance)
        records += records_by_step(base, "js", js) + records_by_step(base, "js_pf1024", js_reference)
        if row.name in ("nbf", "pf"):
            records += records_by_step(base, "ess", ess)
        if row.name != "approx" and not row.smooth:  # neither is a filter that an agent could use
            measure = functools.partial(distances, row.filter, settings.walk, config.family().environment())
            found = in_batches(measure, (walk_keys,), batch=batch)
            mean, error = mean_and_error(found)
            records.append(replace(base, metric="distance", value=float(mean), se=float(error)))
    return records


def picture(job: TriangulationJob, model: BeliefModel) -> dict[str, np.ndarray]:
    """The data of the figure of one episode: the beliefs of three filters."""
    key = prng.stream(job.seed, "triangulation", "picture")
    shown = {"truth": PointMassFilter(job.evaluation.resolution), "nbf": NeuralBayesianFilter.faithful(model, 32)}

    @jax.jit
    def seen(key: Key[Array, ""]) -> dict[str, Any]:
        keys = jax.random.split(key, 5)
        environments, policies = job.config.family().schedule(keys[0], job.config.horizon)
        positions, observations = rollout(keys[1], environments, policies, job.config.horizon, changing=True)
        told = observations, environments, policies
        cells = {name: _seen(filter, keys[2], *told)[0] for name, filter in shown.items()}
        particles, _ = run(ParticleFilter(64), keys[3], *told, changing=True)
        weights = jax.vmap(normalized_weights)(particles.log_weights)
        return {
            **cells, "particles": particles.states, "weights": weights, "positions": positions[1:],
            "readings": observations, "scanning": environments.scanning,
            "beacons": environments.beacons[0], "active": environments.time % environments.beacons.shape[1],
        }  # fmt: skip

    found = {name: np.asarray(value) for name, value in seen(key).items()}
    return {**found, **{name: found[name].astype(np.float16) for name in shown}}


def episodes_size(config: TriangulationConfig, evaluation: TriangulationEvaluation) -> Size:
    """What grows with the episodes."""
    demand = functools.partial(demands.plane_episodes, evaluation.resolution, config.horizon)
    return Size("--episodes", evaluation.episodes, demand)


@dataclass(frozen=True)
class TriangulationJob(Job):
    """One training seed of one arm."""

    arm: str = "faithful"
    seed: int = 0
    config: TriangulationConfig = field(default_factory=TriangulationConfig)
    training: FitConfig = TRAINING
    evaluation: TriangulationEvaluation = field(default_factory=TriangulationEvaluation)
    pool_episodes: int = POOL_EPISODES

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise InputError(f"There is no arm {self.arm!r} for triangulation; choose from {', '.join(ARMS)}.")

    def sizes(self) -> list[Size]:
        return [episodes_size(self.config, self.evaluation), *super().sizes()[1:]]

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"triangulation {self.arm} seed {self.seed}"

    @property
    def model(self) -> ModelConfig:
        """The config of the model."""
        return ModelConfig(space_config(self.config.family().space), ARMS[self.arm].decoder)

    def source(self) -> BeliefPool:
        """The beliefs to train on."""
        beliefs = FilterPosteriors(ARMS[self.arm].teacher, self.config.family(), self.config.horizon, WALL_BAND)
        with Progress(f"{self.title}: beliefs", self.pool_episodes, 0, unit="episode") as bar:
            key = prng.stream(self.seed, "triangulation", self.arm, "pool")
            return beliefs.pool(key, episodes=self.pool_episodes, samples=POOL_SAMPLES, advance=bar.advance)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.settings, "arm": self.arm, "seed": self.seed,
            "model": model_settings(self.model),
            "teacher": ARMS[self.arm].teacher_name, "spread": WALL_BAND, "pool": [self.pool_episodes, POOL_SAMPLES],
            "training": training_settings(self.training), "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"triangulation/{self.arm}/{self.seed}"

    def training_run(self, runs: Path) -> TrainingRun:
        folder = runs / "triangulation" / f"{self.arm}-{self.seed}"
        environment = {"name": "triangulation", **self.config.settings}
        stream = ("triangulation", self.arm)
        return TrainingRun(folder, self.model, self.training, self.source, environment, self.seed, stream, self.title)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        training = self.training_run(runs)
        model = training.load()
        records = evaluate(self, filter_rows(self.arm, model, self.evaluation), bar)
        if (self.arm, self.seed) == ("faithful", 0):
            write_picture(results / "episode.npz", picture(self, model))
        return with_training_seconds(records, training.timing()[0])
