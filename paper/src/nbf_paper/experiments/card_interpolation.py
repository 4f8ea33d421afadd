"""Baselines of hand inference in the small game with the interpolation that the neural filter has.

The likelihood of an action is predicted for hands whose policy was not called, by kernel regression on the hand
(`nbf.filters.neural.interpolating`). Hands can be listed here, so a baseline may keep a prediction for every one: no
marginals, and no embedding, come between it and the posterior.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.filters.neural.interpolating import interpolated
from nbf.spaces.deal_weights import marginals
from nbf_paper.experiments.card_baselines import Baseline, Found, Guess, History, Tables
from nbf_paper.experiments.card_games import Watched

REACH, RIDGE = 0.75, 0.1
"""Of the kernel, tuned for these baselines by themselves, in games against policies of the training runs."""
Told = Float[Array, "*actions n"]
"""Log probabilities of actions under some hands."""


def predicted(
    held: Float[Array, "hands unseen"], chosen: Int[Array, " n"], told: Told
) -> Float[Array, "*actions hands"]:
    """The log probability of actions under every hand, by that under some: theirs as it is, of the others predicted.

    An action that is impossible under all of these tells nothing.
    """
    if told.ndim > 1:
        return jax.vmap(lambda one: predicted(held, chosen, one))(told)
    found = interpolated(held, chosen, told, REACH, RIDGE).at[chosen].set(told)
    return jnp.where(jnp.max(told) > -jnp.inf, found, 0.0)


def _by_tables(history: History, tables: Tables) -> Float[Array, "t cards owners"]:
    """The marginals of tables after each action; the observer's own tell nothing, and change nothing."""
    space = history.game.environments.space

    def step(last: Array, time: Int[Array, ""]) -> tuple[Array, Array]:
        found = jax.lax.cond(history.acts[time], lambda: history.combined(time, tables[time]), lambda: last)
        return found, found

    start = marginals(space.allowed[0].astype(jnp.float32), space.quotas)
    return jax.lax.scan(step, start, history.times())[1]


def hands_combined(calls: int) -> Baseline:
    """Policy inference for each opponent's hand by itself (`card_baselines.hands_combined`), in which each action is
    predicted for the hands whose policy was not called."""

    def run(key: Key[Array, ""], game: Watched) -> Found:
        history = History(game)
        held, each = jnp.asarray(history.held, jnp.float32), calls // history.holders

        def weights(key: Key[Array, ""], time: Int[Array, ""], holder: Int[Array, ""]) -> Float[Array, " hands"]:
            allowed = game.allowed[time, holder]
            order = jnp.argsort(jnp.where(allowed, jax.random.uniform(key, allowed.shape), 2.0))
            count = jnp.maximum(each // jnp.maximum(history.counts[time, holder], 1), 1)
            # Some of them several times, which changes little.
            chosen = order[jnp.arange(each) % jnp.minimum(count, jnp.sum(allowed))]
            past = (game.owner == holder) & (history.times() <= time)
            every = predicted(held, chosen, jnp.where(past[:, None], game.told[:, chosen], 0.0))
            return jnp.sum(jnp.where(past[:, None], every, 0.0), axis=0)

        def at(pair: tuple[Int[Array, ""], Key[Array, ""]]) -> Float[Array, "holders hands"]:
            time, key = pair
            keys, holders = jax.random.split(key, history.holders), jnp.arange(history.holders)
            return jax.vmap(lambda key, holder: weights(key, time, holder))(keys, holders)

        tables = jax.lax.map(at, (history.times(), jax.random.split(key, len(game.actions))))
        return _by_tables(history, tables), calls * history.acts.astype(jnp.float32)

    return run


def running_tables(calls: int) -> Guess:
    """Predictions of the log probability of the whole history under every hand of each opponent, kept up to date.

    Of an action, the policy is called for hands of the one who made it: different ones, drawn by how likely their past
    actions are by the predictions so far.
    """

    def run(key: Key[Array, ""], game: Watched) -> tuple[Tables, Float[Array, " t"]]:
        history = History(game)
        held = jnp.asarray(history.held, jnp.float32)
        count = min(calls, len(held))

        def step(tables: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            time, key = inputs
            owner = jnp.minimum(game.owner[time], history.holders - 1)
            allowed = game.allowed[time, owner]
            # The largest by Gumbel's noise are draws without replacement; impossible hands come last.
            names = jnp.maximum(tables[owner], -1e6) + jax.random.gumbel(key, allowed.shape)
            some = jax.lax.top_k(jnp.where(allowed, names, -jnp.inf), count)[1]
            now = tables.at[owner].add(predicted(held, some, game.told[time][some]))
            tables = jnp.where(history.acts[time], now, tables)
            spent = jnp.where(history.acts[time], jnp.minimum(count, jnp.sum(allowed)), 0)
            return tables, (tables, spent.astype(jnp.float32))

        start = jnp.zeros((history.holders, len(held)))
        return jax.lax.scan(step, start, (history.times(), jax.random.split(key, len(game.actions))))[1]

    return run


def interpolated_tables(calls: int) -> Baseline:
    """The tables of the exact posterior, by few calls for each action: `running_tables`."""

    def run(key: Key[Array, ""], game: Watched) -> Found:
        tables, spent = running_tables(calls)(key, game)
        return _by_tables(History(game), tables), spent

    return run
