"""What a state space can offer beyond its contract, and what each offer buys.

Each is a few facts about the states, which a space claims as its fields, and what follows from them.
"""

# Without `from __future__ import annotations`: equinox takes abstract variables whose types are strings for fields.

import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbf.capability import Capability
from nbf.contracts import StateSpace


class FiniteSpace(StateSpace, Capability):
    """The integer points of a grid, 0 <= x_i < shape_i, few enough to be listed: a state is an `Int[d]` vector. Buys
    expectations and moment matching by sums over all states. Kernel densities have a mass for each point.

    Arguments of the methods:
        state: One state.
        other: Another one.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    """Points along each axis; static."""
    legal: eqx.AbstractVar[Bool[Array, " cells"] | None]
    """Which points a state may take, in row-major order; None for all of them."""

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """False if the points are names alone, and nearness says nothing of them. A field."""

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many states there are, illegal ones included; static."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Change of the index by a step along each axis."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(self.dimension))

    def points(self) -> Int[np.ndarray, "cells d"]:
        """Every state, in row-major order."""
        return np.stack(np.unravel_index(np.arange(self.size), self.shape), axis=-1).astype(np.int32)

    def index(self, state: Int[Array, " d"]) -> Int[Array, ""]:
        """The position of a state in `points()`; that of the nearest one for a point outside."""
        inside = jnp.clip(state, 0, jnp.asarray(self.shape) - 1)
        return jnp.sum(inside * jnp.asarray(self.strides)).astype(jnp.int32)

    def difference(self, state: Array, other: Array) -> Array:
        """state - other, of points or of any vectors."""
        return state - other


class ContinuousSpace(StateSpace, Capability):
    """Real vectors: a model has a density, which may reach beyond the bounds that clipping keeps states within. Buys
    the Gaussian filters and kernel densities.

    A circular coordinate, such as an angle, has neither ends nor walls: `high - low` is its period, and all numbers
    that differ by whole periods are the same state.

    Arguments of the methods:
        state: One state, or several.
        other: Another one.
        numbers: One for each axis.
    """

    low: eqx.AbstractVar[tuple[float, ...]]
    """Lower end of each axis."""
    high: eqx.AbstractVar[tuple[float, ...]]
    """Upper end of each axis."""
    bounded: eqx.AbstractVar[bool]
    """False if the ends only give the usual range of the states, and every finite vector is legal."""

    @property
    @abstractmethod
    def circular(self) -> tuple[int, ...]:
        """Indices of the coordinates that are circular. A field."""

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return len(self.low)

    @property
    def scale(self) -> Float[np.ndarray, " d"]:
        """Half the distance between the ends of each axis."""
        return (np.asarray(self.high, np.float32) - np.asarray(self.low, np.float32)) / 2.0

    @property
    def middle(self) -> Float[np.ndarray, " d"]:
        """The point between the ends."""
        return (np.asarray(self.high, np.float32) + np.asarray(self.low, np.float32)) / 2.0

    @property
    def wraps(self) -> Bool[np.ndarray, " d"]:
        """Which coordinates are circular."""
        return np.isin(np.arange(self.dimension), self.circular)

    @property
    def walled(self) -> Bool[np.ndarray, " d"]:
        """Which coordinates are stopped by walls at their ends: if bounded, those that are not circular."""
        return ~self.wraps & self.bounded

    def rescale(self, state: Float[Array, " d"]) -> Float[Array, " d"]:
        """The state with its ends at -1 and 1 along each axis; a circular coordinate has period 2."""
        return (state - self.middle) / self.scale

    def restore(self, numbers: Float[Array, " d"]) -> Float[Array, " d"]:
        """The inverse of `rescale`, at the nearest state."""
        return self.nearest(numbers * self.scale + self.middle)

    def nearest(self, state: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
        """The nearest state: circular coordinates wrapped to between their ends, the others clipped if bounded."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        inside = jnp.clip(state, low, high) if self.bounded else state
        if not self.circular:
            return inside
        turns = jnp.floor((state - low) / (high - low))
        return jnp.where(self.wraps, jnp.clip(state - turns * (high - low), low, high), inside)

    def difference(self, state: Float[Array, "*n d"], other: Float[Array, "*m d"]) -> Float[Array, "*k d"]:
        """state - other; along circular coordinates the shorter way round, hence at most half a period."""
        apart = state - other
        if not self.circular:
            return apart
        period = jnp.asarray(2.0 * self.scale)
        return jnp.where(self.wraps, apart - period * jnp.round(apart / period), apart)


class SequenceSpace(StateSpace, Capability):
    """Sequences of symbols, written one after another: a state is an `Int[length]` vector. Buys the autoregressive
    decoder, which writes legal sequences only.

    Arguments of the methods:
        prefix: The first symbols of a sequence.
        state: A sequence.
    """

    length: eqx.AbstractVar[int]
    """Symbols in a sequence."""
    categories: eqx.AbstractVar[int]
    """Size K of the alphabet: symbols are 0 to K - 1."""
    legal: eqx.AbstractVar[Callable[..., Bool[Array, " K"]] | None]
    """The rule of `mask`; None if every sequence is legal."""

    @abstractmethod
    def mask(self, prefix: Int[Array, " i"]) -> Bool[Array, " K"]:
        """Which symbols may follow a prefix."""

    def masks(self, state: Int[Array, " length"]) -> Bool[Array, "length K"]:
        """Which symbols may stand at each place, given those before it: `mask` of each prefix."""
        return jnp.stack([self.mask(state[:place]) for place in range(self.length)])


class DealSpace(StateSpace, Capability):
    """Who holds which card: a state is an `Int[cards]` vector of owners. Each owner but the last holds as many cards as
    their quota says, and the last one has the rest. Buys `MaximumEntropyDeals`, a model that needs no training, and
    `AutoregressiveDeals`, a learned one."""

    allowed: eqx.AbstractVar[Bool[Array, "cards owners"]]
    """Who may hold each card, by what is known."""
    quotas: eqx.AbstractVar[tuple[int, ...]]
    """Cards of each owner but the last."""

    @property
    def cards(self) -> int:
        """Number of cards."""
        return self.allowed.shape[-2]

    @property
    def owners(self) -> int:
        """Number of owners, with the one who has the rest."""
        return len(self.quotas) + 1
