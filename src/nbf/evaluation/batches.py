"""Many episodes at once, in compiled batches, and their means with standard errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree


def in_batches(
    function: Callable[..., PyTree],
    arguments: tuple[PyTree, ...],
    *,
    batch: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Any:
    """`function(*arguments)` over the leading axis of the arguments, `batch` entries at a time.

    Gives NumPy arrays. The last batch is filled up, so that one compilation serves all of them.
    `advance` is told how many entries were finished.
    """
    count = jax.tree.leaves(arguments)[0].shape[0]
    results = []
    for start in range(0, count, batch):
        chosen = jnp.minimum(jnp.arange(start, start + batch), count - 1)
        part = function(*jax.tree.map(lambda leaf: leaf[chosen], arguments))  # noqa: B023
        results.append(jax.tree.map(np.asarray, part))
        advance(min(batch, count - start))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


def mean_and_error(values: Float[np.ndarray, " episodes *rest"]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the first axis and its standard error."""
    count = values.shape[0]
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(values.shape[1:], np.nan)
    return np.asarray(values.mean(axis=0)), np.asarray(error)


def update_microseconds(step: Callable[..., tuple[Any, Any]], state: Any, inputs: Sequence[tuple[Any, ...]]) -> float:
    """The median time of `step(key, state, ...)` along some inputs `(key, ...)`, by the clock on the wall.

    The first call, which compiles, does not count.
    """
    times = []
    for key, *told in inputs:
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(step(key, state, *told))
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times[1:]))
