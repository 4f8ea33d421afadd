"""Search on beliefs: the return of the same search with the belief of each filter.

Filter and search share a limit of simulator calls for each decision: what a filter does not use, the search has. The
ceiling is the belief of the exact filter, over real vectors that of a reference: a point-mass filter or many particles.
It costs nothing, nor does the prior, which never sees anything. All play in the same worlds from the same starts.

| metric | |
|---|---|
| `return` | discounted, of an episode |
| `return_equal_time` | the same where the limit is one of time: as many calls as fit beside the filter's update |
| `right` | share of episodes that ended with what was sought |
| `log_score` | log score of the true hidden state, mean over the steps |
| `search_calls` | simulator calls of the search, mean over its decisions |
| `update_ms`, `search_us` | time of an update of one filter; of one call of the search |
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from nbf import prng
from nbf.contracts import Filter
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.branching import BranchingFilter
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.fitted import FittedModel
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.injected import InjectedParticleFilter
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.planning_continuous import DIRECTIONS, LEFT_OUT, SCAN_COST, SEARCH_LOOK
from nbf_paper.experiments.planning_decisions import Decisions
from nbf_paper.experiments.planning_play import Game, Scores, Searching, played
from nbf_paper.experiments.planning_problems import PROBLEMS
from nbf_paper.experiments.planning_worlds import RADIUS, START
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo_job import ZooTraining
from nbf_paper.records import ALL, Record
from nbf_paper.zoo.problem import Problem

EPISODE_SECONDS = 3.0
"""Of all rows of one episode, about."""
TIMED = 20
"""Runs whose shortest is the time of an update or a search."""


FIT = {"walk": "point-mass filter of 60, wall band of 0.5"}
"""What `nbf.fit` is told that is not its default."""
GOALS = {
    "light-dark": {"line": RADIUS, "start": START},
    "vdp-tag": {"directions": DIRECTIONS, "look": SEARCH_LOOK},
    "walk": {"scan": SCAN_COST, "left_out": LEFT_OUT},
}
"""What a search adds up that is not the task, and what else of a problem was chosen here."""


@dataclass(frozen=True)
class Rows:
    """The sizes of the filters."""

    particle_filters: tuple[int, ...] = (32, 128, 512, 1024)
    injected_filters: tuple[int, ...] = (32, 128, 512, 1024)
    regularized_filters: tuple[int, ...] = (32, 128)
    neural_filters: tuple[int, ...] = (32, 128)
    branching_filters: tuple[int, ...] = ()
    """Without a network, but with the neural filters' knowledge of the transition probabilities."""
    references: bool = True
    """Whether the ceiling and the prior are among them."""
    arm: str = ""
    """Of the neural filters, if their model is not trained as usual."""

    @property
    def largest(self) -> int:
        """The most calls of an update."""
        kinds = self.particle_filters, self.injected_filters, self.regularized_filters, self.neural_filters
        return max(0, *itertools.chain(*kinds, self.branching_filters))

    @property
    def settings(self) -> dict[str, Any]:
        """Under their stable names in run keys."""
        told: dict[str, Any] = {
            "particle_filters": self.particle_filters, "injected_filters": self.injected_filters,
            "regularized_filters": self.regularized_filters, "neural_filters": self.neural_filters,
        }  # fmt: skip
        if self.branching_filters:
            told["branching_filters"] = self.branching_filters
        if self.arm:
            told["arm"] = self.arm
        return told if self.references else {**told, "references": False}

    def made(self, fitted: FittedModel, reference: Filter) -> list[FilterRow]:
        """The filters. The reference is exact, or stands for what is."""
        kinds: list[tuple[str, tuple[int, ...], Callable[[int], Any]]] = [
            ("pf", self.particle_filters, ParticleFilter),
            ("pf-injected", self.injected_filters, lambda n: InjectedParticleFilter(ParticleFilter(n))),
            ("pf-regularized", self.regularized_filters, RegularizedParticleFilter),
            ("nbf", self.neural_filters, fitted.filter),
            ("branching", self.branching_filters, BranchingFilter),
        ]
        arms = {"nbf": self.arm}
        rows = [FilterRow(make(n), name, arms.get(name, ""), n, n) for name, sizes, make in kinds for n in sizes]
        if not self.references:
            return rows
        name = "exact" if isinstance(reference, ExactFilter) else "reference"
        return [FilterRow(reference, name, "", 0, 0), FilterRow(PredictionFilter(reference), "prior", "", 0, 0), *rows]


@dataclass(frozen=True)
class PlanningJob(Job):
    """One problem and training seed: a model is trained, and every filter's belief is searched."""

    experiment: ClassVar[str] = "planning"
    problem: str
    seed: int = 0
    steps: int = 1500
    """Gradient steps, at most."""
    episodes: int = 64
    calls: int = 2048
    """Of filter and search together, for each decision."""
    searching: Searching = field(default_factory=Searching)
    rows: Rows = field(default_factory=Rows)

    def __post_init__(self) -> None:
        if self.problem not in PROBLEMS:
            raise InputError(f"There is no problem {self.problem!r}; choose one of {', '.join(PROBLEMS)}.")
        most = self.rows.largest
        if self.calls < most + self.searching.depth:
            raise InputError(
                f"calls={self.calls} leaves nothing to a search beside a filter of {most}: give at least "
                f"{most + self.searching.depth}."
            )

    @property
    def title(self) -> str:
        return f"{self.experiment} {self.problem} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.problem}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "problem": self.problem, "seed": self.seed,
            "training": {"fit": FIT.get(self.problem, "defaults"), "steps": self.steps},
            "episodes": self.episodes, "calls": self.calls,
            "search": self.searching.settings | GOALS.get(self.problem, {}), "rows": self.rows.settings,
        }  # fmt: skip

    @property
    def evaluated(self) -> int:
        return self.episodes

    def sizes(self) -> list[Size]:
        def taken(count: int) -> Demand:
            return Demand(1e7 * count, EPISODE_SECONDS * count)

        return [Size("--episodes", self.evaluated, taken), Size("--steps", self.steps, demands.steps)]

    @property
    def asked(self) -> Decisions:
        """The problem."""
        return PROBLEMS[self.problem]()

    def training_run(self, runs: Path) -> ZooTraining:
        asked = self.asked
        known = Problem(asked.name, asked.family, asked.horizon, asked.reference, "that of the search")
        folder = runs / "planning" / asked.name / str(self.seed)
        return ZooTraining(folder, known, self.seed, self.steps, asked.training)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        game, records = Game(self.asked, self.searching), []
        for row in self.rows.made(self.training_run(runs).load(), game.asked.reference):
            bar.describe(f"{self.title}: {row.label}")
            found = self.played(game, row, self.calls - row.calls)
            bar.advance(self.episodes)
            records += [
                self.told(row, "return", found.returns), self.told(row, "right", found.right),
                self.told(row, "log_score", found.log_score), self.told(row, "search_calls", found.calls),
            ]  # fmt: skip
        jax.clear_caches()
        return records

    def played(self, game: Game, row: FilterRow, calls: int) -> Scores:
        """Episodes with one filter: for all filters the same ones, for each seed others."""
        return played(game, row.filter, calls, prng.stream(self.seed, "planning", self.problem), self.episodes)

    def told(self, row: FilterRow, metric: str, values: np.ndarray) -> Record:
        """The record of a metric, given a number of each episode."""
        mean, error = mean_and_error(values)
        return Record(
            experiment=self.experiment, config=self.problem, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=self.seed, step=ALL, metric=metric, value=float(mean), se=float(error),
            episodes=len(values),
        )  # fmt: skip


@dataclass(frozen=True)
class PlanningTimeJob(PlanningJob):
    """The same at equal time. Times of all filters are measured first, on one episode, and then fixed: a search has as
    many calls as fit beside the update into the time of a search of `calls` without any filter. A filter that leaves
    less than one simulation of full depth has no return."""

    timed: ClassVar[bool] = True
    episodes: int = 32

    @property
    def title(self) -> str:
        return f"{super().title}, equal time"

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "limit": "time"}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        game, records = Game(self.asked, self.searching), []
        rows = self.rows.made(self.training_run(runs).load(), game.asked.reference)
        bar.describe(f"{self.title}: times")
        per_call = search_seconds(game, self.calls)
        free = ("exact", "reference", "prior")
        times = [0.0 if row.name in free else update_seconds(game, row) for row in rows]
        for row, taken in zip(rows, times, strict=True):
            bar.describe(f"{self.title}: {row.label}")
            calls = max(0, self.calls - round(taken / per_call))
            if calls >= self.searching.depth:
                records.append(self.told(row, "return_equal_time", self.played(game, row, calls).returns))
            bar.advance(self.episodes)
            told = {"update_ms": 1e3 * taken, "search_us": 1e6 * per_call, "calls_equal_time": float(calls)}
            records += [self.told(row, name, np.full(2, value)) for name, value in told.items()]
        jax.clear_caches()
        return records


def search_seconds(game: Game, calls: int) -> float:
    """The time of one call of a search, from one decision with so many."""
    keys = jax.random.split(prng.stream(0, "planning", "time"), 1)
    worlds, states, _ = game.starts(keys)
    reference = game.asked.reference
    tracked = game.begun(reference, keys, states, worlds)
    roots = game.rooted(reference, keys, tracked, states, worlds)

    def search() -> int:
        return int(game.decided(keys, roots, worlds, jnp.zeros(1, bool), jnp.int32(calls))[1][0])

    return _shortest(search) / max(search(), 1)


def update_seconds(game: Game, row: FilterRow) -> float:
    """The time in which one filter takes an observation and gives the states of a root."""
    keys = jax.random.split(prng.stream(0, "planning", "time"), 1)
    worlds, states, _ = game.starts(keys)
    tracked = game.begun(row.filter, keys, states, worlds)
    actions = jax.tree.map(lambda leaf: leaf[:1], game.asked.task.actions)
    after, seen, *_ = game.moved(keys, states, actions, worlds)

    def update() -> None:
        told, _ = game.filtered(row.filter, keys, tracked, states, actions, after, seen, worlds)
        jax.block_until_ready(game.rooted(row.filter, keys, told, after, worlds))

    return _shortest(update)


def _shortest(function: Callable[[], Any]) -> float:
    """The shortest of some runs, in seconds; the first one compiles."""
    function()
    taken = []
    for _ in range(TIMED):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return min(taken)
