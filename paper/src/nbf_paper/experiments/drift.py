"""Long episodes: whether the error of a filter grows, on problems of the zoo that go on for ever.

Models are the zoo's: they have seen beliefs of the problem's own horizon, 25 to 40 steps, and none of later ones. Or
they are trained on longer episodes (`trained_on`), which is the arm of their records. The error is the distance to the
reference's posterior (energy distance, or Jensen-Shannon divergence where states are listed), mean over the twenty
steps before step 40 and before step 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbf.contracts import Environment
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.fitting.fitted import FittedModel
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo_job import ProblemJob, ZooTraining, without_network
from nbf_paper.names import EARLY, LATE
from nbf_paper.records import ALL, Record
from nbf_paper.zoo.problem import Problem

SIZES = (32, 128)
"""Calls a step."""
WINDOW = 20
"""Steps of a mean."""
APPROX_SAMPLES = 256
"""Of the reference's posterior, for the ceiling."""


def mean_ratio(late: np.ndarray, early: np.ndarray) -> tuple[Any, Any]:
    """The ratio of two means over episodes, and its standard error: that of `late - ratio * early` over the mean of
    `early`, since both are of the same episodes."""
    if not early.mean() > 0:
        return float("nan"), float("nan")
    ratio = late.mean() / early.mean()
    _, error = mean_and_error(late - ratio * early)
    return ratio, error / early.mean()


@dataclass(frozen=True)
class DriftJob(ProblemJob):
    """Every filter on fresh episodes of 200 steps."""

    episodes: int = 20
    samples: int = 128
    """Of a belief, for an energy distance."""
    trained_on: int = 0
    """Steps of the episodes that the model learns from; 0 is the problem's own horizon, and the zoo's model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes < 2:
            raise InputError(f"Drift needs 2 episodes at least, for a standard error; got {self.episodes}.")

    @property
    def evaluated(self) -> int:
        return self.episodes

    @property
    def title(self) -> str:
        return f"drift {self.problem} seed {self.seed}{f', {self.arm}' if self.arm else ''}"

    @property
    def label(self) -> str:
        return f"{super().label}{f'/{self.trained_on}' if self.trained_on else ''}"

    @property
    def arm(self) -> str:
        """Of the rows with a model."""
        return f"trained on {self.trained_on} steps" if self.trained_on else ""

    @property
    def asked(self) -> Problem:
        found = super().asked
        return replace(found, horizon=self.trained_on) if self.trained_on else found

    def training_run(self, runs: Path) -> ZooTraining:
        usual = super().training_run(runs)
        folder = usual.folder / f"horizon-{self.trained_on}" if self.trained_on else usual.folder
        return replace(usual, folder=folder)

    @property
    def settings(self) -> dict[str, Any]:
        longer = {"horizon": self.trained_on} if self.trained_on else {}
        return {
            "problem": self.problem, "seed": self.seed, "training": {"fit": "defaults", "steps": self.steps} | longer,
            "evaluation": {
                "episodes": self.episodes, "samples": self.samples, "calls": SIZES, "window": WINDOW, "early": EARLY,
                "late": LATE,
            },
        }  # fmt: skip

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        asked = self.asked
        bar.describe(f"{self.title}: episodes")
        episodes = self.episodes_of(asked, self.samples, LATE)
        records: list[Record] = []
        for row in self._rows(asked, episodes.environment, self.training_run(runs).load()):
            bar.describe(f"{self.title}: {row.label}")
            found = episodes.scores(row, bar)
            distance = found["energy"] if "energy" in found else found["js"]
            early, late = (distance[:, end - WINDOW : end].mean(axis=1) for end in (EARLY, LATE))
            records.append(self._record(row, f"error_at_{EARLY}", *mean_and_error(early)))
            records.append(self._record(row, f"error_at_{LATE}", *mean_and_error(late)))
            if row.name != "reference":  # its error is noise about zero, and has no ratio
                records.append(self._record(row, "drift", *mean_ratio(late, early)))
        jax.clear_caches()  # some ten programs of a problem are of no use to the next
        return records

    def _rows(self, asked: Problem, environment: Environment, fitted: FittedModel) -> Iterator[FilterRow]:
        ceiling = ApproxBeliefs(fitted.model, APPROX_SAMPLES, truth=asked.reference)
        yield FilterRow(ceiling, "approx", self.arm, 0, 0)
        yield from (FilterRow(fitted.filter(n), "nbf", self.arm, n, n) for n in SIZES)
        if self.trained_on:  # the other rows are those of the zoo's model
            return
        yield FilterRow(asked.reference, "reference", "", 0, 0)
        yield FilterRow(PredictionFilter(asked.reference), "prior", "", 0, 0)
        yield FilterRow(ParticleFilter(1024), "pf", "", 1024, 1024)
        yield from (without_network(asked, environment, n, self.seed) for n in SIZES)

    def _record(self, row: FilterRow, metric: str, value: Any, error: Any) -> Record:
        return Record(
            experiment="drift", config=self.problem, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=self.seed, step=ALL, metric=metric, value=float(value), se=float(error),
            episodes=self.episodes,
        )  # fmt: skip
