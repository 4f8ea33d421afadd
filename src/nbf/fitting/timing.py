"""The time of an update of a filter: a compiled scan over a few episodes, one after the other, on one core."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from nbf.contracts import Filter, FilterState
from nbf.fitting.episodes import num_episodes
from nbf.fitting.filtering import Episodes, by_step, first_environment

TIMED_EPISODES, TIMED_SECONDS, LEAST_TIMES = 4, 0.5, 5
"""Episodes, one after the other, in each timed call; and for how long, and how often at least, it is called."""


@contextmanager
def one_core() -> Iterator[None]:
    """Keep all threads of this process on one core, where the system allows it.

    Yields:
        Nothing; what is timed goes inside the `with` block.
    """
    tasks = Path("/proc/self/task")
    before: dict[int, set[int]] = {}
    try:
        if tasks.is_dir() and hasattr(os, "sched_setaffinity"):
            core = {min(os.sched_getaffinity(0))}
            for thread in map(int, os.listdir(tasks)):
                try:
                    before[thread] = os.sched_getaffinity(thread)
                    os.sched_setaffinity(thread, core)
                except OSError:  # the thread has ended, or the system refuses
                    before.pop(thread, None)
        yield
    finally:
        for thread, cores in before.items():
            try:
                os.sched_setaffinity(thread, cores)
            except OSError:
                continue


def microseconds(filter: Filter, key: Key[Array, ""], episodes: Episodes) -> float:
    """Measure the time of one update: a compiled scan over a few episodes, one after the other, on one core.

    Args:
        filter: Any filter.
        key: Random key.
        episodes: Of which the first ones are filtered.

    Returns:
        Microseconds per update: the tenth percentile of many runs, so that other work on the machine hardly counts.
    """
    arrays, static = eqx.partition(episodes, eqx.is_array)
    count = min(TIMED_EPISODES, num_episodes(episodes))
    arrays = jax.tree.map(lambda leaf: leaf[:count], arrays)
    keys = jax.random.split(key, count)
    starts = _starts(filter, static, arrays, keys)
    steps = count * jax.tree.leaves(episodes.observations)[0].shape[1]
    times: list[float] = []
    with one_core():
        run = lambda: jax.block_until_ready(_timed(filter, static, arrays, keys, starts))  # noqa: E731
        run()
        end = time.perf_counter() + TIMED_SECONDS
        while len(times) < LEAST_TIMES or time.perf_counter() < end:
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
    return 1e6 * float(np.percentile(times, 10)) / steps


@eqx.filter_jit
def _starts(filter: Filter, static: Episodes, arrays: Episodes, keys: Any) -> Any:
    return jax.vmap(lambda arrays, key: filter.init(key, first_environment(eqx.combine(arrays, static))))(arrays, keys)


@eqx.filter_jit
def _timed(filter: Filter, static: Episodes, arrays: Episodes, keys: Any, starts: Any) -> Any:
    """The last state and the evidence of every step: one episode after the other, each from its own start."""

    def episode(_: None, inputs: tuple[Any, ...]) -> tuple[None, Any]:
        arrays, key, start = inputs
        one = eqx.combine(arrays, static)
        changing, at = by_step(one)
        steps = jax.tree.leaves(one.observations)[0].shape[0]

        def step(state: FilterState, inputs: tuple[Any, ...]) -> tuple[FilterState, Any]:
            key, observation, changed = inputs
            state, info = filter.update(key, state, observation, *at(changed))
            return state, info.log_evidence

        return None, jax.lax.scan(step, start, (jax.random.split(key, steps), one.observations, changing))

    return jax.lax.scan(episode, None, (arrays, keys, starts))[1]
