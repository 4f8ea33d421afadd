"""Baselines of hand inference with the whole deck, where no hands can be listed: chains, particles, predictions.

All of them weigh deals by `HiddenHands.log_likelihood`, and count its calls: one for each deal, or hand, and action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.environments.hidden_hands import HiddenHands
from nbf.filters.neural.interpolating import LikelihoodRegression, first_different
from nbf.resampling.schemes import draw, systematic_draw
from nbf.resampling.weights import normalize
from nbf.spaces import Deals
from nbf_paper.experiments import cards_large
from nbf_paper.experiments.card_games import OBSERVER
from nbf_paper.experiments.cards_large import DRAWS, Believed, Method, Seen, by_rules, weighted

POINTS, REACH, RIDGE = 2048, 1.5, 0.1
"""Of interpolation: deals that are weighed, and the kernel, which was tuned in games between training policies."""
Dealt = Int[Array, "n cards"]
LogWeights = Float[Array, " n"]
Predictions = tuple[LikelihoodRegression, Float[Array, "*a m"]]
"""Regressions of actions, and the log probabilities that they are made of."""


class Past(NamedTuple):
    """The actions of the opponents; the observer's own tell nothing."""

    environments: HiddenHands
    actions: Int[Array, " a"]

    @classmethod
    def of(cls, game: Seen) -> Past:
        """Those of a game. Of each round of bids, and of each trick, one action is the observer's."""
        length = len(game.actions)
        own = length // game.environments.rules.players
        told = jnp.nonzero(game.environments.game.player != OBSERVER, size=length - own)[0]
        return cls(*jax.tree.map(lambda leaf: leaf[told], game[:2]))

    def at(self, number: Any) -> HiddenHands:
        """The environment of an action."""
        return jax.tree.map(lambda leaf: leaf[number], self.environments)

    def one(self, number: Int[Array, ""], dealt: Dealt) -> LogWeights:
        """The log probability of an action under deals: a call for each."""
        environment = self.at(number)
        return jax.vmap(lambda deal: environment.log_likelihood(self.actions[number], deal, deal))(dealt)

    def all_until(self, number: Int[Array, ""], dealt: Dealt) -> LogWeights:
        """The log probability of an action and of all before it under deals."""
        return jax.lax.fori_loop(0, number + 1, lambda i, sum: sum + self.one(i, dealt), jnp.zeros(len(dealt)))

    def predicted_until(self, number: Int[Array, ""], told: Predictions, dealt: Dealt) -> LogWeights:
        """The same as it is predicted: no call."""

        def one(i: Array, total: Array) -> Array:
            regression, logs = jax.tree.map(lambda leaf: leaf[i], told)
            return total + predicted(regression, logs, jax.vmap(self.at(i).relevant)(dealt))

        return jax.lax.fori_loop(0, number + 1, one, jnp.zeros(len(dealt)))

    def counts(self, number: Int[Array, ""]) -> Int[Array, " owners"]:
        """How many of these actions each owner has made; nobody made none."""
        owners = jax.vmap(lambda environment: environment.owner)(self.environments)
        made = jnp.arange(len(self.actions)) <= number
        return jnp.sum(made[:, None] & (owners[:, None] == jnp.arange(self.environments.space.owners)), axis=0)


def decisions(game: Seen) -> np.ndarray:
    """The number of the opponents' last action at each of `ACTIONS`."""
    return np.array([time - time // game.environments.rules.players - 1 for time in cards_large.ACTIONS])


def is_legal(space: Deals, dealt: Dealt) -> Bool[Array, " n"]:
    """Which deals what is known allows."""
    return jnp.all(space.allowed[jnp.arange(space.cards), dealt], axis=1)


def swapped(
    key: Key[Array, ""], space: Deals, dealt: Dealt
) -> tuple[Dealt, Bool[Array, " n"], Bool[Array, "n owners"]]:
    """Deals in which two cards that are not settled have changed places, whether each is legal and a new one, and
    whose hands have changed."""
    n, rows = len(dealt), jnp.arange(len(dealt))
    unsettled = jnp.sum(space.allowed, axis=1) > 1
    first, second = jax.random.categorical(key, jnp.where(unsettled, 0.0, -jnp.inf), shape=(2, n))
    one, other = dealt[rows, first], dealt[rows, second]
    new = dealt.at[rows, first].set(other).at[rows, second].set(one)
    legal = space.allowed[first, other] & space.allowed[second, one] & (one != other)
    owners = jnp.arange(space.owners)
    return new, legal, (one[:, None] == owners) | (other[:, None] == owners)


Told = Callable[[Dealt], LogWeights]


def moved(
    key: Key[Array, ""], space: Deals, told: Told, counts: Int[Array, " owners"], dealt: Dealt, log_weights: LogWeights,
    moves: int,
) -> tuple[tuple[Dealt, LogWeights, Float[Array, ""]], Int[Array, "moves n cards"]]:  # fmt: skip
    """Some Metropolis steps of each deal, which leave a density as it is. A proposal costs the calls of the hands that
    it changes. Returns the deals after them, their log density and the calls, and all deals on the way."""

    def step(carry: tuple[Any, ...], key: Key[Array, ""]) -> tuple[tuple[Any, ...], Dealt]:
        dealt, log_weights, calls = carry
        swap_key, accept_key = jax.random.split(key)
        new, legal, changed = swapped(swap_key, space, dealt)
        found = jnp.where(legal, told(jnp.where(legal[:, None], new, dealt)), -jnp.inf)
        accepted = legal & (jnp.log(jax.random.uniform(accept_key, legal.shape)) < found - log_weights)
        calls = calls + jnp.sum(jnp.where(legal[:, None] & changed, counts, 0)).astype(jnp.float32)
        dealt = jnp.where(accepted[:, None], new, dealt)
        return (dealt, jnp.where(accepted, found, log_weights), calls), dealt

    return jax.lax.scan(step, (dealt, log_weights, jnp.zeros(())), jax.random.split(key, moves))


def _followed(key: Key[Array, ""], game: Seen, step: Any, start: Any) -> Believed:
    """A belief that goes on from action to action: marginals, deals and calls of each step."""
    past = Past.of(game)
    inputs = jnp.arange(len(past.actions)), jax.random.split(key, len(past.actions))
    held, drawn, calls = jax.lax.scan(step, start, inputs)[1]
    late = decisions(game)
    return Believed(held[late], drawn[late], jnp.mean(calls))


def mcmc(chains: int, moves: int) -> Method:
    """Markov chains over deals that go on from where they were before the action; those that became impossible start
    anew. The belief is the deals of the last three quarters of the swaps."""

    def run(key: Key[Array, ""], game: Seen) -> Believed:
        past = Past.of(game)

        def step(carry: tuple[Dealt, LogWeights], inputs: tuple[Array, Array]) -> tuple[Any, Any]:
            dealt, told = carry
            number, key = inputs
            fresh_key, move_key = jax.random.split(key)
            space, counts = past.at(number).space, past.counts(number)
            told = jnp.where(is_legal(space, dealt), told + past.one(number, dealt), -jnp.inf)
            dead, fresh = ~(told > -jnp.inf), by_rules(fresh_key, space, chains)
            dealt = jnp.where(dead[:, None], fresh, dealt)
            told = jnp.where(dead, past.all_until(number, fresh), told)
            calls = chains + jnp.sum(dead) * jnp.sum(counts)
            every = lambda deals: past.all_until(number, deals)  # noqa: E731
            (dealt, told, spent), visited = moved(move_key, space, every, counts, dealt, told, moves)
            late = visited[moves // 4 :].reshape(-1, space.cards)
            held = jnp.mean(jax.nn.one_hot(late, space.owners), axis=0)
            drawn = late[jnp.linspace(0, len(late) - 1, DRAWS).astype(jnp.int32)]
            return (dealt, told), (held, drawn, calls + spent)

        start = by_rules(prng.fold_in(key, jnp.int32(1)), past.at(0).space, chains), jnp.zeros(chains)
        return _followed(key, game, step, start)

    return run


def resample_move(n: int, moves: int) -> Method:
    """A particle filter over deals: when the effective sample size is below half, deals are resampled and each makes
    some swaps. If no deal is possible, all are drawn anew and weighed by the whole history."""

    def run(key: Key[Array, ""], game: Seen) -> Believed:
        past = Past.of(game)

        def step(carry: tuple[Dealt, LogWeights], inputs: tuple[Array, Array]) -> tuple[Any, Any]:
            dealt, log_weights = carry
            number, key = inputs
            fresh_key, resample_key, move_key, draw_key = jax.random.split(key, 4)
            space, counts = past.at(number).space, past.counts(number)
            log_weights = jnp.where(is_legal(space, dealt), log_weights + past.one(number, dealt), -jnp.inf)
            dead, fresh = ~(jnp.max(log_weights) > -jnp.inf), by_rules(fresh_key, space, n)
            again = past.all_until(number, fresh)
            again = jnp.where(jnp.max(again) > -jnp.inf, again, 0.0)
            dealt, log_weights = jnp.where(dead, fresh, dealt), jnp.where(dead, again, log_weights)
            calls = n + jnp.where(dead, n * jnp.sum(counts), 0)
            log_weights, _ = normalize(log_weights)
            low = jnp.sum(jnp.exp(2.0 * log_weights)) > 2.0 / n
            dealt = jnp.where(low, dealt[systematic_draw(resample_key, log_weights, n)], dealt)
            log_weights = jnp.where(low, -jnp.log(n), log_weights)
            every = lambda deals: past.all_until(number, deals)  # noqa: E731
            (new, _, spent), _ = moved(move_key, space, every, counts, dealt, every(dealt), moves)
            dealt, calls = jnp.where(low, new, dealt), calls + jnp.where(low, spent, 0.0)
            return (dealt, log_weights), (*weighted(draw_key, dealt, log_weights, space.owners), calls)

        start = by_rules(prng.fold_in(key, jnp.int32(1)), past.at(0).space, n), jnp.full(n, -jnp.log(n))
        return _followed(key, game, step, start)

    return run


def policy_inference(calls: int) -> Method:
    """Fresh deals, of which as many are weighed by the whole history as the calls allow; for the others each action is
    predicted by the acting player's hand."""

    def run(key: Key[Array, ""], game: Seen) -> Believed:
        past, found = Past.of(game), []
        for number in decisions(game):
            space, count = past.at(number).space, min(max(calls // (int(number) + 1), 1), POINTS)
            draw_key, own_key = jax.random.split(prng.fold_in(key, jnp.int32(number)))
            drawn = by_rules(draw_key, space, POINTS)

            def one(i: Array, total: Array, drawn: Array = drawn, count: int = count) -> Array:
                hands = jax.vmap(past.at(i).relevant)(drawn)
                told = past.one(i, drawn[:count])
                return total + predicted(LikelihoodRegression.of(hands[:count], told, REACH, RIDGE), told, hands)

            log_weights = jax.lax.fori_loop(0, number + 1, one, jnp.zeros(POINTS))
            found.append(weighted(own_key, drawn, log_weights, space.owners))
        held, dealt = (jnp.stack(part) for part in zip(*found, strict=True))
        return Believed(held, dealt, jnp.float32(calls))

    return run


def predicted(regression: LikelihoodRegression, told: Float[Array, " m"], hands: Float[Array, "n cards"]) -> LogWeights:
    """The log probability of an action under hands: as it was told for those that were computed, else predicted. If it
    is impossible under all of these, it tells nothing."""
    apart = jnp.sum(hands, axis=1)[:, None] - hands @ regression.computed.T  # cards that the other does not hold
    nearest = jnp.argmin(apart, axis=1)
    found = jnp.where(jnp.min(apart, axis=1) == 0, told[nearest], regression(hands))
    return jnp.where(regression.largest > -jnp.inf, found, 0.0)


def kept_predictions(calls: int) -> Method:
    """Fresh deals at each action, weighed by the whole history as it is predicted. Of each action the policy is called
    once, for different hands of deals that are likely by what was predicted before; the prediction is kept."""

    def run(key: Key[Array, ""], game: Seen) -> Believed:
        past = Past.of(game)
        cards, length = past.environments.space.cards, len(past.actions)

        def step(told: Predictions, inputs: tuple[Array, Array]) -> tuple[Any, Any]:
            number, key = inputs
            environment = past.at(number)
            fresh_key, likely_key, hash_key, draw_key = jax.random.split(key, 4)
            dealt = by_rules(fresh_key, environment.space, POINTS)
            hands, log_weights = jax.vmap(environment.relevant)(dealt), past.predicted_until(number - 1, told, dealt)
            likely = draw(likely_key, log_weights, POINTS)
            names = (hands @ jax.random.normal(hash_key, (cards,)))[likely]
            chosen = likely[first_different(names, jnp.ones(POINTS, bool), calls)]
            logs = past.one(number, dealt[chosen])
            new = LikelihoodRegression.of(hands[chosen], logs, REACH, RIDGE), logs
            told = jax.tree.map(lambda all, one: all.at[number].set(one), told, new)
            log_weights = log_weights + predicted(*new, hands)
            return told, (*weighted(draw_key, dealt, log_weights, environment.space.owners), jnp.float32(calls))

        empty = LikelihoodRegression.of(jnp.zeros((calls, cards)), jnp.zeros(calls), REACH, RIDGE), jnp.zeros(calls)
        start = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape)), empty)
        return _followed(key, game, step, start)

    return run
