"""Beliefs that are made once and drawn many times: for sources whose beliefs are expensive."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from nbf.contracts import BeliefSource, State, StateSpace
from nbf.errors import InputError


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

        Returns:
            The pool.
        """
        if episodes < 1 or samples < 1 or batch < 1:
            raise InputError(
                f"A pool needs episodes, samples and batch of at least 1; got {episodes}, {samples} and {batch}."
            )
        # The source is an argument, since XLA would fold its policies for minutes if they were constants.
        make = eqx.filter_jit(lambda source, keys: jax.vmap(lambda key: source.episode(key, samples))(keys))
        parts, begin = [], time.monotonic()
        for first in range(0, episodes, batch):
            if parts and seconds is not None and time.monotonic() - begin > seconds:
                break
            chosen = jnp.arange(first, first + min(batch, episodes))  # the last batch is full too; the rest is cut off
            parts.append(jax.device_get(make(source, jax.vmap(lambda i: jax.random.fold_in(key, i))(chosen))))
            advance(min(batch, episodes - first))

        def joined(*leaves: np.ndarray) -> Array:
            whole = np.concatenate(leaves)[:episodes]
            return jnp.asarray(whole.reshape(-1, *whole.shape[2:]))

        return cls(*jax.tree.map(joined, *parts))

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        beliefs, samples = jax.tree.leaves(self.states)[0].shape[:2]
        if n > samples:
            raise InputError(f"This pool holds {samples} samples of each belief; {n} were asked for.")
        belief_key, first_key = jax.random.split(key)
        belief = jax.random.randint(belief_key, (), 0, beliefs)
        chosen = (jax.random.randint(first_key, (), 0, samples) + jnp.arange(n)) % samples
        space = jax.tree.map(lambda leaf: leaf[belief], self.spaces)
        return jax.tree.map(lambda leaf: leaf[belief, chosen], self.states), space
