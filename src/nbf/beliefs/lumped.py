"""Beliefs over lumped states: the first symbol of a sequence and the *set* of the others, in whatever order.

Of k symbols there are C(k, l) sets of l. They are listed by size and then lexicographically, so that the masses of all
lumped states of one size are a table of C(k, l) rows, one for each set, and a column for each first symbol. To have
one shape for all sizes, rows are padded to C(k, k/2).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.contracts import Belief, State
from nbf.errors import InputError

MOST_SYMBOLS = 13
"""Symbols up to which sets are listed, the cards of a suit: a table of 1716 rows and 13 columns."""
NO_SYMBOL = -1
"""Stands for the first symbol where sequences begin without any."""


class LumpedState(NamedTuple):
    """What is left of a sequence if the order of all symbols but the first is forgotten."""

    first: Int[Array, ""]
    """`NO_SYMBOL` where sequences begin without any."""
    rest: Bool[Array, " k"]
    """The set of the others, multi-hot."""


@dataclass(frozen=True)
class SetListing:
    """The sets of k symbols by size; rows beyond the last set of a size are padding, of empty sets."""

    members: Bool[np.ndarray, "sizes sets k"]
    left: Bool[np.ndarray, "sizes sets k"]
    """The symbols that a set lacks; none in padding."""
    parents: Int[np.ndarray, "sizes sets k"]
    """For each set and symbol of it: the row, among the sets of one symbol less, of the set without that symbol."""
    rows: Int[np.ndarray, " masks"]
    """The row of a set, by the number whose bits are its symbols."""


@functools.cache
def sets_of(symbols: int) -> SetListing:
    """List the sets of some symbols, once for each number of symbols.

    Args:
        symbols: k.

    Returns:
        The sets and their tables. More than `MOST_SYMBOLS` are refused with an `InputError`.
    """
    padded = math.comb(symbols, symbols // 2)
    if symbols > MOST_SYMBOLS:
        needed = padded * symbols * (4 * symbols + 6 * (symbols + 1)) / 2**20  # an update, and the tables below
        raise InputError(
            f"Lumped states are listed for at most {MOST_SYMBOLS} symbols; with {symbols} there are up to {padded:,} "
            f"sets, and one filter would need about {needed:,.0f} MiB. Use a particle filter."
        )
    shape = (symbols + 1, padded, symbols)
    members, left = np.zeros((2, *shape), bool)
    parents, rows = np.zeros(shape, np.int32), np.zeros(2**symbols, np.int32)
    for size in range(symbols + 1):
        for row, chosen in enumerate(itertools.combinations(range(symbols), size)):
            members[size, row, list(chosen)] = True
            left[size, row] = ~members[size, row]
            mask = sum(2**symbol for symbol in chosen)
            rows[mask] = row
            for symbol in chosen:
                parents[size, row, symbol] = rows[mask - 2**symbol]
    return SetListing(members, left, parents, rows)


def lump(state: Int[Array, " k"], *, first: bool) -> LumpedState:
    """Forget the order of a sequence.

    Args:
        state: Different symbols, padded with k, their number.
        first: Whether the first symbol is kept.

    Returns:
        The lumped state.
    """
    rest = state[1:] if first else state
    members = jnp.any(rest[:, None] == jnp.arange(state.shape[0]), axis=0)
    return LumpedState(state[0] if first else jnp.full((), NO_SYMBOL, state.dtype), members)


def place(state: LumpedState, *, first: bool) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Find a lumped state in the table of its size.

    Args:
        state: A lumped state.
        first: Whether its first symbol counts.

    Returns:
        Row and column.
    """
    symbols = state.rest.shape[0]
    bits = jnp.sum(jnp.where(_members(state), 2 ** jnp.arange(symbols), 0))
    row = jnp.asarray(sets_of(symbols).rows)[bits]
    return row, jnp.clip(state.first, 0, symbols - 1) if first else jnp.zeros_like(row)


def _members(state: LumpedState) -> Bool[Array, " k"]:
    """All symbols, the first among them."""
    return state.rest | (jnp.arange(state.rest.shape[0]) == state.first)


class LumpedBelief(Belief):
    """A probability for each `LumpedState` of one size: a belief over *sets*, not over sequences."""

    masses: Float[Array, "sets firsts"]
    """One column where sequences begin without a symbol."""
    size: Int[Array, ""]
    """Symbols of the sequences so far, the first among them."""
    symbols: int = eqx.field(static=True)
    """k."""

    @property
    def _first(self) -> bool:
        return self.masses.shape[1] > 1

    def _states(self, rows: Int[Array, " n"], columns: Int[Array, " n"]) -> LumpedState:
        members = jnp.asarray(sets_of(self.symbols).members)[self.size][rows]
        if not self._first:
            return LumpedState(jnp.full_like(columns, NO_SYMBOL), members)
        return LumpedState(columns, members & (jnp.arange(self.symbols) != columns[:, None]))

    def sample(self, key: Key[Array, ""], n: int) -> LumpedState:
        drawn = prng.categoricals(key, self.masses.ravel(), n)
        return self._states(*jnp.divmod(drawn, self.masses.shape[1]))

    def log_prob(self, state: State) -> Float[Array, ""]:
        if not isinstance(state, LumpedState):
            raise InputError(
                "This belief is over sets, not over sequences: pass a LumpedState, which nbf.beliefs.lumped.lump makes "
                f"of a sequence; got {type(state).__name__}."
            )
        members, named = _members(state), state.first >= 0
        legal = (jnp.sum(members) == self.size) & (named == self._first) & (state.first < self.symbols)
        legal &= ~jnp.any(state.rest & (jnp.arange(self.symbols) == state.first))
        return jnp.where(legal, jnp.log(self.masses[place(state, first=self._first)]), -jnp.inf)

    def expectation(self, function: Callable[[LumpedState], Any]) -> Any:
        masses = self.masses.ravel()
        states = self._states(*jnp.divmod(jnp.arange(masses.shape[0]), self.masses.shape[1]))

        def mean(values: Array) -> Array:
            aligned = jnp.reshape(masses, (-1,) + (1,) * (values.ndim - 1))
            # Most entries are no lumped states and have no mass; the value there may be NaN.
            return jnp.sum(jnp.where(aligned > 0, aligned * values, 0.0), axis=0)

        return jax.tree.map(mean, jax.vmap(function)(states))
