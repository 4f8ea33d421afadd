"""Linearisation: a noisy affine map that stands for a nonlinear one, by its derivative or by regression.

Given the mean and the noise of a vector y as functions of z, with z ~ N(0, I), find F, c and a root of a covariance R
such that y is nearly F z + c + noise of covariance R. The argument is whitened, x = mean + root·z, so that the
covariance of x may be singular. The mathematics is that of cuthbertlib (extra `classical`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from nbf.errors import optional_imports

MomentFunction = Callable[[Float[Array, " d"]], tuple[Float[Array, " e"], Float[Array, "e e"]]]
"""z -> the mean of y given z, and a root of its covariance."""
AffineMap = tuple[Float[Array, "e d"], Float[Array, " e"], Float[Array, "e k"]]
"""F, c and a root of the noise's covariance."""
Linearization = Callable[[MomentFunction, int], AffineMap]
"""(function, d) -> the affine map that stands for the function, where z has d entries."""


def by_derivative(function: MomentFunction, d: int) -> AffineMap:
    """Linearise by the derivative at z = 0, with the noise there.

    Args:
        function: The moments of y given z.
        d: Entries of z.

    Returns:
        The affine map.
    """
    return import_cuthbertlib().linearize.linearize_moments(function, jnp.zeros(d))


def by_regression(function: MomentFunction, d: int, rule: Any) -> AffineMap:
    """Linearise by affine regression on sigma points. The noise is that at z = 0, plus the residual of the regression.

    Args:
        function: The moments of y given z.
        d: Entries of z.
        rule: The sigma points and their weights, a quadrature rule of cuthbertlib.

    Returns:
        The affine map; k is 2e.
    """
    # The noise of the function is kept out of cuthbertlib's sums: their covariance weights, which for the unscented
    # transform do not sum to one, would multiply it.
    mean, noise = function(jnp.zeros(d))
    none = jnp.zeros((mean.shape[0],) * 2)
    matrix, shift, residual = import_cuthbertlib().quadrature.conditional_moments(
        lambda z: function(z)[0], lambda z: none, jnp.zeros(d), jnp.eye(d), rule
    )
    # Rounding may leave the residual slightly indefinite.
    values, vectors = jnp.linalg.eigh(residual)
    return matrix, shift, jnp.concatenate([vectors * jnp.sqrt(jnp.maximum(values, 0.0)), noise], axis=1)


def triangular(root: Float[Array, "e k"]) -> Float[Array, "e e"]:
    """Make a root of a covariance lower triangular.

    Args:
        root: Any root, with k at least e.

    Returns:
        A lower triangular root of the same covariance.
    """
    return import_cuthbertlib().linalg.tria(root)


def import_cuthbertlib() -> Any:
    """Import cuthbertlib, an extra, where it is needed."""
    with optional_imports("A Gaussian filter"):
        import cuthbertlib
    return cuthbertlib
