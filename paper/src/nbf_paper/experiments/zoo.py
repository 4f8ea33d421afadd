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

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from nbf import prng
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import Environment
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.fitting.fitted import FittedModel
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo_job import ProblemJob, without_network
from nbf_paper.records import ALL, Record
from nbf_paper.zoo.problem import Problem

EQUAL = ("pf-regularized", "branching")
"""The best filter without a network that makes as many calls: the first of these that a problem has."""
LEADS = {
    "lead_over_pf1024": ("pf", "", 1024), "lead_over_prior": ("prior", "", 0), "lead_over_ceiling": ("approx", "", 0)
}  # fmt: skip
"""Metrics of a fitted filter's lead in log score, and over which filter."""


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


def baseline_rows(asked: Problem, environment: Environment, seed: int, settings: ZooEvaluation) -> Iterator[FilterRow]:
    """The filters without a model. The kernel's width is chosen as it is for the neural filter, at each size."""
    yield FilterRow(asked.reference, "reference", "", 0, 0)
    yield FilterRow(PredictionFilter(asked.reference), "prior", "", 0, 0)
    yield from (FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters)
    listed = capability(environment.space, ContinuousSpace) is None
    sizes = settings.branching_filters if listed else settings.regularized_filters
    yield from (without_network(asked, environment, n, seed) for n in sizes)


def model_rows(asked: Problem, fitted: FittedModel, seed: int, settings: ZooEvaluation) -> Iterator[FilterRow]:
    """The filters with a model, and its ceiling."""
    yield FilterRow(ApproxBeliefs(fitted.model, settings.approx_samples, truth=asked.reference), "approx", "", 0, 0)
    yield from (FilterRow(fitted.filter(n), "nbf", "", n, n) for n in settings.neural_filters)
    untrained = fitted.config.build(prng.stream(seed, "zoo", "untrained"))
    sizes = settings.untrained_filters
    yield from (FilterRow(NeuralBayesianFilter(untrained, n), "nbf", "untrained", n, n) for n in sizes)


@dataclass(frozen=True)
class ZooJob(ProblemJob):
    """A model is trained, and every filter is scored on fresh episodes."""

    experiment: ClassVar[str] = "zoo"
    evaluation: ZooEvaluation = field(default_factory=ZooEvaluation)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"{self.experiment} {self.problem} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "problem": self.problem, "seed": self.seed, "training": {"fit": "defaults", "steps": self.steps},
            "evaluation": self.evaluation.settings, "chosen by runs of each": ["kernel width", "share of the model"],
        }  # fmt: skip

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        settings, asked = self.evaluation, self.asked
        bar.describe(f"{self.title}: episodes")
        episodes = self.episodes_of(asked, settings.samples, asked.horizon)
        fitted = self.training_run(runs).load()
        rows = [
            *baseline_rows(asked, episodes.environment, self.seed, settings),
            *model_rows(asked, fitted, self.seed, settings),
        ]
        records: list[Record] = []
        told: dict[tuple[str, str, int], np.ndarray] = {}
        for row in rows:
            bar.describe(f"{self.title}: {row.label}")
            found = episodes.scores(row, bar)
            records += row_records(self, row, found)
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
    ours = told[row.name, row.arm, row.particles]
    for metric, other in others.items():
        if other is not None:
            mean, error = mean_and_error(ours - other)
            yield replace(base_record(job, row, len(ours)), metric=metric, value=float(mean), se=float(error))


def base_record(job: ZooJob, row: FilterRow, episodes: int) -> Record:
    """A record of a row, to which a metric and its value are to be given."""
    return Record(
        experiment=job.experiment, config=job.problem, filter=row.name, arm=row.arm, particles=row.particles,
        calls=row.calls, seed=job.seed, step=ALL, metric="log_score", value=0.0, se=None, episodes=episodes,
    )  # fmt: skip


def row_records(job: ZooJob, row: FilterRow, found: dict[str, np.ndarray]) -> list[Record]:
    """The mean over the steps, and the last step, of each metric."""
    base, made = base_record(job, row, len(found["log_score"])), []
    for metric, values in found.items():
        for step, chosen in ((ALL, values.mean(axis=1)), (values.shape[1], values[:, -1])):
            mean, error = mean_and_error(chosen)
            made.append(replace(base, metric=metric, step=step, value=float(mean), se=float(error)))
    return made
