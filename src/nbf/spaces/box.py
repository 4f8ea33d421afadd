"""Real vectors, of which some coordinates may be circular."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import SupportsFloat, SupportsInt

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nbf.capabilities import ContinuousSpace
from nbf.errors import InputError


def _floats(numbers: Iterable[SupportsFloat]) -> tuple[float, ...]:
    """Convert the ends of a box to floats, so that 1, 1.0 and NumPy's numbers compare, hash and print alike."""
    if np.ndim(numbers) == 0:  # pyright: ignore[reportArgumentType]
        raise InputError(
            f"The ends of a box are one number for each axis, as nbf.Box((-3.0,), (3.0,)) of a line; got {numbers!r}."
        )
    return tuple(float(number) for number in numbers)


def _axes(numbers: SupportsInt | Iterable[SupportsInt]) -> tuple[int, ...]:
    """Convert the indices of axes to sorted integers."""
    listed = np.ravel(np.asarray(numbers))
    if listed.size and listed.dtype.kind not in "iu":
        raise InputError(f"`circular` names coordinates by their indices, for example (1,); got {listed.tolist()}.")
    return tuple(sorted({int(number) for number in listed}))


class Box(ContinuousSpace):
    """Real vectors between `low` and `high`; a state is a `Float[d]` vector.

    A circular coordinate, such as an angle, has neither ends nor walls: `high - low` is its period, and all numbers
    that differ by whole periods are the same state. Samples are given between `low` and `high`.
    """

    low: tuple[float, ...] = eqx.field(static=True, converter=_floats)
    """Lower end of each axis."""
    high: tuple[float, ...] = eqx.field(static=True, converter=_floats)
    """Upper end of each axis."""
    bounded: bool = eqx.field(static=True, default=True)
    """False if the ends only give the usual range of the states, and every finite vector is legal."""
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    circular: tuple[int, ...] = eqx.field(  # pyright: ignore[reportIncompatibleMethodOverride]
        static=True, default=(), converter=_axes
    )
    """Indices of the coordinates that are circular, for example (2,) for the heading of a pose x, y, heading."""

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
        if not all(0 <= axis < self.dimension for axis in self.circular):
            raise InputError(
                f"`circular` names coordinates by their indices, here from 0 to {self.dimension - 1}; got "
                f"{self.circular}."
            )

    @property
    def signature(self) -> str:
        ends = f"{'box' if self.bounded else 'reals'}{tuple(zip(self.low, self.high, strict=True))}"
        return f"{ends} circular{self.circular}" if self.circular else ends

    @property
    def state_signature(self) -> str:
        """The signature; that of vectors without bounds does not tell their usual range, unless it is a period."""
        return self.signature if self.bounded or self.circular else "reals"

    @property
    def num_features(self) -> int:
        return self.dimension + len(self.circular)

    def encode(self, state: Float[Array, " d"]) -> Float[Array, " k"]:
        """Rescale the box to (-1, 1) along each axis; of a circular one, give the cosine and the sine.

        Args:
            state: The state.

        Returns:
            Its encoding, axis by axis.
        """
        numbers = self.rescale(state)
        if not self.circular:
            return numbers
        angles = math.pi * numbers
        each = [
            [jnp.cos(angles[axis]), jnp.sin(angles[axis])] if axis in self.circular else [numbers[axis]]
            for axis in range(self.dimension)
        ]
        return jnp.stack([number for group in each for number in group])

    def decode(self, numbers: Float[Array, " k"]) -> Float[Array, " d"]:
        """Invert `encode`, and clip the result to the box if it is bounded.

        Args:
            numbers: The encoding.

        Returns:
            The state.
        """
        if not self.circular:
            return self.restore(numbers)
        place, found = 0, list[Array]()
        for axis in range(self.dimension):
            if axis in self.circular:
                cosine, sine = numbers[place], numbers[place + 1]
                # At the origin every direction is as near, and the derivative would be NaN.
                cosine = jnp.where((cosine == 0) & (sine == 0), 1.0, cosine)
                found.append(jnp.arctan2(sine, cosine) / math.pi)
            else:
                found.append(numbers[place])
            place += 2 if axis in self.circular else 1
        return self.restore(jnp.stack(found))

    def contains(self, state: Float[Array, " d"]) -> Bool[Array, ""]:
        inside = (state >= jnp.asarray(self.low)) & (state <= jnp.asarray(self.high))
        return jnp.all(jnp.where(self.walled, inside, jnp.isfinite(state)))
