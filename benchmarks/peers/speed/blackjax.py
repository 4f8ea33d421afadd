"""blackjax: `smc.base.step`, its general step of a Feynman-Kac model, compiled."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from blackjax.smc import base, resampling

from benchmarks.peers.speed.batches import batched
from benchmarks.peers.speed.plane import DECAY, serve


def move(keys, particles, parameters):
    return jax.vmap(lambda key, x: DECAY * x + jax.random.normal(key, (2,)))(keys, particles), None


def init(key, particles):
    return base.init(jax.random.normal(key, (particles, 2)), {})


def step(key, state, y):
    def log_weights(particles):
        return -0.5 * jnp.sum((y - particles) ** 2, axis=1)

    return base.step(key, state, move, log_weights, resampling.systematic)[0]


if __name__ == "__main__":
    serve("blackjax", {"`smc.base.step` in `jit`, `vmap`": batched(init, step)}, ("jax",))
