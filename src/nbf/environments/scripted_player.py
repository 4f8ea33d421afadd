"""Players of trick-taking games by rule. Their habits are arrays: to change them compiles nothing."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nbf.environments.trick_taking import TrickTaking


class ScriptedPlayer(eqx.Module):
    """Bids by its high cards and trumps, plays high while it needs tricks and low when it does not, with some noise.

    It reads `TrickTaking.view` alone.
    """

    height: Float[Array, ""]
    """How much it goes by the rank of a card."""
    trumps: Float[Array, ""]
    """How much a trump counts above another card of its rank."""
    sharpness: Float[Array, ""]
    """Inverse temperature; with 0 all that is legal is equally likely, below 0 the rule is turned round."""
    rules: TrickTaking

    @classmethod
    def random(cls, key: Key[Array, ""], rules: TrickTaking) -> ScriptedPlayer:
        """Draw the habits of a player.

        Args:
            key: Random key.
            rules: Of the game.

        Returns:
            The player.
        """
        height, trumps, sharpness = jax.random.uniform(key, (3,))
        return cls(1.0 + height, trumps, 2.0 + 4.0 * sharpness, rules)

    def log_probs(self, view: Float[Array, " view"], legal: Bool[Array, " actions"]) -> Float[Array, " actions"]:
        """Compute the log probability of each action.

        Args:
            view: What the player sees: `TrickTaking.view`.
            legal: Which actions are legal.

        Returns:
            log probability of each action; -inf for those that are not legal.
        """
        rules = self.rules
        hand, turned_up = view[: rules.cards], view[(1 + rules.players) * rules.cards :][: rules.cards]
        need = view[-rules.players]  # the own bid less the tricks that were won, as a share of all
        trump = rules.suit_of == jnp.argmax(turned_up) % rules.suits
        rank = (np.arange(rules.cards) // rules.suits) / (rules.ranks - 1)
        strength = self.height * rank + self.trumps * trump
        expected = jnp.sum(hand * jax.nn.sigmoid(6.0 * (strength - self.height)))
        bids = -((jnp.arange(rules.tricks + 1) - expected) ** 2)
        cards = jnp.where(need > 0, strength, -strength)
        return jax.nn.log_softmax(jnp.where(legal, self.sharpness * jnp.concatenate([cards, bids]), -jnp.inf))
