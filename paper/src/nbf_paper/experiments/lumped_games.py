"""Games of Goofspiel in which beliefs are compared over lumped states: the missing card and the *set* of bids.

The order of past bids is forgotten, so a divergence is at most that over sequences.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.categorical import CategoricalBelief
from nbf.beliefs.lumped import LumpedBelief, lump, place, sets_of
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief, Filter
from nbf.environments.goofspiel import Goofspiel, LargeGoofspiel
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import CardPolicy
from nbf.environments.rollout import at_step
from nbf.evaluation.batches import in_batches
from nbf.evaluation.divergence import jensen_shannon
from nbf.filters.run import run
from nbf.resampling.weights import normalized_weights
from nbf_paper.experiments.goofspiel_evaluation import microseconds
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.rows import FilterRow, filter_keys, records_by_step
from nbf_paper.records import Record

LUMPED = "exact-lumped"
"""The lumped filter in records."""
TOGETHER = 2**15
"""Particles that are simulated together, of several games."""


def num_hands(cards: int) -> int:
    """Policy calls of an update of the exact filters: the hands that the opponent may hold in the middle of a game."""
    return math.comb(cards, cards // 2)


class Games(eqx.Module):
    """Random games, with a leading axis."""

    environments: Goofspiel | LargeGoofspiel
    policies: CardPolicy
    observations: Int[Array, "episodes rounds"]


# Families are arguments of what is compiled, never constants of it: see `GoofspielFamily`.
@eqx.filter_jit
def random_games(family: GoofspielFamily, keys: Key[Array, " episodes"]) -> Games:
    """Random games of a family."""
    environments, policies, observations, _ = jax.vmap(family.episode)(keys)
    return Games(environments, policies, observations)


def lumped_masses(belief: Belief, environment: Goofspiel | LargeGoofspiel) -> Float[Array, "sets firsts"]:
    """The probability that a belief gives to each lumped state; particles count as their weighted histogram."""
    if isinstance(belief, LumpedBelief):
        return belief.masses
    if isinstance(belief, CategoricalBelief):
        states, weights = belief.environment.states(), belief.probs
    else:
        assert isinstance(belief, ParticleBelief)
        states, weights = belief.states, normalized_weights(belief.log_weights)
    cards, first = environment.game.cards, not environment.game.standard
    found = jax.vmap(lambda state: place(lump(state, first=first), first=first))(states)
    return jnp.zeros((len(sets_of(cards).members[0]), cards if first else 1)).at[found].add(weights)


@eqx.filter_jit
def lumped_scores(
    filter: Filter, truth: Filter, keys: Key[Array, " episodes"], games: Games
) -> Float[Array, "episodes rounds"]:
    """JS between two filters' beliefs over lumped states after every round."""

    def one(key: Key[Array, ""], games: Games) -> Float[Array, " rounds"]:
        first = at_step(games.environments, 0, changing=True)
        told = games.observations, games.environments, games.policies

        def tracked(filter: Filter) -> Float[Array, "rounds lumped"]:
            look = lambda state: lumped_masses(filter.belief(state, first), first).ravel()  # noqa: E731
            return run(filter, key, *told, look=look, changing=True)[0]

        return jax.vmap(jensen_shannon)(tracked(truth), tracked(filter))

    return jax.vmap(one)(keys, games)


def score(
    base: Record, rows: Sequence[FilterRow], truth: Filter, family: GoofspielFamily, title: str, bar: Counter
) -> list[Record]:
    """JS over lumped states by round, and the time of an update, of some filters in the same games."""
    keys = jax.random.split(prng.stream(base.seed, base.experiment, base.config, "evaluation"), base.episodes)
    bar.describe(f"{title}: games")
    games = in_batches(functools.partial(random_games, family), (keys,), batch=min(50, base.episodes))
    own, records = filter_keys(keys), list[Record]()
    for row in rows:
        bar.describe(f"{title}: {row.label}")
        batch = max(1, min(50, base.episodes, TOGETHER // max(row.particles, 1)))
        divergences = functools.partial(lumped_scores, row.filter, truth)
        found = in_batches(divergences, (own, games), batch=batch, advance=bar.advance)
        mine = replace(base, filter=row.name, arm=row.arm, particles=row.particles, calls=row.calls)
        key = prng.stream(base.seed, base.experiment, base.config, row.label, "time")
        time = microseconds(row.filter, key, games.environments, games.policies, games.observations)
        records += [*records_by_step(mine, "js", found), replace(mine, metric="us_per_update", value=time, se=None)]
    return records
