"""Ours: `nbf.environment` and `nbf.ParticleFilter`; `step` from Python, and `update` compiled."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp

import nbf
from benchmarks.peers.speed.batches import batched
from benchmarks.peers.speed.plane import DECAY, OBSERVATIONS, Call, Loop, serve

PLANE = nbf.environment(
    init=lambda key: jax.random.normal(key, (2,)),
    transition=lambda key, state, policy: DECAY * state + jax.random.normal(key, (2,)),
    observe=lambda key, state, next_state: next_state + jax.random.normal(key, (2,)),
    log_likelihood=lambda observation, state, next_state: -0.5 * jnp.sum((observation - next_state) ** 2),
    space=nbf.Box((-10.0, -10.0), (10.0, 10.0), bounded=False),
)


KEYS = list(jax.random.split(jax.random.key(0), len(OBSERVATIONS)))


@functools.cache
def built(particles: int) -> nbf.ParticleFilter:
    """One for all: a filter is no state. It resamples at every step, as the others do."""
    return nbf.ParticleFilter(particles, threshold=1.0)


@functools.cache
def started(particles: int):
    """The start of all: to compile it for each of many filters would take minutes."""
    return jax.jit(built(particles).init)(jax.random.key(0), PLANE)


def stepped(particles: int) -> Call:
    """`step`, as a user calls it in a loop; an observation comes as an array of NumPy."""
    tracker = built(particles)
    turns = itertools.cycle(zip(KEYS, OBSERVATIONS, strict=True))
    state, step = started(particles), tracker.step

    def call() -> None:
        nonlocal state
        key, observation = next(turns)
        state, _ = step(key, state, observation, PLANE, None)
        jax.block_until_ready(state.log_weights)

    return call


def init(key, particles):
    return built(particles).init(key, PLANE)


def update(key, state, observation):
    return built(state.log_weights.shape[0]).update(key, state, observation, PLANE, None)[0]


if __name__ == "__main__":
    ways = {"`step`": Loop(stepped), "`update` in `jit`, `vmap`": batched(init, update)}
    serve("neural-bayesian-filtering", ways, ("jax",))
