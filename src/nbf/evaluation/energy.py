"""The energy distance between two beliefs that are known through points (Székely, Rizzo 2013).

    D(X, Y) = 2 E|X - Y| - E|X - X'| - E|Y - Y'|

It is zero only if both have one distribution, and needs neither densities nor bins. Lengths are what the caller makes
them: here coordinates in units of the typical width of the reference belief (`typical_width`).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nbf.resampling.weights import normalize


def mean_distance(
    one: Float[Array, "n d"],
    one_log_weights: Float[Array, " n"],
    other: Float[Array, "h d"],
    other_log_weights: Float[Array, " h"],
) -> Float[Array, ""]:
    """Compute E|X - Y| of two weighted sets.

    Args:
        one: Points of X, one per row.
        one_log_weights: Of them, normalised or not.
        other: Points of Y, one per row.
        other_log_weights: Of them, normalised or not.

    Returns:
        The weighted mean of all distances.
    """
    weights, others = (jnp.exp(normalize(each)[0]) for each in (one_log_weights, other_log_weights))
    lengths = jnp.sqrt(jnp.sum((one[:, None] - other) ** 2, axis=-1))
    # A point without weight may be NaN.
    pairs = weights[:, None] * others
    return jnp.sum(jnp.where(pairs > 0, pairs * lengths, 0.0))


def mean_pairwise_distance(draws: Float[Array, "n d"]) -> Float[Array, ""]:
    """Estimate E|X - X'| from independent draws without bias: none is paired with itself.

    Args:
        draws: At least 2 draws, one per row.

    Returns:
        The mean distance of two of them.
    """
    n = draws.shape[0]
    return mean_distance(draws, jnp.zeros(n), draws, jnp.zeros(n)) * (n / (n - 1))


def weighted_energy_distance(
    one: Float[Array, "n d"],
    one_log_weights: Float[Array, " n"],
    other: Float[Array, "h d"],
    other_log_weights: Float[Array, " h"],
) -> Float[Array, ""]:
    """Compute the energy distance between two weighted sets, each taken for the distribution itself.

    Args:
        one: Points of X, one per row.
        one_log_weights: Of them, normalised or not.
        other: Points of Y, one per row.
        other_log_weights: Of them, normalised or not.

    Returns:
        The energy distance, 0 for equal sets.
    """
    across = mean_distance(one, one_log_weights, other, other_log_weights)
    within = mean_distance(one, one_log_weights, one, one_log_weights)
    return 2.0 * across - within - mean_distance(other, other_log_weights, other, other_log_weights)


def typical_width(points: Float[np.ndarray, "*beliefs n d"]) -> Float[np.ndarray, " d"]:
    """Compute the root mean square width of many beliefs along each coordinate: the unit of their distances.

    Args:
        points: Draws of each belief.

    Returns:
        The standard deviation within a belief, from the mean of the variances; 1 where that is zero.
    """
    within = points.var(axis=-2, dtype=np.float64)
    width = np.sqrt(within.reshape(-1, points.shape[-1]).mean(axis=0))
    # Of equal numbers rounding may leave a variance that is no width.
    return np.where(width > 1e-6, width, 1.0).astype(np.float32)
