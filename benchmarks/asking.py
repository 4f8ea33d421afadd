"""What ask and tell cost beyond a step: `python -m benchmarks.asking`. Run it on an idle machine.

The particle filter of 32, whose own mathematics is least. The simulator of `step` is one line of JAX, and that of ask
and tell costs nothing: its children are ready.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbf

PARTICLES, REPEATS = 32, 3000


def microseconds(call: Callable[[], Any]) -> float:
    """Median time of a call, until its result is there."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times[REPEATS // 10 :]))


def main() -> None:
    world = nbf.environment(
        init=lambda key: jax.random.normal(key, (2,)),
        transition=lambda key, state, policy: 0.9 * state,
        observe=lambda key, state, next_state: next_state[:1],
        log_likelihood=lambda observation, state, next_state: -jnp.sum((observation - next_state[:1]) ** 2),
        space=nbf.Box((-5.0, -5.0), (5.0, 5.0), bounded=False),
    )
    filter, key, seen = nbf.ParticleFilter(PARTICLES), jax.random.key(0), np.zeros(1, np.float32)
    state = filter.init(key, world)
    asked = filter.ask(key, state, world)
    children, log_likelihoods = 0.9 * asked.states, np.zeros(PARTICLES, np.float32)
    step = microseconds(lambda: filter.step(key, state, seen, world, None)[0])
    ask = microseconds(lambda: filter.ask(key, state, world).states)
    tell = microseconds(lambda: filter.tell(state, asked, children, log_likelihoods)[0])
    print(f"step {step:.0f} µs, ask {ask:.0f} µs, tell {tell:.0f} µs: {ask + tell - step:.0f} µs beyond a step")


if __name__ == "__main__":
    main()
