"""Very many particles, for x' = f(x, π) + s·ε with Gaussian ε, where s may be 0 for coordinates that never change.

Copies of few particles would be all that is left of a constant. So, whenever the particles are resampled, constants are
drawn from a kernel that keeps their mean and variance (Liu, West 2001):

    c ~ N(a·c_i + (1 - a)·mean(c), h²·var(c)),    a² = 1 - h².

The density of the belief is the exact likelihood times a smooth prediction: after observation y

    p(x) ∝ H(x)[y] · Σ_i w_i N(x; a·f_i + (1 - a)·mean(f), diag(s²) + h²·cov(f)),    f_i = f(x_i, π),

which has the mean and covariance of the particles' prediction. Three approximations: the number of particles, the
normaliser by Monte Carlo, and the kernels' shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Key

from nbf.beliefs.kde import silverman
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief, Environment, Filter, FilterInfo, Observation, Policy
from nbf.environments.functional import FunctionalEnvironment
from nbf.resampling.schemes import systematic
from nbf.resampling.weights import effective_sample_size, normalize, uniform_log_weights


class ManyState(NamedTuple):
    """Weighted particles, and the density that they were drawn from."""

    states: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    centres: Float[Array, "n d"]
    """Means of the Gaussians of the prediction."""
    centre_log_weights: Float[Array, " n"]
    root: Float[Array, "d d"]
    """Cholesky factor of their covariance."""
    observation: Observation
    observed: Bool[Array, ""]
    """Whether there was an observation."""
    log_evidence: Float[Array, ""]


class ManyBelief(Belief):
    """The particles, with the density of the module's docstring."""

    state: ManyState
    environment: Environment

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        return ParticleBelief(self.state.states, self.state.log_weights).sample(key, n)

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        mine = self.state
        # The inverse of a few numbers once, not a solution for each of many centres.
        inverse = jax.scipy.linalg.solve_triangular(mine.root, jnp.eye(len(state)), lower=True)
        apart = (state - mine.centres) @ inverse.T
        logs = jnp.sum(norm.logpdf(apart), axis=1) - jnp.sum(jnp.log(jnp.diag(mine.root)))
        predicted = jax.nn.logsumexp(mine.centre_log_weights + logs)
        told = self.environment.log_likelihood(mine.observation, state, state) - mine.log_evidence
        return predicted + jnp.where(mine.observed, told, 0.0)

    def log_probs(self, states: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jax.lax.map(self.log_prob, states)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        return ParticleBelief(self.state.states, self.state.log_weights).expectation(function)


class ManyParticles(Filter):
    """A particle filter of stated size that resamples when its ESS is below half of it. The emission depends on the
    new state alone."""

    num_particles: int = eqx.field(static=True)
    mean: Callable = eqx.field(static=True)
    """`mean(state, policy)`: f(x, π)."""
    deviations: tuple[float, ...] = eqx.field(static=True)
    """s; 0 for constants."""
    jitter: float = eqx.field(static=True, default=0.05)
    """h of the constants when particles are resampled."""
    bandwidth: float = eqx.field(static=True, default=0.2)
    """h of the density."""

    def init(self, key: Key[Array, ""], environment: Environment) -> ManyState:
        assert isinstance(environment, FunctionalEnvironment)
        states = jax.vmap(environment.init)(jax.random.split(key, self.num_particles))
        weights = uniform_log_weights(self.num_particles)
        nothing = [jnp.zeros(shape, dtype) for shape, dtype in environment.leaves]
        observation = jax.tree.unflatten(environment.structure, nothing)
        wide = jnp.diag(silverman(states, weights))
        return ManyState(states, weights, states, weights, wide, observation, jnp.bool_(False), jnp.zeros(()))

    def update(
        self, key: Key[Array, ""], state: ManyState, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[ManyState, FilterInfo]:
        choice_key, noise_key = jax.random.split(key)
        constant = np.asarray(self.deviations) == 0
        low = effective_sample_size(state.log_weights) < self.num_particles / 2
        shrunk, covariance = _shrunk(state.states, state.log_weights, self.jitter)
        ancestors = jnp.where(low, systematic(choice_key, state.log_weights), jnp.arange(self.num_particles))
        prior = jnp.where(low, uniform_log_weights(self.num_particles), state.log_weights)
        before = jnp.where(low & constant, shrunk, state.states)[ancestors]
        kernel = jnp.where(low, self.jitter * jnp.sqrt(jnp.diag(covariance)), 0.0)
        noise = jnp.where(constant, kernel, jnp.asarray(self.deviations))
        moved = jax.vmap(self.mean, (0, None))(before, policy)
        moved = moved + noise * jax.random.normal(noise_key, moved.shape)

        centres, covariance = _shrunk(
            jax.vmap(self.mean, (0, None))(state.states, policy), state.log_weights, self.bandwidth
        )
        root = jnp.linalg.cholesky(self.bandwidth**2 * covariance + jnp.diag(jnp.asarray(self.deviations) ** 2))
        if observation is None:
            log_weights, log_evidence, told = prior, jnp.zeros(()), state.observation
        else:
            found = jax.vmap(lambda after: environment.log_likelihood(observation, after, after))(moved)
            log_weights, log_evidence = normalize(prior + found)
            told = observation
        lost = log_evidence == -jnp.inf
        log_weights = jnp.where(lost, prior, log_weights)
        info = FilterInfo(effective_sample_size(log_weights), log_evidence, jnp.int32(1), lost)
        observed = jnp.bool_(observation is not None) & ~lost
        density = centres, state.log_weights, root
        return ManyState(moved, log_weights, *density, told, observed, log_evidence), info

    def belief(self, state: ManyState, environment: Environment) -> ManyBelief:
        return ManyBelief(state, environment)


def _shrunk(
    states: Float[Array, "n d"], log_weights: Float[Array, " n"], bandwidth: float
) -> tuple[Float[Array, "n d"], Float[Array, "d d"]]:
    """Liu and West's centres of kernels whose covariance is bandwidth² that of the states, and the latter."""
    weights = jnp.exp(log_weights)[:, None]
    middle = jnp.sum(weights * states, axis=0)
    apart = states - middle
    return middle + float(np.sqrt(1 - bandwidth**2)) * apart, (weights * apart).T @ apart
