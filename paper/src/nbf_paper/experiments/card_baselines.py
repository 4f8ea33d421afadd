"""Baselines of hand inference. Each gives the marginals after each action of a game, and the calls that it took.

A call is one evaluation of a policy: the probability of one action of a player with one hand. Where the whole history
weighs a deal, it costs as many calls as its holders have acted.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.beliefs.hands import HandBelief, hand_table
from nbf.filters.neural.interpolating import interpolated
from nbf.resampling.schemes import systematic_draw
from nbf.resampling.weights import normalize
from nbf.spaces.deal_weights import deals, marginals
from nbf_paper.experiments.card_games import Watched

Found = tuple[Float[Array, "t cards owners"], Float[Array, " t"]]
"""Marginals and calls after each action."""
Baseline = Callable[[Key[Array, ""], Watched], Found]
Rows = Int[Array, "n holders"]
"""Deals, as rows of the table of hands."""
Tables = Float[Array, "t holders hands"]
"""log probability of the whole history under each hand of each holder, after each action: true, or predicted."""
Guess = Callable[[Key[Array, ""], Watched], tuple[Tables, Float[Array, " t"]]]
"""Predicted log probabilities of the history under every hand, and the calls that they took."""
REACH, RIDGE, POINTS = 1.5, 0.02, 1024
"""Of interpolation: those of the neural filter."""


class History:
    """What is known of a game, hand by hand."""

    def __init__(self, game: Watched):
        self.game = game
        space = game.environments.space
        self.holders, self.cards = space.owners - 1, space.cards
        self.size = space.quotas[0]
        self.held, self.bits = hand_table(game.unseen.shape[0], self.size)
        acting = game.owner[:, None] == jnp.arange(self.holders)
        self.counts = jnp.cumsum(acting, axis=0)
        """Actions of each holder so far."""
        self.sums = jnp.cumsum(jnp.where(acting[:, :, None], game.told[:, None], 0.0), axis=0)
        """log probability of all actions of a holder so far, under each hand."""
        self.acts = jnp.any(acting, axis=1)
        rows = np.full(1 << game.unseen.shape[0], -1, np.int32)
        rows[self.bits] = np.arange(len(self.bits))
        self.row_of = jnp.asarray(rows)

    def rows(self, dealt: Int[Array, "n cards"]) -> Rows:
        """The hands of deals."""
        own = dealt[:, self.game.unseen, None] == jnp.arange(self.holders)
        return self.row_of[jnp.sum(own * (1 << np.arange(len(self.game.unseen)))[:, None], axis=1)]

    def consistent(self, key: Key[Array, ""], time: Int[Array, ""], n: int) -> Rows:
        """Deals that what is known allows, all equally likely."""
        weights = self.game.environments.space.allowed[time].astype(jnp.float32)
        quotas = self.game.environments.space.quotas
        return self.rows(deals(weights, quotas, jax.random.uniform(key, (self.cards, n))))

    def log_likelihoods(self, time: Int[Array, ""], rows: Rows) -> Float[Array, " n"]:
        """Of the whole history under deals."""
        return sum(self.sums[time, holder][rows[:, holder]] for holder in range(self.holders))  # pyright: ignore[reportReturnType]

    def legal(self, time: Int[Array, ""], rows: Rows) -> Bool[Array, " n"]:
        """Which deals what is known allows."""
        known = self.game.allowed[time]
        return jnp.all(jnp.stack([known[holder][rows[:, holder]] for holder in range(self.holders)]), axis=0)

    def marginals(self, rows: Rows, weights: Float[Array, " n"]) -> Float[Array, "cards owners"]:
        """Who holds each card in weighted deals."""
        shares = weights / jnp.sum(weights)
        held = jnp.stack(
            [shares @ jnp.asarray(self.held, jnp.float32)[rows[:, i]] for i in range(self.holders)], axis=1
        )
        every = jnp.zeros((self.cards, self.holders)).at[self.game.unseen].set(held)
        return jnp.concatenate([every, 1.0 - jnp.sum(every, axis=1, keepdims=True)], axis=1)

    def combined(
        self, time: Int[Array, ""], log_weights: Float[Array, "holders hands"]
    ) -> Float[Array, "cards owners"]:
        """Who holds each card if all pairs of disjoint hands that what is known allows count. Weights under which no
        deal is possible count for nothing."""
        game, allowed = self.game, self.game.allowed[time]
        found, log_total = HandBelief.of(jnp.where(allowed, log_weights, -jnp.inf), game.unseen, self.cards, self.size)
        space = game.environments.space
        known = marginals(space.allowed[time].astype(jnp.float32), space.quotas)
        return jnp.where(log_total > -jnp.inf, found.marginals(), known)

    def times(self) -> Int[Array, " t"]:
        """The actions, by number."""
        return jnp.arange(len(self.game.actions))


def _weights(log_weights: Float[Array, " n"], used: Bool[Array, " n"] | bool = True) -> Float[Array, " n"]:
    """Weights over their largest; all alike if none is possible."""
    kept = jnp.where(used, log_weights, -jnp.inf)
    largest = jnp.max(kept)
    return jnp.where(largest > -jnp.inf, jnp.exp(kept - jnp.where(largest > -jnp.inf, largest, 0.0)), used * 1.0)


def uniform(key: Key[Array, ""], game: Watched) -> Found:
    """All deals that what is known allows are equally likely: OpenSpiel's sampler, and void suits. No call."""
    space = game.environments.space
    found = jax.vmap(lambda allowed: marginals(allowed.astype(jnp.float32), space.quotas))(space.allowed)
    return found, jnp.zeros(len(game.actions))


def policy_inference(calls: int, *, smooth: bool = False) -> Baseline:
    """Fresh deals at each decision, weighed by the whole history (Rebstock et al. 2019), as many as the calls allow.

    `smooth`: many more deals, whose weights are interpolated from those.
    """

    def run(key: Key[Array, ""], game: Watched) -> Found:
        history = History(game)

        def at(time: Int[Array, ""], key: Key[Array, ""]) -> Array:
            count = jnp.maximum(calls // jnp.maximum(jnp.sum(history.counts[time]), 1), 1)
            rows = history.consistent(key, time, max(calls, POINTS) if smooth else calls)
            told = history.log_likelihoods(time, rows)
            used = jnp.arange(len(rows)) < count
            if smooth:
                numbers = jnp.asarray(history.held, jnp.float32)[rows].reshape(len(rows), -1)
                chosen = jnp.arange(calls) % count  # some of them several times, which changes little
                told, used = interpolated(numbers, chosen, told[chosen], REACH, RIDGE), jnp.ones(len(rows), bool)
            return history.marginals(rows, _weights(told, used))

        keys = jax.random.split(key, len(game.actions))
        return jax.vmap(at)(history.times(), keys), calls * history.acts.astype(jnp.float32)

    return run


def hands_combined(calls: int) -> Baseline:
    """Policy inference for each opponent's hand by itself, half of the calls each: all pairs of disjoint hands count.

    The hands are different ones; where there are no more, the posterior is exact.
    """

    def run(key: Key[Array, ""], game: Watched) -> Found:
        history = History(game)

        def at(time: Int[Array, ""], key: Key[Array, ""]) -> Array:
            order = jax.random.uniform(key, (history.holders, len(history.bits)))
            order = jnp.where(game.allowed[time], order, 2.0)
            count = calls // history.holders // jnp.maximum(history.counts[time], 1)
            rank = jnp.argsort(jnp.argsort(order, axis=1), axis=1)
            chosen = rank < jnp.maximum(count, 1)[:, None]
            return history.combined(time, jnp.where(chosen, history.sums[time], -jnp.inf))

        keys = jax.random.split(key, len(game.actions))
        return jax.lax.map(lambda pair: at(*pair), (history.times(), keys)), calls * history.acts.astype(jnp.float32)

    return run


def _swapped(
    key: Key[Array, ""], history: History, time: Int[Array, ""], rows: Rows, log_weights: Float[Array, " n"],
    guess: Float[Array, "holders hands"] | None,
) -> tuple[Rows, Float[Array, " n"], Float[Array, ""]]:  # fmt: skip
    """One Metropolis step of each deal: two cards of different owners change places. The calls of a proposal are those
    of the hands that it changes; one that is impossible costs none. With a guess of the log probability of the history
    under each hand, a proposal is first accepted or not by that, and only then called: delayed acceptance (Christen,
    Fox 2005), which leaves the posterior as it is."""
    n, unseen = len(rows), len(history.game.unseen)
    card_key, accept_key = jax.random.split(key)
    cards = jax.random.randint(card_key, (2, n), 0, unseen)
    masks = jnp.asarray(history.bits)[rows]
    has = (masks[None] >> cards[:, :, None]) & 1
    swap = (1 << cards[0]) | (1 << cards[1])
    changed = has[0] != has[1]
    after = jnp.where(changed, masks ^ swap[:, None], masks)
    moved = jnp.any(changed, axis=1)
    new = history.row_of[after]
    sound = moved & jnp.all(new >= 0, axis=1)
    new = jnp.where(sound[:, None], new, rows)
    legal = sound & history.legal(time, new)
    told = jnp.where(legal, history.log_likelihoods(time, new), -jnp.inf)
    gain = told - log_weights
    if guess is not None:
        ahead = _gain(guess, rows, new)
        first_key = prng.fold_in(accept_key, jnp.int32(1))
        legal = legal & (jnp.log(jax.random.uniform(first_key, (n,))) < ahead)
        gain = gain - ahead
    accepted = legal & (jnp.log(jax.random.uniform(accept_key, (n,))) < gain)
    calls = jnp.sum(jnp.where(legal[:, None] & changed, history.counts[time], 0))
    return jnp.where(accepted[:, None], new, rows), jnp.where(accepted, told, log_weights), calls.astype(jnp.float32)


def _gain(guess: Float[Array, "holders hands"], old: Rows, new: Rows) -> Float[Array, " n"]:
    """How much likelier the guess takes new deals to be than old ones; 0 where it rules out the old one."""
    before, after = (sum(guess[holder][rows[:, holder]] for holder in range(len(guess))) for rows in (old, new))
    return jnp.where(before > -jnp.inf, after - before, 0.0)


def _moved(
    key: Key[Array, ""], history: History, time: Int[Array, ""], rows: Rows, moves: int, guesses: Tables | None
) -> tuple[Rows, Float[Array, "cards owners"], Float[Array, ""]]:
    """Some Metropolis steps of each deal: the deals after them, the marginals of the last three quarters, the calls."""

    def step(carry: tuple[Array, ...], inputs: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        rows, told, calls, total = carry
        key, late = inputs
        rows, told, spent = _swapped(key, history, time, rows, told, None if guesses is None else guesses[time])
        total = total + late * history.marginals(rows, jnp.ones(len(rows)))
        return (rows, told, calls + spent, total), None

    late = (jnp.arange(moves) >= moves // 4).astype(jnp.float32)
    start = rows, history.log_likelihoods(time, rows), jnp.zeros(()), jnp.zeros((history.cards, history.holders + 1))
    (rows, _, calls, total), _ = jax.lax.scan(step, start, (jax.random.split(key, moves), late))
    return rows, total / jnp.maximum(jnp.sum(late), 1.0), calls


def resample_move(n: int, moves: int, guess: Guess | None = None) -> Baseline:
    """A particle filter over deals (Gilks, Berzuini 2001): when the effective sample size is below half, deals are
    resampled and each makes some swaps. If no deal is possible, all are drawn anew and weighed by the whole history.
    Without moves it is a plain particle filter. With a guess, swaps are accepted in two stages."""

    def run(key: Key[Array, ""], game: Watched) -> Found:
        history = History(game)
        guesses, guessed = (None, 0.0) if guess is None else guess(prng.fold_in(key, jnp.int32(2)), game)
        first_key, key = jax.random.split(key)

        def step(
            carry: tuple[Rows, Float[Array, " n"]], inputs: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            rows, log_weights = carry
            time, key = inputs
            fresh_key, resample_key, move_key = jax.random.split(key, 3)
            own = jnp.take_along_axis(rows, jnp.minimum(game.owner[time], history.holders - 1)[None, None], axis=1)[
                :, 0
            ]
            told = jnp.where(history.acts[time], game.told[time][own], 0.0)
            log_weights = jnp.where(history.legal(time, rows), log_weights + told, -jnp.inf)
            calls = n * history.acts[time].astype(jnp.float32)
            dead = ~(jnp.max(log_weights) > -jnp.inf)
            fresh = history.consistent(fresh_key, time, n)
            again = history.log_likelihoods(time, fresh)
            again = jnp.where(jnp.max(again) > -jnp.inf, again, 0.0)
            rows, log_weights = jnp.where(dead, fresh, rows), jnp.where(dead, again, log_weights)
            calls = calls + jnp.where(dead, n * jnp.sum(history.counts[time]), 0)
            log_weights, _ = normalize(log_weights)
            low = (jnp.sum(jnp.exp(2.0 * log_weights)) > 2.0 / n) & history.acts[time]
            chosen = systematic_draw(resample_key, log_weights, n)
            rows = jnp.where(low, rows[chosen], rows)
            log_weights = jnp.where(low, -jnp.log(n), log_weights)
            if moves:
                new, _, spent = _moved(move_key, history, time, rows, moves, guesses)
                rows, calls = jnp.where(low, new, rows), calls + jnp.where(low, spent, 0.0)
            return (rows, log_weights), (history.marginals(rows, jnp.exp(log_weights)), calls)

        space = jnp.ones((history.cards, history.holders + 1)).at[:, :-1].set(0.0)
        space = space.at[game.unseen].set(1.0)
        uniform = jax.random.uniform(first_key, (history.cards, n))
        start = history.rows(deals(space, game.environments.space.quotas, uniform)), jnp.full(n, -jnp.log(n))
        found, calls = jax.lax.scan(step, start, (history.times(), jax.random.split(key, len(game.actions))))[1]
        return found, calls + guessed

    return run


def mcmc(chains: int, moves: int, guess: Guess | None = None) -> Baseline:
    """Markov chains over deals that go on from where they were before the action; those that became impossible start
    anew. Marginals are means over the last three quarters of the swaps. With a guess, swaps are accepted in two stages.
    """

    def run(key: Key[Array, ""], game: Watched) -> Found:
        history = History(game)
        guesses, guessed = (None, 0.0) if guess is None else guess(prng.fold_in(key, jnp.int32(2)), game)

        def step(rows: Rows, inputs: tuple[Array, Array]) -> tuple[Rows, tuple[Array, Array]]:
            time, key = inputs
            fresh_key, move_key = jax.random.split(key)
            told = history.log_likelihoods(time, rows)
            dead = ~(history.legal(time, rows) & (told > -jnp.inf))
            rows = jnp.where(dead[:, None], history.consistent(fresh_key, time, chains), rows)
            calls = chains * history.acts[time] + jnp.sum(dead) * jnp.sum(history.counts[time])
            after, found, spent = _moved(move_key, history, time, rows, moves, guesses)
            return after, (found, calls + spent)

        start = history.consistent(prng.fold_in(key, jnp.int32(1)), jnp.int32(0), chains)
        found, calls = jax.lax.scan(step, start, (history.times(), jax.random.split(key, len(game.actions))))[1]
        return found, calls + guessed

    return run


def tables(key: Key[Array, ""], game: Watched) -> Found:
    """The exact posterior: a call for each hand that what is known allows to whoever acts."""
    acting = game.owner[:, None] == jnp.arange(game.allowed.shape[1])
    calls = jnp.sum(jnp.where(acting[:, :, None], game.allowed, False), axis=(1, 2))
    return game.truth, calls.astype(jnp.float32)
