"""Particles smoothed by Gaussian kernels: the density that a particle filter gives on continuous states.

p(x) = Σ w_i Π_k N(x_k; x_ik, h_k²), with Silverman's bandwidth along each axis (Silverman 1986, eq. 4.14)

    h_k = σ_k · (4 / ((d + 2) · n))^(1/(d + 4)),

where σ_k is the weighted standard deviation and n the effective sample size. With a product kernel, the masses of the
cells of a grid are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import effective_sample_size, normalize
from nbf.spaces import Box

NARROWEST = 1e-3
"""The least bandwidth, relative to half the side of the box: one particle has no deviation, hence no density."""


def silverman(states: Float[Array, "n d"], log_weights: Float[Array, " n"]) -> Float[Array, " d"]:
    """Compute Silverman's bandwidth.

    Args:
        states: n points.
        log_weights: Of the points, normalised or not.

    Returns:
        The bandwidth along each axis.
    """
    weights = jnp.exp(normalize(log_weights)[0])[:, None]
    d = states.shape[1]
    mean = jnp.sum(weights * states, axis=0)
    deviation = jnp.sqrt(jnp.sum(weights * (states - mean) ** 2, axis=0))
    return deviation * (4.0 / ((d + 2) * effective_sample_size(log_weights))) ** (1.0 / (d + 4))


class KernelDensityBelief(Belief):
    """A smoothed weighted set in a box. Mass beyond a wall counts as mass on the wall, where a motion that is stopped
    by walls leaves it: samples are clipped, and the outermost cells of a grid contain the tails. Its `log_prob` is the
    density without clipping; its `expectation` is that of the particles, without smoothing."""

    states: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    """Normalised."""
    bandwidth: Float[Array, " d"]
    space: Box

    @classmethod
    def of(cls, particles: ParticleBelief, space: Box) -> KernelDensityBelief:
        """Smooth particles with Silverman's bandwidth, or `NARROWEST` if that is larger.

        Args:
            particles: The weighted set.
            space: The box that it lies in.

        Returns:
            The belief.
        """
        bandwidth = jnp.maximum(silverman(particles.states, particles.log_weights), NARROWEST * space.scale)
        return cls(particles.states, normalize(particles.log_weights)[0], bandwidth, space)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        particle_key, noise_key = jax.random.split(key)
        return self.around(noise_key, resampling.draw(particle_key, self.log_weights, n))

    def around(self, key: Key[Array, ""], chosen: Int[Array, " n"]) -> Float[Array, "n d"]:
        """Draw one point from the kernel of each of some particles.

        Args:
            key: Random key.
            chosen: Indices of the particles.

        Returns:
            n points; within the box, if it is bounded.
        """
        centres = self.states[chosen]
        drawn = centres + self.bandwidth * jax.random.normal(key, centres.shape)
        if not self.space.bounded:
            return drawn
        return jnp.clip(drawn, jnp.asarray(self.space.low), jnp.asarray(self.space.high))

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        kernels = jnp.sum(norm.logpdf(state, self.states, self.bandwidth), axis=1)
        return jax.nn.logsumexp(self.log_weights + kernels)

    def log_probs(self, states: Float[Array, "k d"]) -> Float[Array, " k"]:
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        return ParticleBelief(self.states, self.log_weights).expectation(function)

    def cell_masses(self, cells: int) -> Float[Array, "c c"]:
        """Compute the mass of each of cells² equal cells of a plane.

        Args:
            cells: How many along each axis.

        Returns:
            The masses, rows along the first axis of the plane.
        """
        low, high = (jnp.asarray(end)[:, None] for end in (self.space.low, self.space.high))
        walls = low + (high - low) * jnp.linspace(0.0, 1.0, cells + 1)
        inner = ndtr((walls[None, :, 1:-1] - self.states[:, :, None]) / self.bandwidth[:, None])
        masses = jnp.diff(inner, axis=-1, prepend=0.0, append=1.0)
        return (jnp.exp(self.log_weights)[:, None] * masses[:, 0]).T @ masses[:, 1]
