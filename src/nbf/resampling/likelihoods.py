"""Likelihoods as filters use them: one number for each pair of states, and a count of those that are none."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nbf.contracts import Environment, Observation, State
from nbf.errors import check_likelihood


def log_likelihood_of(environment: Environment) -> Callable[[Observation, State, State], Float[Array, ""]]:
    """Get the log-likelihood of an environment as a function that raises, when traced, unless it gives one number.

    Args:
        environment: Of this step.

    Returns:
        `log_likelihood(observation, state, next_state)`.
    """

    def log_likelihood(observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        value = environment.log_likelihood(observation, state, next_state)
        check_likelihood(jnp.shape(value), environment)
        return value

    return log_likelihood


def log_likelihoods(
    environment: Environment, observation: Observation, states: State, next_states: State
) -> Float[Array, " n"]:
    """Compute the log-likelihood of an observation after each of n transitions.

    Args:
        environment: Of this step.
        observation: y.
        states: n states before the step.
        next_states: n states after it.

    Returns:
        n log-likelihoods.
    """
    return jax.vmap(log_likelihood_of(environment), (None, 0, 0))(observation, states, next_states)


def is_invalid(log_likelihoods: Float[Array, "*any"]) -> Bool[Array, "*any"]:
    """Find the log-likelihoods that are NaN or +inf.

    Args:
        log_likelihoods: Of any shape.

    Returns:
        A boolean for each.
    """
    return ~(log_likelihoods < jnp.inf)


def count_invalid(prior: Float[Array, "*any"], log_weights: Float[Array, "*any"]) -> Int[Array, ""]:
    """Count the particles that lost their weight because their likelihood was NaN or +inf.

    Args:
        prior: Log weights before the observation; an entry without weight is not counted.
        log_weights: Log weights after it.

    Returns:
        How many there are.
    """
    # A sum of floats: with one of integers, XLA's program of a whole update is slower on a CPU.
    return jnp.sum(jnp.where((prior > -jnp.inf) & is_invalid(log_weights), 1.0, 0.0)).astype(jnp.int32)
