"""Goofspiel, the card game (section "Partially-Observable Goofspiel" and its appendix), for two players.

Cards are labelled 0..k-1. A round reveals a prize, drawn from the deck, worth its label + 1. Both players bid a
card of their hand at once; the higher card takes the prize, equal cards discard it, and the players see only who
won. In the paper's variant each player and the deck get a random k - 1 of the k cards, and there are k - 1 rounds.
In the standard game everyone has all k cards; its last round, where nobody has a choice, is a step like any other
(OpenSpiel plays it automatically).

Everything is for one game; callers `vmap`. A game that is over does not change any more.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.errors import InputError

LOSS, DRAW, WIN, OVER = 0, 1, 2, 3
"""Outcome of a round for the first player; `OVER` once there are no more rounds."""
NONE = -1
"""Stands for a card or an outcome that does not exist or is not known."""


@runtime_checkable
class BidPolicy(Protocol):
    """How a player bids: a pytree, so that a pool of them is one with a leading axis on every leaf."""

    def log_probs(self, view: Float[Array, " view"], /) -> Float[Array, " k"]:
        """Compute the log probability of bidding each card.

        Args:
            view: What the player sees: `GoofspielGame.view`.

        Returns:
            log probability of each card; -inf for cards that are not held.
        """
        ...


class UniformPolicy(eqx.Module):
    """Bids each card that is held with the same probability."""

    def log_probs(self, view: Float[Array, " view"]) -> Float[Array, " k"]:
        hand = held(view)
        return legal_log_probs(jnp.zeros(hand.shape), hand)


class CardPolicy(eqx.Module):
    """Bids by a perceptron of the player's view, with ReLU units and a softmax over the cards that are held."""

    weights: tuple[Float[Array, "out in"], ...]
    biases: tuple[Float[Array, " out"], ...]

    def __init__(self, key: Key[Array, ""], cards: int, *, width: int = 64, depth: int = 2):
        """Build a policy with random weights.

        Args:
            key: Random key.
            cards: k, of the game.
            width: Units of a hidden layer.
            depth: Hidden layers.
        """
        if cards < 2 or width < 1 or depth < 0:
            raise InputError(
                f"A CardPolicy needs 2 cards, width 1 and depth 0 or more; got {cards=}, {width=}, {depth=}."
            )
        sizes = (5 * cards, *(width,) * depth, cards)
        pairs = zip(jax.random.split(key, depth + 1), sizes[:-1], sizes[1:], strict=True)
        self.weights = tuple(jnp.sqrt(2.0 / into) * jax.random.normal(key, (out, into)) for key, into, out in pairs)
        self.biases = tuple(jnp.zeros(size) for size in sizes[1:])

    def logits(self, view: Float[Array, " view"]) -> Float[Array, " k"]:
        """Compute the logit of every card, whether it is held or not.

        Args:
            view: What the player sees: `GoofspielGame.view`.

        Returns:
            The logits.
        """
        hidden = self.weights[0] @ view + self.biases[0]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            hidden = weight @ jax.nn.relu(hidden) + bias
        return hidden

    def log_probs(self, view: Float[Array, " view"]) -> Float[Array, " k"]:
        return legal_log_probs(self.logits(view), held(view))


def held(view: Float[Array, " view"]) -> Bool[Array, " k"]:
    """Read the hand off a player's view, which begins with it.

    Args:
        view: `GoofspielGame.view`.

    Returns:
        The cards, multi-hot.
    """
    return view[: view.shape[0] // 5] > 0


def legal_log_probs(logits: Float[Array, " k"], legal: Bool[Array, " k"]) -> Float[Array, " k"]:
    """Compute a log softmax over the legal entries.

    Args:
        logits: Of every entry.
        legal: Which entries are legal.

    Returns:
        log probabilities; -inf where an entry is not legal, hence everywhere if none is.
    """
    largest = jnp.max(jnp.where(legal, logits, -jnp.inf))
    shifted = jnp.where(legal, logits - jnp.where(jnp.any(legal), jax.lax.stop_gradient(largest), 0.0), 0.0)
    total = jnp.sum(jnp.where(legal, jnp.exp(shifted), 0.0))
    return jnp.where(legal, shifted - jnp.log(jnp.maximum(total, jnp.finfo(logits.dtype).tiny)), -jnp.inf)


def public_view(
    deck: Bool[Array, " k"], prize: Int[Array, ""], own: Bool[Array, " k"], other: Bool[Array, " k"]
) -> Float[Array, " 4*k"]:
    """Encode what a player sees besides the hand.

    Args:
        deck: Prizes not yet revealed, multi-hot.
        prize: The current one; `NONE` if the game is over.
        own: Prizes won by the player, multi-hot.
        other: Prizes won by the other player, multi-hot.

    Returns:
        All of them, multi-hot, one after the other.
    """
    current = jnp.arange(deck.shape[0]) == prize
    return jnp.concatenate([deck, current, own, other]).astype(jnp.float32)


class GameState(eqx.Module):
    """The state of a game. Sets of cards are multi-hot."""

    hands: Bool[Array, "2 k"]
    deck: Bool[Array, " k"]
    """Prizes not yet revealed."""
    prize: Int[Array, ""]
    """The prize to bid for; `NONE` once the game is over."""
    won: Bool[Array, "2 k"]
    """Prizes of each player."""
    round: Int[Array, ""]
    """Rounds played."""


class Playout(eqx.Module):
    """The record of one game. The first player knows all of it but the `hands` and `bids` of the second."""

    hands: Bool[Array, "2 k"]
    """As dealt."""
    deck: Bool[Array, " k"]
    """All prizes of the game."""
    prizes: Int[Array, " rounds"]
    bids: Int[Array, "rounds 2"]
    outcomes: Int[Array, " rounds"]
    """For the first player."""
    final: GameState


class GoofspielGame(eqx.Module):
    """The rules; no arrays.

    Arguments of the methods:
        key: Random key.
        state: Of the game.
        player: 0 or 1.
    """

    cards: int = eqx.field(static=True)
    """k."""
    standard: bool = eqx.field(static=True, default=False)
    """The standard game instead of the paper's variant."""

    def __check_init__(self) -> None:
        if self.cards < 2:
            raise InputError(f"Goofspiel needs at least 2 cards; got cards={self.cards}.")

    @property
    def rounds(self) -> int:
        """Rounds of a game, and cards of a hand when dealt."""
        return self.cards if self.standard else self.cards - 1

    @property
    def view_size(self) -> int:
        """How many numbers `view` gives."""
        return 5 * self.cards

    def reset(self, key: Key[Array, ""]) -> GameState:
        """A random deal, with the first prize revealed."""
        deal_key, prize_key = jax.random.split(key)
        dealt = jnp.ones((3, self.cards), bool)
        if not self.standard:
            missing = jax.random.randint(deal_key, (3, 1), 0, self.cards)
            dealt = jnp.arange(self.cards) != missing
        nothing = jnp.zeros((2, self.cards), bool)
        return self._reveal(prize_key, GameState(dealt[:2], dealt[2], jnp.int32(NONE), nothing, jnp.int32(0)))

    def over(self, state: GameState) -> Bool[Array, ""]:
        """Whether all rounds were played."""
        return state.round >= self.rounds

    def legal(self, state: GameState, player: int | Int[Array, ""]) -> Bool[Array, " k"]:
        """The cards that a player may bid: the hand, hence none once the game is over."""
        return state.hands[player]

    def view(self, state: GameState, player: int | Int[Array, ""]) -> Float[Array, " view"]:
        """What a player's bid may depend on, as 5k zeros and ones: own hand, prizes not yet revealed, the current
        prize, prizes won by the player, prizes won by the other. The order of past bids is not part of it."""
        rest = public_view(state.deck, state.prize, state.won[player], state.won[1 - player])
        return jnp.concatenate([state.hands[player].astype(jnp.float32), rest])

    def step(self, key: Key[Array, ""], state: GameState, bids: Int[Array, " 2"]) -> tuple[GameState, Int[Array, ""]]:
        """Play one round: both bid, and the next prize is revealed.

        Args:
            key: Random key.
            state: Of the game.
            bids: A card of each player's hand, which is checked outside `jit` only.

        Returns:
            The state after the round, and the outcome for the first player.
        """
        self._check_bids(state, bids)
        cards, over = jnp.arange(self.cards), self.over(state)
        outcome = (jnp.sign(bids[0] - bids[1]) + DRAW).astype(jnp.int32)
        winner = jnp.stack([outcome == WIN, outcome == LOSS])
        after = GameState(
            hands=state.hands & (cards != bids[:, None]),
            deck=state.deck,
            prize=state.prize,
            won=state.won | (winner[:, None] & (cards == state.prize)),
            round=state.round + 1,
        )
        after = self._reveal(key, after)
        kept = jax.tree.map(lambda old, new: jnp.where(over, old, new), state, after)
        return kept, jnp.where(over, OVER, outcome)

    def points(self, state: GameState) -> Float[Array, " 2"]:
        """Points of each player so far."""
        return jnp.sum(jnp.where(state.won, jnp.arange(1.0, self.cards + 1.0), 0.0), axis=1)

    def returns(self, state: GameState) -> Float[Array, " 2"]:
        """Of each player 1, 0 or -1: more points than the other player, as many, or fewer."""
        points = self.points(state)
        return jnp.sign(points - points[::-1])

    def play(self, key: Key[Array, ""], policies: tuple[BidPolicy, BidPolicy]) -> Playout:
        """Play one random game between two policies.

        Args:
            key: Random key.
            policies: Of the first and the second player.

        Returns:
            The record of the game.
        """
        deal_key, round_key = jax.random.split(key)
        start = self.reset(deal_key)

        def step(state: GameState, key: Key[Array, ""]) -> tuple[GameState, tuple[Array, Array, Array]]:
            *bid_keys, step_key = jax.random.split(key, 3)
            both = [jnp.exp(policy.log_probs(self.view(state, i))) for i, policy in enumerate(policies)]
            drawn = [prng.categorical(key, probs) for key, probs in zip(bid_keys, both, strict=True)]
            bids = jnp.stack(drawn)
            after, outcome = self.step(step_key, state, bids)
            return after, (state.prize, bids, outcome)

        final, (prizes, bids, outcomes) = jax.lax.scan(step, start, jax.random.split(round_key, self.rounds))
        deck = start.deck | (jnp.arange(self.cards) == start.prize)
        return Playout(start.hands, deck, prizes, bids, outcomes, final)

    def _reveal(self, key: Key[Array, ""], state: GameState) -> GameState:
        """The state after the next prize is drawn from the deck."""
        prize = prng.categorical(key, state.deck.astype(jnp.float32))
        prize = jnp.where(jnp.any(state.deck), prize, NONE)
        deck = state.deck & (jnp.arange(self.cards) != prize)
        return GameState(state.hands, deck, prize, state.won, state.round)

    def _check_bids(self, state: GameState, bids: Int[Array, " 2"]) -> None:
        if isinstance(bids, Tracer) or isinstance(state.hands, Tracer) or bool(self.over(state)):
            return
        for player, bid in enumerate(np.asarray(bids)):
            hand = np.flatnonzero(np.asarray(state.hands)[player])
            if bid not in hand:
                raise InputError(f"Player {player} bids one of the cards {hand.tolist()} in hand; got {bid}.")
