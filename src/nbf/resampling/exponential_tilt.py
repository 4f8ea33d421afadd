"""Moment matching: the exponential tilt of weights under which the mean of some features is a given vector.

    p_i ∝ q_i exp(λ·φ_i)    with    λ = argmin  log Σ_i q_i exp(λ·(φ_i - θ)) + ρ |λ|² / 2

Of all distributions with E_p φ = θ this one minimises KL(p | q) (Csiszár 1975). The ridge ρ allows for an error of θ:
λ is then the maximum a posteriori estimate where θ = E_p φ + noise of variance ρ. ρ is given relative to the variance
of the features under q, so that it has no unit.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nbf.resampling.weights import normalize

STEPS = 3
"""Newton steps: enough for tilts that are not strong."""
LONGEST = 3.0
"""The most by which one step changes a log weight: far from the optimum the quadratic model is wrong."""
NEGLIGIBLE = 1e-6
"""The change of weights up to this one is not bounded."""
LEAST = 1e-3
"""The least ridge, relative to the mean square of the centred features: under a nearly certain belief their variance,
by which the rounding error of their mean would be divided, is almost zero."""


class Tilt(eqx.Module):
    """p = q exp(λ·(φ - θ) - log Z), the exponential tilt of q."""

    multiplier: Float[Array, " m"]
    """λ."""
    log_total: Float[Array, ""]
    """log Z = log Σ q exp(λ·(φ - θ))."""
    target: Float[Array, " m"]
    """θ."""

    def __call__(self, log_probs: Float[Array, " n"], features: Float[Array, "m n"]) -> Float[Array, " n"]:
        """Tilt the log probabilities of states.

        Args:
            log_probs: log q of each state.
            features: φ of each state, as columns; anything where q is zero.

        Returns:
            log p of each state.
        """
        change = self.multiplier @ (features - self.target[:, None]) - self.log_total
        return jnp.where(log_probs > -jnp.inf, log_probs + change, -jnp.inf)


def tilt(
    log_weights: Float[Array, " n"],
    features: Float[Array, "m n"],
    target: Float[Array, " m"],
    ridge: Float[Array, ""] | float,
    steps: int = STEPS,
) -> Tilt:
    """Find the tilt of a weighted set that matches the mean of its features to a target, by Newton's method.

    Args:
        log_weights: log q of each point, normalised or not. If no point has weight, the tilt changes nothing.
        features: φ of each point, as columns; anything where q is zero.
        target: θ.
        ridge: ρ, relative to the variance of the features under q.
        steps: Newton steps.

    Returns:
        The tilt.
    """
    start, log_total = normalize(log_weights)
    some = log_total > -jnp.inf
    start = jnp.where(some, start, 0.0)
    centred = jnp.where(start > -jnp.inf, features - target[:, None], 0.0)
    weights = jnp.exp(start)
    mean = centred @ weights
    variance = jnp.mean((centred * centred) @ weights - mean * mean)
    size = jnp.mean(centred * centred)
    damping = ridge * jnp.maximum(variance, 0.0) + LEAST * size + jnp.finfo(jnp.float32).tiny
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
