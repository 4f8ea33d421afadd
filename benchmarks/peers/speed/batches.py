"""Steps of JAX, one filter compiled or many at once; for every package that is written in it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.peers.speed.plane import OBSERVATIONS, Call, Way


def batched(init: Callable[..., Any], step: Callable[[Any, Any, Any], Any]) -> Way:
    """The way to step a filter that starts by `init(key, particles)` and goes on by `step(key, state, observation)`."""

    def way(particles: int, filters: int) -> Call:
        keys = jax.random.split(jax.random.key(0), (len(OBSERVATIONS), filters))
        start, go_on = functools.partial(init, particles=particles), step
        if filters > 1:
            start, go_on = jax.vmap(start), jax.vmap(go_on, in_axes=(0, 0, None))
        else:
            keys = keys[:, 0]
        state, compiled = jax.jit(start)(keys[0]), jax.jit(go_on)
        turns = itertools.cycle(zip(list(keys), list(jnp.asarray(OBSERVATIONS, jnp.float32)), strict=True))

        def call() -> None:
            nonlocal state
            key, observation = next(turns)
            state = jax.block_until_ready(compiled(key, state, observation))

        return call

    return way
