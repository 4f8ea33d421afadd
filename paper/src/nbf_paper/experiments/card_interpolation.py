"""Baselines of hand inference in the small game with the interpolation that the neural filter has.

The likelihood of an action is predicted for hands whose policy was not called, by kernel regression on the hand
(`nbf.filters.neural.interpolating`). Hands can be listed here, so a baseline may keep a prediction for every one: no
marginals, and no embedding, come between it and the posterior.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.filters.neural.interpolating import interpolated
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
            return jnp.where(allowed, jnp.sum(jnp.where(past[:, None], every, 0.0), axis=0), -jnp.inf)

        def at(time: Int[Array, ""], key: Key[Array, ""]) -> Array:
            keys = jax.random.split(key, history.holders)
            every = jax.vmap(lambda key, holder: weights(key, time, holder))(keys, jnp.arange(history.holders))
            return history.combined(time, every)[0]

        keys = jax.random.split(key, len(game.actions))
        return jax.lax.map(lambda pair: at(*pair), (history.times(), keys)), calls * history.acts.astype(jnp.float32)

    return run


def running_tables(
    key: Key[Array, ""], game: Watched, calls: int
) -> tuple[Tables, Float[Array, "t cards owners"], Float[Array, " t"]]:
    """A prediction of the log probability of the whole history under every hand of each opponent, kept up to date.

    Of an action, the policy is called for hands of the one who made it, different ones, drawn by how likely they are by
    the predictions so far. Returns the predictions after each action, their marginals, and the calls.
    """
    history = History(game)
    held = jnp.asarray(history.held, jnp.float32)

    def chosen(key: Key[Array, ""], probs: Float[Array, " hands"], allowed: Bool[Array, " hands"]) -> Int[Array, " n"]:
        # Gumbel's largest: draws without replacement. Hands that are allowed come before those that are not.
        names = jnp.where(probs > 0, jnp.log(probs), -1e6) + jax.random.gumbel(key, probs.shape)
        return jax.lax.top_k(jnp.where(allowed, names, -jnp.inf), min(calls, len(names)))[1]

    def step(tables: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, ...]]:
        time, key = inputs
        owner = jnp.minimum(game.owner[time], history.holders - 1)
        allowed = game.allowed[time, owner]
        _, before = history.combined(time, tables)
        some = chosen(key, before[owner], allowed)
        now = tables.at[owner].add(predicted(held, some, game.told[time][some]))
        tables = jnp.where(history.acts[time], now, tables)
        spent = jnp.where(history.acts[time], jnp.minimum(len(some), jnp.sum(allowed)), 0)
        return tables, (tables, history.combined(time, tables)[0], spent.astype(jnp.float32))

    start = jnp.zeros((history.holders, len(held)))
    tables, held_by, calls = jax.lax.scan(step, start, (history.times(), jax.random.split(key, len(game.actions))))[1]
    return tables, held_by, calls


def guess(calls: int) -> Guess:
    """The running tables, by which swaps are accepted at first."""

    def run(key: Key[Array, ""], game: Watched) -> tuple[Tables, Float[Array, " t"]]:
        tables, _, spent = running_tables(key, game, calls)
        return tables, spent

    return run


def interpolated_tables(calls: int) -> Baseline:
    """The tables of the exact posterior, by few calls for each action: `running_tables`."""

    def run(key: Key[Array, ""], game: Watched) -> Found:
        return running_tables(key, game, calls)[1:]

    return run
