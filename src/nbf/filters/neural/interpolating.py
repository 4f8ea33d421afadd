"""Weigh many states by few calls, where the hidden state never moves and the likelihood is what costs.

Of the K states that are drawn from the decoded belief, the likelihood L is computed for n different ones. For the
others it is predicted by kernel ridge regression on the numbers r(x) that it depends on,

    L(x) ≈ m + k(x)ᵀ (K + ρ I)⁻¹ (L_1:n - m),    k(x, x') = exp(-|r(x) - r(x')|² / ℓ),

where m is the mean of L_1:n. The mean of any function under these weights is then an estimate by Bayesian quadrature
(O'Hagan 1991; Rasmussen, Ghahramani 2003): its error falls with the smoothness of L, not with 1/√n alone.
"""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.capabilities import StaticState
from nbf.capability import require
from nbf.contracts import Environment, Observation, Policy
from nbf.errors import InputError, check_likelihood
from nbf.filters.checks import check_counts, check_numbers
from nbf.filters.neural.even import decoded
from nbf.filters.neural.proposal import Prior, Proposal, Proposed
from nbf.resampling.likelihoods import is_invalid, log_likelihoods

LEAST = 0.02
"""The least prediction, relative to the mean of the computed likelihoods: no state is ruled out by a prediction."""


class InterpolatingProposal(Proposal):
    """Draw many states, compute the likelihood of a few, and predict that of the others. Needs `StaticState`."""

    points: int = eqx.field(static=True, default=1024)
    """K: states that are weighed; at least as many as calls."""
    reach: float = eqx.field(static=True, default=1.5)
    """ℓ, in units of the mean squared distance of two computed states."""
    ridge: float = eqx.field(static=True, default=0.02)
    """ρ."""

    def __check_init__(self) -> None:
        check_counts("InterpolatingProposal", points=self.points)
        check_numbers("InterpolatingProposal", reach=self.reach, ridge=self.ridge)
        if not (self.reach > 0 and self.ridge > 0):
            raise InputError(f"reach and ridge must be above 0; got {self.reach} and {self.ridge}.")

    def check(self, environment: Environment, num_particles: int) -> None:
        require(environment, StaticState, "InterpolatingProposal", "Use EvenProposal.")

    def size(self, environment: Environment, num_particles: int) -> int:
        return max(self.points, num_particles)

    def embedded(self, num_particles: int) -> int:
        return max(self.points, num_particles)

    def __call__(
        self, key: Key[Array, ""], prior: Prior, observation: Observation, environment: Environment, policy: Policy
    ) -> Proposed:
        static = require(environment, StaticState, "InterpolatingProposal", "Use EvenProposal.")
        draw_key, hash_key = prng.split(key)
        states, log_weights, mass = decoded(draw_key, prior, self.size(environment, prior.num_particles))
        log_weights = prior.corrected(states, log_weights, mass)
        made = Proposed(states, states, log_weights, mass, jnp.zeros(()))
        if observation is None:
            return made
        numbers = jax.vmap(static.relevant)(states)
        names = numbers @ jax.random.normal(hash_key, numbers.shape[1:])
        chosen = first_different(names, log_weights > -jnp.inf, prior.num_particles)
        computed = jax.tree.map(lambda leaf: leaf[chosen], states)
        told = log_likelihoods(environment, observation, computed, computed)
        check_likelihood(told.shape[1:], environment)
        found = interpolated(numbers, chosen, told, self.reach, self.ridge)
        same = names[:, None] == names[chosen]  # what was computed need not be predicted
        found = jnp.where(jnp.any(same, axis=1), told[jnp.argmax(same, axis=1)], found)
        return replace(made, log_likelihoods=found)


def interpolated(
    numbers: Float[Array, "K k"],
    chosen: Int[Array, " n"],
    told: Float[Array, " n"],
    reach: float,
    ridge: float,
) -> Float[Array, " K"]:
    """Predict the likelihood of many states by that of a few.

    Args:
        numbers: What the likelihood of each state depends on.
        chosen: The n states whose likelihood was computed.
        told: Their log likelihoods; NaN and +inf count as impossible.
        reach: ℓ, in units of the mean squared distance of two of these.
        ridge: ρ.

    Returns:
        log L of every state; -inf for all if that of every chosen one is.
    """
    return LikelihoodRegression.of(numbers[chosen], told, reach, ridge)(numbers)


class LikelihoodRegression(eqx.Module):
    """The likelihood of an observation as a function of the numbers that it depends on, by that of a few states."""

    computed: Float[Array, "n k"]
    """The numbers of these states."""
    weights: Float[Array, " n"]
    """(K + ρ I)⁻¹ (L_1:n - m)."""
    mean: Float[Array, ""]
    """m."""
    length: Float[Array, ""]
    """ℓ, in units of the numbers."""
    largest: Float[Array, ""]
    """log of what the likelihoods are divided by: the largest of them; -inf if all states are impossible."""

    @classmethod
    def of(
        cls, computed: Float[Array, "n k"], told: Float[Array, " n"], reach: float, ridge: float
    ) -> LikelihoodRegression:
        """Fit it.

        Args:
            computed: The numbers of n states.
            told: Their log likelihoods; NaN and +inf count as impossible.
            reach: ℓ, in units of the mean squared distance of two of these.
            ridge: ρ.

        Returns:
            The regression.
        """
        sound = jnp.where(is_invalid(told), -jnp.inf, told)
        largest = jnp.max(sound)
        likelihoods = jnp.exp(sound - jnp.where(largest > -jnp.inf, largest, 0.0))
        among, mean = _apart(computed, computed), jnp.mean(likelihoods)
        length = jnp.maximum(reach * jnp.mean(among), jnp.finfo(jnp.float32).tiny)
        gram = jnp.exp(-among / length) + ridge * jnp.eye(len(computed))
        return cls(computed, cho_solve(cho_factor(gram), likelihoods - mean), mean, length, largest)

    def __call__(self, numbers: Float[Array, "K k"]) -> Float[Array, " K"]:
        """Predict.

        Args:
            numbers: Of K states.

        Returns:
            log L of each; -inf for all if that of every computed state is.
        """
        predicted = self.mean + jnp.exp(-_apart(numbers, self.computed) / self.length) @ self.weights
        found = jnp.log(jnp.maximum(predicted, LEAST * self.mean)) + self.largest
        return jnp.where(self.largest > -jnp.inf, found, -jnp.inf)


def _apart(some: Float[Array, "K k"], others: Float[Array, "n k"]) -> Float[Array, "K n"]:
    """Squared distances."""
    products = some @ others.T
    return jnp.maximum(jnp.sum(some**2, axis=1)[:, None] + jnp.sum(others**2, axis=1) - 2.0 * products, 0.0)


def first_different(names: Float[Array, " K"], possible: Bool[Array, " K"], n: int) -> Int[Array, " n"]:
    """Choose states that differ from each other.

    Args:
        names: A number for each state; equal ones are the same state.
        possible: Which states have any weight.
        n: How many, at most K.

    Returns:
        Indices: first those of different possible states, in their order, then any others.
    """
    order = jnp.argsort(names, stable=True)
    again = jnp.concatenate([jnp.zeros(1, bool), names[order][1:] == names[order][:-1]])
    repeated = jnp.zeros(len(names), bool).at[order].set(again)
    return jnp.argsort(repeated.astype(jnp.int32) + 2 * ~possible, stable=True)[:n]
