"""The paper's Figures "fixed grids" and "randomized grids": Jensen-Shannon divergence by step on the
eight Gridworld configurations, for exact, Approx, PF, NBF and Recurrent."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.contracts import BeliefModel, Family, Filter
from nbf.environments.gridworld import GoalPolicy, Gridworld, gridworld_family
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.filters.run import run
from nbf.models.belief_model import EnumeratedConfig, FlowConfig
from nbf.models.dequantization import DequantizedFlow
from nbf.sources.exact import ExactPosteriors
from nbf.training.config import FitConfig
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments import demands, recurrent
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow, filter_keys, records_by_step
from nbf_paper.experiments.settings import model_settings, training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.records import ALL, Record

ARMS = ("faithful", "enumerated", "wide", *recurrent.GRIDWORLD_TRAINING)


def family_of(config: GridworldConfig, seed: int) -> Family:
    """The environments and policies of a configuration; the training seed draws the instance of a *fixed* one."""
    key = prng.stream(seed, "gridworld", config.name, "instance") if config.fixed else None
    return gridworld_family(config.size, config.dimension, key=key, temperature=config.temperature, error=config.error)


def arm_of(config: GridworldConfig, arm: str) -> tuple[Any, FitConfig]:
    """The model and the training of an arm.

    `faithful` is the paper's table. `enumerated` replaces the flow by a softmax over all cells, and `wide` is the same
    with twice the embedding and width and a short training. `recurrent` is the paper's baseline with the table's
    optimizer, `recurrent-adam` the same with Adam.
    """
    if arm == "faithful":
        return FlowConfig(config.shape, quadrature=4 if config.dimension < 3 else 3), FitConfig()
    if arm == "enumerated":
        return EnumeratedConfig(config.shape), FitConfig(optimizer="adam", learning_rate=1e-3)
    if arm == "wide":
        wide = EnumeratedConfig(config.shape, embedding=64, decoder_width=256)
        return wide, FitConfig(steps=20_000, optimizer="adam", learning_rate=2e-3, schedule="cosine")
    if arm in recurrent.GRIDWORLD_TRAINING:
        return recurrent.gridworld_model(config), recurrent.GRIDWORLD_TRAINING[arm]
    raise InputError(f"There is no arm {arm!r}; choose from {', '.join(ARMS)}.")


def sizes_of(config: GridworldConfig, episodes: int, steps: int | None) -> list[Size]:
    """What grows with the size of the grid, the episodes and the gradient steps; None for no training."""
    dimension, horizon, batch = config.dimension, config.horizon, FitConfig().batch
    points = (4 if dimension < 3 else 3) ** dimension  # of the flow's quadrature, see `arm_of`

    def once(size: int) -> Demand:
        trained = Demand() if steps is None else demands.grid_steps(size**dimension, dimension, horizon, batch, 1)
        return trained + demands.grid_episodes(size**dimension, dimension, horizon, points, 2)

    cells = config.size**dimension
    found = [
        Size(f"A grid of {dimension} dimensions and size", config.size, once),
        Size("--episodes", episodes, functools.partial(demands.grid_episodes, cells, dimension, horizon, points)),
    ]
    if steps is not None:
        found.append(Size("--steps", steps, functools.partial(demands.grid_steps, cells, dimension, horizon, batch)))
    return found


def training_run(config: GridworldConfig, arm: str, seed: int, root: Path, *, steps: int | None = None) -> TrainingRun:
    """The training of one model."""
    model_config, fit_config = arm_of(config, arm)
    fit_config = fit_config if steps is None else replace(fit_config, steps=steps)
    kind, loss = ExactPosteriors, None
    if arm in recurrent.GRIDWORLD_TRAINING:
        kind, loss = recurrent.ExactHistories, recurrent.divergence_loss
    source = kind(family_of(config, seed), config.horizon)
    return TrainingRun(
        root / "gridworld" / config.name / f"{arm}-{seed}", model_config, fit_config, lambda: source, config.settings,
        seed, ("gridworld", config.name, arm), f"{config.name} {arm} seed {seed}", loss,
    )  # fmt: skip


@dataclass(frozen=True)
class GridworldEvaluation:
    """How a configuration is scored."""

    episodes: int = 500
    """Episodes per training seed; every filter sees the same ones."""
    particle_filters: tuple[int, ...] = (32, 64, 128, 512)
    """Particle counts of the particle filters."""
    neural_filters: tuple[int, ...] = (16, 32)
    """Particle counts of the neural filters."""
    approx_samples: int = 64
    """Samples of the true posterior that Approx Beliefs embeds at each step."""

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise InputError(f"A standard error needs at least 2 episodes; got {self.episodes}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes,
            "particle_filters": self.particle_filters,
            "neural_filters": self.neural_filters,
            "approx_samples": self.approx_samples,
        }


def filter_rows(
    config: GridworldConfig, arm: str, model: BeliefModel, settings: GridworldEvaluation
) -> list[FilterRow]:
    """Every filter of an arm; the filters without a model are run with the faithful arm."""
    exact_calls = 2 * config.dimension * config.size**config.dimension
    if recurrent.is_recurrent(model):
        _, _, variant = arm.partition("recurrent-")
        rows = [FilterRow(RecurrentFilter(model), "recurrent", variant, 0, 0)]
    else:
        rows = [FilterRow(ApproxBeliefs(model, settings.approx_samples), "approx", arm, 0, exact_calls)]
        rows += [FilterRow(NeuralBayesianFilter.faithful(model, n), "nbf", arm, n, n) for n in settings.neural_filters]
    if arm == "faithful":
        rows += [FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters]
        rows += [FilterRow(ExactFilter(), "exact", "", 0, exact_calls)]
        rows += [FilterRow(PredictionFilter(ExactFilter()), "prior", "", 0, exact_calls)]
    return rows


class GridTrack(eqx.Module):
    """One episode, and its exact posteriors."""

    environment: Gridworld
    policy: GoalPolicy
    observations: Int[Array, " steps"]
    truth: Float[Array, "steps states"]


def track(family: Family, horizon: int, key: Key[Array, ""]) -> GridTrack:
    """A random episode of a family."""
    instance_key, episode_key, filter_key = jax.random.split(key, 3)
    environment, policy = family.sample(instance_key)
    assert isinstance(environment, Gridworld)
    _, observations = rollout(episode_key, environment, policy, horizon)
    truth, _ = run(ExactFilter(), filter_key, observations, environment, policy)
    return GridTrack(environment, policy, observations, truth)


# Filter and episodes are arguments, so that configurations and seeds of one shape share a compilation.
@eqx.filter_jit
def scores(
    filter: Filter, keys: Key[Array, " episodes"], tracks: GridTrack
) -> tuple[Float[Array, "episodes steps"], Float[Array, "episodes steps"]]:
    """JS to the exact posterior, and ESS, after every step of each episode."""

    def one(key: Key[Array, ""], track: GridTrack) -> tuple[Float[Array, " steps"], Float[Array, " steps"]]:
        def look(state: Any) -> Float[Array, " states"]:
            return state_probabilities(filter.belief(state, track.environment), track.environment)

        probs, info = run(filter, key, track.observations, track.environment, track.policy, look=look)
        return jax.vmap(jensen_shannon)(track.truth, probs), info.ess

    return jax.vmap(one)(keys, tracks)


def evaluate(
    config: GridworldConfig, arm: str, seed: int, model: BeliefModel, settings: GridworldEvaluation, bar: Counter
) -> list[Record]:
    """Records of every filter of an arm on fresh episodes of a configuration; all filters see the same ones."""
    rows = filter_rows(config, arm, model, settings)
    return compare(rows, config, seed, settings.episodes, bar, title=f"{config.name} {arm} seed {seed}")


def compare(
    rows: Sequence[FilterRow], config: GridworldConfig, seed: int, episodes: int, bar: Counter, *, title: str
) -> list[Record]:
    """Records of filters on the same episodes, which a configuration and a seed determine."""
    family = family_of(config, seed)
    keys = jax.random.split(prng.stream(seed, "gridworld", config.name, "evaluation"), episodes)
    tracks = jax.jit(jax.vmap(functools.partial(track, family, config.horizon)))(keys)
    records: list[Record] = []
    for row in rows:
        bar.describe(f"{title}: {row.label}")
        # A flow's quadrature is fastest when the points of a batch fit into the cache.
        flow = isinstance(getattr(getattr(row.filter, "model", None), "decoder", None), DequantizedFlow)
        batch = max(1, 256 // config.size**config.dimension) if flow else 50
        score = functools.partial(scores, row.filter)
        js, ess = in_batches(score, (filter_keys(keys), tracks), batch=min(batch, episodes), advance=bar.advance)
        base = Record(
            experiment="gridworld", config=config.name, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=seed, step=ALL, metric="js", value=0.0, se=None, episodes=episodes,
        )  # fmt: skip
        records += records_by_step(base, "js", js)
        if row.name in ("nbf", "pf"):
            records += records_by_step(base, "ess", ess)
    return records


@dataclass(frozen=True)
class GridworldJob(Job):
    """One training seed of one arm of one configuration."""

    config: GridworldConfig
    arm: str
    seed: int
    steps: int
    evaluation: GridworldEvaluation

    @property
    def settings(self) -> dict[str, Any]:
        model_config, fit_config = arm_of(self.config, self.arm)
        return {
            "environment": self.config.settings,
            "arm": self.arm,
            "seed": self.seed,
            "model": model_settings(model_config),
            "training": training_settings(replace(fit_config, steps=self.steps)),
            "evaluation": self.evaluation.settings,
        }

    @property
    def label(self) -> str:
        return f"{self.config.name}/{self.arm}/{self.seed}"

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"{self.config.name} {self.arm} seed {self.seed}"

    def sizes(self) -> list[Size]:
        return sizes_of(self.config, self.evaluation.episodes, self.steps)

    def training_run(self, runs: Path) -> TrainingRun:
        return training_run(self.config, self.arm, self.seed, runs, steps=self.steps)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        model = self.training_run(runs).load()
        return evaluate(self.config, self.arm, self.seed, model, self.evaluation, bar)


def parse_configs(names: Sequence[str]) -> list[GridworldConfig]:
    """The configurations of some names; raises for a grid that cannot be made."""
    configs = [GridworldConfig.parse(name) for name in names]
    for config in configs:
        family_of(replace(config, fixed=False), 0)
    return configs


def trained_jobs(
    configs: Sequence[str], arms: Sequence[str], seeds: Sequence[int], steps: int | None,
    evaluation: GridworldEvaluation,
) -> list[GridworldJob]:  # fmt: skip
    """Every configuration with every trained arm and seed; `steps` is None for those of the arm."""
    if not arms:
        raise InputError(f"Name at least one arm: {', '.join(ARMS)}.")
    return [
        GridworldJob(config, arm, seed, arm_of(config, arm)[1].steps if steps is None else steps, evaluation)
        for config in parse_configs(configs)
        for arm in arms
        for seed in seeds
    ]
