"""Weights whose mean of some features is a given one, as near as can be to those that there are.

    p_i ∝ q_i exp(λ·φ_i)    with    λ = argmin  log Σ_i q_i exp(λ·(φ_i - θ)) + ρ |λ|² / 2

Of all distributions with E_p φ = θ this is the one nearest to q, in the sense of KL(p | q): an exponential tilt
(Csiszár 1975). The ridge allows for an error of θ: it is the maximum a posteriori where θ = E_p φ + noise of
variance ρ. ρ is given relative to the variance of the features under q, so that it has no unit.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nbf.resampling.weights import normalize

STEPS = 3
"""Of Newton's method: enough for tilts that are not strong."""
LONGEST = 3.0
"""The most that one step changes a log weight by: far from the optimum the quadratic model is no guide."""
NEGLIGIBLE = 1e-6
"""A weight whose change is not looked at."""
LEAST = 1e-3
"""Ridge, relative to the mean square of the centred features. A belief that is all but certain has next to no
variance, by which the rounding of its mean would be divided."""


class Tilt(eqx.Module):
    """λ and log Σ q exp(λ·(φ - θ)): what turns q into its tilt."""

    multiplier: Float[Array, " m"]
    log_total: Float[Array, ""]
    target: Float[Array, " m"]

    def __call__(self, log_probs: Float[Array, " n"], features: Float[Array, "m n"]) -> Float[Array, " n"]:
        """log p of states, given their log q and their features, which do not matter where q is zero."""
        change = self.multiplier @ (features - self.target[:, None]) - self.log_total
        return jnp.where(log_probs > -jnp.inf, log_probs + change, -jnp.inf)


def tilt(
    log_weights: Float[Array, " n"],
    features: Float[Array, "m n"],
    target: Float[Array, " m"],
    ridge: Float[Array, ""] | float,
    steps: int = STEPS,
) -> Tilt:
    """The tilt of weights, normalised or not, that brings the mean of the features near to the target.

    Entries without weight stay so; if none has any, nothing is tilted.
    """
    start, log_total = normalize(log_weights)
    some = log_total > -jnp.inf
    start = jnp.where(some, start, 0.0)
    centred = jnp.where(start > -jnp.inf, features - target[:, None], 0.0)
    weights = jnp.exp(start)
    mean = centred @ weights
    spread = jnp.mean((centred * centred) @ weights - mean * mean)
    size = jnp.mean(centred * centred)
    damping = ridge * jnp.maximum(spread, 0.0) + LEAST * size + jnp.finfo(jnp.float32).tiny
    eye = jnp.eye(len(features))

    def newton(_: Int[Array, ""], multiplier: Float[Array, " m"]) -> Float[Array, " m"]:
        weights = jax.nn.softmax(start + multiplier @ centred)
        weighted = centred * weights
        mean = jnp.sum(weighted, axis=1)
        curvature = weighted @ centred.T - mean[:, None] * mean + damping * eye
        step = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(curvature), mean + damping * multiplier)
        change = jnp.max(jnp.where(weights > NEGLIGIBLE, jnp.abs(step @ centred), 0.0))
        return multiplier - step * jnp.minimum(1.0, LONGEST / jnp.maximum(change, LONGEST))

    found = jax.lax.fori_loop(0, steps, newton, jnp.zeros(len(features)))
    found = jnp.where(some & jnp.all(jnp.isfinite(found)), found, 0.0)
    log_sum = jax.nn.logsumexp(start + found @ centred)
    return Tilt(found, jnp.where(some, log_total + log_sum, 0.0), target)
