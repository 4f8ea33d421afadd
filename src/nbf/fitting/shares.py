"""The share that a belief model earns beside a kernel density, measured when it is fitted.

From n samples of a belief both make a density: the model decodes their embedding, the kernel smooths them. The share s
of the model is the one with which the mixture tells other samples of the same belief best,

    s = argmax  Σ log(s · p_model(x) + (1 - s) · p_kernel(x)),

which is concave in s. So the mixture is never worse than the better of the two, on such beliefs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.gaussian_kernels import GaussianKernels
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief, BeliefModel, BeliefSource, StateSpace
from nbf.errors import InputError
from nbf.filters.neural.regenerating import Shares
from nbf.filters.regeneration import KernelSmoother
from nbf.spaces import Box, Lattice

SIZES = (8, 32, 128, 512)
"""Numbers of samples at which shares are measured."""
BELIEFS = 128
"""Beliefs on which they are measured."""
HELD_OUT = 32
"""Other samples of each belief."""
LEAST = 0.02
"""Neither density has a smaller share: where the better one fails, the other must be there."""


def earned_shares(
    key: Key[Array, ""],
    model: BeliefModel,
    source: BeliefSource,
    *,
    kernel: KernelSmoother | None = None,
    sizes: Sequence[int] = SIZES,
    beliefs: int = BELIEFS,
    batch: int = 16,
    advance: Callable[[int], None] = lambda done: None,
) -> Shares:
    """Measure the share of a model beside a kernel, for sets of several sizes.

    Args:
        key: Random key.
        model: A trained belief model.
        source: Beliefs that it was not trained on.
        kernel: The kernel; None is the default one.
        sizes: Numbers of samples, rising.
        beliefs: How many beliefs.
        batch: Beliefs that are made together.
        advance: Called after each batch with the number of beliefs in it.

    Returns:
        The shares.
    """
    if not sizes or beliefs < 1:
        raise InputError(f"Shares are measured at one size at least, on one belief at least; got {sizes}, {beliefs}.")
    kernel = KernelSmoother() if kernel is None else kernel
    keys = jax.random.split(key, beliefs)
    parts = []
    for first in range(0, beliefs, batch):
        some = keys[first : first + batch]
        parts.append(np.asarray(_log_densities(some, model.prepared(), source, kernel.scale, tuple(sizes))))
        advance(len(some))
    both = np.concatenate(parts).astype(np.float64)
    return Shares(tuple(map(float, sizes)), tuple(best_share(both[:, i, 0], both[:, i, 1]) for i in range(len(sizes))))


def best_share(first: Float[np.ndarray, "beliefs samples"], second: Float[np.ndarray, "beliefs samples"]) -> float:
    """Find the share of one density in the mixture with another that gives held-out samples the largest mean log score.

    Args:
        first: log density of each sample under the one.
        second: log density of each sample under the other.

    Returns:
        The share of the first, between `LEAST` and 1 - `LEAST`.
    """
    grid = np.linspace(LEAST, 1.0 - LEAST, 97)[:, None, None]
    with np.errstate(divide="ignore"):
        scores = np.logaddexp(np.log(grid) + first, np.log1p(-grid) + second)
    # A sample that neither has a density for says nothing about shares.
    told = np.isfinite(scores).all(axis=0) & ~np.isnan(scores).any(axis=0)
    return float(grid[np.argmax(np.where(told, scores, 0.0).sum(axis=(1, 2))), 0, 0])


@eqx.filter_jit
def _log_densities(
    keys: Key[Array, " b"], model: BeliefModel, source: BeliefSource, scale: float, sizes: tuple[int, ...]
) -> Float[Array, "b sizes 2 held"]:
    """log density of held-out samples under the model and under the kernel, from sets of each size."""
    largest = max(sizes)

    def one(key: Key[Array, ""]) -> Float[Array, "sizes 2 held"]:
        states, space = source.sample(key, largest + HELD_OUT)
        held = jax.tree.map(lambda leaf: leaf[largest:], states)
        first = jax.tree.map(lambda leaf: leaf[:largest], states)

        def both(size: Int[Array, ""]) -> Float[Array, "2 held"]:
            # Samples beyond the size are padding of weight zero, so that all sizes are one program.
            some = ParticleBelief(first, jnp.where(jnp.arange(largest) < size, 0.0, -jnp.inf))
            embedding = model.embed(some.states, some.log_weights, space)
            return jnp.stack([model.log_prob(embedding, held, space), _near(some, space, scale).log_probs(held)])

        return jax.lax.map(both, jnp.asarray(sizes))

    return jax.vmap(one)(keys)


def _near(particles: ParticleBelief, space: StateSpace, scale: float) -> Belief:
    """What the samples stand for without a model: a kernel density where there are kernels, else themselves."""
    return GaussianKernels.of(particles, space, scale) if isinstance(space, Box | Lattice) else particles
