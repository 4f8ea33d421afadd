"""Resampling for discrete states: few weighted points that stand for many, with the least variance.

    E[Σ_j v_j δ(i_j)] = Σ_i w_i δ(i)

`optimal_indices` is the resampling of Fearnhead and Clifford (2003): no index is drawn twice; each one heavier than a
threshold c is kept with its weight; each of the others is kept with probability w / c, by systematic draws, and has
weight c. Of all unbiased resampling schemes that leave n points it has the least squared error. `select_branches`
applies it to the branches of points, `split_heavy` gives unused places to copies of heavy points, `merge_duplicates`
adds up equal ones.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import prng
from nbf.errors import InputError
from nbf.resampling.weights import log_normalized, normalized_weights

ROUNDING = 1.0 - 1e-6
"""Weights this near to the threshold count as heavier, so that rounding does not lose what is kept for certain."""
ALIKE = 1e-4
"""Log weights this near to each other count as equal."""
DIRECT = 128
"""Up to here all pairs are compared, in one fused loop; beyond, that would take the square of their number."""


def threshold(weights: Float[Array, " k"], count: int) -> Float[Array, ""]:
    """Find the threshold above which weights are kept for certain.

    Args:
        weights: k of them, normalised or not.
        count: How many points are left.

    Returns:
        The c with Σ min(w / c, 1) = count; 0 where no more than `count` have weight.
    """
    return jnp.zeros(()) if count >= weights.shape[0] else _threshold(weights, count)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _threshold(weights: Float[Array, " k"], count: int) -> Float[Array, ""]:
    def lower(found: tuple[Array, ...]) -> tuple[Array, ...]:
        level, heavier, _ = found
        above = weights > level
        rest = jnp.sum(jnp.where(above, 0.0, weights))
        number = jnp.sum(above, dtype=jnp.int32)
        return rest / jnp.maximum(count - number, 1), number, heavier

    # Lower the level until no other weight exceeds it: a few rounds, and no sorting.
    first = jnp.sum(weights) / count, jnp.int32(0), jnp.int32(-1)
    level, _, _ = jax.lax.while_loop(lambda found: found[1] > found[2], lower, first)
    return jnp.where(jnp.sum(weights > 0) > count, level, 0.0)


@_threshold.defjvp
def _no_derivative(count: int, primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    raise InputError(
        "The optimal resampling for discrete states has no derivative: its weights jump where a point is dropped. "
        "Differentiate an update of ExactFilter, of ParticleFilter, or of NeuralBayesianFilter.faithful instead."
    )


def optimal_indices(
    key: Key[Array, ""], log_weights: Float[Array, " k"], count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"], Float[Array, ""]]:
    """Select at most `count` different indices.

    Args:
        key: Random key.
        log_weights: k of them, normalised or not.
        count: How many indices are left.

    Returns:
        The indices, their normalised log weights, and the random mass: the share of the weight that a random choice
        decided. Where fewer are needed, the heaviest comes again with a log weight of -inf.
    """
    weights = normalized_weights(log_weights)
    level = threshold(weights, count)
    certain = (weights > 0) & (weights >= level * ROUNDING)
    lighter = jnp.where(certain, 0.0, weights)
    drawn = _evenly(key, lighter / jnp.where(level > 0, level, 1.0)) > 0
    chosen = certain | (drawn & (level > 0))
    indices = _places(chosen, count, jnp.argmax(weights))
    used = jnp.arange(count) < jnp.sum(chosen)
    kept = jnp.where(used, jnp.where(certain, weights, level)[indices], 0.0)
    return indices, log_normalized(kept), jnp.sum(lighter)


def optimal_resample(
    key: Key[Array, ""], states: PyTree, log_weights: Float[Array, " k"], n: int
) -> tuple[PyTree, Float[Array, " n"], Float[Array, ""]]:
    """Resample weighted states to at most n.

    Args:
        key: Random key.
        states: k states.
        log_weights: Of the states.
        n: How many are left.

    Returns:
        n states, their log weights, and the random mass.
    """
    if log_weights.shape[0] == n:
        return states, log_weights, jnp.zeros(())
    chosen, kept, left = optimal_indices(key, log_weights, n)
    return jax.tree.map(lambda leaf: leaf[chosen], states), kept, left


def select_branches(
    key: Key[Array, ""], log_weights: Float[Array, " k"], transition_log_probs: Float[Array, "k b"], count: int
) -> tuple[Int[Array, " count"], Int[Array, " count"], Float[Array, " count"], Float[Array, ""]]:
    """Select at most `count` different pairs of a point and one of its branches, by `optimal_indices` on all pairs.

    Args:
        key: Random key.
        log_weights: Of k points.
        transition_log_probs: Of the b branches of each point.
        count: How many pairs are left.

    Returns:
        The points, the branches, the log weights of the pairs, and the random mass.
    """
    # Ordered by branch: systematic draws of the light pairs are then even among the points of every branch.
    pairs = (log_weights[:, None] + transition_log_probs).T
    chosen, weights, left = optimal_indices(key, pairs.ravel(), count)
    return chosen % len(log_weights), chosen // len(log_weights), weights, left


def random_mass(log_weights: Float[Array, " k"]) -> Float[Array, ""]:
    """Find the share of the mass that a random choice decided, from the weights of a set of draws.

    Args:
        log_weights: Normalised, k of them.

    Returns:
        The mass of the lightest points: all of it where equal weights were drawn, next to nothing where every point
        with any mass was kept.
    """
    least = jnp.min(jnp.where(log_weights > -jnp.inf, log_weights, jnp.inf))
    return jnp.sum(jnp.where(log_weights <= least + ALIKE, jnp.exp(log_weights), 0.0))


def split_heavy(key: Key[Array, ""], log_weights: Float[Array, " n"]) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """Give the places of points without weight to copies of the others, in proportion to their weights.

    Args:
        key: Random key.
        log_weights: n of them.

    Returns:
        n indices and normalised log weights; copies of one point share its weight.
    """
    n = log_weights.shape[0]
    weights = normalized_weights(log_weights)
    some = weights > 0
    spare = n - jnp.sum(some)

    def copied() -> tuple[Int[Array, " n"], Float[Array, " n"]]:
        copies = some + _evenly(key, weights * spare)
        ends = jnp.cumsum(copies)
        method = "compare_all" if n <= DIRECT else "scan"
        indices = jnp.minimum(jnp.searchsorted(ends, jnp.arange(n), side="right", method=method), n - 1)
        shared = weights[indices] / jnp.maximum(copies[indices], 1)
        # Rounding may leave one place too many: what fills it has weight zero.
        return indices.astype(jnp.int32), jnp.where(jnp.arange(n) < ends[-1], shared, 0.0)

    indices, shared = jax.lax.cond(spare > 0, copied, lambda: (jnp.arange(n, dtype=jnp.int32), weights))
    return indices, log_normalized(shared)


def merge_duplicates(
    places: Int[Array, " k"], log_weights: Float[Array, " k"], count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """Add up the weights of equal points.

    Args:
        places: k integers, equal for equal points.
        log_weights: Of the points.
        count: At least as many as there are different places.

    Returns:
        The index of the first point at each place, and the log of its total weight; -inf where there are fewer.
    """
    # Points without weight are sorted to the end.
    places = jnp.where(log_weights > -jnp.inf, places, jnp.iinfo(places.dtype).max)
    order = jnp.argsort(places)
    group = jnp.cumsum(jnp.diff(places[order], prepend=places[order[0]]) > 0)
    totals = jnp.zeros(count).at[group].add(jnp.exp(log_weights[order]))
    first = order[jnp.minimum(jnp.searchsorted(group, jnp.arange(count)), len(order) - 1)]
    return first, jnp.log(totals)


def _evenly(key: Key[Array, ""], expected: Float[Array, " k"]) -> Int[Array, " k"]:
    """Systematic draws: random whole numbers with these means, each rounded down or up, by one random offset."""
    marks = jnp.floor(prng.rising_sums(expected) + prng.uniform(key)).astype(jnp.int32)
    return jnp.diff(marks, prepend=0)


def _places(chosen: Bool[Array, " k"], count: int, filler: Int[Array, ""]) -> Int[Array, " count"]:
    """The chosen indices in order, followed by the filler where there are fewer than `count`."""
    rank = jnp.cumsum(chosen) - 1
    slots = jnp.where(chosen, rank, count)
    return jnp.full(count, filler, jnp.int32).at[slots].set(jnp.arange(chosen.shape[0], dtype=jnp.int32), mode="drop")
