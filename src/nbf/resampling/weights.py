"""Log weights: their total, their normalisation, their effective sample size.

A log weight of -inf is weight zero. Functions of log weights take NaN and +inf, which no likelihood should be, for
weight zero too; `mean_weights` alone does not. If no entry has weight, nothing is NaN.

| normaliser | from | to | why it is there |
|---|---|---|---|
| `normalize` | log weights | log weights, and log of the total | what filters keep; the total is the evidence |
| `normalized_weights` | log weights | weights | for sums and thresholds of resampling: they add up to one, as exact as float32 is |
| `log_normalized` | weights | log weights | the way back, after resampling has changed weights that are no logarithms |
| `mean_weights` | log weights | weights | for embeddings: its gradient is that of a mean, and NaN is not hidden from training |

They agree but for rounding, and records are of one rounding, so none stands for another. `jax.nn.softmax` is left where
log probabilities of a model, which are finite somewhere, become probabilities (`ModelBelief.expectation`): it too rounds
in its own way.
"""  # noqa: E501

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float


def scaled(log_weights: Float[Array, "*any"]) -> tuple[Float[Array, "*any"], Float[Array, ""]]:
    """Exponentiate log weights relative to the largest: the first step of every sum over them.

    Args:
        log_weights: Unnormalised, of any shape.

    Returns:
        The weights divided by the largest of them, and the log of that one; 0 and -inf if no entry has weight.
    """
    usable = jnp.where(log_weights < jnp.inf, log_weights, -jnp.inf)
    largest = jnp.max(usable)
    # Subtracting -inf from -inf would be NaN.
    return jnp.exp(usable - jnp.maximum(largest, jnp.finfo(usable.dtype).min)), largest


def normalize(log_weights: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Normalise log weights, by log-sum-exp.

    Args:
        log_weights: Unnormalised.

    Returns:
        Log weights of total one, and the log of the total before; all of them -inf if no entry has weight.
    """
    weights, largest = scaled(log_weights)
    log_total = largest + jnp.log(jnp.sum(weights))
    shift = jnp.maximum(log_total, jnp.finfo(log_weights.dtype).min)
    return jnp.where(log_weights < jnp.inf, log_weights, -jnp.inf) - shift, log_total


def normalized_weights(log_weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """Normalise log weights to weights. Divides by the total, where exp(`normalize`) subtracts its log first: the two
    round differently.

    Args:
        log_weights: Unnormalised.

    Returns:
        Weights of total one; all zero if no entry has weight.
    """
    weights, _ = scaled(log_weights)
    return weights / jnp.maximum(jnp.sum(weights), 1.0)


def log_normalized(weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """Normalise weights to log weights: like `normalize`, for weights that are not logarithms.

    Args:
        weights: Unnormalised, finite, 0 or more.

    Returns:
        Log weights of total one; all -inf if no entry has weight.
    """
    return jnp.log(weights / jnp.maximum(jnp.sum(weights), jnp.finfo(weights.dtype).tiny))


def mean_weights(log_weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """Normalise log weights to the weights of a mean that training differentiates.

    The same as `normalized_weights`, except that NaN and +inf are not taken for weight zero: they make the mean NaN.
    The lower bound of the denominator is far below its values, so that its gradient is always that of the sum.

    Args:
        log_weights: Unnormalised.

    Returns:
        Weights of total one; all zero if no entry has weight.
    """
    largest = jnp.max(log_weights)
    weights = jnp.exp(log_weights - jnp.where(jnp.isfinite(largest), largest, 0.0))
    return weights / jnp.maximum(jnp.sum(weights), jnp.finfo(weights.dtype).tiny)


def effective_sample_size(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """Compute the effective sample size, (Σw)² / Σw².

    Args:
        log_weights: Unnormalised.

    Returns:
        A number between 1 and n; 0 if no entry has weight.
    """
    weights, _ = scaled(log_weights)
    squares = jnp.sum(weights * weights)
    return jnp.where(squares > 0, jnp.sum(weights) ** 2 / jnp.maximum(squares, 1.0), 0.0)


def uniform_log_weights(n: int) -> Float[Array, " n"]:
    """Make normalised log weights that are all alike.

    Args:
        n: How many.

    Returns:
        n numbers, -log n.
    """
    return jnp.full(n, -math.log(n), jnp.float32)
