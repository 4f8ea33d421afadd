"""Which filter wins at equal wall time, by what a call of a real simulator costs.

Two jobs for each simulator that is not JAX: the scores of its filters (of Gymnasium's acrobot here, of touch in its own
experiment), and the time of an update of each. The report sets them beside the simulators in JAX that
`simulation-cost` timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from nbf import prng
from nbf.environments.rollout import at_step, rollout
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.simulation_cost import TimedFilter
from nbf_paper.experiments.simulator_job import SimulatorJob, baseline_rows, model_rows
from nbf_paper.experiments.timed_domains import Step
from nbf_paper.experiments.zoo import ZooEvaluation
from nbf_paper.experiments.zoo_job import ZooTraining
from nbf_paper.names import ACROBOT, TIMES_ENDING
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
    """Times of an update of the filters that a job scores, over episodes of its problem.

    A step in which particles are drawn anew takes several times as long as one in which they are not, so the time is a
    mean over the steps of an episode. Other load on the machine is kept out by a median over several passes through the
    same episode, with the same random keys, for each step.
    """

    timed: ClassVar[bool] = True

    of: SimulatorJob
    episodes: int = 3
    passes: int = 3
    """Through each episode."""

    def __post_init__(self) -> None:
        if self.episodes < 1 or self.passes < 1:
            raise InputError(
                f"episodes and passes must be at least 1; got episodes={self.episodes}, passes={self.passes}."
            )

    @property
    def seed(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the model."""
        return self.of.seed

    @property
    def evaluated(self) -> int:
        return self.episodes * self.passes

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
            "problem": self.of.problem, "seed": self.seed, "episodes": self.episodes, "passes": self.passes,
            "evaluation": scored["evaluation"], "training": scored["training"], "teacher": scored["teacher"],
        }  # fmt: skip

    def training_run(self, runs: Path) -> ZooTraining:
        return self.of.training_run(runs)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        asked = self.of.asked
        keys = jax.random.split(prng.stream(self.seed, "crossing", self.of.problem), self.episodes)
        walks = [list(episode_steps(asked, key)) for key in keys]
        rows = {(row.name, row.arm, row.particles): row for row in self._rows(asked, walks[0][0], runs)}
        bar.describe(f"{self.title}: {len(rows)} filters")
        found = []
        for steps, key in zip(walks, keys, strict=True):
            timed = {name: TimedFilter(row.filter, steps, key) for name, row in rows.items()}
            found.append(episode_times(timed, len(steps), self.passes, bar))
        mean, error = mean_and_error(np.stack(found))
        config = f"{self.of.problem}{TIMES_ENDING}"
        return [
            Record(
                "crossing", config, name, arm, particles, rows[name, arm, particles].calls, self.seed, ALL,
                "us_per_update", float(mean[place]), float(error[place]) if self.episodes > 1 else None, self.episodes,
            )
            for place, (name, arm, particles) in enumerate(rows)
        ]  # fmt: skip

    def _rows(self, asked: Problem, first: Step, runs: Path) -> Iterator[FilterRow]:
        scored, fitted = self.of.evaluation, self.training_run(runs).load()
        for row in (
            *baseline_rows(asked, first[1], self.seed, scored),
            *model_rows(asked, fitted, self.seed, scored),
        ):
            if row.name not in UNTIMED and row.arm == "":
                yield row


def episode_times(timed: Mapping[Any, Callable[[], float]], length: int, passes: int, bar: Counter) -> np.ndarray:
    """µs of an update of each filter: the mean over the `length` steps of an episode of the median over passes
    through it.

    The filters take turns, an episode each. One pass before these compiles, and does not count.
    """
    for update in timed.values():
        for _ in range(length):
            update()
    times = np.empty((passes, len(timed), length))
    for turn in range(passes):
        for place, update in enumerate(timed.values()):
            times[turn, place] = [update() for _ in range(length)]
        bar.advance(1)
    return np.median(times, axis=0).mean(axis=1)


def episode_steps(asked: Problem, key: jax.Array) -> Iterator[Step]:
    """One episode of a problem: what is seen, the environment and the policy of each step."""
    environments, policies = asked.family.schedule(key, asked.horizon)  # pyright: ignore[reportAttributeAccessIssue]
    _, observations = rollout(key, environments, policies, asked.horizon, changing=True)
    seen = np.asarray(observations)
    for step in range(asked.horizon):
        yield seen[step], at_step(environments, step, changing=True), at_step(policies, step, changing=True)
