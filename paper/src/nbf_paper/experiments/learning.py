"""Learning while filtering (`nbf.learn`), against a teacher beforehand that makes as many calls of the simulator.

| row | what it is |
|---|---|
| NBF, learned, round r | the neural filter of `nbf.learn` after r rounds |
| NBF, taught, round r | the same network, trained for as many steps on the beliefs of a filter without a network, whose calls are those of `nbf.learn` until then |
| NBF, untrained | the same network as it begins |
| Approx Beliefs | the ceiling of either, after the last round: the model on samples of the reference's posterior |

The teacher is the filter that `nbf.learn` begins with, the best without a network in its first round. Beside it stand
the particle filter and the strongest filter without a network, whose kernel is as wide as the neural filter's: with as
many calls a step as the teacher has, and with as few as the neural filter makes. All filters with a model have their
trust measured as `nbf.learn` measures it; of the taught ones the calls of that are not counted, in their favour.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from nbf import prng
from nbf.capabilities import ContinuousSpace, LookAhead
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment
from nbf.environments.gridworld import RandomGridworlds, gridworld_family
from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.regeneration import KernelSmoother
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.episodes import instance
from nbf.fitting.learn import SimulatedEpisodes, begin
from nbf.fitting.learning import ROUND, LearnConfig, Learning
from nbf.fitting.rungs import measured, meet, neural, without_model
from nbf.sources.filtered import FilterPosteriors
from nbf.sources.pool import BeliefPool
from nbf.training.fit import train
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo_job import Episodes, scored_episodes
from nbf_paper.names import EXAMPLE, LEARNED_CHANGES, TRIANGULATION
from nbf_paper.records import ALL, Record
from nbf_paper.zoo import problem as zoo_problem
from nbf_paper.zoo.problem import Problem

LADDER = (512, 128, 32)
"""Calls a step, of which the last are those of all filters that are compared."""
CALLS = LADDER[-1]
TRUST_RUNS = 2
"""By which the trust in a taught model is measured."""
APPROX_SAMPLES, SAMPLES = 256, 128
"""Of the reference's posterior, for the ceiling; of a belief, for an energy distance."""
EPISODE_SECONDS = 6.0
"""Of all rows of one episode, about."""


def task(name: str) -> Problem:
    """A problem by its name: two of the paper's, these after a change of their world, or one of the zoo."""
    grids = {EXAMPLE: gridworld_family(8, 2), LEARNED_CHANGES[EXAMPLE]: RandomGridworlds(8, 2, 12, 1)}
    planes = {
        TRIANGULATION: TriangulationFamily(),
        LEARNED_CHANGES[TRIANGULATION]: TriangulationFamily(range_noise=0.2),
    }
    if name in grids:
        return Problem(name, grids[name], 20, ExactFilter(), "exact")
    if name in planes:
        return Problem(name, planes[name], 20, PointMassFilter(), "grid of 100 x 100 cells")
    return zoo_problem(name)


def label_of(kind: str, number: int) -> str:
    """The arm of a model after so many rounds."""
    return f"{kind}, round {number}"


@dataclass(frozen=True)
class LearningBase(Job):
    """A run of `nbf.learn` on one problem, and filters that are scored on the same new episodes."""

    problem: str
    seed: int = 0
    rounds: int = 9
    met: int = 20
    """Episodes of a round."""
    steps: int = 700
    """Gradient steps of a round."""
    episodes: int = 32
    """On which filters are scored."""

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise InputError(f"Learning needs 2 episodes at least, for a standard error; got {self.episodes}.")
        if not 1 <= self.rounds <= 9:
            raise InputError(f"rounds are 1 to 9; got {self.rounds}.")

    @property
    def evaluated(self) -> int:
        return self.episodes

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "problem": self.problem, "seed": self.seed,
            "training": {"learn": "defaults", "rounds": self.rounds, "episodes": self.met, "steps": self.steps},
            "evaluation": {"episodes": self.episodes, "samples": SAMPLES, "calls": LADDER},
        }  # fmt: skip

    def sizes(self) -> list[Size]:
        def taken(count: int) -> Demand:
            return Demand(1e5 * count, EPISODE_SECONDS * count)

        return [Size("--episodes", self.episodes, taken), Size("--steps", 3 * self.rounds * self.steps, demands.steps)]

    def notes(self) -> dict[str, Any]:
        asked = task(self.problem)
        return {"horizon": asked.horizon, "reference": asked.accuracy}

    def begun(self, asked: Problem) -> Learning:
        """A run before its first round."""
        config = LearnConfig(episodes=self.met, particles=LADDER, training=replace(ROUND, steps=self.steps))
        return begin(asked.family, config, horizon=asked.horizon, seed=self.seed)

    def scored_on(self, asked: Problem) -> Episodes:
        """New episodes of a problem."""
        return scored_episodes(asked, prng.stream(self.seed, "learning", asked.name), self.episodes, SAMPLES)

    def score(self, asked: Problem, row: FilterRow, episodes: Episodes, bar: Counter) -> list[Record]:
        """The error and the log score of a filter."""
        bar.describe(f"{self.title}: {row.label}{f', {row.arm}' if row.arm else ''}")
        found = episodes.scores(row, bar)
        error = found["energy"] if "energy" in found else found["js"]
        named = {"error": error, "log_score": found["log_score"]}
        return [self.one(asked, row, metric, *mean_and_error(each.mean(axis=1))) for metric, each in named.items()]

    def one(
        self, asked: Problem, row: FilterRow, metric: str, value: Any, error: Any = None, step: Any = ALL
    ) -> Record:
        """One number."""
        return Record(
            experiment="learning", config=asked.name, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=self.seed, step=step, metric=metric, value=float(value),
            se=None if error is None else float(error), episodes=self.episodes,
        )  # fmt: skip

    def learned(self, run: Learning, arm: str) -> FilterRow:
        """The neural filter of a run as it is."""
        return FilterRow(neural(run.state.model, CALLS, run.state.trust[-1]), "nbf", arm, CALLS, CALLS)


@dataclass(frozen=True)
class LearningJob(LearningBase):
    """Error after some rounds, against a teacher of as many calls and against filters without a network."""

    marks: tuple[int, ...] = (1, 3, 6, 9)
    """Rounds after which filters are scored."""
    taught: tuple[int, ...] = (1, 3, 9)
    """Rounds of whose calls a teacher makes use."""

    @property
    def title(self) -> str:
        return f"learning {self.problem} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.problem}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"scored": self.marks, "taught": self.taught}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        asked = task(self.problem)
        bar.describe(f"{self.title}: episodes")
        episodes, run = self.scored_on(asked), self.begun(asked)
        records = self.score(asked, self.learned(run, "untrained"), episodes, bar)
        while run.done < self.rounds:
            bar.describe(f"{self.title}: round {run.done + 1}")
            run.advance()
            records += self._told(asked, run)
            if run.done in self.marks:
                row = self.learned(run, label_of("learned", run.done))
                records += self.score(asked, row, episodes, bar)
                records.append(self.one(asked, row, "million_calls", run.state.rounds[-1].calls / 1e6))
        environment = instance(run.episodes(0), 0)[0]
        models = {label_of("learned", run.done): run.state.model}
        for number in (mark for mark in self.taught if mark <= run.done):
            bar.describe(f"{self.title}: a teacher of as many calls as {number} rounds")
            row, model, calls = self._taught(asked, run, number, environment)
            records += [*self.score(asked, row, episodes, bar), self.one(asked, row, "million_calls", calls / 1e6)]
            models[row.arm] = model
        last = [label_of(kind, run.done) for kind in ("learned", "taught")]
        for row in self._rows(asked, run, environment, {arm: models[arm] for arm in last if arm in models}):
            records += self.score(asked, row, episodes, bar)
        jax.clear_caches()
        return records

    def _told(self, asked: Problem, run: Learning) -> list[Record]:
        """What a round says of itself: its score on episodes that were not learned from yet, and what it took."""
        last, row = run.state.rounds[-1], FilterRow(ParticleFilter(1), "nbf", "learning", 0, 0)
        told = {"round_particles": last.particles, "round_million_calls": last.calls / 1e6, "round_loss": last.loss}
        if last.lost is not None:
            told["round_lost"] = last.lost
        return [
            self.one(asked, row, "round_score", last.score, last.score_error, step=run.done),
            *(self.one(asked, row, metric, value, step=run.done) for metric, value in told.items()),
        ]

    def _taught(
        self, asked: Problem, run: Learning, number: int, environment: Environment
    ) -> tuple[FilterRow, BeliefModel, int]:
        """The filter of a model that was taught beforehand, the model, and the calls of its teacher."""
        teacher = without_model(environment, LADDER[0])[run.state.first]
        each = LADDER[0] * asked.horizon
        count = max(1, run.state.rounds[number - 1].calls // each)
        source = FilterPosteriors(teacher, asked.family, asked.horizon)
        key = prng.stream(self.seed, "learning", "taught", number)
        pool = BeliefPool.of_episodes(source, prng.fold_in(key, 0), episodes=count, samples=2 * ROUND.samples, batch=16)
        model = run.model_config.build(prng.stream(self.seed, "learn", "parameters"))
        training = replace(ROUND, steps=number * self.steps)
        model = train(model, pool, training, key=prng.fold_in(key, 1), progress=False).model
        trust = run.no_trust[-1]
        for place in range(TRUST_RUNS):
            found = meet(neural(model, CALLS, trust), CALLS, prng.fold_in(key, 2 + place), run.episodes(100 + place), 1)
            trust = measured(found.parts, trust, CALLS, environment)
        arm = label_of("taught", number)
        return FilterRow(neural(model, CALLS, trust), "nbf", arm, CALLS, CALLS), model, count * each

    def _rows(
        self, asked: Problem, run: Learning, environment: Environment, models: dict[str, BeliefModel]
    ) -> Iterator[FilterRow]:
        """The ceilings, the prior, and filters without a network."""
        for arm, model in models.items():
            yield FilterRow(ApproxBeliefs(model, APPROX_SAMPLES, truth=asked.reference), "approx", arm, 0, 0)
        yield FilterRow(asked.reference, "reference", "", 0, 0)
        yield FilterRow(PredictionFilter(asked.reference), "prior", "", 0, 0)
        for calls in (CALLS, LADDER[0]):
            yield FilterRow(ParticleFilter(calls), "pf", "", calls, calls)
            strongest = without_model(environment, calls)[0]
            if isinstance(strongest, RegularizedParticleFilter):
                if capability(environment, LookAhead) is None:  # the kernel of the neural filter
                    width = float(run.state.trust[-1][1])
                    strongest = replace(strongest, smoother=KernelSmoother(width))
                yield FilterRow(strongest, "pf-regularized", "", calls, calls)
            elif capability(environment.space, ContinuousSpace) is None:
                yield FilterRow(strongest, "branching", "", calls, calls)


@dataclass(frozen=True)
class ChangeJob(LearningBase):
    """The world changes in mid-run: how soon is the filter as good as one that has learned in the new world alone?"""

    before: int = 6
    """Rounds before the change; `rounds` are those after it, and those in the new world alone."""
    marks: tuple[int, ...] = (1, 2, 3, 6, 9)

    @property
    def title(self) -> str:
        return f"learning {self.problem} changed, seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.problem}/changed/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"before": self.before, "scored": self.marks}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        old, new = task(self.problem), task(LEARNED_CHANGES[self.problem])
        episodes, run = self.scored_on(new), self.begun(old)
        for number in range(self.before):
            bar.describe(f"{self.title}: round {number + 1} before the change")
            run.advance()
        run.episodes = SimulatedEpisodes(new.family, self.seed, self.met, new.horizon)
        records, before = self.score(new, self.learned(run, label_of("changed", 0)), episodes, bar), run.done
        fresh = self.begun(new)
        for kind, each, first in (("changed", run, before), ("new world alone", fresh, 0)):
            while each.done - first < self.rounds:
                number = each.done - first + 1
                bar.describe(f"{self.title}: {label_of(kind, number)}")
                each.advance()
                if number in self.marks:
                    records += self.score(new, self.learned(each, label_of(kind, number)), episodes, bar)
                row = FilterRow(ParticleFilter(1), "nbf", kind, 0, 0)
                records += [
                    self.one(new, row, "round_particles", each.state.rounds[-1].particles, step=number),
                    self.one(new, row, "round_doubted", float(each.state.rounds[-1].doubted), step=number),
                ]
        for row in (
            FilterRow(ApproxBeliefs(fresh.state.model, APPROX_SAMPLES, truth=new.reference), "approx",
                      label_of("new world alone", fresh.done), 0, 0),
            FilterRow(PredictionFilter(new.reference), "prior", "", 0, 0),
            FilterRow(ParticleFilter(CALLS), "pf", "", CALLS, CALLS),
        ):  # fmt: skip
            records += self.score(new, row, episodes, bar)
        jax.clear_caches()
        return records
