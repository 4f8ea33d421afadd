"""How many steps of training fit in a span of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from nbf.errors import InputError
from nbf.training import intervals
from nbf.training.config import FitConfig, last_step
from nbf.training.progress import Progress
from nbf.training.run import recorded_steps

TRIALS = 3
"""Chunks by which the pace is measured, after the one that compiles the program."""


def steps_within(
    seconds: float,
    path: Path | None,
    chunk: Callable,
    start: tuple[PyTree, PyTree],
    config: FitConfig,
    key: Key[Array, ""],
    *,
    progress: bool,
) -> int:
    """Choose the number of steps of a run that is to take so many seconds, compilation included.

    Args:
        seconds: From now on.
        path: File of the run; if it exists, the run keeps the number of steps that it was begun with.
        chunk: What trains `intervals.CHUNK` steps: see `training_chunk`.
        start: Initial parameters and optimizer state, which are not changed.
        config: Settings of the run; its steps are the most.
        key: Random key of the run.
        progress: Whether to show a progress bar.

    Returns:
        The number of steps; raises `InputError` if not one chunk fits.
    """
    if path is not None and path.exists():
        return recorded_steps(path)
    begin, last, paces = time.monotonic(), jnp.asarray(last_step(config)), []
    trial = list(jax.tree.map(jnp.copy, start))  # a chunk consumes what it is given
    with Progress("pace of training", 1 + TRIALS, 0, enabled=progress, unit="trial") as bar:
        for _ in range(1 + TRIALS):
            before = time.monotonic()
            *trial, loss = chunk(*trial, key, jnp.asarray(0), last)
            loss.block_until_ready()
            paces.append(time.monotonic() - before)
            bar.advance(1)
    spent, pace = time.monotonic() - begin, min(paces[1:])
    if seconds - spent < pace:
        raise InputError(
            f"No time is left for training: compiling it took {spent:.0f} s, where {max(seconds, 0.0):.0f} s were left "
            "for both. Allow more."
        )
    return min(config.steps, intervals.CHUNK * int((seconds - spent) / pace))
