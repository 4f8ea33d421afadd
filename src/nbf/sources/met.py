"""The beliefs that a filter met last: what `nbf.learn` trains on.

A ring of fixed size. The oldest belief makes room for the newest, and one compiled program trains on it however full it
is.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from nbf.contracts import BeliefSource, State, StateSpace
from nbf.errors import InputError


class MetBeliefs(BeliefSource):
    """Samples of beliefs, and the true state in which each of them arose, where it is known.

    A true state is an exact sample of the posterior, whatever the filter made of it: one that was lost tells so. Of the
    second half of a draw, which training scores, a share are copies of it; the first half, which training embeds, is
    of the filter's belief alone.
    """

    states: State
    """Leading axes (places, samples) on every leaf, in random order along the second."""
    truths: State
    """The true state of each belief; anything where it is not known."""
    known: Bool[Array, " places"]
    """Whether the true state is known."""
    spaces: StateSpace
    """Of each belief: a leading axis on every leaf, if there are any."""
    met: Int[Array, ""]
    """Beliefs that were added so far."""
    truth_share: float = eqx.field(static=True, default=0.0)
    """Of the scored samples, where the true state is known."""

    def __check_init__(self) -> None:
        if not 0 <= self.truth_share <= 1:
            raise InputError(f"The share of true states lies between 0 and 1; got truth_share={self.truth_share}.")

    @classmethod
    def empty(cls, state: State, space: StateSpace, places: int, samples: int, truth_share: float) -> MetBeliefs:
        """Make room for beliefs.

        Args:
            state: One state, or its shapes and types.
            space: One space, or its shapes and types.
            places: How many beliefs are kept.
            samples: Of each belief.
            truth_share: See the field.

        Returns:
            The source, from which nothing can be drawn yet.
        """

        def room(*shape: int):
            return lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype)

        arrays, static = eqx.partition(space, lambda leaf: hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
        return cls(
            jax.tree.map(room(places, samples), state), jax.tree.map(room(places), state),
            jnp.zeros(places, bool), eqx.combine(jax.tree.map(room(places), arrays), static), jnp.int32(0), truth_share,
        )  # fmt: skip

    @property
    def places(self) -> int:
        """How many beliefs are kept."""
        return self.known.shape[0]

    @property
    def filled(self) -> Int[Array, ""]:
        """How many beliefs can be drawn."""
        return jnp.minimum(self.met, self.places)

    def add(self, states: State, truths: State | None, spaces: StateSpace) -> MetBeliefs:
        """Add beliefs, in the place of the oldest ones.

        Args:
            states: Leading axes (beliefs, samples) on every leaf.
            truths: The true state of each; None if they are not known.
            spaces: Of each.

        Returns:
            The source with the newest beliefs.
        """
        count, met = jax.tree.leaves(states)[0].shape[0], int(self.met)
        newest = np.arange(count)[-self.places :]
        where = (met + newest) % self.places

        def put(room: Array, leaf: Array | np.ndarray) -> Array:
            found = np.array(room)
            found[where] = np.asarray(leaf)[newest]
            return jnp.asarray(found)

        truths_after = self.truths if truths is None else jax.tree.map(put, self.truths, truths)
        arrays, static = eqx.partition(self.spaces, eqx.is_array)
        added = jax.tree.map(put, arrays, eqx.filter(spaces, eqx.is_array))
        known = put(self.known, jnp.full(count, truths is not None))
        return MetBeliefs(
            jax.tree.map(put, self.states, states), truths_after, known, eqx.combine(added, static),
            jnp.int32(met + count), self.truth_share,
        )  # fmt: skip

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        samples = jax.tree.leaves(self.states)[0].shape[1]
        if n > samples:
            raise InputError(f"These beliefs are known by {samples} samples each; {n} were asked for.")
        belief_key, first_key, truth_key = jax.random.split(key, 3)
        belief = jax.random.randint(belief_key, (), 0, jnp.maximum(self.filled, 1))
        chosen = (jax.random.randint(first_key, (), 0, samples) + jnp.arange(n)) % samples
        space = jax.tree.map(lambda leaf: leaf[belief], self.spaces)
        states = jax.tree.map(lambda leaf: leaf[belief, chosen], self.states)
        if self.truth_share == 0:
            return states, space
        told = jax.random.bernoulli(truth_key, self.truth_share, (n,)) & (jnp.arange(n) >= n // 2) & self.known[belief]

        def replaced(leaf: Array, truths: Array) -> Array:
            return jnp.where(jnp.reshape(told, (n,) + (1,) * (leaf.ndim - 1)), truths[belief], leaf)

        return jax.tree.map(replaced, states, self.truths), space
