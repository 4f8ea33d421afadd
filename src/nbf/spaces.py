"""State spaces: how a state becomes numbers for a network, and which states are legal."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbf.contracts import InputError, StateSpace


class Lattice(StateSpace):
    """Integer points of a box, `0 <= x_i < shape_i`; a state is an `Int[d]` vector.

    `legal` marks the cells that a state may take, in row-major order; None means all of them.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    legal: Bool[Array, " cells"] | None = None

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

    def contains(self, state: Int[Array, " d"]) -> Bool[Array, ""]:
        inside = self.inside(state)
        return inside if self.legal is None else inside & self.legal[self.index(state)]
