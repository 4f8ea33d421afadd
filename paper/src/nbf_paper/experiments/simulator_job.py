"""Filters that make as many calls of a simulator that is not JAX, with a fitted model.

| row | filter |
|---|---|
| `reference` | 20 000 particles, run once more |
| `prior` | 2048 particles without observations |
| `pf`, `pf-injected`, `pf-regularized` | without a network; the second begins a twentieth of its particles anew |
| `nbf` | the default neural filter of the fitted model, and of an untrained one |
| `approx` | its ceiling: the fitted model applied to samples of the reference's posterior |

There is no Kalman filter among them: what is felt by touch is a symbol, with no mean and no noise to linearise, and the
library's Kalman filters know no circular coordinates, which the acrobot has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from nbf import prng
from nbf.capabilities import ContinuousSpace
from nbf.capability import require
from nbf.contracts import Environment
from nbf.evaluation.batches import mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.fitting.fitted import FittedModel
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.injected import InjectedParticleFilter
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo import ZooEvaluation, ZooJob, base_record, leads, row_records
from nbf_paper.experiments.zoo_job import ZooTraining, without_network
from nbf_paper.records import Record
from nbf_paper.zoo.problem import Problem

PRIOR = 2048
"""Particles of the prior."""


def baseline_rows(asked: Problem, environment: Environment, seed: int, settings: ZooEvaluation) -> Iterator[FilterRow]:
    """The filters without a model."""
    yield FilterRow(asked.reference, "reference", "", 0, 0)
    yield FilterRow(PredictionFilter(ParticleFilter(PRIOR)), "prior", "", 0, 0)
    yield from (FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters)
    for n in settings.regularized_filters:
        yield FilterRow(InjectedParticleFilter(ParticleFilter(n)), "pf-injected", "", n, n)
        yield without_network(asked, environment, n, seed)


def model_rows(asked: Problem, fitted: FittedModel, seed: int, settings: ZooEvaluation) -> Iterator[FilterRow]:
    """The filters with a model, and its ceiling."""
    yield FilterRow(ApproxBeliefs(fitted.model, settings.approx_samples, truth=asked.reference), "approx", "", 0, 0)
    yield from (FilterRow(fitted.filter(n), "nbf", "", n, n) for n in settings.neural_filters)
    untrained = fitted.config.build(prng.stream(seed, asked.name, "untrained"))
    sizes = settings.untrained_filters
    yield from (FilterRow(NeuralBayesianFilter(untrained, n), "nbf", "untrained", n, n) for n in sizes)


@dataclass(frozen=True)
class SimulatorJob(ZooJob):
    """A model is trained on a problem, and every filter is scored on other episodes of it."""

    episode_seconds: ClassVar[float]
    """Of all rows of one episode, about: three of them run the reference."""
    teacher: int = 512
    """Particles of the filter whose beliefs are learned."""
    reference: int = 20_000
    """Particles of the reference."""

    def __post_init__(self) -> None:
        """Each subclass has one problem."""

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "teacher": self.teacher, "prior": PRIOR, "reference": self.reference}

    def notes(self) -> dict[str, Any]:
        return {"horizon": self.asked.horizon, "reference": self.asked.accuracy}

    def sizes(self) -> list[Size]:
        def taken(count: int) -> Demand:
            return Demand(1e5 * count, self.episode_seconds * count)

        return [Size("--episodes", self.evaluated, taken), Size("--steps", self.steps, demands.steps)]

    def training_run(self, runs: Path) -> ZooTraining:
        """With a smaller teacher than the default of `nbf.fit`: the simulator is what takes the time."""
        folder = runs / self.problem / str(self.seed) / f"teacher-{self.teacher}"
        return ZooTraining(folder, self.asked, self.seed, self.steps, (("particles", self.teacher),))

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        settings, asked = self.evaluation, self.asked
        bar.describe(f"{self.title}: episodes")
        episodes = self.episodes_of(asked, settings.samples, asked.horizon)
        fitted = self.training_run(runs).load()
        space = require(episodes.environment.space, ContinuousSpace, self.problem, "Use a Box.")
        nowhere = -float(np.sum(np.log(2.0 * space.scale)))
        rows = [
            *baseline_rows(asked, episodes.environment, self.seed, settings),
            *model_rows(asked, fitted, self.seed, settings),
        ]
        records: list[Record] = []
        told: dict[tuple[str, str, int], np.ndarray] = {}
        for row in rows:
            bar.describe(f"{self.title}: {row.label}")
            found = episodes.scores(row, bar)
            records += [*row_records(self, row, found), lost(self, row, found["log_score"][:, -1], nowhere)]
            told[row.name, row.arm, row.particles] = found["log_score"].mean(axis=1)
        records += [lead for row in rows for lead in leads(self, row, told)]
        jax.clear_caches()
        return records


def lost(job: ZooJob, row: FilterRow, last: np.ndarray, nowhere: float) -> Record:
    """The share of episodes at whose end a belief gives the true state less density than the uniform distribution over
    the box does."""
    mean, error = mean_and_error((last < nowhere).astype(float))
    return replace(base_record(job, row, len(last)), metric="lost", value=float(mean), se=float(error))
