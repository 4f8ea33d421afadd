"""A Gaussian belief N(mean, root·rootᵀ): what the Kalman filters report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key

from nbf.capabilities import ContinuousSpace
from nbf.contracts import Belief
from nbf.errors import InputError

NARROWEST = 1e-5
"""The least entry on the root's diagonal, relative to half the side of the box: without variance there is no
density."""
POINTS = 8
"""Gauss-Legendre points across a row of cells, at which the masses of its columns are computed."""


class GaussianBelief(Belief):
    """A Gaussian on the vectors of a box. Where the box is bounded, mass beyond a wall counts as mass on the wall, as
    for kernel densities: samples are clipped, and the outermost cells of a grid contain the tails. Its `log_prob` is
    the density without clipping."""

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]
    """Lower triangular with a positive diagonal."""
    space: ContinuousSpace

    @classmethod
    def of(cls, mean: Float[Array, " d"], root: Float[Array, "d k"], space: ContinuousSpace) -> GaussianBelief:
        """Build one from any root of the covariance, which may be singular.

        Args:
            mean: Of the Gaussian.
            root: Any F with F Fᵀ equal to the covariance.
            space: Where the states lie.

        Returns:
            The belief, with a lower triangular root whose diagonal is at least `NARROWEST`.
        """
        if mean.shape != (space.dimension,):
            raise InputError(f"A Gaussian on {space.signature} needs a mean of {space.dimension}; got {mean.shape}.")
        wide = jnp.concatenate([root, jnp.zeros((root.shape[0],) * 2, root.dtype)], axis=1)
        lower = jnp.linalg.qr(wide.T, mode="r").T
        diagonal = jnp.diagonal(lower)
        lower = lower * jnp.where(diagonal < 0, -1.0, 1.0)
        least = jnp.maximum(jnp.abs(diagonal), NARROWEST * space.scale)
        return cls(mean, jnp.fill_diagonal(lower, least, inplace=False), space)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        return self.space.nearest(self.mean + jax.random.normal(key, (n, self.mean.shape[0])) @ self.root.T)

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        whitened = solve_triangular(self.root, state - self.mean, lower=True)
        return jnp.sum(norm.logpdf(whitened)) - jnp.sum(jnp.log(jnp.diagonal(self.root)))

    def points(self) -> Float[Array, "k d"]:
        """The 2d points of the spherical cubature rule, mean ± √d times each column of the root, clipped."""
        steps = math.sqrt(self.mean.shape[0]) * self.root.T
        return self.space.nearest(self.mean + jnp.concatenate([steps, -steps]))

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        # Exact for polynomials up to the third degree where no wall is near.
        return jax.tree.map(lambda values: jnp.mean(values, axis=0), jax.vmap(function)(self.points()))

    def cell_masses(self, cells: int) -> Float[Array, "c c"]:
        """Compute the mass of each of cells² equal cells of a plane.

        The mass of a row is exact. Within a row, the shares of its cells are exact given the first coordinate, and are
        averaged over `POINTS` quantiles of it, which cover the tails that the outermost rows contain.

        Args:
            cells: How many along each axis.

        Returns:
            The masses, rows along the first axis of the plane.
        """
        low, high = (jnp.asarray(end)[:, None] for end in (self.space.low, self.space.high))
        rows, columns = (low + (high - low) * jnp.linspace(0.0, 1.0, cells + 1))[:, 1:-1]
        below = jnp.concatenate([jnp.zeros(1), ndtr((rows - self.mean[0]) / self.root[0, 0]), jnp.ones(1)])
        nodes, weights = np.polynomial.legendre.leggauss(POINTS)
        quantiles = below[:-1, None] + jnp.diff(below)[:, None] * jnp.asarray((nodes + 1.0) / 2.0, jnp.float32)
        tiny = jnp.finfo(quantiles.dtype).eps
        first = ndtri(jnp.clip(quantiles, tiny, 1.0 - tiny))
        centre = self.mean[1] + self.root[1, 0] * first
        inner = ndtr((columns - centre[..., None]) / self.root[1, 1])
        shares = jnp.diff(inner, axis=-1, prepend=0.0, append=1.0)
        return jnp.diff(below)[:, None] * jnp.einsum("q,rqc->rc", jnp.asarray(weights / 2.0, jnp.float32), shares)
