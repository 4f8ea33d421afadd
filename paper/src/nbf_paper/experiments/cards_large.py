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
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.adapters.oh_hell import deal_filter
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.neural import EvenProposal, NeuralBayesianFilter, Proposal
from nbf.filters.particle import ParticleFilter
from nbf.spaces.deal_weights import deals, marginals
from nbf_paper.experiments.card_games import OBSERVER, play
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.policy_pool import make_pool, pool_path, read_pool
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.names import WHOLE_DECK
from nbf_paper.records import ALL, Record

ACTIONS = (8, 12, 16, 20, 24)
"""After how many actions beliefs are scored: one round of bids, then some tricks."""
SHARE = 0.01
"""Of the prior, in every belief that is scored."""
POLICIES = TrickPoolConfig(players=4, suits=4, ranks=13, tricks=8, checkpoints=32)


class Seen(NamedTuple):
    """A game as the observer sees it, and the deal."""

    environments: HiddenHands
    actions: Array
    deal: Array


Method = Callable[[Key[Array, ""], Seen], Float[Array, "k cards owners"]]
"""Gives marginals after each of `ACTIONS`."""


def _known(environments: HiddenHands, time: int) -> HiddenHands:
    """The environment of the last of so many actions."""
    return jax.tree.map(lambda leaf: leaf[time - 1], environments)


def prior(key: Key[Array, ""], game: Seen) -> Float[Array, "k cards owners"]:
    """All deals are equally likely that what is known allows."""
    spaces = [_known(game.environments, time).space for time in ACTIONS]
    return jnp.stack([marginals(space.allowed.astype(jnp.float32), space.quotas) for space in spaces])


def policy_inference(calls: int) -> Method:
    """Fresh deals, weighed by the whole history, as many as the calls allow."""

    def run(key: Key[Array, ""], game: Seen) -> Float[Array, "k cards owners"]:
        players, found = game.environments.rules.players, []
        for number, time in enumerate(ACTIONS):
            # Of each round of bids, and of each trick, one action is the observer's.
            told = time - time // players
            past = jnp.nonzero(game.environments.game.player[:time] != OBSERVER, size=told)[0]
            environments, actions = jax.tree.map(lambda leaf: leaf[past], game[:2])  # noqa: B023
            space = _known(game.environments, time).space
            uniform = jax.random.uniform(prng.fold_in(key, jnp.int32(number)), (space.cards, max(calls // told, 1)))
            drawn = deals(space.allowed.astype(jnp.float32), space.quotas, uniform)

            def one(total: Array, inputs: tuple[HiddenHands, Array], drawn: Array = drawn) -> tuple[Array, None]:
                environment, action = inputs
                return total + jax.vmap(lambda deal: environment.log_likelihood(action, deal, deal))(drawn), None

            log_weights, _ = jax.lax.scan(one, jnp.zeros(len(drawn)), (environments, actions))
            some = jnp.max(log_weights) > -jnp.inf
            weights = jax.nn.softmax(jnp.where(some, log_weights, 0.0))
            found.append(jnp.tensordot(weights, jax.nn.one_hot(drawn, space.owners), axes=1))
        return jnp.stack(found)

    return run


def filtered(filter: Any) -> Method:
    """The marginals of a filter: those of its embedding, or of its particles."""

    def run(key: Key[Array, ""], game: Seen) -> Float[Array, "k cards owners"]:
        first = _known(game.environments, 1)

        def step(state: Any, inputs: tuple[Any, ...]) -> tuple[Any, Array]:
            key, action, environment = inputs
            state, _ = filter.update(key, state, action, environment, None)
            return state, shown(state, environment)

        def shown(state: Any, environment: HiddenHands) -> Array:
            space = environment.space
            if isinstance(filter, NeuralBayesianFilter):
                return marginals(filter.model.weights(state.embedding, space), space.quotas)  # pyright: ignore[reportAttributeAccessIssue]
            return filter.belief(state, environment).expectation(lambda deal: jax.nn.one_hot(deal, space.owners))

        keys = jax.random.split(key, len(game.actions))
        found = jax.lax.scan(step, filter.init(key, first), (keys, game.actions, game.environments))[1]
        return found[np.asarray(ACTIONS) - 1]

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
        return filtered(NeuralBayesianFilter(model, calls, proposal=proposal))

    yield LargeRow(prior, "prior", "", 0)
    for calls in (16,) if few else (16, 64, 256):
        yield LargeRow(ours(calls, None), "nbf", "", calls)
    yield LargeRow(ours(64, EvenProposal()), "nbf", "even draws", 64)
    for calls in (128,) if few else (512, 4096, 32768):
        yield LargeRow(policy_inference(calls), "policy-inference", "", calls)
    for count in (64,) if few else (1024,):
        yield LargeRow(filtered(ParticleFilter(count)), "pf", "", count)


@eqx.filter_jit
def scores(run: Method, keys: Key[Array, " g"], games: Seen) -> Float[Array, "g k"]:
    """The mean log probability of the true owners of the cards that are not settled."""

    def one(pair: tuple[Key[Array, ""], Seen]) -> Array:
        key, game = pair
        probs = (1.0 - SHARE) * run(key, game) + SHARE * prior(key, game)
        allowed = game.environments.space.allowed[np.asarray(ACTIONS) - 1]
        told = jnp.log(jnp.take_along_axis(probs, game.deal[None, :, None], axis=2)[..., 0])
        unsettled = jnp.sum(allowed, axis=2) > 1
        return jnp.sum(jnp.where(unsettled, told, 0.0), axis=1) / jnp.maximum(jnp.sum(unsettled, axis=1), 1)

    return jax.lax.map(one, (keys, games))


@dataclass(frozen=True)
class LargeCardJob(Job):
    """Every filter in games of the whole deck."""

    seed: int = 0
    games: int = 96
    policies: TrickPoolConfig = field(default_factory=lambda: POLICIES)
    few: bool = False
    """One row of each kind alone: a quick run."""

    def __post_init__(self) -> None:
        if self.games < 2 or self.policies.rules.length < ACTIONS[-1] or self.policies.players != 4:
            raise InputError(
                f"2 games at least are needed, of 4 players and {ACTIONS[-1]} actions; got {self.games} of "
                f"{self.policies.players} players and {self.policies.rules.length} actions."
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

    def sizes(self) -> list[Size]:
        return [*super().sizes(), self.policies.size]

    def check(self, runs: Path) -> None:
        path = pool_path(runs, self.policies)
        if path.exists():
            read_pool(path, self.policies)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        rules, pool = self.policies.rules, make_pool(self.policies, pool_path(runs, self.policies))
        held_out = jax.tree.map(jnp.asarray, pool.split().run)
        key = prng.stream(self.seed, "cards", "large")
        player_key, game_key, filter_key = jax.random.split(key, 3)
        size = jax.tree.leaves(held_out)[0].shape[0]
        chosen = jax.random.randint(player_key, (self.games, rules.players), 0, size)
        bar.describe(f"{self.title}: games")
        games = _games(rules, jax.random.split(game_key, self.games), held_out, chosen)
        records = list[Record]()
        for number, row in enumerate(rows(self.few, rules)):
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
    others = [start.hands[(OBSERVER + 1 + place) % rules.players] for place in range(rules.players - 1)]
    deal = jnp.select(others, list(range(len(others))), len(others)).astype(jnp.int32)
    return Seen(environments, actions, deal)


@eqx.filter_jit
def _games(rules: TrickTaking, keys: Key[Array, " g"], policies: Any, chosen: Array) -> Seen:
    def one(pair: tuple[Array, Array]) -> Seen:
        key, seats = pair
        return seen(rules, key, jax.tree.map(lambda leaf: leaf[seats], policies))

    return jax.lax.map(one, (keys, chosen))
