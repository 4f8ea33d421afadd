"""Who holds which card in a trick-taking game, seen by one player: the deal is hidden, and never moves.

The observer sees an action at a time, and knows the policy of whoever makes it: the likelihood of a deal is the
probability of that action for a player who holds those cards. What is public is part of each step's environment: the
game before the action, and who may hold each card after it. The observer's own actions tell nothing.

The owners of a deal (`Deals`) are the other players, from the observer's left on, and last the rest: cards that are not
dealt, and those that the observer holds or sees turned up.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.capabilities import StaticState
from nbf.contracts import Observation, Policy
from nbf.environments.trick_taking import NONE, Game, TrickTaking
from nbf.errors import InputError
from nbf.spaces import Deals


@runtime_checkable
class PlayPolicy(Protocol):
    """How a player bids and plays: a pytree."""

    def log_probs(self, view: Float[Array, " view"], legal: Bool[Array, " actions"], /) -> Float[Array, " actions"]:
        """Compute the log probability of each action.

        Args:
            view: What the player sees: `TrickTaking.view`.
            legal: Which actions are legal.

        Returns:
            log probability of each action; -inf for those that are not legal.
        """
        ...


class HiddenHands(StaticState):
    """One action of a game, seen by the observer. Build it with `of`."""

    space: Deals
    """Who may hold each card, after the action."""
    rules: TrickTaking
    game: Game
    """Before the action. Hands of other players in it are not used."""
    policy: PlayPolicy
    """Of the player whose turn it is."""
    observer: int = eqx.field(static=True)

    @classmethod
    def of(
        cls, rules: TrickTaking, game: Game, action: Int[Array, ""], policy: PlayPolicy, observer: int = 0
    ) -> HiddenHands:
        """Make the environment of an action.

        Args:
            rules: Of the game.
            game: Before the action.
            action: That was made: a card, or `cards + bid`.
            policy: Of the player who made it.
            observer: Who watches.

        Returns:
            The environment.
        """
        if not 0 <= observer < rules.players:
            raise InputError(f"The observer is one of the players 0 to {rules.players - 1}; got {observer}.")
        quotas = (rules.tricks,) * (rules.players - 1)
        space = Deals.of(allowed_owners(rules, rules.play(game, action), observer), quotas)
        return cls(space, rules, game, policy, observer)

    def init(self, key: Key[Array, ""]) -> Int[Array, " cards"]:
        """Draw a deal; all that are legal are equally likely.

        Args:
            key: Random key.

        Returns:
            The owner of each card.
        """
        return self.space.sample(key)

    def transition(self, key: Key[Array, ""], state: Int[Array, " cards"], policy: Policy) -> Int[Array, " cards"]:
        """Leave the deal as it is.

        Args:
            key: Not used.
            state: The owner of each card.
            policy: Not used: whose turn it is has a policy of the environment.

        Returns:
            The same deal.
        """
        return state

    def observe(
        self, key: Key[Array, ""], state: Int[Array, " cards"], next_state: Int[Array, " cards"]
    ) -> Observation:
        return prng.categorical(key, jnp.exp(self._log_probs(next_state)))

    def log_likelihood(
        self, observation: Observation, state: Int[Array, " cards"], next_state: Int[Array, " cards"]
    ) -> Float[Array, ""]:
        told = self._log_probs(next_state)[observation]
        return jnp.where(self.game.player == self.observer, 0.0, told)

    def check_observation(self, observation: Observation) -> None:
        action = np.asarray(observation)
        if action.shape != () or action.dtype.kind not in "iu" or not 0 <= int(action) < self.rules.num_actions:
            raise InputError(
                f"An observation is an action of the game, a whole number from 0 to {self.rules.num_actions - 1}; got "
                f"{observation!r}."
            )

    def hand(self, deal: Int[Array, " cards"]) -> Bool[Array, " cards"]:
        """Find what the player whose turn it is holds, if the cards were dealt so.

        Args:
            deal: The owner of each card.

        Returns:
            The cards of that player that are not played.
        """
        dealt = jnp.where(self.game.player == self.observer, self.game.hands[self.observer], deal == self.owner)
        return dealt & (self.game.played_by == NONE)

    def relevant(self, state: Int[Array, " cards"]) -> Float[Array, " cards"]:
        return self.hand(state).astype(jnp.float32)

    @property
    def owner(self) -> Int[Array, ""]:
        """Whose turn it is, as an owner of a deal; the last one if it is the observer's."""
        return (self.game.player - self.observer - 1) % self.rules.players

    def own_cards(self) -> Bool[Array, " cards"]:
        """List the cards that the observer saw from the start: those of the own hand, and the one turned up."""
        return own_cards(self.rules, self.game, self.observer)

    def _log_probs(self, deal: Int[Array, " cards"]) -> Float[Array, " actions"]:
        rules, hand = self.rules, self.hand(deal)
        legal = jnp.concatenate([rules.legal_cards(self.game, hand), rules.legal_bids(self.game)])
        return jnp.where(legal, self.policy.log_probs(rules.view(self.game, hand), legal), -jnp.inf)


def allowed_owners(rules: TrickTaking, game: Game, observer: int) -> Bool[Array, "cards owners"]:
    """Find who may have been dealt each card, by what an observer knows.

    Args:
        rules: Of the game.
        game: In which only what is public, and the observer's hand, is used.
        observer: Who watches.

    Returns:
        For each card and owner whether it is possible.
    """
    own = own_cards(rules, game, observer)
    hidden = (game.played_by == NONE) & ~own
    others = (observer + 1 + np.arange(rules.players - 1)) % rules.players
    lacks = game.void[others][:, rules.suit_of]
    held = jax.vmap(lambda player, lacks: jnp.where(game.played_by == player, True, hidden & ~lacks))(
        jnp.asarray(others), lacks
    )
    return jnp.concatenate([held, (hidden | own)[None]]).T


def own_cards(rules: TrickTaking, game: Game, observer: int) -> Bool[Array, " cards"]:
    """List the cards that an observer saw from the start.

    Args:
        rules: Of the game.
        game: At any time.
        observer: Who watches.

    Returns:
        For each card whether it was dealt to the observer or turned up.
    """
    return game.hands[observer] | (game.played_by == observer) | (jnp.arange(rules.cards) == game.turned_up)
