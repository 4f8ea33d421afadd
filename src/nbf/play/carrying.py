"""A filter's state after a change in mid-episode: another particle count, another map.

Everything else that changes (noise, policy, beacons) is an input of the next step, and asks nothing of the state.
What is legal in a game of cards is told by the actions, which the update weighs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import Enumerable
from nbf.capability import capability
from nbf.contracts import Environment, Filter, FilterState, State
from nbf.environments.hidden_hands import HiddenHands
from nbf.filters.neural.state import NeuralState
from nbf.filters.particle import ParticleState
from nbf.resampling.optimal import optimal_resample
from nbf.resampling.weights import normalize


def carried(key: Key[Array, ""], filter: Filter, state: FilterState, environment: Environment) -> FilterState:
    """Carry a filter's state over to another particle count and to another map.

    A larger set is the same belief, with particles of weight zero; a smaller one is drawn such that every mean is
    unbiased. What a new wall covers loses its mass, since the agent is not there; if that would be all of it, the state
    stays as it is, and the next observation is left to the filter.

    Args:
        key: Random key.
        filter: That goes on.
        state: Of the same filter, or of one with another particle count.
        environment: Of the next step.

    Returns:
        The state.
    """
    wanted = jax.eval_shape(filter.init, key, environment)
    size = wanted.particles.log_weights.shape[0] if isinstance(wanted, NeuralState) else 0
    size = wanted.log_weights.shape[0] if isinstance(wanted, ParticleState) else size
    return _carried(key, state, environment, size)


@eqx.filter_jit
def _carried(key: Key[Array, ""], state: FilterState, environment: Environment, size: int) -> FilterState:
    if isinstance(state, ParticleState):
        states, log_weights = _resized(key, state.states, state.log_weights, size)
        return state._replace(states=states, log_weights=_legal(states, log_weights, environment))
    if isinstance(state, NeuralState):
        states, log_weights = _resized(key, state.particles.states, state.particles.log_weights, size)
        particles = ParticleBelief(states, _legal(states, log_weights, environment))
        return replace(state, particles=particles)
    listed = capability(environment, Enumerable)
    if listed is None:
        return state
    kept = jnp.where(jax.vmap(environment.space.contains)(listed.states()), state, 0.0)
    total = jnp.sum(kept)
    return jnp.where(total > 0, kept / jnp.where(total > 0, total, 1.0), state)


def _resized(
    key: Key[Array, ""], states: State, log_weights: Float[Array, " n"], size: int
) -> tuple[Any, Float[Array, " size"]]:
    """The same set with more places, or fewer states of it."""
    more = size - log_weights.shape[0]
    if more < 0:
        states, log_weights, _ = optimal_resample(key, states, normalize(log_weights)[0], size)
    if more > 0:
        states = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[:1], more, axis=0)]), states)
        log_weights = jnp.concatenate([log_weights, jnp.full(more, -jnp.inf, log_weights.dtype)])
    return states, log_weights


def _legal(states: State, log_weights: Float[Array, " n"], environment: Environment) -> Float[Array, " n"]:
    """The weights without those of illegal states, normalised."""
    if isinstance(environment, HiddenHands):
        return normalize(log_weights)[0]
    kept = jnp.where(jax.vmap(environment.space.contains)(states), log_weights, -jnp.inf)
    some = jnp.any(kept > -jnp.inf)
    return jnp.where(some, normalize(jnp.where(some, kept, 0.0))[0], log_weights)
