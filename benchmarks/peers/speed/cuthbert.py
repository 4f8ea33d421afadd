"""cuthbert: `smc.particle_filter`, stepped online as in its example "Online Filtering and Prediction", compiled."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from cuthbert.smc import particle_filter
from cuthbertlib.resampling import systematic

from benchmarks.peers.speed.batches import batched
from benchmarks.peers.speed.plane import DECAY, serve


def init_sample(key):
    return jax.random.normal(key, (2,))


def propagate_sample(key, state, y):
    return DECAY * state + jax.random.normal(key, (2,))


def log_potential(state_prev, state, y):
    return -0.5 * jnp.sum((y - state) ** 2)


def built(particles: int):
    return particle_filter.build_filter(init_sample, propagate_sample, log_potential, particles, systematic.resampling)


def init(key, particles):
    state = built(particles).init_prepare(key=key)
    return state._replace(model_inputs=jnp.zeros(2))  # the same structure before and after a step


def step(key, state, y):
    filter = built(state.log_weights.shape[0])
    return filter.filter_combine(state, filter.filter_prepare(y, key=key))


if __name__ == "__main__":
    serve("cuthbert", {"`filter_combine` in `jit`, `vmap`": batched(init, step)}, ("jax",))
