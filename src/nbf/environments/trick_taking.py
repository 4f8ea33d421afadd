"""Trick-taking card games: the rules of Oh Hell, for any number of players, suits, ranks and tricks.

Each player is dealt as many cards as there are tricks; one more card is turned up, and its suit is trump. From the left
of the dealer on, each player bids how many tricks they will win; the dealer, who is last, may not make the bids add up
to the number of tricks. Then tricks are played: whoever can follow the suit that was led must. The highest trump wins,
or else the highest card of that suit, and the winner leads the next trick. A player scores a point for each trick, and
ten more if the bid was met.

Cards are numbered as in OpenSpiel, `rank * suits + suit`; an action is a card, or `cards + bid`. A game is a pytree of
arrays, so that games can be batched with `vmap` and compiled.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.errors import InputError

NONE = -1
"""In place of a card, a suit or a bid that is not there yet."""


class Game(eqx.Module):
    """A game in progress, with all hands."""

    hands: Bool[Array, "players cards"]
    """Which cards each player holds, unplayed."""
    turned_up: Int[Array, ""]
    """The card whose suit is trump; nobody holds it."""
    dealer: Int[Array, ""]
    time: Int[Array, ""]
    """Actions so far: bids, then cards."""
    player: Int[Array, ""]
    """Whose turn it is."""
    bids: Int[Array, " players"]
    """`NONE` before a player has bid."""
    won: Int[Array, " players"]
    """Tricks."""
    led: Int[Array, ""]
    """The suit that was led in this trick, or `NONE`."""
    best: Int[Array, ""]
    """The card that wins this trick so far, or `NONE`."""
    winner: Int[Array, ""]
    """Who played it."""
    played_by: Int[Array, " cards"]
    """Who played each card, or `NONE`."""
    void: Bool[Array, "players suits"]
    """Who did not follow a suit, and so holds none of it."""


class TrickTaking(eqx.Module):
    """The rules of a game."""

    players: int = eqx.field(static=True, default=3)
    suits: int = eqx.field(static=True, default=3)
    ranks: int = eqx.field(static=True, default=8)
    tricks: int = eqx.field(static=True, default=5)
    """Also the number of cards in a hand."""
    bonus: float = eqx.field(static=True, default=10.0)
    """For a bid that was met."""

    def __check_init__(self) -> None:
        if min(self.players, self.suits, self.ranks, self.tricks) < 1 or self.players < 2:
            raise InputError(
                "A trick-taking game needs 2 players, and a suit, a rank and a trick at least; got "
                f"players={self.players}, suits={self.suits}, ranks={self.ranks}, tricks={self.tricks}."
            )
        if self.players * self.tricks >= self.cards:
            raise InputError(
                f"{self.players} hands of {self.tricks} cards, and one that is turned up, need more than "
                f"{self.players * self.tricks} cards; {self.suits} suits of {self.ranks} ranks have {self.cards}."
            )

    @property
    def cards(self) -> int:
        """Number of cards."""
        return self.suits * self.ranks

    @property
    def num_actions(self) -> int:
        """Cards, and bids from 0 to the number of tricks."""
        return self.cards + self.tricks + 1

    @property
    def length(self) -> int:
        """Actions of a whole game."""
        return self.players * (1 + self.tricks)

    @property
    def suit_of(self) -> Int[np.ndarray, " cards"]:
        """The suit of each card."""
        return np.arange(self.cards) % self.suits

    def deal(self, key: Key[Array, ""]) -> Game:
        """Deal the cards.

        Args:
            key: Random key.

        Returns:
            A game before its first bid, with a random dealer.
        """
        deck_key, dealer_key = jax.random.split(key)
        deck = jax.random.permutation(deck_key, self.cards)
        return self.dealt(deck, jax.random.randint(dealer_key, (), 0, self.players))

    def dealt(self, deck: Int[Array, " cards"], dealer: Int[Array, ""]) -> Game:
        """Deal a deck that is not shuffled.

        Args:
            deck: The cards in the order in which they are dealt: one to each player in turn from player 0 on, then the
                one that is turned up; the rest stay hidden.
            dealer: Who bids last.

        Returns:
            A game before its first bid.
        """
        held = deck[: self.players * self.tricks].reshape(self.tricks, self.players).T
        hands = jnp.zeros((self.players, self.cards), bool).at[jnp.arange(self.players)[:, None], held].set(True)
        none, zero = jnp.int32(NONE), jnp.int32(0)
        return Game(
            hands, jnp.asarray(deck[self.players * self.tricks], jnp.int32), jnp.asarray(dealer, jnp.int32), zero,
            (jnp.asarray(dealer, jnp.int32) + 1) % self.players, jnp.full(self.players, NONE, jnp.int32),
            jnp.zeros(self.players, jnp.int32), none, none, none, jnp.full(self.cards, NONE, jnp.int32),
            jnp.zeros((self.players, self.suits), bool),
        )  # fmt: skip

    def legal(self, game: Game) -> Bool[Array, " actions"]:
        """List the legal actions of the player whose turn it is.

        Args:
            game: A game.

        Returns:
            For each action whether it is legal; none is when the game is over.
        """
        own = game.hands[game.player]
        return jnp.concatenate([self.legal_cards(game, own), self.legal_bids(game)])

    def legal_cards(self, game: Game, hand: Bool[Array, " cards"]) -> Bool[Array, " cards"]:
        """List the cards that could be played from a hand, whoever holds it.

        Args:
            game: A game.
            hand: The hand of the player whose turn it is; perhaps another one than in `game`.

        Returns:
            For each card whether it may be played now.
        """
        follows = hand & (jnp.asarray(self.suit_of) == game.led)
        return jnp.where(jnp.any(follows), follows, hand) & (game.time >= self.players)

    def legal_bids(self, game: Game) -> Bool[Array, " bids"]:
        """List the bids that could be made now.

        Args:
            game: A game.

        Returns:
            For each bid from 0 to the number of tricks whether it is legal.
        """
        bids = jnp.arange(self.tricks + 1)
        total = jnp.sum(jnp.where(game.bids == NONE, 0, game.bids))
        even = (game.player == game.dealer) & (total + bids == self.tricks)
        return ~even & (game.time < self.players)

    def play(self, game: Game, action: Int[Array, ""]) -> Game:
        """Make a move. A move that is not legal makes a game that is none; see `legal`.

        Args:
            game: A game that is not over.
            action: A card, or `cards + bid`.

        Returns:
            The game afterwards.
        """
        bidding = game.time < self.players
        return jax.tree.map(
            lambda bid, card: jnp.where(bidding, bid, card), self._bid(game, action), self._card(game, action)
        )

    def _bid(self, game: Game, action: Int[Array, ""]) -> Game:
        bids = game.bids.at[game.player].set(action - self.cards)
        following = (game.player + 1) % self.players  # after the dealer, who is last, the first who bid leads
        return dataclasses.replace(game, bids=bids, time=game.time + 1, player=following)

    def _card(self, game: Game, action: Int[Array, ""]) -> Game:
        card = jnp.clip(action, 0, self.cards - 1)
        suit, trump = card % self.suits, game.turned_up % self.suits
        best_suit = game.best % self.suits
        higher = (suit == best_suit) & (card > game.best)
        beats = (game.best == NONE) | higher | ((suit == trump) & (best_suit != trump))
        winner = jnp.where(beats, game.player, game.winner)
        over = (game.time + 1) % self.players == 0  # bids are as many as cards of a trick
        following = jnp.where(over, winner, (game.player + 1) % self.players)
        return dataclasses.replace(
            game,
            hands=game.hands.at[game.player, card].set(False),
            time=game.time + 1,
            player=following,
            won=game.won.at[winner].add(over.astype(jnp.int32)),
            led=jnp.where(over, NONE, jnp.where(game.led == NONE, suit, game.led)),
            best=jnp.where(over, NONE, jnp.where(beats, card, game.best)),
            winner=jnp.where(over, NONE, winner),
            played_by=game.played_by.at[card].set(game.player),
            void=game.void.at[game.player, game.led].max((game.led != NONE) & (suit != game.led)),
        )

    @property
    def view_size(self) -> int:
        """Numbers of `view`."""
        return (3 + self.players) * self.cards + 5 * self.players + self.suits + 1

    def view(self, game: Game, hand: Bool[Array, " cards"]) -> Float[Array, " view"]:
        """Encode what the player whose turn it is sees, for a network. Players come in the order of their turns.

        Args:
            game: A game, of which only what is public is used.
            hand: The hand of that player; perhaps another one than in `game`.

        Returns:
            The hand; who played which card; the card that is turned up, the suit that was led and the card that wins so
            far; bids and tricks of each player; who deals; and whether it is time to bid.
        """
        order = (game.player + jnp.arange(self.players)) % self.players
        bids = jnp.where(game.bids == NONE, 0, game.bids) / self.tricks
        parts = [
            hand, (game.played_by == order[:, None]).ravel(), jax.nn.one_hot(game.turned_up, self.cards),
            jax.nn.one_hot(game.best, self.cards), bids[order], (game.bids != NONE)[order],
            game.won[order] / self.tricks, order == game.dealer, jax.nn.one_hot(game.led, self.suits),
            (game.time < self.players)[None], (game.bids[order] - game.won[order]) / self.tricks,
        ]  # fmt: skip
        return jnp.concatenate([jnp.asarray(part, jnp.float32) for part in parts])

    def returns(self, game: Game) -> Float[Array, " players"]:
        """Score a game.

        Args:
            game: A game that is over.

        Returns:
            The points of each player.
        """
        return game.won + self.bonus * (game.won == game.bids)
