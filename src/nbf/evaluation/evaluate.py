"""Many episodes at once, in compiled batches, and their means with standard errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree


def episodes(
    one: Callable[[Key[Array, ""]], PyTree],
    key: Key[Array, ""],
    count: int,
    *,
    batch: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Any:
    """`one(key)` for `count` episodes, `batch` of them at a time, as NumPy arrays with a leading axis.

    Episode i gets the i-th key whatever the batch is. `advance` is told how many were finished.
    """
    keys = jax.random.split(key, count)
    padded = jnp.concatenate([keys, keys[: -count % batch]])
    function = jax.jit(jax.vmap(one))
    results = []
    for start in range(0, len(padded), batch):
        results.append(jax.tree.map(np.asarray, function(padded[start : start + batch])))
        advance(min(batch, count - start))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *results)


def mean_and_error(values: Float[np.ndarray, " episodes *rest"]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the first axis and its standard error."""
    count = values.shape[0]
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), error
