"""A particle filter that begins some particles anew at each step, so that it can find again what it lost.

Random injection, after the kidnapped robots of Fox, Burgard, Dellaert, Thrun, *Monte Carlo localization* (1999).
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.contracts import Belief, Environment, Filter, FilterInfo, Observation, Policy
from nbf.filters.particle import ParticleFilter, ParticleState
from nbf.resampling.weights import normalize


class InjectedParticleFilter(Filter):
    """Before each step the lightest particles are replaced by draws of p0, each with the weight of a mean one."""

    inner: ParticleFilter
    share: float = eqx.field(static=True, default=0.05)
    """Of the particles, at least one."""

    def init(self, key: Key[Array, ""], environment: Environment) -> ParticleState:
        return self.inner.init(key, environment)

    def update(
        self,
        key: Key[Array, ""],
        state: ParticleState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[ParticleState, FilterInfo]:
        draw_key, update_key = jax.random.split(key)
        size = self.inner.num_particles
        count = max(1, math.ceil(self.share * size))
        fresh = jax.vmap(environment.init)(jax.random.split(draw_key, count))
        lightest = jnp.argsort(state.log_weights)[:count]
        states = jax.tree.map(lambda leaf, new: leaf.at[lightest].set(new), state.states, fresh)
        log_weights: Float[Array, " n"] = state.log_weights.at[lightest].set(-math.log(size))
        mixed = ParticleState(states, normalize(log_weights)[0], state.space)
        return self.inner.update(update_key, mixed, observation, environment, policy)

    def belief(self, state: ParticleState, environment: Environment) -> Belief:
        return self.inner.belief(state, environment)
