"""Integer points of a grid."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbf.capabilities import FiniteSpace
from nbf.errors import InputError


class Lattice(FiniteSpace):
    """Integer points of a grid, `0 <= x_i < shape_i`; a state is an `Int[d]` vector."""

    shape: tuple[int, ...] = eqx.field(static=True)
    """Cells along each axis."""
    legal: Bool[Array, " cells"] | None = None
    """Which cells a state may take, in row-major order; None for all of them."""
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    ordered: bool = eqx.field(static=True, default=True)  # pyright: ignore[reportIncompatibleMethodOverride]
    """False if the points are names alone, as the states of `from_matrices` are, and nearness says nothing of them:
    `nbf.fit` then encodes them one-hot."""

    def __check_init__(self) -> None:
        if len(self.shape) == 0 or any(side < 1 for side in self.shape):
            raise InputError(f"A lattice needs at least one axis and sides of at least 1; got shape {self.shape}.")

    @property
    def signature(self) -> str:
        return f"lattice{self.shape}"

    @property
    def num_features(self) -> int:
        return self.dimension

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
        inside = jnp.all((state >= 0) & (state < jnp.asarray(self.shape)))
        return inside if self.legal is None else inside & self.legal[self.index(state)]
