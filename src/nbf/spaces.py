"""State spaces: how a state becomes numbers for a network, and which states are legal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import SupportsFloat

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbf.contracts import StateSpace
from nbf.errors import InputError


class Lattice(StateSpace):
    """Integer points of a box, `0 <= x_i < shape_i`; a state is an `Int[d]` vector.

    `legal` marks the cells that a state may take, in row-major order; None means all of them.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    legal: Bool[Array, " cells"] | None = None
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __check_init__(self) -> None:
        if len(self.shape) == 0 or any(side < 1 for side in self.shape):
            raise InputError(f"A lattice needs at least one axis and sides of at least 1; got shape {self.shape}.")

    @property
    def signature(self) -> str:
        return f"lattice{self.shape}"

    @property
    def dimension(self) -> int:
        return len(self.shape)

    @property
    def num_features(self) -> int:
        return self.dimension

    @property
    def size(self) -> int:
        """How many cells there are, illegal ones included."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far a step along each axis moves in row-major order."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(self.dimension))

    def points(self) -> Int[np.ndarray, "cells d"]:
        """Every cell, in row-major order."""
        return np.stack(np.unravel_index(np.arange(self.size), self.shape), axis=-1).astype(np.int32)

    def inside(self, state: Int[Array, " d"]) -> Bool[Array, ""]:
        """Whether the point lies within the box."""
        return jnp.all((state >= 0) & (state < jnp.asarray(self.shape)))

    def index(self, state: Int[Array, " d"]) -> Int[Array, ""]:
        """The row-major position of a point; points outside count as the nearest one inside."""
        inside = jnp.clip(state, 0, jnp.asarray(self.shape) - 1)
        return jnp.sum(inside * jnp.asarray(self.strides)).astype(jnp.int32)

    def encode(self, state: Int[Array, "d *more"]) -> Float[Array, "d *more"]:
        """Cell centres, mapped to (-1, 1) along each axis."""
        sides = np.reshape(self.shape, (-1, *(1,) * (state.ndim - 1)))
        return (state + 0.5) / (sides / 2.0) - 1.0

    def decode(self, numbers: Float[Array, " d"]) -> Int[Array, " d"]:
        """The cell that a point of (-1, 1)^d lies in; points beyond count as the nearest one inside."""
        sides = jnp.asarray(self.shape)
        return jnp.clip(jnp.floor((numbers + 1.0) * sides / 2.0), 0, sides - 1).astype(jnp.int32)

    def contains(self, state: Int[Array, " d"]) -> Bool[Array, ""]:
        inside = self.inside(state)
        return inside if self.legal is None else inside & self.legal[self.index(state)]


def _floats(numbers: Iterable[SupportsFloat]) -> tuple[float, ...]:
    """Ends of a box as numbers that compare, hash and print alike, whether they came as 1, 1.0 or NumPy's."""
    return tuple(float(number) for number in numbers)


class Box(StateSpace):
    """Real vectors between `low` and `high`; a state is a `Float[d]` vector.

    Where `bounded` is false the box only says how large states are, and every finite vector is legal.
    """

    low: tuple[float, ...] = eqx.field(static=True, converter=_floats)
    high: tuple[float, ...] = eqx.field(static=True, converter=_floats)
    bounded: bool = eqx.field(static=True, default=True)
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __check_init__(self) -> None:
        ends = (*self.low, *self.high)
        sound = bool(self.low) and len(self.low) == len(self.high) and all(map(math.isfinite, ends))
        # As float32, in which states are: ends that differ by less would make a scale of zero.
        with np.errstate(over="ignore"):
            sound = sound and bool(np.all((self.scale > 0) & np.isfinite(self.scale) & np.isfinite(self.middle)))
        if not sound:
            raise InputError(
                "A box needs as many lower as upper ends, at least one, all finite, each lower one below its upper "
                "one, in float32 (where states have no ends, give their usual range and bounded=False); got "
                f"{self.low} and {self.high}."
            )

    @property
    def signature(self) -> str:
        return f"{'box' if self.bounded else 'reals'}{tuple(zip(self.low, self.high, strict=True))}"

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def num_features(self) -> int:
        return self.dimension

    @property
    def scale(self) -> Float[np.ndarray, " d"]:
        """Half the side of the box along each axis: what one unit of the encoding is worth."""
        return (np.asarray(self.high, np.float32) - np.asarray(self.low, np.float32)) / 2.0

    @property
    def middle(self) -> Float[np.ndarray, " d"]:
        """The middle of the box, which is encoded as zero."""
        return (np.asarray(self.high, np.float32) + np.asarray(self.low, np.float32)) / 2.0

    def encode(self, state: Float[Array, " d"]) -> Float[Array, " d"]:
        """The box is mapped to (-1, 1) along each axis."""
        return (state - self.middle) / self.scale

    def decode(self, numbers: Float[Array, " d"]) -> Float[Array, " d"]:
        """The inverse of `encode`; a point outside a bounded box is moved to its nearest one."""
        state = numbers * self.scale + self.middle
        return jnp.clip(state, jnp.asarray(self.low), jnp.asarray(self.high)) if self.bounded else state

    def contains(self, state: Float[Array, " d"]) -> Bool[Array, ""]:
        if not self.bounded:
            return jnp.all(jnp.isfinite(state))
        return jnp.all((state >= jnp.asarray(self.low)) & (state <= jnp.asarray(self.high)))


Legal = Callable[[Int[Array, " i"], Float[Array, " c"] | None], Bool[Array, " K"]]


class Tokens(StateSpace):
    """Sequences of `length` symbols, each one of `categories`; a state is an `Int[length]` vector.

    `legal(prefix, context)` says which symbols may follow the first i = len(prefix) ones. It must leave only
    prefixes that can be completed; it is traced once for each i, so a Python `if` on len(prefix) is fine.
    None means that every sequence is legal.
    """

    length: int = eqx.field(static=True)
    categories: int = eqx.field(static=True)
    legal: Legal | None = eqx.field(static=True, default=None)
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __check_init__(self) -> None:
        if self.length < 1 or self.categories < 1:
            raise InputError(
                f"Tokens need a length and a number of categories of at least 1; got {self.length} and "
                f"{self.categories}."
            )

    @property
    def signature(self) -> str:
        return f"tokens({self.length}, {self.categories})"

    @property
    def num_features(self) -> int:
        return self.length * self.categories

    def mask(self, prefix: Int[Array, " i"]) -> Bool[Array, " K"]:
        """Which symbols may come next."""
        if self.legal is None:
            return jnp.ones(self.categories, bool)
        mask = jnp.asarray(self.legal(prefix, self.context))
        if mask.shape != (self.categories,) or mask.dtype != bool:
            raise InputError(
                f"`legal` must say yes or no to each of the {self.categories} categories; after {len(prefix)} symbols "
                f"it gave {mask.dtype}{list(mask.shape)}."
            )
        return mask

    def masks(self, state: Int[Array, " length"]) -> Bool[Array, "length K"]:
        """Which symbols may stand at each place, given those before it."""
        return jnp.stack([self.mask(state[:place]) for place in range(self.length)])

    def encode(self, state: Int[Array, " length"]) -> Float[Array, " d"]:
        """One-hot, symbol after symbol."""
        return jax.nn.one_hot(state, self.categories).ravel()

    def decode(self, numbers: Float[Array, " d"]) -> Int[Array, " length"]:
        """The largest entry at each place."""
        return jnp.argmax(numbers.reshape(self.length, self.categories), axis=1).astype(jnp.int32)

    def contains(self, state: Int[Array, " length"]) -> Bool[Array, ""]:
        inside = (state >= 0) & (state < self.categories)
        known = jnp.clip(state, 0, self.categories - 1)
        return jnp.all(inside & self.masks(known)[jnp.arange(self.length), known])
