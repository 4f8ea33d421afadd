"""What the opponent has bid in Goofspiel (section "Partially-Observable Goofspiel"), as a filtering problem.

The observer is the first player. Hidden are the card m that the opponent was not dealt and the bids b_1..b_t so far.
A state is k symbols, each a card 0..k-1 or the padding symbol k for what has not happened yet:

    (m, b_1, ..., b_t, k, ..., k)        in the paper's variant,      k! / (k-1-t)! of them after t rounds;
    (b_1, ..., b_t, k, ..., k)           in the standard game.

So a state is a sequence of different cards that grows by one with every round, and m is the one that chance "bids"
before the first. The policy of the filtering problem is the opponent's. The observer's own bids, the prizes and the
outcomes are public, hence part of each step's environment; why the observer bid so cancels in Bayes' rule.

The environment of step t has what is known when its belief is held: own bids, prizes and outcomes of rounds 0..t.
Transition and emission use the outcomes of the rounds before t only, the space's rules of legality use all.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import prng
from nbf.capabilities import Episodic, KnownTransitions, Prefixes
from nbf.contracts import Environment, Observation
from nbf.environments.goofspiel_game import DRAW, LOSS, NONE, OVER, WIN, BidPolicy, GoofspielGame, public_features
from nbf.errors import InputError
from nbf.spaces import Tokens

MOST_LISTED = 8
"""Cards up to which all states are listed: 109 601 of them."""


@dataclass(frozen=True)
class Consistent:
    """The rule for `Tokens`: different cards, as many as rounds were played, that agree with the outcomes so far.

    Looks ahead: the cards that remain must be enough for the outcomes still to be explained. Each outcome asks for a
    card in an interval (below, at or above the own bid), so by Hall's theorem they are if no interval of cards holds
    fewer cards than outcomes that need one of it. In the context of the first step the state before it is legal too:
    it is where every filter starts.
    """

    cards: int
    rounds: int

    def __call__(self, prefix: Int[Array, " i"], context: Float[Array, " c"] | None) -> Bool[Array, " K"]:
        assert context is not None
        cards, rounds = jnp.arange(self.cards), jnp.arange(self.rounds)
        place = prefix.shape[0] - (self.cards - self.rounds)
        played, low, high = self._demands(context)
        waiting = (rounds > place) & (rounds < played) & (played > 1)
        unused = ~jnp.any(prefix[:, None] == cards, axis=0)
        below = jnp.cumsum(unused) - unused
        supply = (below + unused)[None, :] - below[:, None]
        inside = (low >= cards[:, None, None]) & (high <= cards[None, :, None])
        spare = supply - jnp.sum(inside & waiting, axis=-1)
        interval = cards[:, None] <= cards[None, :]
        around = (cards[:, None, None] <= cards) & (cards <= cards[None, :, None])
        enough = jnp.all(~around | (spare[:, :, None] >= 1), axis=(0, 1)) & jnp.all(~interval | (spare >= 0))
        legal = unused & enough & jnp.all(~waiting | (low <= high))
        if place < 0:
            return jnp.append(legal, False)
        legal = legal & (cards >= low[place]) & (cards <= high[place]) & (place < played)
        return jnp.append(legal, (place >= played) | ((place == 0) & (played == 1)))

    def context(
        self,
        deck: Bool[Array, " k"],
        bids: Int[Array, " rounds"],
        prizes: Int[Array, " rounds"],
        outcomes: Int[Array, " rounds"],
    ) -> Float[Array, " c"]:
        """The public history, one-hot; zeros for what is not known."""
        parts = (jax.nn.one_hot(bids, self.cards), jax.nn.one_hot(outcomes, 3), jax.nn.one_hot(prizes, self.cards))
        return jnp.concatenate([*(part.ravel() for part in parts), deck.astype(jnp.float32)])

    def _demands(self, context: Float[Array, " c"]) -> tuple[Array, Array, Array]:
        """How many rounds were played, and the lowest and the highest card that explains the outcome of each."""
        size = self.cards * self.rounds
        bids = context[:size].reshape(self.rounds, self.cards)
        outcomes = context[size : size + 3 * self.rounds].reshape(self.rounds, 3)
        bid, played = jnp.argmax(bids, axis=1), jnp.sum(bids > 0)
        lost, drawn, won = (outcomes[:, which] > 0 for which in (LOSS, DRAW, WIN))
        low = jnp.where(lost, bid + 1, jnp.where(drawn, bid, 0))
        high = jnp.where(won, bid - 1, jnp.where(drawn, bid, self.cards - 1))
        return played, low, high


class _Step(Environment):
    """One round seen by the observer: `at` gives another one."""

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
        """The environment of another step of this game, given its record; what lies after that step is ignored."""
        return goofspiel(self.game, self.deck, time, bids, prizes, outcomes)

    @property
    def over(self) -> Bool[Array, ""]:
        """Whether no round is left: then a step changes nothing, and its observation is `OVER`."""
        return self.time >= self.game.rounds

    @property
    def place(self) -> Int[Array, ""]:
        """Where a state has the bid of this round; k once the game is over."""
        return jnp.minimum(self.time, self.game.rounds) + self.game.cards - self.game.rounds

    def hand(self, state: Int[Array, " k"]) -> Bool[Array, " k"]:
        """What the opponent holds before this round. What a state says of this round and later is disregarded."""
        cards = jnp.arange(self.game.cards)
        return ~jnp.any((state[:, None] == cards) & (cards < self.place)[:, None], axis=0)

    def features(self, hand: Bool[Array, " k"]) -> Float[Array, " f"]:
        """What the opponent sees in this round: `GoofspielGame.features` of the second player."""
        rounds = jnp.arange(self.game.rounds)

        def which(chosen: Bool[Array, " rounds"]) -> Bool[Array, " k"]:
            return jnp.any((self.prizes[:, None] == jnp.arange(self.game.cards)) & chosen[:, None], axis=0)

        past = rounds < self.time
        prize = jnp.where(self.over, NONE, self.prizes[jnp.minimum(self.time, self.game.rounds - 1)])
        won, lost = which(past & (self.outcomes == WIN)), which(past & (self.outcomes == LOSS))
        rest = public_features(self.deck & ~which(rounds <= self.time), prize, lost, won)
        return jnp.concatenate([hand.astype(jnp.float32), rest])

    def init(self, key: Key[Array, ""]) -> Int[Array, " k"]:
        """Before the first round: which card is missing is uniform. Also in the environment of a later step."""
        state = jnp.full(self.game.cards, self.game.cards, jnp.int32)
        return state if self.game.standard else state.at[0].set(jax.random.randint(key, (), 0, self.game.cards))

    def transition(self, key: Key[Array, ""], state: Int[Array, " k"], policy: BidPolicy) -> Int[Array, " k"]:
        chances = jnp.exp(self._log_probs(self.hand(state), policy))
        return self._after(state, prng.categorical(key, chances))

    def observe(self, key: Key[Array, ""], state: Int[Array, " k"], next_state: Int[Array, " k"]) -> Int[Array, ""]:
        return self._outcome(next_state[jnp.minimum(self.place, self.game.cards - 1)])

    def log_likelihood(
        self, observation: Int[Array, ""], state: Int[Array, " k"], next_state: Int[Array, " k"]
    ) -> Float[Array, ""]:
        card = next_state[jnp.minimum(self.place, self.game.cards - 1)]
        # A model may draw a state that lacks the bid of an earlier round: nothing is seen of such a one.
        whole = jnp.all((next_state < self.game.cards) | (jnp.arange(self.game.cards) > self.place))
        return jnp.where(whole & (observation == self._outcome(card)), 0.0, -jnp.inf)

    def check_observation(self, observation: Observation) -> None:
        value = np.asarray(observation)
        if value.shape != () or not np.issubdtype(value.dtype, np.integer) or not LOSS <= value <= OVER:
            raise InputError(
                f"A Goofspiel observation is {LOSS} (the observer lost the round), {DRAW} (draw), {WIN} (won) or "
                f"{OVER} (the game was over); got {observation!r}. Where it is missing, pass None."
            )

    def _log_probs(self, hand: Bool[Array, " k"], policy: BidPolicy) -> Float[Array, " k"]:
        return jnp.where(hand, policy.log_probs(self.features(hand)), -jnp.inf)

    def _after(self, state: Int[Array, " k"], card: Int[Array, ""]) -> Int[Array, " k"]:
        """A state with the bid of this round."""
        places = jnp.arange(self.game.cards)
        return jnp.where(places < self.place, state, jnp.where(places == self.place, card, self.game.cards))

    def _outcome(self, card: Int[Array, "*any"]) -> Int[Array, "*any"]:
        """What the opponent's bid brings to the observer."""
        own = self.bids[jnp.minimum(self.time, self.game.rounds - 1)]
        return jnp.where(self.over, OVER, jnp.sign(own - card) + DRAW).astype(jnp.int32)


class LargeGoofspiel(_Step):
    """A game of too many cards to list what the opponent may have bid."""

    space: Tokens


class Goofspiel(_Step, KnownTransitions, Prefixes):
    """A game of at most `MOST_LISTED` cards: the states of all rounds are listed, the shorter ones first, those of
    one length in lexicographic order. So those after a round are the branches of those before it, in order, and the
    branches depend on the cards that are held and not on their order: the policy is asked once for each hand."""

    space: Tokens

    def states(self) -> Int[Array, "states k"]:
        return jnp.asarray(_listing(self.game).states)

    def index(self, state: Int[Array, " k"]) -> Int[Array, ""]:
        listing, k = _listing(self.game), self.game.cards
        cards = jnp.arange(k)
        # Of the cards below each symbol, those that did not occur before it.
        earlier = cards[None, :] < cards[:, None]
        rank = state - jnp.sum(earlier & (state[None, :] < state[:, None]), axis=1)
        length = jnp.sum(state < k)
        radix = jnp.asarray(listing.radix)[length]
        place = jnp.sum(jnp.where(cards < length, rank * radix, 0)) + jnp.asarray(listing.starts)[length]
        return jnp.clip(place, 0, len(listing.states) - 1).astype(jnp.int32)

    def initial_log_probs(self) -> Float[Array, " states"]:
        size = 1 if self.game.standard else self.game.cards
        return jnp.full(len(_listing(self.game).states), -jnp.inf).at[:size].set(-math.log(size))

    def successors(
        self, state: Int[Array, " k"], policy: BidPolicy
    ) -> tuple[Int[Array, "branches k"], Float[Array, " branches"]]:
        """One branch for each card."""
        cards = jnp.arange(self.game.cards, dtype=jnp.int32)
        return jax.vmap(self._after, (None, 0))(state, cards), self.transition_log_probs(state, policy)

    @property
    def num_branches(self) -> int:
        return self.game.cards

    def transition_log_probs(self, state: Int[Array, " k"], policy: BidPolicy) -> Float[Array, " branches"]:
        stay = jnp.where(jnp.arange(self.game.cards) == 0, 0.0, -jnp.inf)
        return jnp.where(self.over, stay, self._log_probs(self.hand(state), policy))

    def follow(self, state: Int[Array, " k"], policy: BidPolicy, branch: Int[Array, ""]) -> Int[Array, " k"]:
        return self._after(state, branch)

    @property
    def branches(self) -> tuple[Int[np.ndarray, "_ _"], ...]:
        """For each length but the last, and each state of it, the entries of `choice_log_probs` for its branches."""
        return _listing(self.game).branches

    def choice_log_probs(self, policy: BidPolicy) -> Float[Array, "hands k"]:
        """log probability of every card from every hand that the opponent may hold in this round."""
        hands = jnp.asarray(_listing(self.game).hands)[self.place]
        return jax.vmap(self._log_probs, (0, None))(hands, policy)

    def choice_log_likelihoods(self, observation: Int[Array, ""]) -> Float[Array, " k"]:
        """log likelihood of an observation of this round after each card."""
        return jnp.where(observation == self._outcome(jnp.arange(self.game.cards)), 0.0, -jnp.inf)


def goofspiel(
    game: GoofspielGame,
    deck: Bool[Array, " k"],
    time: Int[Array, ""],
    bids: Int[Array, " rounds"],
    prizes: Int[Array, " rounds"],
    outcomes: Int[Array, " rounds"],
) -> Goofspiel | LargeGoofspiel:
    """The environment of round `time`, given the record of the rounds so far; entries after it are ignored.

    The outcome of the round itself may be `NONE`: then the space does not yet rule out what it will contradict.
    """
    known = jnp.arange(game.rounds) <= time
    bids, prizes, outcomes = (jnp.where(known, part, NONE) for part in (bids, prizes, outcomes))
    rule = Consistent(game.cards, game.rounds)
    space = Tokens(game.cards, game.cards + 1, rule, rule.context(deck, bids, prizes, outcomes))
    kind = Goofspiel if game.cards <= MOST_LISTED else LargeGoofspiel
    return kind(game=game, deck=deck, bids=bids, prizes=prizes, outcomes=outcomes, time=time, space=space)


@dataclass(frozen=True)
class _Listing:
    states: Int[np.ndarray, "states k"]
    starts: Int[np.ndarray, " lengths"]
    """Where the states of each length begin."""
    radix: Int[np.ndarray, "lengths k"]
    """By how many places the states of each length move on when the rank of a symbol rises by one."""
    hands: Bool[np.ndarray, "lengths hands k"]
    """The sets of cards not among the first ones, for each number of those; rows of nothing at the end."""
    branches: tuple[Int[np.ndarray, "_ _"], ...]


@functools.cache
def _listing(game: GoofspielGame) -> _Listing:
    k, first = game.cards, game.cards - game.rounds
    blocks, branches, starts = [], [], np.zeros(k + 1, np.int32)
    radix = np.zeros((k + 1, k), np.int32)
    hands = np.zeros((k + 1, math.comb(k, k // 2), k), bool)
    for length in range(first, k + 1):
        prefixes = np.asarray(list(itertools.permutations(range(k), length)), np.int32)
        starts[length] = sum(len(block) for block in blocks)
        blocks.append(np.pad(prefixes, ((0, 0), (0, k - length)), constant_values=k))
        radix[length, :length] = [math.perm(k - 1 - place, length - 1 - place) for place in range(length)]
        sets = {held: row for row, held in enumerate(itertools.combinations(range(k), k - length))}
        for held, row in sets.items():
            hands[length, row, list(held)] = True
        if length < k:
            rests = [tuple(sorted(set(range(k)) - set(prefix))) for prefix in prefixes.tolist()]
            branches.append(np.asarray([[sets[rest] * k + card for card in rest] for rest in rests], np.int32))
    return _Listing(np.concatenate(blocks), starts, radix, hands, tuple(branches))


class GoofspielFamily(Episodic):
    """Random games between two policies of a pool, the opponent's known to the filter.

    What the observer bids depends on what was seen before, so an episode cannot be scheduled ahead of its hidden
    states; `episode` plays it whole. The pool's leaves have a leading axis. It is an argument of whatever is
    compiled, never a constant of it: a pool of 512 policies would be folded for minutes.
    """

    pool: PyTree
    game: GoofspielGame

    def __check_init__(self) -> None:
        sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(self.pool)}
        if not hasattr(self.pool, "log_probs") or len(sizes) > 1 or () in sizes or (0,) in sizes:
            raise InputError(
                "A pool is a policy with log_probs(features) whose leaves have one leading axis, of at least 1; got "
                f"{type(self.pool).__name__} with leading axes {sorted(sizes)}."
            )

    @property
    def size(self) -> int:
        """How many policies there are."""
        leaves = jax.tree.leaves(self.pool)
        return leaves[0].shape[0] if leaves else 1

    def policy(self, number: Int[Array, ""]) -> Any:
        """One policy of the pool."""
        return jax.tree.map(lambda leaf: leaf[number], self.pool)

    def sample(self, key: Key[Array, ""]) -> tuple[Goofspiel | LargeGoofspiel, Any]:
        """The first round of a random game, before its outcome is known, and the opponent's policy."""
        game, policy = self._play(key)
        unknown = jnp.full_like(game.outcomes, NONE)
        return goofspiel(self.game, game.deck, jnp.int32(0), game.bids[:, 0], game.prizes, unknown), policy

    def episode(self, key: Key[Array, ""]) -> tuple[Any, Any, Int[Array, " rounds"], Int[Array, "rounds+1 k"]]:
        """A random game: the environment and the policy of each round, its observations, and the true hidden states
        before the first round and after each."""
        game, policy = self._play(key)
        record = game.bids[:, 0], game.prizes, game.outcomes
        times = jnp.arange(self.game.rounds, dtype=jnp.int32)
        environments = jax.vmap(lambda time: goofspiel(self.game, game.deck, time, *record))(times)
        policies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.game.rounds, *leaf.shape)), policy)
        first = jnp.argmin(game.hands[1], keepdims=True)[: self.game.cards - self.game.rounds]
        hidden = jnp.concatenate([first, game.bids[:, 1]]).astype(jnp.int32)
        known = jnp.arange(self.game.rounds + 1)[:, None] + self.game.cards - self.game.rounds
        states = jnp.where(jnp.arange(self.game.cards) < known, hidden, self.game.cards)
        return environments, policies, game.outcomes, states

    def _play(self, key: Key[Array, ""]) -> tuple[Any, Any]:
        choice_key, game_key = jax.random.split(key)
        own, other = jax.random.randint(choice_key, (2,), 0, self.size)
        policy = self.policy(other)
        return self.game.play(game_key, (self.policy(own), policy)), policy
