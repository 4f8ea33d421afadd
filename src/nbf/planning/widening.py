"""How many children a node may have where there is no end of them."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from nbf.errors import InputError


class Widening(eqx.Module):
    """Progressive widening: after N visits there are at most about k · N^α children.

    Arguments of the methods:
        children: How many there are.
        visits: N.
        simulations: Of a search: N at most.
    """

    factor: float = eqx.field(static=True)
    """k."""
    exponent: float = eqx.field(static=True)
    """α."""

    def __check_init__(self) -> None:
        if not 0 < self.factor < math.inf or not 0 <= self.exponent <= 1:
            raise InputError(
                "Widening has a finite factor above 0 and an exponent from 0 to 1; "
                f"got factor={self.factor}, exponent={self.exponent}."
            )

    def opens(self, children: Int[Array, ""], visits: Int[Array, ""]) -> Bool[Array, ""]:
        """Tell whether one more child may be opened, beside as many `children`."""
        return (children == 0) | (children <= self.factor * visits.astype(jnp.float32) ** self.exponent)

    def most(self, simulations: int) -> int:
        """Compute how many children there can be."""
        return min(simulations, math.floor(self.factor * simulations**self.exponent) + 1)
