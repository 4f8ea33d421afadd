"""Kernel mean embeddings, which need no training.

The paper names them under "Alternative approaches for embedding beliefs" (Smola, Gretton, Song, Schölkopf 2007; Song et
al. 2009):

    θ = Σ_i w_i φ(x_i) / Σ_i w_i,   φ(x)·φ(z) ≈ k(x, z) = exp(-|x - z|² / 2ℓ²)

with the features φ of `kernel_features`. Such an embedding is not generative by itself. On a lattice it is decoded into
the cell probabilities p >= 0 whose embedding is nearest, min |Φᵀp - θ|² + ρ|p|². In a box it is decoded by herding
(Welling 2009): points are chosen one after another so that their mean embedding approaches θ, then smoothed.
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
from nbf.capabilities import FiniteSpace
from nbf.capability import require
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.kernel_features import (
    LARGEST_TABLE,
    Landmarks,
    check_numbers,
    gaussian_kernel,
    halton,
    pick_landmarks,
)
from nbf.models.set_encoder import inputs, one_hot_cells
from nbf.resampling.weights import mean_weights
from nbf.spaces import Box, Lattice

# --- a lattice -----------------------------------------------------------------------------------


class LatticeKernel(BeliefModel):
    """Kernel mean embedding over a lattice small enough to enumerate. Its objective has no gradient."""

    space: Lattice
    """What the states are."""
    table: Float[Array, "cells m"]
    """φ of every cell."""
    rate: Float[Array, ""]
    """Step length of the projection."""
    momentum: Float[Array, ""]
    """Momentum of the projection."""
    ridge: float = eqx.field(static=True)
    """ρ."""
    iterations: int = eqx.field(static=True)
    """Steps of the projection."""

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        cells = one_hot_cells(states, self.space).astype(self.table.dtype)
        return (mean_weights(log_weights) @ cells) @ self.table

    def probabilities(self, embedding: Embedding, space: FiniteSpace) -> Float[Array, " cells"]:
        """Decode an embedding into the probabilities of the legal cells whose embedding is nearest.

        Accelerated projected gradient descent on p >= 0 (Nesterov 2004, 2.2.63). If no legal cell is near, all are
        equally probable.

        Args:
            embedding: θ.
            space: Of the environment.

        Returns:
            The probability of each cell.
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
        space = _finite(space)
        return jnp.asarray(space.points())[prng.categoricals(key, self.probabilities(embedding, space), n)]

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        space = _finite(space)
        return jnp.log(self.probabilities(embedding, space))[jax.vmap(space.index)(states)]

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        return jax.lax.stop_gradient(jax.vmap(self.log_prob)(embeddings, states, space))


def _finite(space: StateSpace) -> FiniteSpace:
    return require(space, FiniteSpace, "A kernel embedding over a lattice", "Use a Lattice.")


@dataclass(frozen=True)
class LatticeKernelConfig:
    """Config of kernel mean embeddings over a lattice, decoded into cell probabilities."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    landmarks: int = 32
    """Embedding size m; smaller if fewer landmarks represent every cell."""
    bandwidth: float = 1.0
    """ℓ of the kernel, in cells."""
    ridge: float = 0.001
    """ρ."""
    iterations: int = 200
    """Steps of the projection."""

    def build(self, key: Key[Array, ""]) -> LatticeKernel:
        """Build the model; none of it is random.

        Args:
            key: Not used.

        Returns:
            The model.
        """
        space = Lattice(self.shape)
        check_numbers(self, "landmarks", "iterations", "bandwidth", "ridge")
        if space.size > LARGEST_TABLE:
            raise InputError(
                f"A kernel embedding lists at most {LARGEST_TABLE} cells; shape {self.shape} has {space.size}."
            )
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
    """Kernel mean embedding over real vectors.

    A bounded box clips samples that the smoothing puts beyond its walls; `log_prob` is the density before clipping. The
    objective has no gradient.
    """

    space: Box
    """What the states are."""
    landmarks: Landmarks
    """φ."""
    candidates: Float[Array, "c d"]
    """Encoded points that herding chooses from."""
    table: Float[Array, "c m"]
    """φ of each candidate."""
    bandwidth: float = eqx.field(static=True)
    """ℓ, in half sides of the box."""
    smoothing: float = eqx.field(static=True)
    """Standard deviation of the Gaussians around herded points, in half sides of the box."""
    herded: int = eqx.field(static=True)
    """Number of herded points."""

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        encoded = inputs(states, self.space, self.space.num_features).T
        return mean_weights(log_weights) @ self.landmarks(encoded / self.bandwidth)

    def herd(self, embedding: Embedding, count: int) -> Int[Array, " count"]:
        """Choose candidates one after another: each where θ exceeds the mean embedding so far by most.

        Args:
            embedding: θ.
            count: How many to choose.

        Returns:
            Indices of candidates.
        """
        wanted = self.table @ embedding

        def step(spent: Float[Array, " c"], number: Int[Array, ""]) -> tuple[Float[Array, " c"], Int[Array, ""]]:
            chosen = jnp.argmax(wanted - spent / (number + 1.0)).astype(jnp.int32)
            return spent + self.table @ self.table[chosen], chosen

        return jax.lax.scan(step, jnp.zeros_like(wanted), jnp.arange(count))[1]

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Float[Array, "n d"]:
        centre_key, noise_key = jax.random.split(key)
        centres = self.candidates[self.herd(embedding, self.herded)]
        chosen = centres[jax.random.randint(centre_key, (n,), 0, self.herded)]
        smoothed = chosen + self.smoothing * jax.random.normal(noise_key, chosen.shape)
        return jax.vmap(self.space.decode)(smoothed)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        centres = self.candidates[self.herd(embedding, self.herded)]
        encoded = jax.vmap(self.space.encode)(states)
        kernels = jnp.sum(norm.logpdf(encoded[:, None, :], centres, self.smoothing), axis=-1)
        volume = float(np.sum(np.log(self.space.scale)))
        return jax.nn.logsumexp(kernels, axis=1) - math.log(self.herded) - volume

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        log_prob = jax.vmap(lambda embedding, states: self.log_prob(embedding, states, self.space))
        return jax.lax.stop_gradient(log_prob(embeddings, states))


@dataclass(frozen=True)
class BoxKernelConfig:
    """Config of kernel mean embeddings over a box, decoded by herding and smoothed."""

    low: tuple[float, ...]
    """Lower ends of the box."""
    high: tuple[float, ...]
    """Upper ends of the box."""
    bounded: bool = True
    """Whether states stay in the box."""
    landmarks: int = 32
    """Embedding size m; smaller if fewer landmarks represent every candidate."""
    bandwidth: float = 0.3
    """ℓ of the kernel, in half sides of the box."""
    candidates: int = 1024
    """Points of the box that herding chooses from: the first of the Halton sequence."""
    herded: int = 128
    """Number of herded points."""
    smoothing: float = 0.05
    """Standard deviation of the Gaussians around them, in half sides of the box."""

    def build(self, key: Key[Array, ""]) -> BoxKernel:
        """Build the model; none of it is random.

        Args:
            key: Not used.

        Returns:
            The model.
        """
        space = Box(self.low, self.high, self.bounded)
        check_numbers(self, "landmarks", "candidates", "herded", "bandwidth", "smoothing")
        points = 2.0 * halton(self.candidates, space.dimension) - 1.0
        landmarks, root = pick_landmarks(points / self.bandwidth, self.landmarks)
        table = gaussian_kernel(points / self.bandwidth, landmarks) @ root.T
        landmarks, root, points, table = (jnp.asarray(part, jnp.float32) for part in (landmarks, root, points, table))
        features = Landmarks(landmarks, root)
        return BoxKernel(space, features, points, table, self.bandwidth, self.smoothing, self.herded)
