"""Sequences of symbols."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nbf.capabilities import SequenceSpace
from nbf.errors import InputError

Legal = Callable[[Int[Array, " i"], Float[Array, " c"] | None], Bool[Array, " K"]]
"""`legal(prefix, context)`: which of the K symbols may follow a prefix."""


class Tokens(SequenceSpace):
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
        if self.legal is None:
            return jnp.ones(self.categories, bool)
        mask = jnp.asarray(self.legal(prefix, self.context))
        if mask.shape != (self.categories,) or mask.dtype != bool:
            raise InputError(
                f"`legal` must say yes or no to each of the {self.categories} categories; after {len(prefix)} symbols "
                f"it gave {mask.dtype}{list(mask.shape)}."
            )
        return mask

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
