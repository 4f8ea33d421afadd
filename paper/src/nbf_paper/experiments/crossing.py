"""Which filter wins at equal wall time, by what a call of a real simulator costs.

Two jobs for each simulator that is not JAX: the scores of its filters (of Gymnasium's acrobot here, of touch in its own
experiment), and the time of an update of each. The report sets them beside the simulators in JAX that
`simulation-cost` timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from nbf import prng
from nbf.environments.rollout import at_step, rollout
from nbf.errors import InputError
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.simulation_cost import TimedFilter, medians
from nbf_paper.experiments.simulator_job import SimulatorJob, SimulatorTraining, baseline_rows, model_rows
from nbf_paper.experiments.timed_domains import Step
from nbf_paper.experiments.zoo import ZooEvaluation
from nbf_paper.names import ACROBOT
from nbf_paper.records import ALL, Record
from nbf_paper.zoo import acrobot
from nbf_paper.zoo.problem import Problem

UNTIMED = ("reference", "prior", "approx")
"""Rows that are no filters to choose from."""


@dataclass(frozen=True)
class AcrobotJob(SimulatorJob):
    """A model is trained on random torques, and every filter is scored on others."""

    experiment: ClassVar[str] = "crossing"
    episode_seconds: ClassVar[float] = 60.0
    problem: str = ACROBOT
    evaluation: ZooEvaluation = field(
        default_factory=lambda: ZooEvaluation(
            episodes=24, particle_filters=(32, 128, 512, 1024, 4096), regularized_filters=(32, 128, 512),
            neural_filters=(32, 128, 512), branching_filters=(),
        )
    )  # fmt: skip
    teacher: int = 256
    reference: int = acrobot.PARTICLES

    @property
    def asked(self) -> Problem:
        return acrobot.problem(self.reference)


@dataclass(frozen=True)
class CrossingTimesJob(Job):
    """Times of an update of the filters that a job scores, over one episode of its problem."""

    timed: ClassVar[bool] = True

    of: SimulatorJob
    updates: int = 60
    """Timed updates of each filter."""

    def __post_init__(self) -> None:
        if self.updates < 1:
            raise InputError(f"updates must be at least 1; got {self.updates}.")

    @property
    def seed(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the model."""
        return self.of.seed

    @property
    def evaluated(self) -> int:
        return self.updates

    @property
    def title(self) -> str:
        return f"crossing, times of {self.of.problem} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.of.problem}/times/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        scored = self.of.settings
        return {
            "problem": self.of.problem, "seed": self.seed, "updates": self.updates, "evaluation": scored["evaluation"],
            "training": scored["training"], "teacher": scored["teacher"],
        }  # fmt: skip

    def training_run(self, runs: Path) -> SimulatorTraining:
        return self.of.training_run(runs)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        key, asked = prng.stream(self.seed, "crossing", self.of.problem), self.of.asked
        steps = list(episode_steps(asked, key))
        rows = {(row.name, row.arm, row.particles): row for row in self._rows(asked, steps[0], runs)}
        bar.describe(f"{self.title}: {len(rows)} filters")
        found = medians({name: TimedFilter(row.filter, steps, key) for name, row in rows.items()}, self.updates, bar)
        return [
            Record(
                "crossing", self.of.problem, name, arm, particles, rows[name, arm, particles].calls, self.seed, ALL,
                "us_per_update", microseconds, None, self.updates,
            )
            for (name, arm, particles), microseconds in found.items()
        ]  # fmt: skip

    def _rows(self, asked: Problem, first: Step, runs: Path) -> Iterator[FilterRow]:
        scored, fitted = self.of.evaluation, self.training_run(runs).load()
        for row in (
            *baseline_rows(asked, first[1], self.seed, scored),
            *model_rows(asked, fitted, self.seed, scored),
        ):
            if row.name not in UNTIMED and row.arm == "":
                yield row


def episode_steps(asked: Problem, key: jax.Array) -> Iterator[Step]:
    """One episode of a problem: what is seen, the environment and the policy of each step."""
    environments, policies = asked.family.schedule(key, asked.horizon)  # pyright: ignore[reportAttributeAccessIssue]
    _, observations = rollout(key, environments, policies, asked.horizon, changing=True)
    seen = np.asarray(observations)
    for step in range(asked.horizon):
        yield seen[step], at_step(environments, step, changing=True), at_step(policies, step, changing=True)
