"""Particles smoothed by Gaussian kernels: the density that a particle filter gives on continuous states.

p(x) = Σ w_i Π_k N(x_k; x_ik, h_k²), with Silverman's bandwidth along each axis (Silverman 1986, eq. 4.14)

    h_k = σ_k · (4 / ((d + 2) · n))^(1/(d + 4)),

where σ_k is the weighted standard deviation and n the effective sample size. With a product kernel, the masses of the
cells of a grid are one product of matrices. Along a circular coordinate the kernels are wrapped Gaussians, and σ_k is
the deviation from the circular mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace
from nbf.contracts import Belief
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import effective_sample_size, normalize

NARROWEST = 1e-3
"""The least bandwidth, relative to half the side of the box: one particle has no deviation, hence no density."""


IMAGES = (-1.0, 0.0, 1.0)
"""Periods by which a wrapped Gaussian is shifted: beyond them less than 1e-6 is left for a deviation of 0.3 periods,
that of a uniform distribution."""


def unit_bandwidth(dimension: int, n: float | Float[Array, ""]) -> Any:
    """Compute Silverman's bandwidth for n points of unit deviation.

    Args:
        dimension: Of the points.
        n: How many, or their effective sample size.

    Returns:
        The bandwidth, a number as n is one.
    """
    return (4.0 / ((dimension + 2) * n)) ** (1.0 / (dimension + 4))


def silverman(
    states: Float[Array, "n d"], log_weights: Float[Array, " n"], space: ContinuousSpace | None = None
) -> Float[Array, " d"]:
    """Compute Silverman's bandwidth.

    Args:
        states: n points.
        log_weights: Of the points, normalised or not.
        space: The box that they lie in, which tells its circular coordinates; None if there are none.

    Returns:
        The bandwidth along each axis.
    """
    weights = jnp.exp(normalize(log_weights)[0])[:, None]
    d = states.shape[1]
    if space is None or not space.circular:
        mean = jnp.sum(weights * states, axis=0)
        deviation = jnp.sqrt(jnp.sum(weights * (states - mean) ** 2, axis=0))
    else:
        apart = space.difference(states, circular_mean(states, weights, space))
        # A variance of zero has no derivative of its root; `NARROWEST` is far above this one.
        deviation = jnp.sqrt(jnp.maximum(jnp.sum(weights * apart**2, axis=0), 1e-12 * space.scale**2))
    return deviation * unit_bandwidth(d, effective_sample_size(log_weights))


def circular_mean(
    states: Float[Array, "n d"], weights: Float[Array, "n 1"], space: ContinuousSpace
) -> Float[Array, " d"]:
    """Compute the mean of weighted points; along circular coordinates it is the direction of the mean of unit vectors.

    Args:
        states: n points.
        weights: Of the points, normalised.
        space: The box that they lie in.

    Returns:
        The mean.
    """
    angles = np.pi * jax.vmap(space.rescale)(states)
    cosine, sine = jnp.sum(weights * jnp.cos(angles), axis=0), jnp.sum(weights * jnp.sin(angles), axis=0)
    cosine = jnp.where((cosine == 0) & (sine == 0), 1.0, cosine)  # no direction: any will do, but for its derivative
    around = jnp.arctan2(sine, cosine) / np.pi * space.scale + space.middle
    return jnp.where(space.wraps, around, jnp.sum(weights * states, axis=0))


class KernelDensityBelief(Belief):
    """A smoothed weighted set in a box. Mass beyond a wall counts as mass on the wall, where a motion that is stopped
    by walls leaves it: samples are clipped, and the outermost cells of a grid contain the tails. Its `log_prob` is the
    density without clipping; its `expectation` is that of the particles, without smoothing."""

    states: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    """Normalised."""
    bandwidth: Float[Array, " d"]
    space: ContinuousSpace

    @classmethod
    def of(cls, particles: ParticleBelief, space: ContinuousSpace) -> KernelDensityBelief:
        """Smooth particles with Silverman's bandwidth, or `NARROWEST` if that is larger.

        Args:
            particles: The weighted set.
            space: The box that it lies in.

        Returns:
            The belief.
        """
        found = silverman(particles.states, particles.log_weights, space)
        bandwidth = jnp.maximum(found, NARROWEST * space.scale)
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
        return self.space.nearest(centres + self.bandwidth * jax.random.normal(key, centres.shape))

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        kernels = norm.logpdf(state, self.states, self.bandwidth)
        if self.space.circular:
            apart, period = self.space.difference(state, self.states), 2.0 * self.space.scale
            images = jnp.stack([norm.logpdf(apart + turns * period, 0.0, self.bandwidth) for turns in IMAGES])
            kernels = jnp.where(self.space.wraps, jax.nn.logsumexp(images, axis=0), kernels)
        return jax.nn.logsumexp(self.log_weights + jnp.sum(kernels, axis=1))

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
        if self.space.circular:
            centres = self.space.nearest(self.states)[:, :, None]
            images = [walls + turns * (high - low) for turns in IMAGES]
            parts = [jnp.diff(ndtr((image - centres) / self.bandwidth[:, None]), axis=-1) for image in images]
            masses = jnp.where(self.space.wraps[:, None], sum(parts, start=jnp.zeros(())), masses)
        return (jnp.exp(self.log_weights)[:, None] * masses[:, 0]).T @ masses[:, 1]
