"""The state before any observation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import Enumerable
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment
from nbf.errors import InputError
from nbf.filters.neural.state import NeuralState
from nbf.resampling.optimal import optimal_indices
from nbf.resampling.weights import uniform_log_weights

INITIAL_SAMPLES = 1024
"""Samples of p0 that the first embedding is made of, where neither p0 is listed nor a number is given."""


def initial_state(
    key: Key[Array, ""], model: BeliefModel, environment: Environment, size: int, samples: int | None
) -> NeuralState:
    """Embed p0, and choose particles of it.

    Args:
        key: Random key.
        model: Of the filter.
        environment: Of the filter.
        size: How many particles are chosen.
        samples: Of p0, for the embedding; None where p0 is listed, elsewhere `INITIAL_SAMPLES`.

    Returns:
        The state.
    """
    embedding_key, particle_key = jax.random.split(key)
    space, carried, listed = environment.space, jnp.zeros(()), capability(environment, Enumerable)
    if listed is None:
        count = INITIAL_SAMPLES if samples is None else samples
        drawn = jax.vmap(environment.init)(jax.random.split(embedding_key, count))
        embedding = model.embed(drawn, jnp.zeros(count), space)
        chosen = jax.vmap(environment.init)(jax.random.split(particle_key, size))
        particles = ParticleBelief(chosen, uniform_log_weights(size))
        return NeuralState(embedding, particles, jnp.zeros(()), carried, space.context)
    if samples is not None:
        raise InputError(
            f"initial_samples={samples} would do nothing: {type(environment).__name__} is Enumerable, so the first "
            "embedding is that of p0 itself. Leave initial_samples out."
        )
    states, log_probs = listed.states(), listed.initial_log_probs()
    embedding = model.embed(states, log_probs, space)
    places, weights, lost = optimal_indices(particle_key, log_probs, size)
    particles = ParticleBelief(jax.tree.map(lambda leaf: leaf[places], states), weights)
    carried = (lost <= 0.0).astype(jnp.float32)
    return NeuralState(embedding, particles, jnp.zeros(()), carried, space.context)
