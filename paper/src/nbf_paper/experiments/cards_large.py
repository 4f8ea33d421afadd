"""Hand inference in the whole game of Oh Hell: 4 players, 52 cards, 8 tricks. Its posterior cannot be listed.

There are some 10¹⁵ deals, so filters are scored by what came true: the log probability of the true owner of each card
that is not settled, by the marginals, of which a hundredth is those of the prior, so that one lost deal does not decide
a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.adapters.oh_hell import deal_filter
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.neural import EvenProposal, NeuralBayesianFilter, Proposal
from nbf.filters.particle import ParticleFilter
from nbf.resampling.schemes import systematic_draw
from nbf.spaces import Deals
from nbf.spaces.deal_weights import deals, marginals
from nbf_paper.experiments.card_games import OBSERVER, deal_of, play
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.names import WHOLE_DECK
from nbf_paper.records import ALL, Record

ACTIONS = (8, 12, 16, 20, 24)
"""After how many actions beliefs are scored: one round of bids, then some tricks."""
SHARE = 0.01
"""Of the prior, in every belief that is scored."""
DRAWS = 512
"""Deals of a belief."""
POLICIES = TrickPoolConfig(players=4, suits=4, ranks=13, tricks=8, checkpoints=32)


class Seen(NamedTuple):
    """A game as the observer sees it, and the deal."""

    environments: HiddenHands
    actions: Array
    deal: Array


class Believed(NamedTuple):
    """A belief after each of `ACTIONS`."""

    marginals: Float[Array, "k cards owners"]
    deals: Int[Array, "k draws cards"]
    """`DRAWS` deals of it, by which the next action is foretold."""
    calls: Float[Array, ""]
    """Of a policy: for each action of an opponent, or, if nothing is kept between decisions, for each decision."""


Method = Callable[[Key[Array, ""], Seen], Believed]


def _known(environments: HiddenHands, time: int) -> HiddenHands:
    """The environment of the last of so many actions."""
    return jax.tree.map(lambda leaf: leaf[time - 1], environments)


def by_rules(key: Key[Array, ""], space: Deals, n: int) -> Int[Array, "n cards"]:
    """Deals that what is known allows, all equally likely."""
    return deals(space.allowed.astype(jnp.float32), space.quotas, jax.random.uniform(key, (space.cards, n)))


def weighted(key: Key[Array, ""], drawn: Int[Array, "n cards"], log_weights: Float[Array, " n"], owners: int) -> Any:
    """The marginals of weighted deals, and `DRAWS` of these; if no weight is above 0, all are alike."""
    usable = jnp.where(jnp.max(log_weights) > -jnp.inf, log_weights, 0.0)
    held = jnp.tensordot(jax.nn.softmax(usable), jax.nn.one_hot(drawn, owners), axes=1)
    return held, drawn[systematic_draw(key, usable, DRAWS)]


def prior(key: Key[Array, ""], game: Seen) -> Believed:
    """All deals are equally likely that what is known allows."""
    spaces = [_known(game.environments, time).space for time in ACTIONS]
    held = [marginals(space.allowed.astype(jnp.float32), space.quotas) for space in spaces]
    keys = jax.random.split(key, len(ACTIONS))
    drawn = [by_rules(key, space, DRAWS) for key, space in zip(keys, spaces, strict=True)]
    return Believed(jnp.stack(held), jnp.stack(drawn), jnp.zeros(()))


def policy_inference(calls: int) -> Method:
    """Fresh deals, weighed by the whole history, as many as the calls allow."""

    def run(key: Key[Array, ""], game: Seen) -> Believed:
        players, found = game.environments.rules.players, []
        for number, time in enumerate(ACTIONS):
            # Of each round of bids, and of each trick, one action is the observer's.
            told = time - time // players
            past = jnp.nonzero(game.environments.game.player[:time] != OBSERVER, size=told)[0]
            environments, actions = jax.tree.map(lambda leaf: leaf[past], game[:2])  # noqa: B023
            space = _known(game.environments, time).space
            own_key = prng.fold_in(key, jnp.int32(number))
            drawn = by_rules(own_key, space, max(calls // told, 1))

            def one(total: Array, inputs: tuple[HiddenHands, Array], drawn: Array = drawn) -> tuple[Array, None]:
                environment, action = inputs
                return total + jax.vmap(lambda deal: environment.log_likelihood(action, deal, deal))(drawn), None

            log_weights, _ = jax.lax.scan(one, jnp.zeros(len(drawn)), (environments, actions))
            found.append(weighted(prng.fold_in(own_key, jnp.int32(1)), drawn, log_weights, space.owners))
        held, dealt = (jnp.stack(part) for part in zip(*found, strict=True))
        return Believed(held, dealt, jnp.float32(calls))

    return run


def filtered(filter: Any, calls: int) -> Method:
    """The belief of a filter: of its embedding, or of its particles."""

    def run(key: Key[Array, ""], game: Seen) -> Believed:
        def step(state: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
            key, action, environment = inputs
            state, _ = filter.update(key, state, action, environment, None)
            return state, state

        def shown(key: Key[Array, ""], state: Any, environment: HiddenHands) -> tuple[Array, Array]:
            space = environment.space
            if isinstance(filter, NeuralBayesianFilter):
                weights = filter.model.weights(state.embedding, space)  # pyright: ignore[reportAttributeAccessIssue]
                drawn = deals(weights, space.quotas, jax.random.uniform(key, (space.cards, DRAWS)))
                return marginals(weights, space.quotas), drawn
            belief = filter.belief(state, environment)
            return belief.expectation(lambda deal: jax.nn.one_hot(deal, space.owners)), belief.sample(key, DRAWS)

        keys = jax.random.split(key, len(game.actions))
        start = filter.init(key, _known(game.environments, 1))
        states = jax.lax.scan(step, start, (keys, game.actions, game.environments))[1]
        late = np.asarray(ACTIONS) - 1
        states, environments = jax.tree.map(lambda leaf: leaf[late], (states, game.environments))
        own_keys = jax.random.split(prng.fold_in(key, jnp.int32(1)), len(ACTIONS))
        held, dealt = jax.lax.map(lambda each: shown(*each), (own_keys, states, environments))
        return Believed(held, dealt, jnp.float32(calls))

    return run


class LargeRow(NamedTuple):
    """A filter with the names of its records."""

    run: Method
    name: str
    arm: str
    particles: int


def rows(few: bool, rules: TrickTaking) -> Iterator[LargeRow]:
    """Every filter; `few`: of each kind one."""

    def ours(calls: int, proposal: Proposal | None) -> Method:
        model = deal_filter(rules, calls).model
        return filtered(NeuralBayesianFilter(model, calls, proposal=proposal), calls)

    yield LargeRow(prior, "prior", "", 0)
    for calls in (16,) if few else (16, 64, 256):
        yield LargeRow(ours(calls, None), "nbf", "", calls)
    yield LargeRow(ours(64, EvenProposal()), "nbf", "even draws", 64)
    for calls in (128,) if few else (512, 4096, 32768):
        yield LargeRow(policy_inference(calls), "policy-inference", "", calls)
    for count in (64,) if few else (1024,):
        yield LargeRow(filtered(ParticleFilter(count), count), "pf", "", count)


@eqx.filter_jit
def scores(run: Method, keys: Key[Array, " g"], games: Seen) -> Float[Array, "g k"]:
    """The mean log probability of the true owners of the cards that are not settled."""

    def one(pair: tuple[Key[Array, ""], Seen]) -> Array:
        key, game = pair
        return card_scores((1.0 - SHARE) * run(key, game).marginals + SHARE * prior(key, game).marginals, game)

    return jax.lax.map(one, (keys, games))


def card_scores(probs: Float[Array, "k cards owners"], game: Seen) -> Float[Array, " k"]:
    """The mean log probability of the true owners of the cards that are not settled, after each of `ACTIONS`."""
    told = jnp.log(jnp.take_along_axis(probs, game.deal[None, :, None], axis=2)[..., 0])
    unsettled = jnp.sum(game.environments.space.allowed[np.asarray(ACTIONS) - 1], axis=2) > 1
    return jnp.sum(jnp.where(unsettled, told, 0.0), axis=1) / jnp.maximum(jnp.sum(unsettled, axis=1), 1)


@dataclass(frozen=True)
class LargeCardJob(PoolJob):
    """Every filter in games of the whole deck."""

    seed: int = 0
    games: int = 96
    policies: TrickPoolConfig = field(default_factory=lambda: POLICIES)
    few: bool = False
    """One row of each kind alone: a quick run."""

    def __post_init__(self) -> None:
        length, players = self.policies.rules.length, self.policies.players
        if self.games < 2 or length < ACTIONS[-1] or players != 4:
            raise InputError(
                f"2 games at least are needed, of 4 players and {ACTIONS[-1]} actions; got {self.games} of {players} "
                f"players and {length} actions."
            )

    @property
    def evaluated(self) -> int:
        return self.games

    @property
    def title(self) -> str:
        return f"cards, the whole deck, seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{WHOLE_DECK}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "opponents": "self-play", "seed": self.seed, "policies": self.policies.settings,
            "evaluation": {"games": self.games, "actions": ACTIONS, "share": SHARE},
            **({"rows": "few"} if self.few else {}),
        }  # fmt: skip

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        bar.describe(f"{self.title}: games")
        games, filter_key = games_of(self.policies.rules, self.held_out(runs), self.seed, self.games)
        records = list[Record]()
        for number, row in enumerate(rows(self.few, self.policies.rules)):
            bar.describe(f"{self.title}: {row.name}({row.particles}) {row.arm}")
            keys = jax.random.split(prng.fold_in(filter_key, jnp.int32(number)), self.games)
            found = np.asarray(scores(row.run, keys, games))
            steps = [(ALL, found.mean(axis=1)), *((time, found[:, place]) for place, time in enumerate(ACTIONS))]
            for step, values in steps:
                value, error = (float(part) for part in mean_and_error(values))
                records.append(Record(
                    "cards", WHOLE_DECK, row.name, row.arm, row.particles, row.particles, self.seed, step,
                    "card_log_score", value, error, self.games,
                ))  # fmt: skip
            bar.advance(self.games)
        jax.clear_caches()
        return records


def seen(rules: TrickTaking, key: Key[Array, ""], players: Any) -> Seen:
    """Play a game."""
    start, environments, actions = play(rules, key, players, ACTIONS[-1])
    return Seen(environments, actions, deal_of(start))


def games_of(rules: TrickTaking, policies: Any, seed: int, count: int) -> tuple[Seen, Key[Array, ""]]:
    """The games of a seed, between random ones of some policies, and the key of the filters."""
    player_key, game_key, filter_key = jax.random.split(prng.stream(seed, "cards", "large"), 3)
    size = jax.tree.leaves(policies)[0].shape[0]
    chosen = jax.random.randint(player_key, (count, rules.players), 0, size)
    return _games(rules, jax.random.split(game_key, count), policies, chosen), filter_key


@eqx.filter_jit
def _games(rules: TrickTaking, keys: Key[Array, " g"], policies: Any, chosen: Array) -> Seen:
    def one(pair: tuple[Array, Array]) -> Seen:
        key, seats = pair
        return seen(rules, key, jax.tree.map(lambda leaf: leaf[seats], policies))

    return jax.lax.map(one, (keys, chosen))
