"""The exact belief over deals where hands are told apart by evidence about one hand at a time.

    p(x) ∝ Π_i w_i(hand i of x),    over all deals whose hands do not share a card.

A weight for each hand of each holder is all that it takes. Sums over pairs of disjoint hands are sums over subsets: the
weights of all hands within a set of cards, for every set at once (Yates 1937).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.contracts import Belief, State
from nbf.errors import InputError

MOST_UNSEEN = 20
"""Cards whose 2^20 sets are summed over."""


@functools.cache
def hand_table(unseen: int, size: int) -> tuple[Bool[np.ndarray, "hands unseen"], Int[np.ndarray, " hands"]]:
    """List all hands.

    Args:
        unseen: Cards that may be in a hand.
        size: Cards of a hand.

    Returns:
        Which cards each hand has, and the same as the bits of a number.
    """
    if unseen > MOST_UNSEEN:
        raise InputError(f"Tables of hands are for up to {MOST_UNSEEN} unseen cards; got {unseen}.")
    chosen = np.array(list(itertools.combinations(range(unseen), size))).reshape(-1, size)
    held = np.zeros((len(chosen), unseen), bool)
    held[np.arange(len(chosen))[:, None], chosen] = True
    return held, (held * (1 << np.arange(unseen))).sum(axis=1).astype(np.int32)


def subset_sums(weights: Float[Array, " sets"]) -> Float[Array, " sets"]:
    """Sum over the subsets of every set.

    Args:
        weights: Of every set of k elements, by its bits.

    Returns:
        For every set, the sum of the weights of its subsets.
    """
    for element in range(weights.shape[0].bit_length() - 1):
        pairs = weights.reshape(-1, 2, 1 << element)
        weights = jnp.stack([pairs[:, 0], pairs[:, 0] + pairs[:, 1]], axis=1).reshape(-1)
    return weights


class HandBelief(Belief):
    """Weights of the hands of one or two holders; the other cards are nobody's."""

    log_weights: Float[Array, "holders hands"]
    """-inf where a hand is impossible. The weights of all deals sum to one."""
    probs: Float[Array, "holders hands"]
    """Of each holder's hands."""
    unseen: Int[Array, " unseen"]
    """The cards that may be in a hand, ascending."""
    cards: int = eqx.field(static=True)
    """Of the whole deck."""
    size: int = eqx.field(static=True)
    """Cards of a hand."""

    @classmethod
    def of(
        cls, log_weights: Float[Array, "holders hands"], unseen: Int[Array, " unseen"], cards: int, size: int
    ) -> tuple[HandBelief, Float[Array, ""]]:
        """Normalise weights.

        Args:
            log_weights: Of the hands of each holder.
            unseen: The cards that may be in a hand, ascending.
            cards: Of the whole deck.
            size: Cards of a hand.

        Returns:
            The belief, and the log of the sum of the weights of all deals: -inf if none is possible; then the belief is
            NaN.
        """
        largest = jnp.max(log_weights, axis=1, keepdims=True)
        largest = jnp.where(largest > -jnp.inf, largest, 0.0)
        weights = both = jnp.exp(log_weights - largest)
        if len(weights) == 2:
            bits, every = hand_table(unseen.shape[0], size)[1], (1 << unseen.shape[0]) - 1
            sums = jax.vmap(lambda weights: subset_sums(jnp.zeros(every + 1).at[bits].set(weights)))(weights)
            both = weights * sums[::-1, every ^ bits]
        total = jnp.sum(both, axis=1, keepdims=True)
        log_total = jnp.log(total[0, 0]) + jnp.sum(largest)
        normalized = (log_weights - largest).at[0].add(-jnp.log(total[0, 0]))
        return cls(normalized, both / total, unseen, cards, size), log_total

    @property
    def holders(self) -> int:
        """Hands of a deal."""
        return self.log_weights.shape[0]

    @property
    def _table(self) -> tuple[Bool[np.ndarray, "hands unseen"], Int[np.ndarray, " hands"]]:
        return hand_table(self.unseen.shape[0], self.size)

    def marginals(self) -> Float[Array, "cards owners"]:
        """Compute who holds each card.

        Returns:
            The probability of each holder, and last of nobody, for each card.
        """
        held = self.probs @ jnp.asarray(self._table[0], jnp.float32)
        every = jnp.zeros((self.cards, self.holders)).at[self.unseen].set(held.T)
        return jnp.concatenate([every, 1.0 - jnp.sum(every, axis=1, keepdims=True)], axis=1)

    def deals(self, hands: Int[Array, "n holders"]) -> Int[Array, "n cards"]:
        """Make deals of hands.

        Args:
            hands: Rows of the table of hands, one for each holder.

        Returns:
            The owner of each card.
        """
        held = jnp.asarray(self._table[0])[hands]
        owner = jnp.min(jnp.where(held, jnp.arange(self.holders)[:, None], self.holders), axis=1)
        return jnp.full((len(hands), self.cards), self.holders, jnp.int32).at[:, self.unseen].set(owner)

    def sample(self, key: Key[Array, ""], n: int) -> Int[Array, "n cards"]:
        first_key, second_key = jax.random.split(key)
        first = prng.categoricals(first_key, self.probs[0], n)
        if self.holders == 1:
            return self.deals(first[:, None])
        bits, weights = jnp.asarray(self._table[1]), jnp.exp(self.log_weights[1])

        def other(key: Key[Array, ""], hand: Int[Array, ""]) -> Int[Array, ""]:
            return prng.categorical(key, jnp.where(bits & bits[hand] == 0, weights, 0.0))

        second = jax.vmap(other)(jax.random.split(second_key, n), first)
        return self.deals(jnp.stack([first, second], axis=1))

    def log_prob(self, state: State) -> Float[Array, ""]:
        return self.log_probs(state[None])[0]

    def log_probs(self, states: State) -> Float[Array, " n"]:
        own = states[:, self.unseen, None] == jnp.arange(self.holders)
        bits = jnp.sum(own * (1 << np.arange(self.unseen.shape[0]))[:, None], axis=1)
        rows = np.full(1 << self.unseen.shape[0], -1, np.int32)
        rows[self._table[1]] = np.arange(len(self._table[1]))
        rows = jnp.asarray(rows)[bits]
        log_weights = jnp.take_along_axis(self.log_weights.T, jnp.maximum(rows, 0), axis=0)
        others = jnp.ones(self.cards, bool).at[self.unseen].set(False)  # they are nobody's
        legal = jnp.all(rows >= 0, axis=1) & jnp.all(~others | (states == self.holders), axis=1)
        return jnp.where(legal, jnp.sum(log_weights, axis=1), -jnp.inf)

    def expectation(self, function: Callable[[State], Any]) -> Any:
        """The expectation of a function of one deal, over all pairs of hands: for small tables.

        Args:
            function: Of one deal; gives a pytree of arrays.

        Returns:
            The expectation of each array.
        """
        rows = np.arange(self.log_weights.shape[1])
        pairs = np.stack(np.meshgrid(*[rows] * self.holders, indexing="ij"), axis=-1).reshape(-1, self.holders)
        apart = functools.reduce(np.bitwise_and, self._table[1][pairs].T) == 0 if self.holders > 1 else slice(None)
        states = self.deals(jnp.asarray(pairs[apart]))
        probs = jnp.exp(self.log_probs(states))
        return jax.tree.map(lambda value: jnp.tensordot(probs, value, axes=1), jax.vmap(function)(states))
