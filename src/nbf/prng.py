"""Randomness: one root seed, named streams, and the one draw that simulators make most."""

from __future__ import annotations

import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key


def stream(seed: int, *names: str | int) -> Key[Array, ""]:
    """The key of a named stream of a root seed; different names give independent streams."""
    key = jax.random.key(seed)
    for name in names:
        key = jax.random.fold_in(key, zlib.crc32(str(name).encode()))
    return key


def categorical(key: Key[Array, ""], probs: Float[Array, " k"]) -> Int[Array, ""]:
    """One index drawn in proportion to `probs` (not necessarily normalised), by inverse CDF.

    One uniform number instead of the k that `jax.random.categorical` asks for. An entry of
    probability zero is never drawn, unless all are zero: then the last one is.
    """
    cumulative = rising_sums(probs)
    drawn = jnp.sum(cumulative <= jax.random.uniform(key) * cumulative[-1])
    return jnp.minimum(drawn, probs.shape[0] - 1).astype(jnp.int32)


def categoricals(key: Key[Array, ""], probs: Float[Array, " k"], n: int) -> Int[Array, " n"]:
    """n independent indices drawn in proportion to `probs`: `categorical` with the sums shared."""
    cumulative = rising_sums(probs)
    uniform = jax.random.uniform(key, (n,)) * cumulative[-1]
    drawn = jnp.searchsorted(cumulative, uniform, side="right")
    return jnp.minimum(drawn, probs.shape[0] - 1).astype(jnp.int32)


def evenly(key: Key[Array, ""], n: int, dimension: int) -> Float[Array, "dimension n"]:
    """n points of the open unit cube, each uniform, together more even than independent ones: a Kronecker sequence
    of the generalised golden ratio (Roberts 2018), moved by a random shift."""
    golden = 2.0
    for _ in range(32):  # the root of x^(d+1) = x + 1
        golden = (1.0 + golden) ** (1.0 / (dimension + 1))
    # The products are whole parts of 2^32, so that no digit is lost however many points there are.
    steps = np.asarray([round(2**32 / golden**axis) for axis in range(1, dimension + 1)], np.uint32)
    shift = jax.random.bits(key, (dimension, 1), jnp.uint32)
    places = shift + steps[:, None] * jnp.arange(n, dtype=jnp.uint32)
    return ((places >> 9).astype(jnp.float32) + 0.5) / 2**23


def rising_sums(probs: Float[Array, " k"]) -> Float[Array, " k"]:
    """Cumulative sums that rise exactly where the probability is positive.

    XLA adds in a tree, so a plain `cumsum` may fall, or rise by rounding where nothing was added,
    and an entry of probability zero would be drawn.
    """
    return jax.lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs), 0.0))
