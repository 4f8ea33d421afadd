"""State spaces: how a state is encoded as numbers for a network, and which states are legal.

| space | a state is | encoded as |
|---|---|---|
| `Lattice` | an integer point of a grid, `Int[d]` | its cell's centre in (-1, 1)^d |
| `Box` | a real vector, `Float[d]` | the vector, rescaled to (-1, 1)^d |
| `Tokens` | a sequence of symbols, `Int[length]` | one-hot vectors, concatenated |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import SupportsFloat

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbf.capabilities import ContinuousSpace, FiniteSpace
from nbf.contracts import StateSpace
from nbf.errors import InputError


class Lattice(FiniteSpace):
    """Integer points of a grid, `0 <= x_i < shape_i`; a state is an `Int[d]` vector."""

    shape: tuple[int, ...] = eqx.field(static=True)
    """Cells along each axis."""
    legal: Bool[Array, " cells"] | None = None
    """Which cells a state may take, in row-major order; None for all of them."""
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __check_init__(self) -> None:
        if len(self.shape) == 0 or any(side < 1 for side in self.shape):
            raise InputError(f"A lattice needs at least one axis and sides of at least 1; got shape {self.shape}.")

    @property
    def signature(self) -> str:
        return f"lattice{self.shape}"

    @property
    def dimension(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def num_features(self) -> int:
        return self.dimension

    @property
    def size(self) -> int:
        """Number of cells, including illegal ones."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Change of the row-major index by a step along each axis."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(self.dimension))

    def points(self) -> Int[np.ndarray, "cells d"]:
        """All cells, in row-major order."""
        return np.stack(np.unravel_index(np.arange(self.size), self.shape), axis=-1).astype(np.int32)

    def inside(self, state: Int[Array, " d"]) -> Bool[Array, ""]:
        """Whether a point lies on the grid, on a legal cell or not.

        Args:
            state: The point.

        Returns:
            True if it does.
        """
        return jnp.all((state >= 0) & (state < jnp.asarray(self.shape)))

    def index(self, state: Int[Array, " d"]) -> Int[Array, ""]:
        """Compute the row-major index of a point; a point off the grid counts as the nearest one on it.

        Args:
            state: The point.

        Returns:
            The index.
        """
        inside = jnp.clip(state, 0, jnp.asarray(self.shape) - 1)
        return jnp.sum(inside * jnp.asarray(self.strides)).astype(jnp.int32)

    def encode(self, state: Int[Array, "d *more"]) -> Float[Array, "d *more"]:
        """Rescale the centre of the cell to (-1, 1) along each axis.

        Args:
            state: The point; further axes may follow the first.

        Returns:
            Numbers of the same shape.
        """
        sides = np.reshape(self.shape, (-1, *(1,) * (state.ndim - 1)))
        return (state + 0.5) / (sides / 2.0) - 1.0

    def decode(self, numbers: Float[Array, " d"]) -> Int[Array, " d"]:
        """Find the cell that contains a point of (-1, 1)^d; a point outside counts as the nearest one inside.

        Args:
            numbers: The point.

        Returns:
            The cell.
        """
        sides = jnp.asarray(self.shape)
        return jnp.clip(jnp.floor((numbers + 1.0) * sides / 2.0), 0, sides - 1).astype(jnp.int32)

    def contains(self, state: Int[Array, " d"]) -> Bool[Array, ""]:
        inside = self.inside(state)
        return inside if self.legal is None else inside & self.legal[self.index(state)]


def _floats(numbers: Iterable[SupportsFloat]) -> tuple[float, ...]:
    """Convert the ends of a box to floats, so that 1, 1.0 and NumPy's numbers compare, hash and print alike."""
    return tuple(float(number) for number in numbers)


class Box(ContinuousSpace):
    """Real vectors between `low` and `high`; a state is a `Float[d]` vector."""

    low: tuple[float, ...] = eqx.field(static=True, converter=_floats)
    """Lower end of each axis."""
    high: tuple[float, ...] = eqx.field(static=True, converter=_floats)
    """Upper end of each axis."""
    bounded: bool = eqx.field(static=True, default=True)
    """False if the ends only give the usual range of the states, and every finite vector is legal."""
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __check_init__(self) -> None:
        ends = (*self.low, *self.high)
        sound = bool(self.low) and len(self.low) == len(self.high) and all(map(math.isfinite, ends))
        # In float32, like the states: ends that are closer than its precision would make a scale of zero.
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
        """Number of axes."""
        return len(self.low)

    @property
    def num_features(self) -> int:
        return self.dimension

    @property
    def scale(self) -> Float[np.ndarray, " d"]:
        """Half the side of the box along each axis: one unit of the encoding."""
        return (np.asarray(self.high, np.float32) - np.asarray(self.low, np.float32)) / 2.0

    @property
    def middle(self) -> Float[np.ndarray, " d"]:
        """Centre of the box, which is encoded as zero."""
        return (np.asarray(self.high, np.float32) + np.asarray(self.low, np.float32)) / 2.0

    def encode(self, state: Float[Array, " d"]) -> Float[Array, " d"]:
        """Rescale the box to (-1, 1) along each axis.

        Args:
            state: The state.

        Returns:
            Its encoding.
        """
        return (state - self.middle) / self.scale

    def decode(self, numbers: Float[Array, " d"]) -> Float[Array, " d"]:
        """Invert `encode`, and clip the result to the box if it is bounded.

        Args:
            numbers: The encoding.

        Returns:
            The state.
        """
        state = numbers * self.scale + self.middle
        return jnp.clip(state, jnp.asarray(self.low), jnp.asarray(self.high)) if self.bounded else state

    def contains(self, state: Float[Array, " d"]) -> Bool[Array, ""]:
        if not self.bounded:
            return jnp.all(jnp.isfinite(state))
        return jnp.all((state >= jnp.asarray(self.low)) & (state <= jnp.asarray(self.high)))


Legal = Callable[[Int[Array, " i"], Float[Array, " c"] | None], Bool[Array, " K"]]
"""`legal(prefix, context)`: which of the K symbols may follow a prefix."""


class Tokens(StateSpace):
    """Sequences of symbols from a finite alphabet; a state is an `Int[length]` vector."""

    length: int = eqx.field(static=True)
    """Symbols in a sequence."""
    categories: int = eqx.field(static=True)
    """Size K of the alphabet: symbols are 0 to K - 1."""
    legal: Legal | None = eqx.field(static=True, default=None)
    """`legal(prefix, context)` says which symbols may follow a prefix; None if every sequence is legal. Each symbol it
    allows must leave a prefix that can be completed. It is traced once for each length of the prefix, so Python's
    `if` may depend on len(prefix)."""
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
        """Find which symbols may follow a prefix.

        Args:
            prefix: The first symbols of a sequence.

        Returns:
            True for each symbol that may come next.
        """
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
        """Find which symbols may stand at each place, given those before it.

        Args:
            state: A sequence.

        Returns:
            `mask` of each of its prefixes.
        """
        return jnp.stack([self.mask(state[:place]) for place in range(self.length)])

    def encode(self, state: Int[Array, " length"]) -> Float[Array, " d"]:
        """Encode a sequence as concatenated one-hot vectors.

        Args:
            state: The sequence.

        Returns:
            length · K numbers.
        """
        return jax.nn.one_hot(state, self.categories).ravel()

    def decode(self, numbers: Float[Array, " d"]) -> Int[Array, " length"]:
        """Take the symbol with the largest number at each place.

        Args:
            numbers: length · K numbers.

        Returns:
            The sequence.
        """
        return jnp.argmax(numbers.reshape(self.length, self.categories), axis=1).astype(jnp.int32)

    def contains(self, state: Int[Array, " length"]) -> Bool[Array, ""]:
        inside = (state >= 0) & (state < self.categories)
        known = jnp.clip(state, 0, self.categories - 1)
        return jnp.all(inside & self.masks(known)[jnp.arange(self.length), known])
