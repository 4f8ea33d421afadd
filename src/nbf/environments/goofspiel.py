"""The opponent's bids in Goofspiel (section "Partially-Observable Goofspiel"), as a filtering problem.

The observer is the first player. Hidden are the card m that the opponent was not dealt and the bids b_1..b_t so far.
A state is k symbols, each a card 0..k-1 or the padding symbol k for rounds that were not yet played:

    (m, b_1, ..., b_t, k, ..., k)        in the paper's variant,      k! / (k-1-t)! of them after t rounds;
    (b_1, ..., b_t, k, ..., k)           in the standard game.

So a state is a sequence of different cards that grows by one with every round; m is drawn before the first. The policy
of the filtering problem is the opponent's. The observer's own bids, the prizes and the outcomes are public, hence part
of each step's environment; the observer's policy cancels in Bayes' rule.

The environment of step t contains what is known after it: own bids, prizes and outcomes of rounds 0..t. Transition and
emission use the outcomes of the rounds before t only; the legality of states uses all.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.capabilities import KnownTransitions, Lumpable, Prefixes
from nbf.contracts import Observation
from nbf.environments.goofspiel_game import DRAW, LOSS, NONE, OVER, WIN, BidPolicy, GoofspielGame, public_view
from nbf.environments.goofspiel_legality import Consistent
from nbf.environments.goofspiel_listing import listing
from nbf.errors import InputError
from nbf.spaces import Tokens

MOST_LISTED = 8
"""Cards up to which all states are listed: 109 601 states."""


class _Step(Lumpable):
    """One round seen by the observer; `at` gives the environment of another one.

    The opponent does not see in which order it bid: m and the *set* of its bids are a sufficient state. The start is
    the state before the first round, also in the environment of a later step.
    """

    game: GoofspielGame
    deck: Bool[Array, " k"]
    """All prizes of the game."""
    bids: Int[Array, " rounds"]
    """The observer's, `NONE` after this round."""
    prizes: Int[Array, " rounds"]
    """`NONE` after this round."""
    outcomes: Int[Array, " rounds"]
    """For the observer; `NONE` after this round, and where not known."""
    time: Int[Array, ""]
    """Rounds played before this one."""
    space: eqx.AbstractVar[Tokens]

    def __check_init__(self) -> None:
        rounds = (self.game.rounds,)
        shapes = {"deck": (self.game.cards,), "bids": rounds, "prizes": rounds, "outcomes": rounds}
        for name, shape in shapes.items():
            if jnp.shape(getattr(self, name)) != shape:
                raise InputError(
                    f"{name} must have the shape {shape} in a game of {self.game.cards} cards; got "
                    f"{jnp.shape(getattr(self, name))}."
                )
        if isinstance(self.time, Tracer):
            return
        played = min(int(self.time) + 1, self.game.rounds)
        for name, most in (("bids", self.game.cards - 1), ("prizes", self.game.cards - 1), ("outcomes", WIN)):
            values = getattr(self, name)
            if isinstance(values, Tracer):
                continue
            known = np.asarray(values)[: played - (name == "outcomes")]
            if np.any((known < 0) | (known > most)):
                raise InputError(f"{name} must be 0..{most} for each round known at time {self.time}; got {values}.")

    def at(
        self,
        time: Int[Array, ""],
        bids: Int[Array, " rounds"],
        prizes: Int[Array, " rounds"],
        outcomes: Int[Array, " rounds"],
    ) -> _Step:
        """Build the environment of another round of this game.

        Args:
            time: Rounds played before it.
            bids: The observer's, of each round; what follows that round is ignored, as in prizes and outcomes.
            prizes: Of each round.
            outcomes: Of each round, for the observer; `NONE` where not known.

        Returns:
            The environment.
        """
        return goofspiel(self.game, self.deck, time, bids, prizes, outcomes)

    @property
    def over(self) -> Bool[Array, ""]:
        """Whether no round is left: a step then changes nothing, and its observation is `OVER`."""
        return self.time >= self.game.rounds

    @property
    def place(self) -> Int[Array, ""]:
        """The index in a state of this round's bid; k once the game is over."""
        return jnp.minimum(self.time, self.game.rounds) + self.game.cards - self.game.rounds

    def hand(self, state: Int[Array, " k"]) -> Bool[Array, " k"]:
        """Find the opponent's hand before this round.

        Args:
            state: Its symbols for this round and later ones are ignored.

        Returns:
            The cards, multi-hot.
        """
        cards = jnp.arange(self.game.cards)
        return ~jnp.any((state[:, None] == cards) & (cards < self.place)[:, None], axis=0)

    def view(self, hand: Bool[Array, " k"]) -> Float[Array, " view"]:
        """Compute what the opponent sees in this round: `GoofspielGame.view` of the second player.

        Args:
            hand: The opponent's.

        Returns:
            Its hand, and what is public.
        """
        rounds = jnp.arange(self.game.rounds)

        def which(chosen: Bool[Array, " rounds"]) -> Bool[Array, " k"]:
            return jnp.any((self.prizes[:, None] == jnp.arange(self.game.cards)) & chosen[:, None], axis=0)

        past = rounds < self.time
        prize = jnp.where(self.over, NONE, self.prizes[jnp.minimum(self.time, self.game.rounds - 1)])
        won, lost = which(past & (self.outcomes == WIN)), which(past & (self.outcomes == LOSS))
        rest = public_view(self.deck & ~which(rounds <= self.time), prize, lost, won)
        return jnp.concatenate([hand.astype(jnp.float32), rest])

    def init(self, key: Key[Array, ""]) -> Int[Array, " k"]:
        state = jnp.full(self.game.cards, self.game.cards, jnp.int32)
        return state if self.game.standard else state.at[0].set(jax.random.randint(key, (), 0, self.game.cards))

    def transition(self, key: Key[Array, ""], state: Int[Array, " k"], policy: BidPolicy) -> Int[Array, " k"]:
        probs = jnp.exp(self.symbol_log_probs(self.hand(state), policy))
        return self._after(state, prng.categorical(key, probs))

    def observe(self, key: Key[Array, ""], state: Int[Array, " k"], next_state: Int[Array, " k"]) -> Int[Array, ""]:
        return self._outcome(next_state[jnp.minimum(self.place, self.game.cards - 1)])

    def log_likelihood(
        self, observation: Int[Array, ""], state: Int[Array, " k"], next_state: Int[Array, " k"]
    ) -> Float[Array, ""]:
        card = next_state[jnp.minimum(self.place, self.game.cards - 1)]
        # A model may draw a state that lacks the bid of an earlier round: its likelihood is zero.
        complete = jnp.all((next_state < self.game.cards) | (jnp.arange(self.game.cards) > self.place))
        return jnp.where(complete & (observation == self._outcome(card)), 0.0, -jnp.inf)

    def check_observation(self, observation: Observation) -> None:
        value = np.asarray(observation)
        if value.shape != () or not np.issubdtype(value.dtype, np.integer) or not LOSS <= value <= OVER:
            raise InputError(
                f"A Goofspiel observation is {LOSS} (the observer lost the round), {DRAW} (draw), {WIN} (won) or "
                f"{OVER} (the game was over); got {observation!r}. Where it is missing, pass None."
            )

    def first_log_probs(self) -> Float[Array, " k"] | None:
        return None if self.game.standard else jnp.full(self.game.cards, -math.log(self.game.cards))

    def symbol_log_probs(self, left: Bool[Array, " k"], policy: BidPolicy) -> Float[Array, " k"]:
        return jnp.where(left, policy.log_probs(self.view(left)), -jnp.inf)

    def choice_log_likelihoods(self, observation: Int[Array, ""]) -> Float[Array, " k"]:
        return jnp.where(observation == self._outcome(jnp.arange(self.game.cards)), 0.0, -jnp.inf)

    def _after(self, state: Int[Array, " k"], card: Int[Array, ""]) -> Int[Array, " k"]:
        """The state after a bid in this round."""
        places = jnp.arange(self.game.cards)
        return jnp.where(places < self.place, state, jnp.where(places == self.place, card, self.game.cards))

    def _outcome(self, card: Int[Array, "*any"]) -> Int[Array, "*any"]:
        """The outcome of the opponent's bid for the observer."""
        own = self.bids[jnp.minimum(self.time, self.game.rounds - 1)]
        return jnp.where(self.over, OVER, jnp.sign(own - card) + DRAW).astype(jnp.int32)


class LargeGoofspiel(_Step):
    """A game of more than `MOST_LISTED` cards: its states are too many to be listed, its lumped states are not."""

    space: Tokens


class Goofspiel(_Step, KnownTransitions, Prefixes):
    """A game of at most `MOST_LISTED` cards, whose states are listed (`nbf.environments.goofspiel_listing`).

    A state has one branch for each card. Their probabilities depend on the hand, not on the order of the bids: one
    call of the policy for each hand is enough.
    """

    space: Tokens

    def states(self) -> Int[Array, "states k"]:
        return jnp.asarray(listing(self.game).states)

    def index(self, state: Int[Array, " k"]) -> Int[Array, ""]:
        listed, k = listing(self.game), self.game.cards
        cards = jnp.arange(k)
        # The rank of each symbol among the cards that do not occur before it.
        earlier = cards[None, :] < cards[:, None]
        rank = state - jnp.sum(earlier & (state[None, :] < state[:, None]), axis=1)
        length = jnp.sum(state < k)
        radix = jnp.asarray(listed.radix)[length]
        place = jnp.sum(jnp.where(cards < length, rank * radix, 0)) + jnp.asarray(listed.starts)[length]
        return jnp.clip(place, 0, len(listed.states) - 1).astype(jnp.int32)

    def initial_log_probs(self) -> Float[Array, " states"]:
        size = 1 if self.game.standard else self.game.cards
        return jnp.full(len(listing(self.game).states), -jnp.inf).at[:size].set(-math.log(size))

    def successors(
        self, state: Int[Array, " k"], policy: BidPolicy
    ) -> tuple[Int[Array, "branches k"], Float[Array, " branches"]]:
        cards = jnp.arange(self.game.cards, dtype=jnp.int32)
        return jax.vmap(self._after, (None, 0))(state, cards), self.transition_log_probs(state, policy)

    @property
    def num_branches(self) -> int:
        return self.game.cards

    def transition_log_probs(self, state: Int[Array, " k"], policy: BidPolicy) -> Float[Array, " branches"]:
        stay = jnp.where(jnp.arange(self.game.cards) == 0, 0.0, -jnp.inf)
        return jnp.where(self.over, stay, self.symbol_log_probs(self.hand(state), policy))

    def follow(self, state: Int[Array, " k"], policy: BidPolicy, branch: Int[Array, ""]) -> Int[Array, " k"]:
        return self._after(state, branch)

    @property
    def branches(self) -> tuple[Int[np.ndarray, "_ _"], ...]:
        return listing(self.game).branches

    def choice_log_probs(self, policy: BidPolicy) -> Float[Array, "hands k"]:
        hands = jnp.asarray(listing(self.game).hands)[self.place]
        return jax.vmap(self.symbol_log_probs, (0, None))(hands, policy)


def goofspiel(
    game: GoofspielGame,
    deck: Bool[Array, " k"],
    time: Int[Array, ""],
    bids: Int[Array, " rounds"],
    prizes: Int[Array, " rounds"],
    outcomes: Int[Array, " rounds"],
) -> Goofspiel | LargeGoofspiel:
    """Build the environment of one round from the record of a game.

    Args:
        game: The rules.
        deck: All prizes of the game, multi-hot.
        time: Rounds played before this one.
        bids: The observer's, of each round; what follows this round is ignored, as in prizes and outcomes.
        prizes: Of each round.
        outcomes: Of each round, for the observer. That of this round may be `NONE`: the space then still contains
            the states that it will contradict.

    Returns:
        The environment; a `Goofspiel` up to `MOST_LISTED` cards.
    """
    known = jnp.arange(game.rounds) <= time
    bids, prizes, outcomes = (jnp.where(known, part, NONE) for part in (bids, prizes, outcomes))
    rule = Consistent(game.cards, game.rounds)
    space = Tokens(game.cards, game.cards + 1, rule, rule.context(deck, bids, prizes, outcomes))
    kind = Goofspiel if game.cards <= MOST_LISTED else LargeGoofspiel
    return kind(game=game, deck=deck, bids=bids, prizes=prizes, outcomes=outcomes, time=time, space=space)
