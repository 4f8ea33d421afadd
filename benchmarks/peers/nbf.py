"""Ours: `nbf.environment` and `nbf.ParticleFilter`, stepped from Python."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

import nbf
from benchmarks.peers.scenario import OBSERVATIONS, PARTICLES, START, STEP, WIDTH, Step, distinct, report, weighted


def _init(key):
    return jnp.stack([START * jax.random.normal(key), 0.0])


def _transition(key, state, policy):
    return jnp.stack([state[0] + STEP * jax.random.normal(key), state[0]])


def _observe(key, state, next_state):
    return next_state[0] + jax.random.uniform(key, minval=-WIDTH, maxval=WIDTH)


def _log_likelihood(observation, state, next_state):
    return jnp.where(jnp.abs(observation - next_state[0]) <= WIDTH, -jnp.log(2 * WIDTH), -jnp.inf)


# The state keeps where it came from: a filter does not tell the ancestors of its particles.
WALK = nbf.environment(
    init=_init,
    transition=_transition,
    observe=_observe,
    log_likelihood=_log_likelihood,
    space=nbf.Box((-3.0, -3.0), (3.0, 3.0), bounded=False),
)
TRACKER = nbf.ParticleFilter(PARTICLES)


def run(seed: int) -> Iterator[Step]:
    key = jax.random.key(seed)
    state = TRACKER.init(key, WALK)
    for number, y in enumerate(OBSERVATIONS):
        state, info = TRACKER.step(jax.random.fold_in(key, number), state, y, WALK, None)
        belief = weighted(state.states[:, 0], jnp.exp(state.log_weights))
        flag = "recovered" if info.recovered else None
        yield Step(*belief, float(info.ess), float(info.log_evidence), distinct(state.states[:, 1]), flag)


WAYS = {"`ParticleFilter`, as it comes": run}

if __name__ == "__main__":
    report("neural-bayesian-filtering", WAYS, ("jax",))
