"""Beliefs that are made once and drawn many times: for sources whose beliefs are expensive."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from nbf.contracts import BeliefSource, State, StateSpace
from nbf.errors import InputError, WorkerError
from nbf.executors import Executor, InProcess
from nbf.executors.contract import Outcomes


@runtime_checkable
class EpisodeSource(Protocol):
    """A source that makes all beliefs of an episode together."""

    def episode(self, key: Key[Array, ""], n: int, /) -> tuple[State, StateSpace]:
        """Sample every belief of one random episode.

        Args:
            key: Random key.
            n: Samples of each belief.

        Returns:
            The samples, and the space of each belief; leading axis depths, from 0, the belief before any observation.
        """
        ...


class BeliefPool(BeliefSource):
    """Samples of many beliefs, which are made once and drawn many times.

    A draw takes a random belief and consecutive samples of it from a random place, so their order must be random.
    """

    states: State
    """Leading axes (beliefs, samples) on every leaf."""
    spaces: StateSpace
    """Of each belief: a leading axis on every leaf, if there are any."""

    def __check_init__(self) -> None:
        shapes = {jnp.shape(leaf)[:2] for leaf in jax.tree.leaves(self.states)}
        if len(shapes) != 1 or min(min(shapes), default=0) < 1:
            raise InputError(f"A pool needs states with leading axes (beliefs, samples), none empty; got {shapes}.")

    @classmethod
    def of_episodes(
        cls,
        source: EpisodeSource,
        key: Key[Array, ""],
        *,
        episodes: int,
        samples: int,
        batch: int = 64,
        seconds: float | None = None,
        advance: Callable[[int], None] = lambda done: None,
        executor: Executor | None = None,
    ) -> BeliefPool:
        """Make a pool of all beliefs of many episodes.

        Args:
            source: Of the beliefs.
            key: Random key.
            episodes: How many.
            samples: Of each belief.
            batch: Episodes that are made together.
            seconds: Time after which no further batch is begun, so that there are fewer episodes; None for no limit.
            advance: Called after each batch with the number of episodes in it.
            executor: Who makes the batches, each in one call; the source is pickled for workers. None: this process.

        Returns:
            The pool, the same whoever makes it.
        """
        if episodes < 1 or samples < 1 or batch < 1:
            raise InputError(
                f"A pool needs episodes, samples and batch of at least 1; got {episodes}, {samples} and {batch}."
            )
        # The last batch is full too; the rest is cut off.
        calls = [(first, min(batch, episodes)) for first in range(0, episodes, batch)]
        make = functools.partial(_made, source, jax.random.key_data(key), str(jax.random.key_impl(key)), samples)
        outcomes = (executor or InProcess()).outcomes(make, calls)
        made = _in_time(outcomes, seconds, lambda number: advance(min(batch, episodes - number * batch)))

        def joined(*leaves: np.ndarray) -> Array:
            whole = np.concatenate(leaves)[:episodes]
            return jnp.asarray(whole.reshape(-1, *whole.shape[2:]))

        return cls(*jax.tree.map(joined, *made))

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        beliefs, samples = jax.tree.leaves(self.states)[0].shape[:2]
        if n > samples:
            raise InputError(f"This pool holds {samples} samples of each belief; {n} were asked for.")
        belief_key, first_key = jax.random.split(key)
        belief = jax.random.randint(belief_key, (), 0, beliefs)
        chosen = (jax.random.randint(first_key, (), 0, samples) + jnp.arange(n)) % samples
        space = jax.tree.map(lambda leaf: leaf[belief], self.spaces)
        return jax.tree.map(lambda leaf: leaf[belief, chosen], self.states), space


def _in_time(outcomes: Outcomes, seconds: float | None, done: Callable[[int], None]) -> list[Any]:
    """The results of calls in their order. When the time is over, those before the first that is missing, and at least
    one: what a longer time would begin with."""
    parts, begin = dict[int, Any](), time.monotonic()
    with contextlib.closing(outcomes):
        for number, outcome in outcomes:
            if isinstance(outcome, WorkerError):
                raise outcome.__cause__ or outcome  # an error of this process as it is
            parts[number] = outcome
            done(number)
            if seconds is not None and 0 in parts and time.monotonic() - begin > seconds:
                break
    return [parts[number] for number in itertools.takewhile(parts.__contains__, itertools.count())]


@eqx.filter_jit
def _episodes(source: EpisodeSource, keys: Key[Array, " batch"], samples: int) -> tuple[State, StateSpace]:
    # The source is an argument, since XLA would fold its policies for minutes if they were constants.
    return jax.vmap(lambda key: source.episode(key, samples))(keys)


def _made(
    source: EpisodeSource, key: np.ndarray | Array, kind: str, samples: int, first: int, batch: int
) -> tuple[State, StateSpace]:
    """A batch of episodes, as NumPy arrays. In workers as well: a key is pickled as its numbers and its kind."""
    whole = jax.random.wrap_key_data(jnp.asarray(key), impl=kind)
    keys = jax.vmap(lambda i: jax.random.fold_in(whole, i))(jnp.arange(first, first + batch))
    return jax.device_get(_episodes(source, keys, samples))
