"""A hand of cards: a small game of Oh Hell, in which a user bids and plays against two others.

The hidden state is the deal, and never moves. A step is one bid or one card, of whoever's turn it is. What the others
do is weighed by how they are thought to play; what the user does tells nothing of their cards, and is no observation.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.hands import HandBelief
from nbf.beliefs.model import ModelBelief
from nbf.contracts import Belief, Environment, Filter, FilterInfo, FilterState, Observation, Policy
from nbf.environments.hidden_hands import HiddenHands, allowed_owners, own_cards
from nbf.environments.scripted_player import ScriptedPlayer
from nbf.environments.trick_taking import NONE, Game, TrickTaking
from nbf.errors import InputError
from nbf.filters.hands import HandTableFilter, hidden_hands
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.play.problems import checks
from nbf.play.problems.problem import EXACT, NEURAL_COUNTS, PARTICLE, PARTICLE_COUNTS, Problem, Settings, Told, World
from nbf.spaces import Deals
from nbf.spaces.deal_weights import completions, marginals

RULES = TrickTaking(players=3, suits=3, ranks=6, tricks=4)
OBSERVER = 0
"""The user's seat."""
PLAYERS = ("You", "Left", "Right")
OWNERS = (*PLAYERS[1:], "Deck")
"""Who may hold a card that the user does not see."""
SUITS, SUIT_LETTERS = ("♣", "♦", "♠"), ("C", "D", "S")
RANKS, RANK_LETTERS = ("9", "10", "J", "Q", "K", "A"), ("9", "T", "J", "Q", "K", "A")
UNSEEN = RULES.cards - RULES.tricks - 1
"""Cards that the user does not see at first: the rows of the table."""
SHARPNESS = {"rule": 5.0, "roughly": 1.5, "random": 0.0, "contrary": -1.5}
"""How the others may play: by the rule of `ScriptedPlayer`, roughly so, at random, against it."""
HONEST = "same"
"""The filters are told how the others play."""


def label(card: int) -> str:
    """Name a card for a reader.

    Args:
        card: Its number.

    Returns:
        Its rank and suit.
    """
    return RANKS[card // RULES.suits] + SUITS[card % RULES.suits]


@functools.cache
def player(kind: str) -> ScriptedPlayer:
    """Make an opponent.

    Args:
        kind: One of `SHARPNESS`.

    Returns:
        The policy.
    """
    return ScriptedPlayer(jnp.float32(1.5), jnp.float32(0.5), jnp.float32(SHARPNESS[kind]), RULES)


def ahead(environment: HiddenHands) -> HiddenHands:
    """Take back what an action tells of who may hold each card.

    Args:
        environment: Of an action.

    Returns:
        The environment, whose space is what was known before the action.
    """
    space = environment.space
    allowed = allowed_owners(environment.rules, environment.game, environment.observer)
    return eqx.tree_at(lambda hidden: hidden.space, environment, Deals.of(allowed, space.quotas))


class WholeEvidence(Filter):
    """A neural filter whose evidence is that of the whole action.

    The space of an action tells already whose card it was, and which suits they lack; the filter's own evidence is that
    of the rest. Here the probability of that under the belief before the action is part of it.
    """

    filter: NeuralBayesianFilter

    def init(self, key: Key[Array, ""], environment: Environment) -> FilterState:
        return self.filter.init(key, environment)

    def update(
        self,
        key: Key[Array, ""],
        state: FilterState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[FilterState, FilterInfo]:
        hidden = hidden_hands(environment)
        belief, quotas = self.filter.belief(state, ahead(hidden)), hidden.space.quotas
        weights = _model().weights(belief.embedding, belief.space)
        before, after = (completions(kept, quotas)[1] for kept in (weights, weights * hidden.space.allowed))
        state, info = self.filter.update(key, state, observation, environment, policy)
        return state, replace(info, log_evidence=info.log_evidence + after - before)

    def belief(self, state: FilterState, environment: Environment) -> Belief:
        return self.filter.belief(state, environment)


class CardsProblem(Problem):
    """A hand of Oh Hell with 18 cards, seen by one of three players."""

    name = "cards"
    title = "Cards"
    picture = "table"
    actions = (
        *(RANK_LETTERS[card // RULES.suits] + SUIT_LETTERS[card % RULES.suits] for card in range(RULES.cards)),
        *(f"bid {bid}" for bid in range(RULES.tricks + 1)),
        "auto",
    )
    shape = (UNSEEN, len(OWNERS))
    reference = "Exact"

    def defaults(self) -> dict[str, Any]:
        return {"plays": "rule", "believed": HONEST, "particle": 128, "neural": 64}

    def checked(self, settings: Any) -> dict[str, Any]:
        found = checks.known(settings, self.defaults())
        checks.choice("plays", found["plays"], tuple(SHARPNESS))
        checks.choice("believed", found["believed"], (HONEST, *SHARPNESS))
        checks.choice("particle", found["particle"], PARTICLE_COUNTS)
        checks.choice("neural", found["neural"], NEURAL_COUNTS)
        return found

    def start(self, key: Key[Array, ""], settings: Settings) -> World:
        deck_key, dealer_key = jax.random.split(key)
        dealer = int(jax.random.randint(dealer_key, (), 0, RULES.players))
        return World(np.asarray(jax.random.permutation(deck_key, RULES.cards)), (dealer,))

    def told(self, key: Key[Array, ""], settings: Settings, world: World, action: str, time: int) -> Told:
        game = _position(world)
        if game.time >= RULES.length:
            raise InputError("The hand is over. Begin a new episode, or go back.")
        if action == "auto":
            kind = "rule" if game.player == OBSERVER else settings["plays"]
            chosen = int(_chosen(key, game, player(kind)))
        else:
            chosen = _asked(game, action)
        up = RULES.players * RULES.tricks
        deck, (dealer, *actions) = world.hidden.tolist(), map(int, world.public)
        return [deck[OBSERVER : up : RULES.players], deck[up], dealer, [*actions, chosen]]

    def at(self, settings: Settings, told: Told) -> tuple[HiddenHands, None]:
        believed = settings["plays"] if settings["believed"] == HONEST else settings["believed"]
        return _environment(_position(_seen(told, -1)), jnp.int32(told[3][-1]), player(believed)), None

    def moved(
        self, key: Key[Array, ""], world: World, action: str, told: Told, environment: Environment, policy: Policy
    ) -> tuple[World, int]:
        chosen = told[3][-1]
        return World(world.hidden, (*world.public, chosen)), chosen

    def observation(self, observed: int | float) -> Array:
        return jnp.int32(observed)

    def silent(self, told: Told) -> bool:
        return bool(_position(_seen(told, -1)).player == OBSERVER)

    def filter(self, role: str, count: int) -> Filter:
        if role == EXACT:
            return HandTableFilter()
        return ParticleFilter(count) if role == PARTICLE else WholeEvidence(NeuralBayesianFilter(_model(), count))

    def cells(self, belief: Belief, environment: Environment) -> Float[Array, " cells"]:
        hidden = hidden_hands(environment)
        space = hidden.space
        if isinstance(belief, HandBelief):
            held = belief.marginals()
        elif isinstance(belief, ModelBelief) and isinstance(belief.model, MaximumEntropyDeals):
            held = marginals(belief.model.weights(belief.embedding, belief.space), space.quotas)
        else:
            held = belief.expectation(space.encode).reshape(space.allowed.shape)
        unknown = jnp.sum(space.allowed, axis=1, keepdims=True) > 1  # the cards that were played are no question
        return jnp.where(unknown, held, 0.0)[_rows(hidden.own_cards())].ravel()

    def ahead(self, environment: Environment) -> HiddenHands:
        return ahead(hidden_hands(environment))

    def marks(self, settings: Settings, world: World, time: int) -> dict[str, Any]:
        game, dealt = _position(world), _position(World(world.hidden, world.public[:1]))
        rows = np.asarray(_rows(_seen_at_first(game))).tolist()
        holders = [int(np.argmax(dealt.hands[:, card])) if dealt.hands[:, card].any() else 0 for card in rows]
        turn = int(game.player) if game.time < RULES.length else None
        legal = np.asarray(_legal(game)) if turn == OBSERVER else np.zeros(RULES.num_actions, bool)
        own = sorted(np.flatnonzero(game.hands[OBSERVER]).tolist(), key=lambda card: (card % RULES.suits, -card))
        bids = [number for number in np.flatnonzero(legal).tolist() if number >= RULES.cards]
        return {
            "owners": list(OWNERS),
            "cards": [label(card) for card in rows],
            "truth": [(holder - 1) % RULES.players for holder in holders],
            "played": [bool(game.played_by[card] != NONE) for card in rows],
            "up": label(int(game.turned_up)),
            "turn": None if turn is None else PLAYERS[turn],
            "hand": [[self.actions[card], label(card), bool(legal[card])] for card in own],
            "bids": [[self.actions[number], number - RULES.cards] for number in bids],
            "trick": _trick(game, world),
            "players": _players(game),
        }

    def said(self, settings: Settings, action: str, told: Told, observed: int | float) -> str:
        before, after = _position(_seen(told, -1)), _position(_seen(told, len(told[3])))
        seat, number = int(before.player), int(observed)
        end = "" if seat == OBSERVER else "s"
        if number >= RULES.cards:
            return f"{PLAYERS[seat]} bid{end} {number - RULES.cards}"
        winners = np.flatnonzero(after.won > before.won).tolist()
        taken = f"; the trick goes to {PLAYERS[winners[0]]}" if winners else ""
        over = "; the hand is over" if after.time >= RULES.length else ""
        return f"{PLAYERS[seat]} play{end} {label(number)}{taken}{over}"


def _asked(game: Game, action: str) -> int:
    """The number of an action that a user asks for; an error if it is not theirs to choose now."""
    turn, chosen = int(game.player), CardsProblem.actions.index(action)
    if turn != OBSERVER:
        raise InputError(f"It is the turn of {PLAYERS[turn]}: let them act (Space).")
    legal = np.asarray(_legal(game))
    if not legal[chosen]:
        allowed = ", ".join(CardsProblem.actions[number] for number in np.flatnonzero(legal))
        raise InputError(f"{action} is not legal now; you can choose {allowed}.")
    return chosen


def _seen(told: Told, actions: int) -> World:
    """A world that agrees with what a user sees, after some of the actions; the cards of the others are any."""
    hand, up, dealer, done = told
    deck, place = np.full(RULES.cards, NONE), RULES.players * RULES.tricks
    deck[OBSERVER : place : RULES.players], deck[place] = hand, up
    deck[deck == NONE] = np.setdiff1d(np.arange(RULES.cards), [*hand, up])
    return World(deck, (dealer, *done[:actions]))


def _position(world: World) -> Game:
    """The game of a world."""
    dealer, *actions = map(int, world.public)
    return _replayed(tuple(world.hidden.tolist()), dealer, tuple(actions))


@functools.lru_cache(maxsize=1024)
def _replayed(deck: tuple[int, ...], dealer: int, actions: tuple[int, ...]) -> Game:
    padded = np.zeros(RULES.length, np.int32)
    padded[: len(actions)] = actions
    game = _played(np.asarray(deck, np.int32), np.int32(dealer), padded, np.int32(len(actions)))
    return jax.tree.map(np.asarray, game)


@jax.jit
def _played(deck: Array, dealer: Array, actions: Int[Array, " longest"], count: Array) -> Game:
    def step(game: Game, move: tuple[Array, Array]) -> tuple[Game, None]:
        place, action = move
        after = RULES.play(game, action)
        return jax.tree.map(lambda old, new: jnp.where(place < count, new, old), game, after), None

    return jax.lax.scan(step, RULES.dealt(deck, dealer), (jnp.arange(len(actions)), actions))[0]


@jax.jit
def _chosen(key: Key[Array, ""], game: Game, policy: ScriptedPlayer) -> Array:
    own = game.hands[game.player]
    return jax.random.categorical(key, policy.log_probs(RULES.view(game, own), RULES.legal(game)))


@eqx.filter_jit
def _environment(game: Game, action: Array, policy: ScriptedPlayer) -> HiddenHands:
    return HiddenHands.of(RULES, game, action, policy, OBSERVER)


@jax.jit
def _legal(game: Game) -> Bool[Array, " actions"]:
    return RULES.legal(game)


@jax.jit
def _points(game: Game) -> Float[Array, " players"]:
    return RULES.returns(game)


@jax.jit
def _seen_at_first(game: Game) -> Bool[Array, " cards"]:
    return own_cards(RULES, game, OBSERVER)


@jax.jit
def _rows(own: Array) -> Int[Array, " unseen"]:
    """The cards that a user does not see at first, by suits, the highest first."""
    cards = np.arange(RULES.cards)
    order = jnp.asarray(cards % RULES.suits * RULES.ranks - cards // RULES.suits)
    return jnp.argsort(jnp.where(own, RULES.cards, order))[:UNSEEN]


def _trick(game: Game, world: World) -> list[list[str]]:
    """Who played which card in this trick, or in the last one if none is begun."""
    cards = [int(action) for action in world.public[1 + RULES.players :]]
    begun = (len(cards) - 1) // RULES.players * RULES.players
    return [[PLAYERS[int(game.played_by[card])], label(card)] for card in cards[max(begun, 0) :]]


def _players(game: Game) -> list[dict[str, Any]]:
    """What is told of each player: the bid, the tricks, and the points when the hand is over."""
    over, points = game.time >= RULES.length, np.asarray(_points(game))
    return [
        {
            "name": name,
            "deals": bool(seat == game.dealer),
            "bid": None if game.bids[seat] == NONE else int(game.bids[seat]),
            "won": int(game.won[seat]),
            "points": float(points[seat]) if over else None,
        }
        for seat, name in enumerate(PLAYERS)
    ]


@functools.cache
def _model() -> MaximumEntropyDeals:
    """Of largest entropy: nothing of it is trained."""
    everything = jnp.ones((RULES.cards, RULES.players), bool)
    return MaximumEntropyDeals(Deals(everything, (RULES.tricks,) * (RULES.players - 1)))
