"""A model that is trained on what a filter with it meets: the rounds behind `nbf.learn`.

In each round the current filter meets new episodes. They are scored before they are learned from, so every score is
one on held-out episodes and costs no call of its own. The filter on the next rung of the ladder, with fewer particles,
is tried on the same episodes; if it loses no more than `tolerance`, it takes over from the next round on. If the score
falls below that of earlier rounds, the model is doubted, and the first rung takes over: many particles, no model.
Samples of the beliefs that were met are kept in a ring, from which the model is trained for some steps.

All randomness of a round is drawn from a stream of its number, and what one round leaves to the next is in the state:
so a run that was stopped and resumed is bit for bit the run that was not.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment, Filter
from nbf.errors import InputError
from nbf.evaluation.calibration import calibrate
from nbf.filters.checks import check_counts, check_numbers
from nbf.fitting.episodes import instance
from nbf.fitting.filtering import Episodes
from nbf.fitting.fitted import FittedModel
from nbf.fitting.history import History, Round
from nbf.fitting.rungs import Met, as_measured, is_doubted, is_lower_sound, measured, meet, neural, without_model
from nbf.models.belief_model import ModelConfig
from nbf.sources.filtered import widen_walls
from nbf.sources.met import MetBeliefs
from nbf.sources.pool import BeliefPool
from nbf.training import intervals
from nbf.training.config import FitConfig
from nbf.training.rounds import Rounds

CALIBRATION_BELIEFS = 200
"""Newly met beliefs, at most, on which a learned model is calibrated."""


ROUND = FitConfig(
    steps=500, batch=32, samples=64, optimizer="adam", learning_rate=3e-3, schedule="cosine", random_sets=True
)
"""Training of one round."""


@dataclass(frozen=True)
class LearnConfig:
    """How `nbf.learn` learns."""

    episodes: int = 16
    """Met in each round, at least 2."""
    particles: tuple[int, ...] = (512, 128, 32)
    """Calls of the simulator at each step, from many to few: first those of a filter without a model, then those that
    the neural filter is tried with, one after another."""
    tolerance: float = 0.05
    """Nats a step of log score (of log evidence, with recorded episodes) that fewer particles may lose."""
    truth_share: float = 0.0
    """Of the samples that training scores, how many are the true state of a simulated episode instead of a sample of
    the filter's own belief."""
    wall_band: float = 0.0
    """Width of the band beyond the walls of a box over which samples on them are widened in training."""
    beliefs: int = 20_000
    """The newest so many beliefs are trained on; fewer if their samples are more numbers than `LARGEST_POOL`."""
    training: FitConfig = ROUND
    """Of each round: every one has the whole schedule of the learning rate. Without `patience`."""

    def __post_init__(self) -> None:
        check_counts("nbf.learn", least=2, episodes=self.episodes)
        check_counts("nbf.learn", beliefs=self.beliefs)
        listed = isinstance(self.particles, tuple | list)
        for calls in self.particles if listed else ():
            check_counts("nbf.learn", particles=calls)
        if not listed or len(self.particles) < 2 or any(a <= b for a, b in itertools.pairwise(self.particles)):
            raise InputError(
                "particles are the calls of a filter without a model, and then fewer and fewer with one, such as "
                f"(512, 128, 32); got {self.particles}."
            )
        check_numbers("nbf.learn", tolerance=self.tolerance, wall_band=self.wall_band)
        check_numbers("nbf.learn", most=1.0, truth_share=self.truth_share)
        if not isinstance(self.training, FitConfig):
            raise InputError(f"training is an nbf.FitConfig; got {self.training!r}.")


@runtime_checkable
class RoundEpisodes(Protocol):
    """The episodes that are met."""

    @property
    def horizon(self) -> int:
        """Their length."""
        ...

    def __call__(self, number: int) -> Episodes:
        """Draw those of a round.

        Args:
            number: Of the round, from 0.

        Returns:
            The episodes.
        """
        ...


@dataclass
class LearningState:
    """What one round leaves to the next."""

    model: BeliefModel
    beliefs: MetBeliefs
    trust: Float[np.ndarray, "rungs 4"]
    """See `rungs.no_measurement`."""
    measured: list[bool]
    """Of each rung, whether its trust was measured."""
    rung: int
    """Of the filter that meets the next episodes."""
    first: int
    """Which of `rungs.without_model` is on the first rung."""
    rounds: list[Round]
    losses: list[float]
    seconds: float


class Learning:
    """A run of `nbf.learn` in progress. Its `episodes` may be exchanged between two rounds."""

    def __init__(
        self,
        episodes: RoundEpisodes,
        state: LearningState,
        config: LearnConfig,
        model_config: ModelConfig,
        *,
        seed: int,
        began_trained: bool,
    ):
        """Prepare a run.

        Args:
            episodes: Those that are met.
            state: Before the next round.
            config: How it learns.
            model_config: That built the model.
            seed: Root seed of all randomness.
            began_trained: Whether the run began with a trained model.
        """
        self.episodes, self.state, self.config, self.model_config = episodes, state, config, model_config
        self.seed = seed
        self.began_trained, self.no_trust = began_trained, state.trust
        self.trainer = Rounds(state.model, state.beliefs, config.training)

    @property
    def done(self) -> int:
        """Rounds that are finished."""
        return len(self.state.rounds)

    def advance(self, resume: Path | None = None) -> None:
        """Make one round. The state is exchanged at the end of it: if the round is interrupted, it is what it was.

        Args:
            resume: File of the round's training in progress; None for none.
        """
        begin, state, number = time.monotonic(), replace(self.state), self.done
        episodes = self.episodes(number)
        environment = instance(episodes, 0)[0]
        state.trust, state.measured = state.trust.copy(), list(state.measured)
        met, told = self._filtered(state, number, episodes, environment)
        state.beliefs = self._added(state.beliefs, met, number)
        trained = self.trainer.train(
            state.model, state.beliefs, key=self._key(number, "training"), resume=resume, purpose=f"round {number}"
        )
        state.model, loss = trained.model, float(np.mean(trained.losses))
        state.losses = [*state.losses, *trained.losses.tolist()]
        before = state.rounds[-1] if state.rounds else None
        done = (0, 0) if before is None else (before.episodes, before.calls)
        calls, told = told["calls"], {name: value for name, value in told.items() if name != "calls"}
        found = Round(done[0] + len(met.scores), done[1] + calls, loss=loss, **told)
        state.rounds = [*state.rounds, found]
        state.seconds += time.monotonic() - begin
        self.state = state

    def _filtered(
        self, state: LearningState, number: int, episodes: Episodes, environment: Environment
    ) -> tuple[Met, dict[str, Any]]:
        """What is learned from in a round, and what is told of it; moves the state to another rung."""
        rung, ladder = state.rung, self.config.particles
        met = self._run(state, number, rung, episodes, environment)
        calls = met.calls
        if number == 0:
            for place in range(1, len(without_model(environment, ladder[0]))):
                other = self._run(replace(state, first=place), number, 0, episodes, environment)
                calls += other.calls
                if other.scores.mean() > met.scores.mean():
                    met, state.first = other, place
        scores = met.scores.mean(axis=1)
        told: dict[str, Any] = {"fewer": None, "lost": None, "doubted": False}
        earlier = []
        for each in reversed(state.rounds):
            if (each.particles, each.with_model) != (ladder[rung], rung > 0) or each.doubted:
                break
            earlier.append((each.score, each.score_error))
        if rung > 0 and is_doubted(scores, earlier):
            state.rung, told["doubted"] = 0, True
            met = self._run(state, number, 0, episodes, environment)
            calls += met.calls
        elif rung + 1 < len(ladder) and (number > 0 or self.began_trained):
            tried = self._run(state, number, rung + 1, episodes, environment)
            difference = tried.scores.mean(axis=1) - scores
            calls += tried.calls
            told |= {"fewer": ladder[rung + 1], "lost": -float(difference.mean())}
            state.rung = rung + int(is_lower_sound(difference, self.config.tolerance))
        told |= {"calls": calls, "particles": ladder[rung], "with_model": rung > 0, "score": float(scores.mean())}
        return met, told | {"score_error": float(scores.std(ddof=1) / np.sqrt(len(scores)))}

    def _run(self, state: LearningState, number: int, rung: int, episodes: Episodes, environment: Environment) -> Met:
        """Meet episodes with the filter of a rung; what that tells of trust is kept for the next run."""
        calls, key = self.config.particles[rung], self._key(number, "filter")
        filter = self._filter(state, rung, environment)
        met = meet(filter, calls, key, episodes, 2 * self.config.training.samples)
        if rung > 0 and met.parts is not None:
            found = measured(met.parts, state.trust[rung], calls, environment)
            state.measured[rung] = True
            for place in range(rung, len(state.measured)):  # those of fewer particles until they are tried themselves
                if place == rung or not state.measured[place]:
                    state.trust[place] = found
        return met

    def _filter(self, state: LearningState, rung: int, environment: Environment) -> Filter:
        calls = self.config.particles[rung]
        if rung == 0:
            return without_model(environment, calls)[state.first]
        return neural(state.model, calls, state.trust[rung])

    def _added(self, beliefs: MetBeliefs, met: Met, number: int) -> MetBeliefs:
        """The ring with the beliefs of a round."""
        states = _flat(met.samples)
        if self.config.wall_band > 0:
            space = capability(beliefs.spaces, ContinuousSpace)
            assert space is not None
            keys = jax.random.split(self._key(number, "walls"), len(states))
            widen = jax.vmap(lambda key, points: widen_walls(key, points, space, self.config.wall_band))
            states = jax.device_get(widen(keys, states))
        return beliefs.add(states, None if met.truths is None else _flat(met.truths), _flat(met.spaces))

    def _key(self, number: int, *names: str) -> Key[Array, ""]:
        return prng.stream(self.seed, "learn", number, *names)

    def result(self) -> FittedModel:
        """Judge the filter on the episodes of the next round, which were not learned from.

        Returns:
            The model, with its calibration on the beliefs met there, its trust and its history. The state stays.
        """
        number, state = self.done, self.state
        episodes = self.episodes(number)
        environment = instance(episodes, 0)[0]
        state = replace(state, trust=state.trust.copy(), measured=list(state.measured))
        rung, ladder = state.rung, self.config.particles
        met = self._run(state, number, rung, episodes, environment)
        scores = met.scores.mean(axis=1)
        arrays, static = eqx.partition(state.beliefs.spaces, eqx.is_array)
        spaces = jax.tree.map(lambda _, leaf: jnp.asarray(leaf), arrays, _flat(met.spaces))
        pool = BeliefPool(jax.tree.map(jnp.asarray, _flat(met.samples)), eqx.combine(spaces, static))
        key, half = self._key(number, "calibration"), self.config.training.samples
        count = min(CALIBRATION_BELIEFS, jax.tree.leaves(pool.states)[0].shape[0])
        calibration = calibrate(key, state.model, pool, beliefs=count, embed=half, held_out=half)
        error = float(scores.std(ddof=1) / np.sqrt(len(scores)))
        measure = "log score" if met.truths is not None else "log evidence"
        history = History(measure, tuple(state.rounds), ladder[rung], rung > 0, float(scores.mean()), error)
        return FittedModel(
            state.model, self.model_config, calibration, f"itself ({ladder[0]} to {ladder[-1]} particles)", None, 0.0,
            len(state.losses) * intervals.CHUNK, state.seconds, np.asarray(state.losses, np.float32),
            np.zeros(0, np.float32), trust=as_measured(state.trust, ladder, state.measured, environment),
            history=history,
        )  # fmt: skip


def _flat(tree: Any) -> Any:
    """Leading axes episodes and steps as one."""
    return jax.tree.map(lambda leaf: np.reshape(leaf, (-1, *leaf.shape[2:])), tree)
