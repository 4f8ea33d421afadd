"""The distribution over deals of cards that has given marginals and the largest entropy. Nothing is trained.

The embedding of a belief is its marginals: for each card the probability of each owner. Among all distributions over
the legal deals with these marginals, the one of largest entropy is

    p(x) ∝ Π_c w[c, x_c],

where x_c is the owner of card c. The weights w are found by iterative scaling (Deming, Stephan 1940). Sums over all
deals are recursions over the cards, whose state is how many cards each owner has so far: no more than the product of
the quotas + 1. By them marginals, probabilities and draws are exact.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import MeanFeatures
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.resampling.weights import mean_weights
from nbf.spaces import Deals

Weights = Float[Array, "cards owners"]
"""w: zero where a card cannot be held."""
Grid = Float[Array, "*counts"]
"""A number for each count of cards that the owners, but the last, may have so far."""


class MaximumEntropyDeals(BeliefModel, MeanFeatures):
    """A deal's probability is a product of weights of its cards. Its embedding is the marginals, cards × owners."""

    space: Deals
    iterations: int = eqx.field(static=True, default=20)
    """Of iterative scaling."""
    smoothing: float = eqx.field(static=True, default=0.02)
    """The share of the marginals of a uniformly random legal deal that is mixed in before decoding, so that no deal is
    ruled out by particles alone."""

    def __check_init__(self) -> None:
        if self.iterations < 1 or not 0.0 <= self.smoothing <= 1.0:
            raise InputError(
                "iterations must be at least 1 and smoothing between 0 and 1; got "
                f"iterations={self.iterations}, smoothing={self.smoothing}."
            )

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        return self.features(states, self.space if space is None else space) @ mean_weights(log_weights)

    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        return jax.vmap(self.space.encode, out_axes=1)(states)

    def weights(self, embedding: Embedding, space: StateSpace) -> Weights:
        """Find the weights of a belief.

        Args:
            embedding: Its marginals.
            space: Its `allowed` is what is legal now, its `context` what was when the belief was embedded, if that is
                not the same.

        Returns:
            The weights: those of the belief as it was embedded, conditioned on what is known now. Of the uniform
            distribution over the legal deals, if the belief has none of them.
        """
        assert isinstance(space, Deals)
        legal = space.allowed.astype(jnp.float32)
        before = legal if space.context is None else space.context.reshape(legal.shape)
        uniform = marginals(before, space.quotas)
        target = before * ((1.0 - self.smoothing) * embedding.reshape(legal.shape) + self.smoothing * uniform)
        found = legal * scaled(target, space.quotas, self.iterations)
        return jnp.where(jnp.all(jnp.isfinite(marginals(found, space.quotas))), found, legal)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n cards"]:
        assert isinstance(space, Deals)
        return deals(self.weights(embedding, space), space.quotas, jax.random.uniform(key, (space.cards, n)))

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[Int[Array, "n cards"], Float[Array, " n"]]:
        assert isinstance(space, Deals)
        shift_key, order_key = jax.random.split(key)
        # Each card's numbers are evenly spaced over the draws, in an order of its own.
        orders = jax.vmap(lambda key: jax.random.permutation(key, n))(jax.random.split(order_key, space.cards))
        uniform = (orders + jax.random.uniform(shift_key, (space.cards, 1))) / n
        return deals(self.weights(embedding, space), space.quotas, uniform), jnp.zeros(n)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        assert isinstance(space, Deals)
        weights = self.weights(embedding, space)
        _, log_total = completions(weights, space.quotas)
        one = jax.vmap(lambda state: jnp.sum(jnp.log(weights[jnp.arange(space.cards), state])))(states)
        return jnp.where(jax.vmap(space.contains)(states), one - log_total, -jnp.inf)

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        return jax.vmap(self.log_prob)(embeddings, states, space)

    def prepared(self) -> MaximumEntropyDeals:
        return self


def scaled(target: Weights, quotas: tuple[int, ...], iterations: int) -> Weights:
    """Find weights by their marginals.

    Args:
        target: Marginals; each row sums to one.
        quotas: Cards of each owner but the last.
        iterations: Of iterative scaling.

    Returns:
        Weights whose marginals approach the target as iterations grow.
    """

    def step(weights: Weights, _: None) -> tuple[Weights, None]:
        found = marginals(weights, quotas)
        weights = jnp.where(target > 0, weights * target / jnp.where(found > 0, found, 1.0), 0.0)
        return weights / jnp.max(weights, axis=1, keepdims=True), None

    return jax.lax.scan(step, target / jnp.max(target, axis=1, keepdims=True), None, length=iterations)[0]


def completions(weights: Weights, quotas: tuple[int, ...]) -> tuple[Float[Array, "cards_1 *counts"], Float[Array, ""]]:
    """Sum over the deals of all cards from each one on.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.

    Returns:
        For each card, and after the last, the sum for each count of cards before it, up to a factor; and the log of the
        sum over all deals.
    """
    end = jnp.zeros([quota + 1 for quota in quotas]).at[tuple(quotas)].set(1.0)

    def step(after: Grid, card: Float[Array, " owners"]) -> tuple[Grid, tuple[Grid, Float[Array, ""]]]:
        now = card[-1] * after + sum(card[owner] * _one_more(after, owner) for owner in range(len(quotas)))
        scale = jnp.max(now)
        now = now / jnp.where(scale > 0, scale, 1.0)
        return now, (now, jnp.log(scale))

    first, (sums, scales) = jax.lax.scan(step, end, weights, reverse=True)
    return jnp.concatenate([sums, end[None]]), jnp.sum(scales) + jnp.log(first[(0,) * len(quotas)])


def marginals(weights: Weights, quotas: tuple[int, ...]) -> Weights:
    """Compute who holds each card, and how likely.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.

    Returns:
        The probability of each owner for each card; NaN if no deal has a weight.
    """
    after, _ = completions(weights, quotas)
    start = jnp.zeros([quota + 1 for quota in quotas]).at[(0,) * len(quotas)].set(1.0)

    def step(before: Grid, inputs: tuple[Float[Array, " owners"], Grid]) -> tuple[Grid, Float[Array, " owners"]]:
        card, rest = inputs
        parts = [card[owner] * jnp.sum(before * _one_more(rest, owner)) for owner in range(len(quotas))]
        held = jnp.stack([*parts, card[-1] * jnp.sum(before * rest)])
        now = card[-1] * before + sum(card[owner] * _one_less(before, owner) for owner in range(len(quotas)))
        return now / jnp.max(now), held / jnp.sum(held)

    return jax.lax.scan(step, start, (weights, after[1:]))[1]


def deals(weights: Weights, quotas: tuple[int, ...], uniform: Float[Array, "cards n"]) -> Int[Array, "n cards"]:
    """Draw deals in proportion to the product of their weights.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.
        uniform: A number between 0 and 1 for each card and draw.

    Returns:
        The owner of each card, in each draw.
    """
    after, _ = completions(weights, quotas)
    sides = [quota + 1 for quota in quotas]
    strides = np.append(np.cumprod([1, *sides[:0:-1]])[::-1], 0).astype(np.int32)  # the last owner is not counted
    flat = after.reshape(len(after), -1)

    def step(place: Int[Array, " n"], inputs: tuple[Array, Array, Array]) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
        card, rest, uniform = inputs
        ways = [card[-1] * rest[place]]
        for owner, quota in reversed(list(enumerate(quotas))):
            full = (place // strides[owner]) % (quota + 1) == quota
            following = jnp.minimum(place + strides[owner], rest.shape[0] - 1)
            ways.insert(0, jnp.where(full, 0.0, card[owner] * rest[following]))
        sums = jnp.cumsum(jnp.stack(ways), axis=0)
        # By rounding the last sum may not be reached; an owner who cannot hold the card is never taken.
        owner = jnp.argmax((sums > uniform * sums[-1]) & (jnp.stack(ways) > 0), axis=0).astype(jnp.int32)
        return place + jnp.asarray(strides)[owner], owner

    start = jnp.zeros(uniform.shape[1], jnp.int32)
    return jax.lax.scan(step, start, (weights, flat[1:], uniform))[1].T


def _one_more(grid: Grid, owner: int) -> Grid:
    """The numbers at one card more of an owner; zero where that is too many."""
    inner = jax.lax.slice_in_dim(grid, 1, grid.shape[owner], axis=owner)
    return jnp.concatenate([inner, jnp.zeros_like(jax.lax.slice_in_dim(grid, 0, 1, axis=owner))], axis=owner)


def _one_less(grid: Grid, owner: int) -> Grid:
    """The numbers at one card less of an owner; zero where there is none."""
    inner = jax.lax.slice_in_dim(grid, 0, grid.shape[owner] - 1, axis=owner)
    return jnp.concatenate([jnp.zeros_like(jax.lax.slice_in_dim(grid, 0, 1, axis=owner)), inner], axis=owner)
