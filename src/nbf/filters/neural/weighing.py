"""The weights after an observation, and what is kept when all of them are zero."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nbf.contracts import FilterInfo
from nbf.resampling.likelihoods import count_invalid
from nbf.resampling.weights import effective_sample_size, normalize, uniform_log_weights


def weighed(
    predicted: Float[Array, " n"], log_weights: Float[Array, " n"], attempts: Int[Array, ""], *, missing: bool
) -> tuple[Float[Array, " n"], FilterInfo]:
    """Normalise the weights of a step, or recover if every one is zero.

    Args:
        predicted: Log weights before the observation.
        log_weights: Log weights after it.
        attempts: How often the step was simulated.
        missing: Whether there was no observation.

    Returns:
        Normalised log weights, those of the prediction if it had to be kept, and what the step tells.
    """
    posterior, log_total = normalize(log_weights)
    recovered = log_total == -jnp.inf
    # The prediction is that of the legal particles; if there is not one, of all.
    legal, log_legal = normalize(predicted)
    prediction = jnp.where(log_legal == -jnp.inf, uniform_log_weights(predicted.shape[0]), legal)
    log_evidence = jnp.where(recovered, -jnp.inf, 0.0) if missing else log_total
    ess, invalid = effective_sample_size(log_weights), count_invalid(predicted, log_weights)
    info = FilterInfo(ess, log_evidence, attempts, recovered, invalid)
    return jnp.where(recovered, prediction, posterior), info
