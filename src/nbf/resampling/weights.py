"""Log weights: their total, their normalisation, their effective sample size. The one place that exponentiates them."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def scaled(log_weights: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Weights divided by the largest, and the log of that one: what every sum over log weights starts with.

    NaN and +inf count as weight zero; without any weight all are 0 and the log is -inf.
    """
    usable = jnp.where(log_weights < jnp.inf, log_weights, -jnp.inf)
    largest = jnp.max(usable)
    # Subtracting -inf from -inf would be NaN.
    return jnp.exp(usable - jnp.maximum(largest, jnp.finfo(usable.dtype).min)), largest


def normalize(log_weights: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Log weights that sum to one, and the log of their total, by log-sum-exp.

    NaN and +inf count as no weight. If no entry has any, every log weight and the total are -inf.
    """
    weights, largest = scaled(log_weights)
    log_total = largest + jnp.log(jnp.sum(weights))
    shift = jnp.maximum(log_total, jnp.finfo(log_weights.dtype).min)
    return jnp.where(log_weights < jnp.inf, log_weights, -jnp.inf) - shift, log_total


def effective_sample_size(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """(Σw)² / Σw², between 1 and n; 0 if no entry has any weight."""
    weights, _ = scaled(log_weights)
    squares = jnp.sum(weights * weights)
    return jnp.where(squares > 0, jnp.sum(weights) ** 2 / jnp.maximum(squares, 1.0), 0.0)
