"""Beliefs that are made once and drawn again and again: for sources whose beliefs are dear."""

from __future__ import annotations

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
        """n samples of every belief of one random episode, depths along a leading axis."""
        ...


class BeliefPool(BeliefSource):
    """Samples of many beliefs, drawn once and used again and again: for beliefs that are dear to make.

    A draw takes one belief at random, and a random stretch of its samples, which must be in no order.
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
        advance: Callable[[int], None] = lambda done: None,
    ) -> BeliefPool:
        """All beliefs of many episodes: a belief that costs a whole episode is then drawn for nothing.

        `advance` is told how many episodes were finished.
        """
        if episodes < 1 or samples < 1 or batch < 1:
            raise InputError(
                f"A pool needs episodes, samples and batch of at least 1; got {episodes}, {samples} and {batch}."
            )
        # The source is an argument: the policies that it may hold are too many to be constants.
        make = eqx.filter_jit(lambda source, keys: jax.vmap(lambda key: source.episode(key, samples))(keys))
        parts = []
        for first in range(0, episodes, batch):
            chosen = jnp.arange(first, first + min(batch, episodes))  # the last batch is full; what is too much is cut
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
