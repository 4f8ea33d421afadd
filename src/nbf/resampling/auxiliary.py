"""The selection of an auxiliary particle filter: points from which the observation is likely (Pitt, Shephard 1999).

With guesses g_i ≈ log p(y | x_i), points are selected in proportion to w_i f_i instead of w_i, where

    f_i = (1 - δ) exp(g_i) / Σ_j w_j exp(g_j) + δ.

Divided by f_i, their weights stand for w again, and none is larger than w_i / δ.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def log_first_stage(
    log_weights: Float[Array, " k"], guesses: Float[Array, " k"], defensive: float
) -> Float[Array, " k"]:
    """Compute the first-stage weight of each point: by how much the selection prefers it.

    Args:
        log_weights: Normalised, of k points.
        guesses: The look-ahead log weight g of each.
        defensive: δ, the part of the selection that ignores the guesses.

    Returns:
        log f of each.
    """
    likely = guesses - jax.nn.logsumexp(log_weights + guesses)
    return jnp.logaddexp(jnp.log1p(-defensive) + jnp.where(likely < jnp.inf, likely, -jnp.inf), jnp.log(defensive))
