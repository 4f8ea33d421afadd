"""blackjax: `smc.base.step`, its general step of a Feynman-Kac model, with the walk for its kernel."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from blackjax.smc import base, resampling
from blackjax.smc.ess import ess

from benchmarks.peers.scenario import OBSERVATIONS, PARTICLES, START, STEP, WIDTH, Step, distinct, report, weighted


def move(keys, particles, parameters):
    return jax.vmap(lambda key, x: x + STEP * jax.random.normal(key))(keys, particles), None


@jax.jit
def step(key, state, y):
    def log_weights(particles):
        return jnp.where(jnp.abs(y - particles) <= WIDTH, -jnp.log(2 * WIDTH), -jnp.inf)

    return base.step(key, state, move, log_weights, resampling.systematic)


def run(seed: int) -> Iterator[Step]:
    key = jax.random.key(seed)
    state = base.init(START * jax.random.normal(key, (PARTICLES,)), {})
    for number, y in enumerate(OBSERVATIONS):
        state, info = step(jax.random.fold_in(key, number), state, y)
        belief = weighted(state.particles, state.weights)
        size = float(ess(jnp.log(state.weights)))
        yield Step(*belief, size, float(info.log_likelihood_increment), distinct(info.ancestors))


if __name__ == "__main__":
    report("blackjax", {"`smc.base.step`, systematic": run}, ("jax",))
