"""Features of the Gaussian kernel on landmarks, for kernel mean embeddings (`kernel`).

    φ(x)·φ(z) ≈ k(x, z) = exp(-|x - z|² / 2ℓ²)

exactly if x or z is one of m landmarks, which a pivoted Cholesky decomposition picks one after another where the kernel
is represented worst.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nbf.errors import InputError

LARGEST_TABLE = 4096
"""Most cells or candidates."""
LARGEST_EMBEDDING = 1024
"""Most landmarks."""
LEAST_RESIDUAL = 1e-3
"""Least residual variance of a landmark given those before it: with less, float32 would lose its features."""


class Landmarks(eqx.Module):
    """φ: features whose inner products are the kernel, exactly if one of the two points is a landmark."""

    points: Float[Array, "m d"]
    """Landmarks, in bandwidths."""
    root: Float[Array, "m m"]
    """Inverse Cholesky factor of the landmarks' kernel matrix."""

    def __call__(self, points: Float[Array, "n d"]) -> Float[Array, "n m"]:
        squares = jnp.sum((points[:, None, :] - self.points) ** 2, axis=-1)
        return jnp.exp(-0.5 * squares) @ self.root.T


def gaussian_kernel(points: Float[np.ndarray, "n d"], others: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k"]:
    """Gaussian kernel exp(-|x - z|² / 2) of each pair.

    Args:
        points: Points x, one per row, in bandwidths.
        others: Points z, one per row, in bandwidths.

    Returns:
        The kernel matrix.
    """
    squares = np.sum(points**2, axis=1)[:, None] + np.sum(others**2, axis=1) - 2.0 * points @ others.T
    return np.exp(-0.5 * np.maximum(squares, 0.0))


def pick_landmarks(
    points: Float[np.ndarray, "n d"], count: int
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m m"]]:
    """Pick landmarks among points by a pivoted Cholesky decomposition.

    Each landmark is the point with the largest residual variance given those before it.

    Args:
        points: Points, one per row, in bandwidths.
        count: Most landmarks; there are fewer if there are fewer points or if they represent all others.

    Returns:
        The landmarks, and the inverse Cholesky factor of their kernel matrix.
    """
    chosen: list[int] = []
    columns = np.zeros((len(points), min(count, len(points))))
    left = np.ones(len(points))
    for step in range(columns.shape[1]):
        worst = int(np.argmax(left))
        if left[worst] < LEAST_RESIDUAL:
            break
        column = gaussian_kernel(points, points[[worst]])[:, 0] - columns[:, :step] @ columns[worst, :step]
        columns[:, step] = column / math.sqrt(left[worst])
        left = np.maximum(left - columns[:, step] ** 2, 0.0)
        chosen.append(worst)
    landmarks = points[chosen]
    return landmarks, np.linalg.inv(np.linalg.cholesky(gaussian_kernel(landmarks, landmarks)))


def halton(count: int, dimension: int) -> Float[np.ndarray, "count dimension"]:
    """Points 1 to `count` of the Halton sequence, which fill the unit cube evenly (Halton 1960).

    Args:
        count: Number of points.
        dimension: Numbers per point.

    Returns:
        One point per row.
    """
    primes = [number for number in range(2, 8 * dimension + 4) if all(number % other for other in range(2, number))]
    columns = []
    for base in primes[:dimension]:
        rest, share, column = np.arange(1, count + 1), 1.0, np.zeros(count)
        while np.any(rest):
            share /= base
            column += share * (rest % base)
            rest //= base
        columns.append(column)
    return np.stack(columns, axis=-1)


def check_numbers(config: Any, *names: str) -> None:
    """Raise `InputError` unless the numbers of a config are in their range.

    Args:
        config: Config of a kernel mean embedding.
        *names: Fields to check.
    """
    for name in names:
        value = getattr(config, name)
        most = LARGEST_EMBEDDING if name == "landmarks" else LARGEST_TABLE
        if isinstance(value, int) and not 1 <= value <= most:
            raise InputError(f"{name} must be a whole number from 1 to {most}; got {value}.")
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be above 0; got {value}.")
