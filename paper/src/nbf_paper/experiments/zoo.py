"""The zoo: every filter on small problems of users' kinds (`nbf_paper.zoo`), with a model that `nbf.fit` trains.

| row | filter |
|---|---|
| `reference` | the problem's reference, run once more: its distance is that of two runs |
| `prior` | the reference without observations |
| `pf`, `pf-regularized`, `branching` | filters without a network; the second on a Box, the third on listed states |
| `nbf` | the default neural filter of the fitted model, and of an untrained one |
| `approx` | its ceiling: the fitted model applied to samples of the reference's posterior |
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbf import prng
from nbf.contracts import Environment
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.branching import BranchingFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.fit import fit
from nbf.fitting.fitted import FittedModel
from nbf.fitting.tuning import tuned
from nbf.spaces import Box
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow, filter_keys
from nbf_paper.experiments.zoo_scores import scores, tracks
from nbf_paper.records import ALL, Record
from nbf_paper.zoo import check_name, problem
from nbf_paper.zoo.problem import Problem

TOGETHER, REFERENCES = 2**14, 4
"""Particles of all episodes that are filtered in one batch; episodes, for filters that run the reference."""
STEPS = 3000
"""Of a training: two to five minutes on one core. A number of steps can be repeated, a number of minutes cannot."""
EQUAL = ("pf-regularized", "branching")
"""The best filter without a network that makes as many calls: the first of these that a problem has."""
LEADS = {
    "lead_over_pf1024": ("pf", "", 1024), "lead_over_prior": ("prior", "", 0), "lead_over_ceiling": ("approx", "", 0)
}  # fmt: skip
"""Metrics of a fitted filter's lead in log score, and over which filter."""
EPISODE_SECONDS = 3.0
"""Of all rows of one episode, about."""


@dataclass(frozen=True)
class ZooEvaluation:
    """How the filters are scored."""

    episodes: int = 40
    """Every filter sees the same ones."""
    samples: int = 128
    """Of a belief, for an energy distance."""
    particle_filters: tuple[int, ...] = (32, 128, 1024, 8192)
    regularized_filters: tuple[int, ...] = (16, 32, 128, 512)
    branching_filters: tuple[int, ...] = (16, 32, 128, 512)
    neural_filters: tuple[int, ...] = (16, 32, 128, 512)
    untrained_filters: tuple[int, ...] = (32,)
    approx_samples: int = 256

    def __post_init__(self) -> None:
        if self.episodes < 2 or self.samples < 2:
            raise InputError(
                f"episodes and samples must be at least 2; got episodes={self.episodes}, samples={self.samples}."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes, "samples": self.samples, "particle_filters": self.particle_filters,
            "regularized_filters": self.regularized_filters, "branching_filters": self.branching_filters,
            "neural_filters": self.neural_filters, "untrained_filters": self.untrained_filters,
            "approx_samples": self.approx_samples,
        }  # fmt: skip


@dataclass(frozen=True)
class ZooTraining:
    """A model that `nbf.fit` trains with its defaults, kept in a folder whose name has the settings."""

    folder: Path
    problem: str
    seed: int
    steps: int

    @property
    def path(self) -> Path:
        """The file of the finished model."""
        return self.folder / f"steps-{self.steps}" / "model.safetensors"

    def train(self) -> Path:
        """Train, or resume a training that was stopped; returns the path of the model."""
        if not self.path.exists():
            asked = problem(self.problem)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fitted = fit(
                asked.family, horizon=asked.horizon, seed=self.seed, steps=self.steps, trial=0,
                resume=self.path.parent / "training.safetensors",
            )  # fmt: skip
            fitted.save(self.path)
        return self.path

    def check_same(self) -> None:
        """Nothing to check: other settings are another file."""

    def load(self) -> FittedModel:
        """The finished model."""
        return FittedModel.load(self.path)

    def timing(self) -> tuple[float, list[float]]:
        """Seconds of the finished training, and its loss curve."""
        fitted = self.load()
        blocks = [part for part in np.array_split(fitted.losses, 50) if len(part)]
        return round(fitted.seconds, 1), [round(float(part.mean()), 4) for part in blocks]


def baseline_rows(asked: Problem, environment: Environment, seed: int, settings: ZooEvaluation) -> Iterator[FilterRow]:
    """The filters without a model. The kernel's width is chosen as it is for the neural filter, at each size."""
    yield FilterRow(asked.reference, "reference", "", 0, 0)
    yield FilterRow(PredictionFilter(asked.reference), "prior", "", 0, 0)
    yield from (FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters)
    if isinstance(environment.space, Box):
        for n in settings.regularized_filters:
            found = tuned(
                RegularizedParticleFilter(n), asked.family, horizon=asked.horizon, seed=seed, progress=False
            )  # fmt: skip
            yield FilterRow(found, "pf-regularized", "", n, n)
    else:
        yield from (FilterRow(BranchingFilter(n), "branching", "", n, n) for n in settings.branching_filters)


def model_rows(asked: Problem, fitted: FittedModel, seed: int, settings: ZooEvaluation) -> Iterator[FilterRow]:
    """The filters with a model, and its ceiling."""
    yield FilterRow(ApproxBeliefs(fitted.model, settings.approx_samples, truth=asked.reference), "approx", "", 0, 0)
    yield from (FilterRow(fitted.filter(n), "nbf", "", n, n) for n in settings.neural_filters)
    untrained = fitted.config.build(prng.stream(seed, "zoo", "untrained"))
    sizes = settings.untrained_filters
    yield from (FilterRow(NeuralBayesianFilter(untrained, n), "nbf", "untrained", n, n) for n in sizes)


def sizes_of(episodes: int, steps: int) -> list[Size]:
    """What is asked of the machine."""

    def taken(count: int) -> Demand:
        return Demand(1e5 * count, EPISODE_SECONDS * count)

    return [Size("--episodes", episodes, taken), Size("--steps", steps, demands.steps)]


@dataclass(frozen=True)
class ZooJob(Job):
    """One problem and seed: a model is trained, and every filter is scored on fresh episodes."""

    problem: str
    seed: int = 0
    steps: int = STEPS
    """Gradient steps, at most."""
    evaluation: ZooEvaluation = field(default_factory=ZooEvaluation)

    def __post_init__(self) -> None:
        check_name(self.problem)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"zoo {self.problem} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.problem}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "problem": self.problem, "seed": self.seed, "training": {"fit": "defaults", "steps": self.steps},
            "evaluation": self.evaluation.settings, "chosen by runs of each": ["kernel width", "share of the model"],
        }  # fmt: skip

    def sizes(self) -> list[Size]:
        return sizes_of(self.evaluated, self.steps)

    def training_run(self, runs: Path) -> ZooTraining:
        return ZooTraining(runs / "zoo" / self.problem / str(self.seed), self.problem, self.seed, self.steps)

    def notes(self) -> dict[str, Any]:
        asked = problem(self.problem)
        return {"kind": asked.kind, "split": asked.split, "horizon": asked.horizon, "reference": asked.accuracy}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        settings, asked = self.evaluation, problem(self.problem)
        keys = jax.random.split(prng.stream(self.seed, "zoo", self.problem, "evaluation"), settings.episodes)
        bar.describe(f"{self.title}: episodes")
        make = functools.partial(tracks, asked.family, asked.reference, asked.horizon, settings.samples)
        episodes = in_batches(make, (keys,), batch=min(REFERENCES, settings.episodes))
        environment, _ = asked.family.sample(keys[0])
        fitted = self.training_run(runs).load()
        rows = [
            *baseline_rows(asked, environment, self.seed, settings),
            *model_rows(asked, fitted, self.seed, settings),
        ]
        records: list[Record] = []
        told: dict[tuple[str, str, int], np.ndarray] = {}
        for row in rows:
            bar.describe(f"{self.title}: {row.label}")
            batch = min(settings.episodes, TOGETHER // row.particles if row.particles else REFERENCES)
            score = functools.partial(scores, row.filter, settings.samples)
            found = in_batches(score, (filter_keys(keys), episodes), batch=max(1, batch), advance=bar.advance)
            records += _records(self, row, found)
            told[row.name, row.arm, row.particles] = found["log_score"].mean(axis=1)
        records += [lead for row in rows for lead in leads(self, row, told)]
        jax.clear_caches()  # some twenty programs of a problem are of no use to the next
        return records


def leads(job: ZooJob, row: FilterRow, told: dict[tuple[str, str, int], np.ndarray]) -> Iterator[Record]:
    """By how much the log score of a fitted filter is above those of others. All saw the same episodes, so the error is
    that of the differences."""
    if (row.name, row.arm) != ("nbf", ""):
        return
    equal = next((told[name, "", row.particles] for name in EQUAL if (name, "", row.particles) in told), None)
    others = {metric: told.get(key) for metric, key in LEADS.items()} | {"lead_over_equal_calls": equal}
    for metric, other in others.items():
        if other is not None:
            mean, error = mean_and_error(told[row.name, row.arm, row.particles] - other)
            yield replace(_base(job, row), metric=metric, value=float(mean), se=float(error))


def _base(job: ZooJob, row: FilterRow) -> Record:
    return Record(
        experiment="zoo", config=job.problem, filter=row.name, arm=row.arm, particles=row.particles, calls=row.calls,
        seed=job.seed, step=ALL, metric="log_score", value=0.0, se=None, episodes=job.evaluation.episodes,
    )  # fmt: skip


def _records(job: ZooJob, row: FilterRow, found: dict[str, np.ndarray]) -> list[Record]:
    """The mean over the steps, and the last step, of each metric."""
    base, made = _base(job, row), []
    for metric, values in found.items():
        for step, chosen in ((ALL, values.mean(axis=1)), (values.shape[1], values[:, -1])):
            mean, error = mean_and_error(chosen)
            made.append(replace(base, metric=metric, step=step, value=float(mean), se=float(error)))
    return made
