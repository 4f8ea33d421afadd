"""Kernel mean embeddings, the alternative that the paper names under "Alternative approaches for embedding beliefs"
(Smola, Gretton, Song, Schölkopf 2007; Song et al. 2009): nothing is learned.

    θ = Σ_i w_i φ(x_i) / Σ_i w_i,   φ(x)·φ(z) ≈ k(x, z) = exp(-|x - z|² / 2ℓ²)

φ is exact on m landmarks, which a pivoted Cholesky decomposition picks one after another where the kernel is
represented worst. Such an embedding is not generative by itself. On a lattice it is decoded into the probabilities
p >= 0 of its cells whose embedding is nearest, min |Φᵀp - θ|² + ρ|p|²; in a box by herding (Welling 2009): points are
taken one after another so that their mean embedding nears θ, and smoothed by Gaussian kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.set_encoder import inputs, one_hot_cells
from nbf.resampling.weights import mean_weights
from nbf.spaces import Box, Lattice

LARGEST, MOST_LANDMARKS = 4096, 1024
"""Cells or candidates that are listed, and landmarks among them, at most."""
INDEPENDENT = 1e-3
"""What the landmarks before it must leave unexplained of a landmark: with less, float32 would lose its features."""


class Landmarks(eqx.Module):
    """φ: features whose products are the kernel, exactly where one of the two is a landmark."""

    points: Float[Array, "m d"]
    """Of the kernel's own units: one is a bandwidth."""
    root: Float[Array, "m m"]
    """Inverse of the Cholesky factor of the landmarks' kernel matrix."""

    def __call__(self, points: Float[Array, "n d"]) -> Float[Array, "n m"]:
        squares = jnp.sum((points[:, None, :] - self.points) ** 2, axis=-1)
        return jnp.exp(-0.5 * squares) @ self.root.T


def gaussian_kernel(points: Float[np.ndarray, "n d"], others: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k"]:
    """exp(-|x - z|² / 2) of each pair."""
    squares = np.sum(points**2, axis=1)[:, None] + np.sum(others**2, axis=1) - 2.0 * points @ others.T
    return np.exp(-0.5 * np.maximum(squares, 0.0))


def pick_landmarks(
    points: Float[np.ndarray, "n d"], count: int
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m m"]]:
    """Landmarks among the points, always the one that is explained worst by those before it, and the inverse of their
    Cholesky factor. Fewer than `count`, if there are no more points, or if they explain all others already."""
    chosen: list[int] = []
    columns = np.zeros((len(points), min(count, len(points))))
    left = np.ones(len(points))
    for step in range(columns.shape[1]):
        worst = int(np.argmax(left))
        if left[worst] < INDEPENDENT:
            break
        column = gaussian_kernel(points, points[[worst]])[:, 0] - columns[:, :step] @ columns[worst, :step]
        columns[:, step] = column / math.sqrt(left[worst])
        left = np.maximum(left - columns[:, step] ** 2, 0.0)
        chosen.append(worst)
    landmarks = points[chosen]
    return landmarks, np.linalg.inv(np.linalg.cholesky(gaussian_kernel(landmarks, landmarks)))


# --- a lattice -----------------------------------------------------------------------------------


class LatticeKernel(BeliefModel):
    """Of a lattice that is small enough to list."""

    space: Lattice
    table: Float[Array, "cells m"]
    """φ of every cell."""
    rate: Float[Array, ""]
    momentum: Float[Array, ""]
    ridge: float = eqx.field(static=True)
    iterations: int = eqx.field(static=True)

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        cells = one_hot_cells(states, self.space).astype(self.table.dtype)
        return (mean_weights(log_weights) @ cells) @ self.table

    def probabilities(self, embedding: Embedding, space: Lattice) -> Float[Array, " cells"]:
        """Of every cell: the legal ones whose embedding is nearest. Where nothing legal is near, all alike.

        Accelerated gradient descent, each step followed by the projection to p >= 0 (Nesterov 2004, 2.2.63).
        """
        legal = jnp.ones(space.size, bool) if space.legal is None else space.legal
        table = jnp.where(legal[:, None], self.table, 0.0)
        wanted = table @ embedding

        def step(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            probs, ahead = carry
            slope = table @ (ahead @ table) + self.ridge * ahead - wanted
            moved = jnp.where(legal, jnp.maximum(ahead - self.rate * slope, 0.0), 0.0)
            return moved, moved + self.momentum * (moved - probs)

        even = legal / jnp.maximum(jnp.sum(legal), 1)
        probs, _ = jax.lax.fori_loop(0, self.iterations, step, (even, even))
        total = jnp.sum(probs)
        return jnp.where(total > 0, probs / jnp.where(total > 0, total, 1.0), even)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        assert isinstance(space, Lattice)
        return jnp.asarray(space.points())[prng.categoricals(key, self.probabilities(embedding, space), n)]

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        assert isinstance(space, Lattice)
        return jnp.log(self.probabilities(embedding, space))[jax.vmap(space.index)(states)]

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        """log p_θ. There is nothing to train: it has no gradient."""
        return jax.lax.stop_gradient(jax.vmap(self.log_prob)(embeddings, states, space))

    def prepared(self) -> LatticeKernel:
        return self


@dataclass(frozen=True)
class LatticeKernelConfig:
    """The kernel mean embedding of beliefs on a lattice, decoded into the nearest probabilities of its cells."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    landmarks: int = 32
    """Embedding size m; smaller, where fewer landmarks explain every cell."""
    bandwidth: float = 1.0
    """ℓ of the kernel, in cells."""
    ridge: float = 0.001
    """ρ."""
    iterations: int = 200
    """Of the projection."""

    def build(self, key: Key[Array, ""]) -> LatticeKernel:
        """The model; nothing of it is random."""
        space = Lattice(self.shape)
        _check(self, "landmarks", "iterations", "bandwidth", "ridge")
        if space.size > LARGEST:
            raise InputError(f"A kernel embedding lists at most {LARGEST} cells; shape {self.shape} has {space.size}.")
        points = space.points() / self.bandwidth
        landmarks, root = pick_landmarks(points, self.landmarks)
        table = gaussian_kernel(points, landmarks) @ root.T
        values = np.linalg.svd(table, compute_uv=False) ** 2
        least = values.min() if len(values) == space.size else 0.0
        flattest, steepest = self.ridge + least, self.ridge + values.max()
        share = math.sqrt(flattest / steepest)
        rate, momentum = (
            jnp.asarray(number, jnp.float32) for number in (1.0 / steepest, (1.0 - share) / (1.0 + share))
        )
        return LatticeKernel(space, jnp.asarray(table, jnp.float32), rate, momentum, self.ridge, self.iterations)


# --- a box ---------------------------------------------------------------------------------------


class BoxKernel(BeliefModel):
    """Of real vectors. Mass that the smoothing puts beyond the walls of a bounded box is drawn on the walls."""

    space: Box
    landmarks: Landmarks
    candidates: Float[Array, "c d"]
    """What herding chooses from, encoded."""
    table: Float[Array, "c m"]
    """φ of each."""
    bandwidth: float = eqx.field(static=True)
    smoothing: float = eqx.field(static=True)
    herded: int = eqx.field(static=True)

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        encoded = inputs(states, self.space, self.space.num_features).T
        return mean_weights(log_weights) @ self.landmarks(encoded / self.bandwidth)

    def herd(self, embedding: Embedding, count: int) -> Int[Array, " count"]:
        """Candidates, one after another: each is where θ exceeds the mean embedding so far by most."""
        wanted = self.table @ embedding

        def step(spent: Float[Array, " c"], number: Int[Array, ""]) -> tuple[Float[Array, " c"], Int[Array, ""]]:
            chosen = jnp.argmax(wanted - spent / (number + 1.0)).astype(jnp.int32)
            return spent + self.table @ self.table[chosen], chosen

        return jax.lax.scan(step, jnp.zeros_like(wanted), jnp.arange(count))[1]

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Float[Array, "n d"]:
        centre_key, noise_key = jax.random.split(key)
        centres = self.candidates[self.herd(embedding, self.herded)]
        chosen = centres[jax.random.randint(centre_key, (n,), 0, self.herded)]
        spread = chosen + self.smoothing * jax.random.normal(noise_key, chosen.shape)
        return jax.vmap(self.space.decode)(spread)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        """The density of the kernels, before what lies beyond the walls is put on them."""
        centres = self.candidates[self.herd(embedding, self.herded)]
        encoded = jax.vmap(self.space.encode)(states)
        kernels = jnp.sum(norm.logpdf(encoded[:, None, :], centres, self.smoothing), axis=-1)
        volume = float(np.sum(np.log(self.space.scale)))
        return jax.nn.logsumexp(kernels, axis=1) - math.log(self.herded) - volume

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        """log p_θ. There is nothing to train: it has no gradient."""
        log_prob = jax.vmap(lambda embedding, states: self.log_prob(embedding, states, self.space))
        return jax.lax.stop_gradient(log_prob(embeddings, states))

    def prepared(self) -> BoxKernel:
        return self


@dataclass(frozen=True)
class BoxKernelConfig:
    """The kernel mean embedding of beliefs in a box, decoded by herding and smoothed."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    bounded: bool = True
    landmarks: int = 32
    """Embedding size m; smaller, where fewer landmarks explain every candidate."""
    bandwidth: float = 0.3
    """ℓ of the kernel, in half sides of the box."""
    candidates: int = 1024
    """Points of the box that herding chooses from: the first of Halton's sequence."""
    herded: int = 128
    """How many are chosen."""
    smoothing: float = 0.05
    """Standard deviation of the kernels around them, in half sides of the box."""

    def build(self, key: Key[Array, ""]) -> BoxKernel:
        """The model; nothing of it is random."""
        space = Box(self.low, self.high, self.bounded)
        _check(self, "landmarks", "candidates", "herded", "bandwidth", "smoothing")
        points = 2.0 * halton(self.candidates, space.dimension) - 1.0
        landmarks, root = pick_landmarks(points / self.bandwidth, self.landmarks)
        table = gaussian_kernel(points / self.bandwidth, landmarks) @ root.T
        landmarks, root, points, table = (jnp.asarray(part, jnp.float32) for part in (landmarks, root, points, table))
        features = Landmarks(landmarks, root)
        return BoxKernel(space, features, points, table, self.bandwidth, self.smoothing, self.herded)


def halton(count: int, dimension: int) -> Float[np.ndarray, "count dimension"]:
    """Points 1 to `count` of Halton's sequence in the unit cube, which fill it evenly (Halton 1960)."""
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


def _check(config: LatticeKernelConfig | BoxKernelConfig, *names: str) -> None:
    """Raise unless every number of a config makes sense."""
    for name in names:
        value = getattr(config, name)
        most = MOST_LANDMARKS if name == "landmarks" else LARGEST
        if isinstance(value, int) and not 1 <= value <= most:
            raise InputError(f"{name} must be a whole number from 1 to {most}; got {value}.")
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be above 0; got {value}.")
