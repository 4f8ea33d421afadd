"""Deals of cards: who holds which card."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.capabilities import DealSpace
from nbf.errors import InputError
from nbf.spaces.deal_weights import deals


class Deals(DealSpace):
    """Who holds which card; a state is an `Int[cards]` vector of owners.

    Each owner but the last holds as many cards as their quota says, and the last one has the rest: what is not dealt,
    and what the observer sees.
    """

    allowed: Bool[Array, "cards owners"]
    """Who may hold each card, by what is known."""
    quotas: tuple[int, ...] = eqx.field(static=True)
    """Cards of each owner but the last."""
    context: Float[Array, " c"] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    """`allowed`, flattened, for models that must know later what was legal when a belief was embedded; see `of`."""

    @classmethod
    def of(cls, allowed: Bool[Array, "cards owners"], quotas: tuple[int, ...]) -> Deals:
        """Make the space of a step, which remembers what is legal in it.

        Args:
            allowed: Who may hold each card.
            quotas: Cards of each owner but the last.

        Returns:
            The space.
        """
        return cls(allowed, quotas, allowed.astype(jnp.float32).ravel())

    def __check_init__(self) -> None:
        cards, owners = self.allowed.shape[-2:]
        if not self.quotas or min(self.quotas) < 0 or sum(self.quotas) > cards or owners != len(self.quotas) + 1:
            raise InputError(
                f"A deal of {cards} cards to {owners} owners needs {owners - 1} quotas, each at least 0, together at "
                f"most {cards}; got {self.quotas}."
            )

    @property
    def signature(self) -> str:
        return f"deals({self.cards}, {self.quotas})"

    @property
    def num_features(self) -> int:
        return self.cards * self.owners

    def encode(self, state: Int[Array, " cards"]) -> Float[Array, " d"]:
        """Encode a deal as concatenated one-hot vectors.

        Args:
            state: The owner of each card.

        Returns:
            cards · owners numbers.
        """
        return jax.nn.one_hot(state, self.owners).ravel()

    def decode(self, numbers: Float[Array, " d"]) -> Int[Array, " cards"]:
        """Take the owner with the largest number for each card.

        Args:
            numbers: cards · owners numbers.

        Returns:
            The owner of each card.
        """
        return jnp.argmax(numbers.reshape(self.cards, self.owners), axis=1).astype(jnp.int32)

    def contains(self, state: Int[Array, " cards"]) -> Bool[Array, ""]:
        held = (state[:, None] == jnp.arange(self.owners)).astype(jnp.int32)
        sizes = jnp.all(jnp.sum(held[:, :-1], axis=0) == jnp.asarray(self.quotas))
        return sizes & jnp.all(jnp.sum(held * self.allowed, axis=1) == 1)

    def sample(self, key: Key[Array, ""]) -> Int[Array, " cards"]:
        """Draw a legal deal; all of them are equally likely.

        Args:
            key: Random key.

        Returns:
            The owner of each card.
        """
        return deals(self.allowed.astype(jnp.float32), self.quotas, jax.random.uniform(key, (self.cards, 1)))[0]
