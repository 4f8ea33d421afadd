"""Running compiled functions over many episodes in batches, means with standard errors, and timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree


def in_batches(
    function: Callable[..., PyTree],
    arguments: tuple[PyTree, ...],
    *,
    batch: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Any:
    """Apply a function over the leading axis of its arguments, a batch at a time.

    The last batch is padded, so that one compilation serves all of them.

    Args:
        function: Function of whole batches.
        arguments: Its arguments, whose leaves share a leading axis.
        batch: Entries per call.
        advance: Called with the number of entries finished since the last call.

    Returns:
        The results of all entries, as NumPy arrays.
    """
    count = jax.tree.leaves(arguments)[0].shape[0]
    results = []
    for start in range(0, count, batch):
        chosen = np.minimum(np.arange(start, start + batch), count - 1)
        part = function(*(arguments if batch == count else _rows(arguments, chosen)))
        results.append(jax.tree.map(np.asarray, part))
        advance(min(batch, count - start))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


def _rows(arguments: tuple[PyTree, ...], chosen: Int[np.ndarray, " batch"]) -> tuple[PyTree, ...]:
    """Some entries of all arguments; those of NumPy stay there."""
    compiled, plain = eqx.partition(arguments, lambda leaf: isinstance(leaf, jax.Array))
    return eqx.combine(_compiled_rows(compiled, chosen), jax.tree.map(lambda leaf: leaf[chosen], plain))


@jax.jit  # one program for all leaves, instead of several for each shape
def _compiled_rows(arguments: PyTree, chosen: Int[Array, " batch"]) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[chosen], arguments)


def mean_and_error(values: Float[np.ndarray, " episodes *rest"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and its standard error.

    Args:
        values: One entry per episode.

    Returns:
        The mean and its standard error, NaN for a single episode.
    """
    count = values.shape[0]
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(values.shape[1:], np.nan)
    return np.asarray(values.mean(axis=0)), np.asarray(error)


def update_microseconds(step: Callable[..., tuple[Any, Any]], state: Any, inputs: Sequence[tuple[Any, ...]]) -> float:
    """Median wall time of a filter's step; the first call, which compiles, does not count.

    Args:
        step: A function `step(key, state, ...) -> (state, info)`.
        state: Initial state.
        inputs: Further arguments `(key, ...)` of each call, without the state.

    Returns:
        Microseconds per step.
    """
    times = []
    for key, *arguments in inputs:
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(step(key, state, *arguments))
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times[1:]))
