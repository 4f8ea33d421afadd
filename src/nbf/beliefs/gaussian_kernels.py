"""Particles smoothed by Gaussian kernels that have the shape of the set: a kernel density with a full covariance.

    p(x) = Σ w_i N(x; x_i, h² Σ),    h = scale · (4 / ((d + 2) · n))^(1/(d + 4)),

where Σ is the weighted covariance of the set and n its effective sample size (Silverman 1986, section 4.3.2). Unlike
the product kernel of `nbf.beliefs.kde` it follows correlations, such as that of a position with its velocity.

Along circular coordinates the kernels wrap. On a `Lattice` the kernel is a product one, and each cell has the mass of
its kernel: a draw is rounded to a cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.kde import IMAGES, circular_mean, unit_bandwidth
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, FiniteSpace
from nbf.capability import capability
from nbf.contracts import Belief, StateSpace
from nbf.errors import InputError
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import effective_sample_size, normalize

NARROWEST = 1e-3
"""Standard deviation of the least kernel, relative to half the side of a box: one particle has no deviation."""
NARROWEST_ON_LATTICE = 0.3
"""The same on a lattice, in cells: the mass of nine cells in ten stays where it is."""
KernelSpace = ContinuousSpace | FiniteSpace
"""Where nearby states are alike: a `Box` or a `Lattice`, for example."""


class GaussianKernels(Belief):
    """A smoothed weighted set. Its `log_prob` is the kernel density; its `expectation` is that of the particles."""

    states: Float[Array, "n d"] | Int[Array, "n d"]
    log_weights: Float[Array, " n"]
    """Normalised."""
    root: Float[Array, "d d"]
    """Lower triangular root of the covariance of a kernel."""
    space: KernelSpace

    @classmethod
    def of(cls, particles: ParticleBelief, space: StateSpace, scale: float | Float[Array, ""] = 1.0) -> GaussianKernels:
        """Smooth particles.

        Args:
            particles: The weighted set.
            space: The box or lattice that it lies in.
            scale: Factor of Silverman's bandwidth.

        Returns:
            The belief.
        """
        space = kernel_space(space)
        continuous = capability(space, ContinuousSpace)
        log_weights = normalize(particles.log_weights)[0]
        points = jnp.asarray(particles.states, jnp.float32)
        weights = jnp.exp(log_weights)
        # Entries without weight may be anything: they take the place of the heaviest.
        known = jnp.where(weights[:, None] > 0, points, points[jnp.argmax(weights)])
        if continuous is None or not continuous.circular:
            mean = weights @ known
        else:
            mean = circular_mean(known, weights[:, None], continuous)
        centred = space.difference(known, mean)
        d = points.shape[1]
        width = scale * unit_bandwidth(d, effective_sample_size(log_weights))
        covariance = width**2 * (centred.T * weights) @ centred
        if continuous is None:
            root = jnp.diag(jnp.sqrt(jnp.diag(covariance) + NARROWEST_ON_LATTICE**2))
        else:
            least = (NARROWEST * jnp.asarray(continuous.scale)) ** 2 + 1e-4 * jnp.diag(covariance)
            root = jnp.linalg.cholesky(covariance + jnp.diag(least))
        return cls(particles.states, log_weights, root, space)

    def sample(self, key: Key[Array, ""], n: int) -> Array:
        choice_key, noise_key = jax.random.split(key)
        return self.around(noise_key, resampling.draw(choice_key, self.log_weights, n))

    def around(self, key: Key[Array, ""], chosen: Int[Array, " n"]) -> Array:
        """Draw one point from the kernel of each of some particles.

        Args:
            key: Random key.
            chosen: Indices of the particles.

        Returns:
            n points: within a bounded box, but perhaps off a lattice or on an illegal cell of it.
        """
        centres = jnp.asarray(self.states, jnp.float32)[chosen]
        drawn = centres + jax.random.normal(key, centres.shape) @ self.root.T
        continuous = capability(self.space, ContinuousSpace)
        return jnp.round(drawn).astype(jnp.int32) if continuous is None else continuous.nearest(drawn)

    def log_prob(self, state: Array) -> Float[Array, ""]:
        return self.log_probs(state[None])[0]

    def log_probs(self, states: Array) -> Float[Array, " k"]:
        places, centres = jnp.asarray(states, jnp.float32)[:, None], jnp.asarray(self.states, jnp.float32)
        differences = self.space.difference(places, centres)
        continuous = capability(self.space, ContinuousSpace)
        kernels = self._cells(differences) if continuous is None else self._wrapped(differences, continuous)
        return jax.nn.logsumexp(jnp.where(self.log_weights > -jnp.inf, self.log_weights + kernels, -jnp.inf), axis=1)

    def _wrapped(self, differences: Float[Array, "k n d"], space: ContinuousSpace) -> Float[Array, "k n"]:
        """The kernels, summed over the images of circular coordinates."""
        if not space.circular:
            return self._density(differences)
        period = 2.0 * space.scale
        turns = itertools.product(*(IMAGES if wraps else (0.0,) for wraps in space.wraps))
        images = [self._density(differences + np.asarray(turn, np.float32) * period) for turn in turns]
        return jax.nn.logsumexp(jnp.stack(images), axis=0)

    def _density(self, differences: Float[Array, "k n d"]) -> Float[Array, "k n"]:
        d = differences.shape[-1]
        columns = differences.reshape(-1, d).T
        scaled = solve_triangular(self.root, columns, lower=True)
        squares = jnp.sum(scaled * scaled, axis=0).reshape(differences.shape[:2])
        return -0.5 * squares - jnp.sum(jnp.log(jnp.diag(self.root))) - 0.5 * d * jnp.log(2.0 * jnp.pi)

    def _cells(self, differences: Float[Array, "k n d"]) -> Float[Array, "k n"]:
        width = jnp.diag(self.root)
        # By symmetry on the side where the normal distribution function is small, hence exact.
        far = -jnp.abs(differences)
        upper, lower = log_ndtr((far + 0.5) / width), log_ndtr((far - 0.5) / width)
        return jnp.sum(upper + jnp.log1p(-jnp.exp(jnp.minimum(lower - upper, -1e-7))), axis=-1)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        return ParticleBelief(self.states, self.log_weights).expectation(function)


def has_kernels(space: StateSpace) -> bool:
    """Tell whether nearby states are alike, so that there are kernels on particles.

    Args:
        space: Of the states.

    Returns:
        A static fact.
    """
    return any(capability(space, kind) is not None for kind in (ContinuousSpace, FiniteSpace))


def kernel_space(space: StateSpace) -> KernelSpace:
    """See a space as one with kernels.

    Args:
        space: Of the states.

    Returns:
        The same space; raises `InputError` unless it has kernels.
    """
    found = capability(space, ContinuousSpace) or capability(space, FiniteSpace)
    if found is not None:
        return found
    raise InputError(
        f"A kernel density needs a Box or a Lattice, where nearby states are alike; got {space.signature}. "
        "Use ParticleFilter, or a neural filter."
    )


def legal_log_weights(states: Array, log_weights: Float[Array, " k"], space: StateSpace) -> Float[Array, " k"]:
    """Take the weight of illegal states away.

    Args:
        states: k states.
        log_weights: Of the states.
        space: That says which are legal.

    Returns:
        Normalised log weights of the legal ones, -inf for the others; unchanged if none is legal.
    """
    legal: Bool[Array, " k"] = jax.vmap(space.contains)(states)
    kept, log_total = normalize(jnp.where(legal, log_weights, -jnp.inf))
    return jnp.where(log_total > -jnp.inf, kept, log_weights)
