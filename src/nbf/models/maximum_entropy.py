"""The distribution over deals of cards that has given marginals and the largest entropy. Nothing is trained.

The embedding of a belief is its marginals: for each card the probability of each owner. Among all distributions over
the legal deals with these marginals, the one of largest entropy is

    p(x) ∝ Π_c w[c, x_c],

where x_c is the owner of card c. The weights w are found by iterative scaling (Deming, Stephan 1940); with them
marginals, probabilities and draws are exact (`nbf.spaces.deal_weights`).
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import DealSpace, EvenDraws
from nbf.capability import require
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.resampling.exponential_tilt import tilt
from nbf.resampling.weights import mean_weights
from nbf.spaces.deal_weights import Weights, completions, deals, marginals

RIDGE, NEWTON_STEPS = 0.01, 2
"""Of the tilt by which draws have the marginals of the density."""


class MaximumEntropyDeals(BeliefModel, EvenDraws):
    """A deal's probability is a product of weights of its cards. Its embedding is the marginals, cards × owners."""

    space: DealSpace
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
        return jax.vmap(self.space.encode, out_axes=1)(states) @ mean_weights(log_weights)

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
        space = _dealt(space)
        legal = space.allowed.astype(jnp.float32)
        before = legal if space.context is None else space.context.reshape(legal.shape)
        uniform = marginals(before, space.quotas)
        target = before * ((1.0 - self.smoothing) * embedding.reshape(legal.shape) + self.smoothing * uniform)
        found = legal * scaled(target, space.quotas, self.iterations)
        return jnp.where(jnp.all(jnp.isfinite(marginals(found, space.quotas))), found, legal)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n cards"]:
        space = _dealt(space)
        return deals(self.weights(embedding, space), space.quotas, jax.random.uniform(key, (space.cards, n)))

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[Int[Array, "n cards"], Float[Array, " n"]]:
        space = _dealt(space)
        # Sobol points, shifted at random (Cranley, Patterson 1976): each draw is exact, and together they lie evenly.
        shift = jax.random.uniform(key, (space.cards, 1))
        uniform = jnp.mod(jnp.asarray(sobol(space.cards, n)) + shift, 1.0)
        weights = self.weights(embedding, space)
        drawn = deals(weights, space.quotas, uniform)
        # The marginals of these weights are known, so the draws are tilted to have them.
        features = jax.nn.one_hot(drawn.T, space.owners - 1, axis=0).reshape(-1, n)
        target = marginals(weights, space.quotas)[:, :-1].T.ravel()
        even = jnp.zeros(n)
        return drawn, tilt(even, features, target, RIDGE, NEWTON_STEPS)(even, features)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        space = _dealt(space)
        weights = self.weights(embedding, space)
        _, log_total = completions(weights, space.quotas)
        one = jax.vmap(lambda state: jnp.sum(jnp.log(weights[jnp.arange(space.cards), state])))(states)
        return jnp.where(jax.vmap(space.contains)(states), one - log_total, -jnp.inf)


def _dealt(space: StateSpace) -> DealSpace:
    return require(space, DealSpace, "The model of largest entropy", "Use Deals.")


@functools.cache
def sobol(dimension: int, n: int) -> Float[np.ndarray, "dimension n"]:
    """Compute the first points of a Sobol sequence.

    Args:
        dimension: Numbers of a point.
        n: How many points.

    Returns:
        The points as columns.
    """
    from scipy.stats import qmc  # slow to import

    points = qmc.Sobol(dimension, scramble=False).random(1 << (n - 1).bit_length())[:n]
    return np.ascontiguousarray(points.T.astype(np.float32))


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
