"""Beliefs for OpenSpiel's Oh Hell: a resampler for its ISMCTS that knows the opponents' policies.

    resampler = OhHellResampler(game, policy)
    bot = ismcts.ISMCTSBot(game, evaluator, uct_c=2.0, max_simulations=100)
    bot.set_resampler(resampler)

OpenSpiel's own resampler exchanges cards between the other players, whatever was bid and played, and leaves those that
were not dealt where they are, which a player cannot know. This one draws deals from a filter's belief: it follows the
game's history, one update for each action of an opponent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.contracts import Belief, Filter
from nbf.environments.hidden_hands import HiddenHands, PlayPolicy, allowed_owners
from nbf.environments.trick_taking import Game, TrickTaking
from nbf.errors import InputError
from nbf.filters.neural import NeuralBayesianFilter
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.spaces import Deals


def rules_of(game: Any) -> TrickTaking:
    """Read the rules of OpenSpiel's game.

    Args:
        game: `pyspiel.load_game("oh_hell", ...)` with a fixed number of tricks.

    Returns:
        The rules.
    """
    name, parameters = game.get_type().short_name, game.get_parameters()
    if name != "oh_hell" or parameters.get("num_tricks_fixed", 0) < 1:
        raise InputError(
            "The resampler is for oh_hell with a fixed number of tricks, for example "
            f"oh_hell(players=3,num_suits=3,num_cards_per_suit=8,num_tricks_fixed=5); got {game}."
        )
    sizes = ("players", "num_suits", "num_cards_per_suit", "num_tricks_fixed")
    return TrickTaking(*(int(parameters[size]) for size in sizes))


def deal_filter(rules: TrickTaking, calls: int = 64) -> NeuralBayesianFilter:
    """Make a filter over the hidden hands of a game that needs no training.

    Args:
        rules: Of the game.
        calls: Calls of a policy for each action of an opponent.

    Returns:
        The neural filter with the maximum-entropy model.
    """
    space = Deals(jnp.ones((rules.cards, rules.players), bool), (rules.tricks,) * (rules.players - 1))
    return NeuralBayesianFilter(MaximumEntropyDeals(space), calls)


class Followed(eqx.Module):
    """A game up to some action, and the state of the observer's filter."""

    game: Game
    state: Any


class OhHellResampler:
    """Draws states of OpenSpiel's Oh Hell that agree with what a player has seen: `bot.set_resampler(resampler)`.

    One resampler serves any number of players and games: a history that does not go on from the last one is followed
    anew. `recovered` counts the actions that no deal explained; after these the belief is what the rules allow of the
    one before.
    """

    def __init__(
        self,
        game: Any,
        policy: PlayPolicy | Mapping[int, PlayPolicy],
        filter: Filter | None = None,
        *,
        samples: int = 128,
        seed: int = 0,
    ):
        """Make a resampler.

        Args:
            game: OpenSpiel's game.
            policy: Of all opponents, or of each player by number.
            filter: Over `HiddenHands`; None is `deal_filter(rules_of(game))`.
            samples: Deals that are drawn at once; further calls at the same decision use those that are left.
            seed: Of the draws.
        """
        if samples < 1:
            raise InputError(f"samples must be at least 1; got {samples}.")
        self.rules = rules_of(game)
        self.filter = deal_filter(self.rules) if filter is None else filter
        self.recovered = 0
        self._open_spiel, self._policy, self._samples = game, policy, samples
        self._key = jax.random.key(seed)
        self._followed: dict[int, tuple[list[int], Followed]] = {}
        self._drawn: dict[int, tuple[list[int], list[Any]]] = {}

    def __call__(self, state: Any, player: int) -> Any:
        """Draw a state.

        Args:
            state: OpenSpiel's state, in which the cards are dealt.
            player: Whose information the state agrees with.

        Returns:
            A state with the same information for this player, and other hidden hands.
        """
        history = self._history(state, player)
        before, left = self._drawn.get(player, ([], []))
        if before != history or not left:
            left = self._draw(history, player)
            self._drawn[player] = (history, left)
        return left.pop()

    def marginals(self, state: Any, player: int) -> Float[np.ndarray, "cards owners"]:
        """Estimate who holds each card, by the same number of draws.

        Args:
            state: OpenSpiel's state.
            player: Whose belief it is.

        Returns:
            For each card the share of draws in which each of the others has it, from the player's left on, and last
            nobody or the player.
        """
        deals = self._deals(self._history(state, player), player)
        return np.eye(self.rules.players)[deals].mean(axis=0)

    def belief(self, state: Any, player: int) -> Belief:
        """Follow a game, and give the belief that deals are drawn from.

        Args:
            state: OpenSpiel's state.
            player: Whose belief it is.

        Returns:
            The filter's belief over who was dealt each card: the others from the player's left on, and last nobody or
            the player.
        """
        followed = self._follow(self._history(state, player), player)
        policy = self._policy_of((player + 1) % self.rules.players)
        return _belief(self.filter, self.rules, followed, policy, player)

    def log_prob(self, state: Any, player: int) -> float:
        """Compute how likely the deal of a state is in a player's belief: for tests and comparisons, since only a
        referee knows the deal.

        Args:
            state: OpenSpiel's state.
            player: Whose belief it is.

        Returns:
            The log probability of the hands that were dealt.
        """
        history = self._history(state, player)
        deal, cards = np.full(self.rules.cards, self.rules.players - 1), history[2 : self._start - 1]
        for place in range(self.rules.players - 1):
            deal[cards[(player + 1 + place) % self.rules.players :: self.rules.players]] = place
        policy = self._policy_of((player + 1) % self.rules.players)
        return float(
            _log_prob(self.filter, self.rules, self._follow(history, player), policy, player, jnp.asarray(deal))
        )

    @property
    def _start(self) -> int:
        """Length of a history before the first bid: the number of tricks, the dealer and the cards."""
        return 2 + self.rules.players * self.rules.tricks + 1

    def _history(self, state: Any, player: int) -> list[int]:
        if not 0 <= player < self.rules.players:
            raise InputError(f"The game has players 0 to {self.rules.players - 1}; got player {player}.")
        if str(state.get_game()) != str(self._open_spiel):
            raise InputError(f"The resampler is for {self._open_spiel}; got a state of {state.get_game()}.")
        history = list(state.history())
        if len(history) < self._start:
            raise InputError("The cards are not dealt yet: a belief about hands needs a state after the deal.")
        return history

    def _policy_of(self, player: int) -> PlayPolicy:
        if not isinstance(self._policy, Mapping):
            return self._policy
        if player not in self._policy:
            raise InputError(f"There is no policy of player {player}; there are those of {sorted(self._policy)}.")
        return self._policy[player]

    def _follow(self, history: list[int], player: int) -> Followed:
        """The game and the belief after a history."""
        start = self._start
        known, followed = self._followed.get(player, ([], None))
        if followed is None or history[: len(known)] != known or len(known) < start:
            known, followed = history[:start], self._begin(history[:start], player)
        for place in range(len(known), len(history)):
            self._key, key = jax.random.split(self._key)
            acting = int(followed.game.player)
            policy = self._policy_of(acting if acting != player else (player + 1) % self.rules.players)
            action = jnp.int32(history[place])
            followed, lost = _advanced(self.filter, self.rules, key, followed, action, policy, player)
            self.recovered += int(lost)
        self._followed[player] = (history, followed)
        return followed

    def _begin(self, history: list[int], player: int) -> Followed:
        _, dealer, *dealt = history
        rest = [card for card in range(self.rules.cards) if card not in dealt]
        self._key, key = jax.random.split(self._key)
        deck, policy = jnp.asarray([*dealt, *rest], jnp.int32), self._policy_of((player + 1) % self.rules.players)
        return _begun(self.filter, self.rules, key, deck, jnp.int32(dealer), policy, player)

    def _deals(self, history: list[int], player: int) -> Int[np.ndarray, "n cards"]:
        followed = self._follow(history, player)
        self._key, key = jax.random.split(self._key)
        policy = self._policy_of((player + 1) % self.rules.players)
        deals, legal = _drawn(self.filter, self.rules, key, followed, policy, player, self._samples)
        deals, legal = np.asarray(deals), np.asarray(legal)
        return deals[legal]

    def _draw(self, history: list[int], player: int) -> list[Any]:
        """States that agree with a history, in a random order."""
        rules, start = self.rules, self._start
        tricks, dealer, *cards = history[:start]
        own = cards[player : rules.players * rules.tricks : rules.players]
        others = [(player + 1 + place) % rules.players for place in range(rules.players - 1)]
        states = []
        for deal in self._deals(history, player):
            hands = {other: np.flatnonzero(deal == place) for place, other in enumerate(others)} | {player: own}
            made = [hands[seat][turn] for turn in range(rules.tricks) for seat in range(rules.players)]
            state = self._open_spiel.new_initial_state()
            for action in (tricks, dealer, *made, cards[-1], *history[start:]):
                state.apply_action(int(action))
            states.append(state)
        return states


def _environment(rules: TrickTaking, game: Game, policy: PlayPolicy, observer: int) -> HiddenHands:
    """What the observer knows before the next action."""
    quotas = (rules.tricks,) * (rules.players - 1)
    return HiddenHands(Deals.of(allowed_owners(rules, game, observer), quotas), rules, game, policy, observer)


@eqx.filter_jit
def _begun(
    filter: Filter, rules: TrickTaking, key: Key[Array, ""], deck: Int[Array, " cards"], dealer: Int[Array, ""],
    policy: PlayPolicy, observer: int,
) -> Followed:  # fmt: skip
    """The game and the belief before the first bid."""
    game = rules.dealt(deck, dealer)
    return Followed(game, filter.init(key, _environment(rules, game, policy, observer)))


@eqx.filter_jit
def _advanced(
    filter: Filter, rules: TrickTaking, key: Key[Array, ""], before: Followed, action: Int[Array, ""],
    policy: PlayPolicy, observer: int,
) -> tuple[Followed, Bool[Array, ""]]:  # fmt: skip
    """The game and the belief after an action, and whether no deal explained it."""
    environment = HiddenHands.of(rules, before.game, action, policy, observer)
    state, info = filter.update(key, before.state, action, environment, None)
    own = before.game.player == observer  # an own action tells nothing, and costs no call
    state = jax.tree.map(lambda old, new: jnp.where(own, old, new), before.state, state)
    return Followed(rules.play(before.game, action), state), info.recovered & ~own


@eqx.filter_jit
def _drawn(
    filter: Filter, rules: TrickTaking, key: Key[Array, ""], now: Followed, policy: PlayPolicy, observer: int, n: int
) -> tuple[Int[Array, "n cards"], Bool[Array, " n"]]:
    """Deals of the belief, and which of them are legal; deals by the rules alone if none is."""
    environment = _environment(rules, now.game, policy, observer)
    draw_key, rule_key = jax.random.split(key)
    deals = filter.belief(now.state, environment).sample(draw_key, n)
    legal = jax.vmap(environment.space.contains)(deals)
    some = jnp.any(legal)
    others = jax.vmap(environment.init)(jax.random.split(rule_key, n))
    return jnp.where(some, deals, others), jnp.where(some, legal, True)


@eqx.filter_jit
def _belief(filter: Filter, rules: TrickTaking, now: Followed, policy: PlayPolicy, observer: int) -> Belief:
    """The belief after a history."""
    return filter.belief(now.state, _environment(rules, now.game, policy, observer))


@eqx.filter_jit
def _log_prob(
    filter: Filter, rules: TrickTaking, now: Followed, policy: PlayPolicy, observer: int, deal: Int[Array, " cards"]
) -> Float[Array, ""]:
    """log probability of a deal in the belief."""
    return filter.belief(now.state, _environment(rules, now.game, policy, observer)).log_prob(deal)
