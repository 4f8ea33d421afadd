"""What experiments on the zoo share: the training of a problem's model, its episodes, and the scores of a filter."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from nbf import prng
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import Environment
from nbf.environments.rollout import at_step
from nbf.evaluation.batches import in_batches
from nbf.filters.branching import BranchingFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.fitting.fit import fit
from nbf.fitting.fitted import FittedModel
from nbf.fitting.tuning import tuned
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow, filter_keys
from nbf_paper.experiments.zoo_scores import Track, scores, tracks
from nbf_paper.records import alone
from nbf_paper.zoo import check_name, problem
from nbf_paper.zoo.problem import Problem

TOGETHER, REFERENCES = 2**14, 4
"""Particles of all episodes that are filtered in one batch; episodes, for filters that run the reference."""
STEPS = 3000
"""Of a training: two to five minutes on one core. A number of steps can be repeated, a number of minutes cannot."""
EPISODE_SECONDS = 3.0
"""Of all rows of one episode, about."""


@dataclass(frozen=True)
class ZooTraining:
    """A model that `nbf.fit` trains, kept in a folder whose name has the settings."""

    folder: Path
    problem: Problem
    seed: int
    steps: int
    options: tuple[tuple[str, Any], ...] = ()
    """Of `nbf.fit`, that are not its defaults."""

    @property
    def path(self) -> Path:
        """The file of the finished model."""
        return self.folder / f"steps-{self.steps}" / "model.safetensors"

    def train(self) -> Path:
        """Train, or resume a training that was stopped; returns the path of the model."""
        if not self.path.exists():
            with alone(self.path.parent):
                if not self.path.exists():
                    self._train()
        return self.path

    def _train(self) -> None:
        asked = self.problem
        fitted = fit(
            asked.family, horizon=asked.horizon, seed=self.seed, steps=self.steps, trial=0,
            resume=self.path.parent / "training.safetensors", **dict(self.options),
        )  # fmt: skip
        fitted.save(self.path)

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


def without_network(asked: Problem, environment: Environment, calls: int, seed: int) -> FilterRow:
    """The best filter without a network that makes so many calls: over real vectors a regularised one, whose kernel is
    chosen as the neural filter's is; where states are listed, chosen branches."""
    if capability(environment.space, ContinuousSpace) is None:
        return FilterRow(BranchingFilter(calls), "branching", "", calls, calls)
    plain = RegularizedParticleFilter(calls)
    found = tuned(plain, asked.family, horizon=asked.horizon, seed=seed, progress=False)
    return FilterRow(found, "pf-regularized", "", calls, calls)


@dataclass(frozen=True)
class Episodes:
    """Fresh episodes of a problem, which every filter of a job sees."""

    keys: Key[Array, " episodes"]
    tracks: Track
    samples: int
    """Of a belief, for an energy distance."""

    @property
    def environment(self) -> Environment:
        """That of the first step of the first one."""
        return at_step(jax.tree.map(lambda leaf: leaf[0], self.tracks.environment), 0, changing=self.tracks.changing)

    def scores(self, row: FilterRow, bar: Counter) -> dict[str, np.ndarray]:
        """What is measured of a filter, by name: a number of each episode and step."""
        batch = min(len(self.keys), TOGETHER // row.particles if row.particles else REFERENCES)
        score = functools.partial(scores, row.filter, self.samples)
        inputs = filter_keys(self.keys), self.tracks
        return in_batches(score, inputs, batch=max(1, batch), advance=bar.advance)


def scored_episodes(asked: Problem, key: Key[Array, ""], count: int, samples: int) -> Episodes:
    """Random episodes of a problem, with the reference's posteriors."""
    keys = jax.random.split(key, count)
    make = functools.partial(tracks, asked.family, asked.reference, asked.horizon, samples)
    return Episodes(keys, in_batches(make, (keys,), batch=min(REFERENCES, count)), samples)


@dataclass(frozen=True)
class ProblemJob(Job):
    """One problem and seed. The model is the zoo's: whichever job comes first trains it."""

    problem: str
    seed: int = 0
    steps: int = STEPS
    """Gradient steps, at most."""

    def __post_init__(self) -> None:
        check_name(self.problem)

    @property
    def asked(self) -> Problem:
        """The problem."""
        return problem(self.problem)

    @property
    def label(self) -> str:
        return f"{self.problem}/{self.seed}"

    def sizes(self) -> list[Size]:
        def taken(count: int) -> Demand:
            return Demand(1e5 * count, EPISODE_SECONDS * count)

        return [Size("--episodes", self.evaluated, taken), Size("--steps", self.steps, demands.steps)]

    def training_run(self, runs: Path) -> ZooTraining:
        asked = self.asked
        return ZooTraining(runs / "zoo" / asked.name / str(self.seed), asked, self.seed, self.steps)

    def notes(self) -> dict[str, Any]:
        asked = self.asked
        return {"kind": asked.kind, "split": asked.split, "horizon": asked.horizon, "reference": asked.accuracy}

    def episodes_of(self, asked: Problem, samples: int, horizon: int) -> Episodes:
        """Random ones."""
        key = prng.stream(self.seed, "zoo", self.problem, "evaluation")
        return scored_episodes(replace(asked, horizon=horizon), key, self.evaluated, samples)
