"""Resampling: which particles have how many children (section "Particle Filtering").

All schemes are unbiased, E[children of i] = n·w_i, and differ in variance: multinomial has the
most, then residual, then stratified and systematic (Douc, Cappé, Moulines 2005, arXiv cs/0507025).

The weights divide a line of 2^30 to 2^31 *ticks* into integer intervals, and children are points on
it. With floats, cumulative sums depend on the order of summation, which differs between positions of
a parallel sum, and an entry of weight zero could own a sliver of the line and be drawn. Integer sums
are exact, and finer than float32 near the end of the line. Weights below 2^-31 of the total count
as zero.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32, Integer, Key, UInt32

from nbf import prng
from nbf.resampling.weights import scaled

DIRECT = 32
"""Up to here comparing all pairs, one fused loop, is the fastest way to search (measured on CPU)."""


def _sums(values: Integer[Array, " n"]) -> Integer[Array, " n"]:
    """Cumulative sums of integers: exact in any order of summation. A CPU is fastest one by one."""

    def one_by_one(values: Integer[Array, " n"]) -> Integer[Array, " n"]:
        def add(total: Integer[Array, ""], value: Integer[Array, ""]) -> tuple[Integer[Array, ""], Integer[Array, ""]]:
            return total + value, total + value

        return jax.lax.scan(add, jnp.zeros((), values.dtype), values)[1]

    return jax.lax.platform_dependent(
        values, cpu=one_by_one, default=lambda values: jnp.cumsum(values, dtype=values.dtype)
    )


def _partition(log_weights: Float[Array, " n"], total: int) -> UInt32[Array, " n"]:
    """Where each entry's interval ends when `total` ticks are divided in proportion to the weights.

    NaN and +inf count as weight zero; if nothing is left, all entries count the same.
    """
    weights, largest = scaled(log_weights)
    weights = jnp.where(largest > -jnp.inf, weights, 1.0)
    ends = _sums((weights * (float(total) / jnp.sum(weights))).astype(jnp.uint32))
    # Rounding has lost up to one tick per entry: stretch the line back to its length. The factor is
    # so near to 1 that order is kept and empty intervals stay empty.
    lost = (np.uint32(total) - ends[-1]).astype(jnp.int32).astype(jnp.float32)
    stretch = jnp.floor(ends.astype(jnp.float32) * (lost / ends[-1].astype(jnp.float32)))
    return jnp.where(ends == ends[-1], np.uint32(total), ends + stretch.astype(jnp.int32).astype(jnp.uint32))


def _spacing_bits(n: int) -> int:
    """The k for which n stretches of 2^k ticks are the longest line of at most 2^31."""
    return 31 - (n - 1).bit_length()


def _search(ends: UInt32[Array, " n"], points: UInt32[Array, " m"]) -> Int32[Array, " m"]:
    """Index of the interval in which each point lies: how many intervals end at or before it."""
    method = "compare_all" if max(ends.shape[0], points.shape[0]) <= DIRECT else "scan"
    return jnp.searchsorted(ends, points, side="right", method=method).astype(jnp.int32)


def _ancestors(children: Int32[Array, " n"]) -> Int32[Array, " n"]:
    """The parent of each child, from how many children entries 0..i have together; n where there is none.

    Linear in n: mark where each entry's children end, and count the marks passed.
    """
    n = children.shape[0]
    if n <= DIRECT:
        return jnp.sum(children[:, None] <= jnp.arange(n, dtype=jnp.int32), axis=0, dtype=jnp.int32)
    marks = jnp.zeros(n + 1, jnp.int32).at[children].add(1, mode="promise_in_bounds")
    return _sums(marks)[:n]


def systematic(key: Key[Array, ""], log_weights: Float[Array, " n"]) -> Int[Array, " n"]:
    """Resample at equal distances behind one random offset: counts differ from n·w by less than 1.

    Args:
        key: Random key.
        log_weights: Unnormalised.

    Returns:
        The ancestor of each particle, as an index.
    """
    n = log_weights.shape[0]
    bits = _spacing_bits(n)
    offset = prng.bits(key) >> (32 - bits)
    ends = _partition(log_weights, n << bits)
    return _ancestors(((ends + (np.uint32(2**bits - 1) - offset)) >> bits).astype(jnp.int32))


def stratified(key: Key[Array, ""], log_weights: Float[Array, " n"]) -> Int[Array, " n"]:
    """Resample by one random point in each of n equal strata: counts differ from n·w by less than 2.

    Args:
        key: Random key.
        log_weights: Unnormalised.

    Returns:
        The ancestor of each particle, as an index.
    """
    n = log_weights.shape[0]
    bits = _spacing_bits(n)
    offsets = prng.bits(key, (n,)) >> (32 - bits)
    ends = _partition(log_weights, n << bits)
    stretch = (ends >> bits).astype(jnp.int32)
    passed = offsets.at[stretch].get(mode="clip") < (ends & np.uint32(2**bits - 1))
    return _ancestors(stretch + passed)


def draw(key: Key[Array, ""], log_weights: Float[Array, " n"], count: int) -> Int[Array, " count"]:
    """Draw independent indices in proportion to the weights, by inverse CDF.

    Args:
        key: Random key.
        log_weights: Unnormalised.
        count: How many indices.

    Returns:
        The indices.
    """
    points = prng.bits(key, (count,)) >> 1
    return _search(_partition(log_weights, 2**31), points)


def systematic_draw(key: Key[Array, ""], log_weights: Float[Array, " n"], count: int) -> Int[Array, " count"]:
    """Draw indices at equal distances behind one random offset: `systematic` for any number of children.

    Args:
        key: Random key.
        log_weights: Unnormalised.
        count: How many indices.

    Returns:
        The indices, in rising order.
    """
    bits = _spacing_bits(count)
    offset = prng.bits(key) >> (32 - bits)
    points = (jnp.arange(count, dtype=jnp.uint32) << bits) + offset
    return _search(_partition(log_weights, count << bits), points)


def multinomial(key: Key[Array, ""], log_weights: Float[Array, " n"]) -> Int[Array, " n"]:
    """Resample by n independent draws.

    Args:
        key: Random key.
        log_weights: Unnormalised.

    Returns:
        The ancestor of each particle, as an index.
    """
    return draw(key, log_weights, log_weights.shape[0])


def residual(key: Key[Array, ""], log_weights: Float[Array, " n"]) -> Int[Array, " n"]:
    """Resample ⌊n·w⌋ children deterministically, the others by independent draws from the remainders (Liu, Chen 1998).

    Args:
        key: Random key.
        log_weights: Unnormalised.

    Returns:
        The ancestor of each particle, as an index.
    """
    n = log_weights.shape[0]
    bits = _spacing_bits(n)
    ticks = jnp.diff(_partition(log_weights, n << bits), prepend=np.uint32(0))
    certain = _sums((ticks >> bits).astype(jnp.int32))
    rest = _sums(ticks & np.uint32(2**bits - 1))
    # A float32 uniform number is below 1, but its product with an integer of 31 bits may round up to it.
    points = (jax.random.uniform(key, (n,)) * rest[-1].astype(jnp.float32)).astype(jnp.uint32)
    drawn = _search(rest, jnp.minimum(points, rest[-1] - 1))
    return jnp.where(jnp.arange(n) < certain[-1], _ancestors(certain), drawn)


RESAMPLERS: dict[str, Callable[[Key[Array, ""], Float[Array, " n"]], Int[Array, " n"]]] = {
    "systematic": systematic,
    "stratified": stratified,
    "multinomial": multinomial,
    "residual": residual,
}
"""By name. Each takes a key and log weights, normalised or not, and gives the n ancestors, as indices."""
