"""Random numbers: named streams of one root seed, fast categorical draws, and an unrolled threefry."""

from __future__ import annotations

import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from nbf.errors import InputError


def stream(seed: int, *names: str | int) -> Key[Array, ""]:
    """Derive the key of a named stream from a root seed; different names give independent streams.

    Args:
        seed: The root seed.
        names: The name of the stream, in one or more parts.

    Returns:
        The key.
    """
    key = jax.random.key(seed)
    for name in names:
        key = jax.random.fold_in(key, zlib.crc32(str(name).encode()))
    return key


# --- the functions of jax.random, bit for bit ----------------------------------------------------
# On a CPU, JAX keeps the rounds of threefry in a loop, which compiles faster but runs slower. With unrolled rounds a
# filter step of a thousand particles takes a quarter less time.

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Rotation distances of Threefry-2x32."""


def fold_in(key: Key[Array, ""], data: int | Int[Array, ""]) -> Key[Array, ""]:
    """Compute `jax.random.fold_in`, unrolled.

    Args:
        key: The key.
        data: The number to fold in.

    Returns:
        The new key.
    """
    if not _plain(key):
        return jax.random.fold_in(key, data)
    return _keys(*_threefry(key, jnp.zeros((), jnp.uint32), jnp.asarray(data).astype(jnp.uint32)))


def split(key: Key[Array, ""], num: int = 2) -> Key[Array, " num"]:
    """Compute `jax.random.split`, unrolled.

    Args:
        key: The key.
        num: How many keys to make.

    Returns:
        The new keys.
    """
    if not _plain(key):
        return jax.random.split(key, num)
    return _keys(*_threefry(key, jnp.zeros(num, jnp.uint32), jnp.arange(num, dtype=jnp.uint32)))


def bits(key: Key[Array, ""], shape: tuple[int, ...] = ()) -> UInt32[Array, "..."]:
    """Compute `jax.random.bits` of 32 bits, unrolled.

    Args:
        key: The key.
        shape: Of the result.

    Returns:
        Random bits.
    """
    if not _plain(key):
        return jax.random.bits(key, shape, jnp.uint32)
    count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    first, second = _threefry(key, jnp.zeros_like(count), count)
    return jax.lax.optimization_barrier(first ^ second)


def uniform(key: Key[Array, ""], shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
    """Compute `jax.random.uniform` on [0, 1), unrolled.

    Args:
        key: The key.
        shape: Of the result.

    Returns:
        Uniform float32 numbers.
    """
    if not _plain(key):
        return jax.random.uniform(key, shape)
    # The upper 23 bits as the mantissa of a float with the exponent of 1 give a number in [1, 2).
    ones = (bits(key, shape) >> np.uint32(9)) | np.float32(1.0).view(np.uint32)
    return jax.lax.bitcast_convert_type(ones, jnp.float32) - 1.0


def _plain(key: Key[Array, ""]) -> bool:
    """Whether this is a key of JAX's default generator in its default mode."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    return partitionable and str(jax.random.key_impl(key)) == "threefry2x32" and key.shape == ()


def _keys(first: UInt32[Array, "..."], second: UInt32[Array, "..."]) -> Key[Array, "..."]:
    # Without the barrier XLA would recompute the rounds in every loop that uses the key.
    data = jax.lax.optimization_barrier(jnp.stack([first, second], axis=-1))
    return jax.random.wrap_key_data(data, impl="threefry2x32")


@jax.jit  # traced and batched once for each shape, and inlined by XLA: a filter step compiles sooner
def _threefry(
    key: Key[Array, ""], high: UInt32[Array, "..."], low: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Apply Threefry-2x32 with 20 rounds (Salmon et al. 2011) to the two halves of a counter."""
    data = jax.random.key_data(key)
    keys = (data[0], data[1], data[0] ^ data[1] ^ np.uint32(0x1BD11BDA))
    high, low = high + keys[0], low + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << np.uint32(distance)) | (low >> np.uint32(32 - distance)))
        high = high + keys[(group + 1) % 3]
        low = low + keys[(group + 2) % 3] + np.uint32(group + 1)
    return high, low


# --- draws ---------------------------------------------------------------------------------------


def categorical(key: Key[Array, ""], probs: Float[Array, " k"]) -> Int[Array, ""]:
    """Draw one index by inverse CDF, with one uniform number where `jax.random.categorical` needs k.

    An entry of probability zero is never drawn, unless all are zero: then the last index is.

    Args:
        key: The key.
        probs: Probabilities; they need not sum to one.

    Returns:
        The index.
    """
    cumulative = rising_sums(probs)
    drawn = jnp.sum(cumulative <= jax.random.uniform(key) * cumulative[-1])
    return jnp.minimum(drawn, probs.shape[0] - 1).astype(jnp.int32)


def categoricals(key: Key[Array, ""], probs: Float[Array, " k"], n: int) -> Int[Array, " n"]:
    """Draw n independent indices, like `categorical`, from one cumulative sum.

    Args:
        key: The key.
        probs: Probabilities; they need not sum to one.
        n: Number of draws.

    Returns:
        The indices.
    """
    cumulative = rising_sums(probs)
    uniform = jax.random.uniform(key, (n,)) * cumulative[-1]
    drawn = jnp.searchsorted(cumulative, uniform, side="right")
    return jnp.minimum(drawn, probs.shape[0] - 1).astype(jnp.int32)


def evenly(key: Key[Array, ""], n: int, dimension: int) -> Float[Array, "dimension n"]:
    """Draw a randomised quasi-Monte Carlo set: a Kronecker sequence of the generalised golden ratio (Roberts 2018).

    A random shift makes each point uniform on the open unit cube; together they cover it more evenly than independent
    points.

    Args:
        key: The randomness of the shift.
        n: Number of points.
        dimension: Of the cube.

    Returns:
        The points, as columns.
    """
    golden = 2.0
    for _ in range(32):  # the root of x^(d+1) = x + 1
        golden = (1.0 + golden) ** (1.0 / (dimension + 1))
    # In units of 2^-32 and modulo one, so that no precision is lost however many points there are.
    steps = np.asarray([round(2**32 / golden**axis) for axis in range(1, dimension + 1)], np.uint32)
    shift = bits(key, (dimension, 1))
    places = shift + steps[:, None] * jnp.arange(n, dtype=jnp.uint32)
    return ((places >> 9).astype(jnp.float32) + 0.5) / 2**23


def rising_sums(probs: Float[Array, " k"]) -> Float[Array, " k"]:
    """Compute cumulative sums that never decrease, and increase only where the probability is positive.

    XLA sums in a tree. By rounding, a plain `cumsum` may decrease, or increase at an entry of probability zero, which
    would then be drawn.

    Args:
        probs: Probabilities; they need not sum to one.

    Returns:
        The sums.
    """
    return jax.lax.cummax(jnp.where(probs > 0, jnp.cumsum(probs), 0.0))


LARGEST_SEED = 2**31 - 1
"""The largest root seed."""


def seed(number: int) -> int:
    """Check a root seed.

    Args:
        number: The seed.

    Returns:
        The same number, if it is from 0 to `LARGEST_SEED`.
    """
    if not 0 <= number <= LARGEST_SEED:
        raise InputError(f"A seed is a whole number from 0 to {LARGEST_SEED}; got {number}.")
    return number
