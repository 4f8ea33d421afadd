"""cuthbert: `smc.particle_filter`, stepped online as in its example "Online Filtering and Prediction"."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
from cuthbert.smc import particle_filter
from cuthbertlib.resampling import Resampling, systematic
from cuthbertlib.resampling.adaptive import ess_decorator
from cuthbertlib.smc.ess import ess

from benchmarks.peers.scenario import OBSERVATIONS, PARTICLES, START, STEP, WIDTH, Step, distinct, report, weighted


def init_sample(key):
    return START * jax.random.normal(key, ())


def propagate_sample(key, state, y):
    return state + STEP * jax.random.normal(key, ())


def log_potential(state_prev, state, y):
    return jnp.where(jnp.abs(y - state) <= WIDTH, -jnp.log(2 * WIDTH), -jnp.inf)


def run(seed: int, *, resampling: Resampling) -> Iterator[Step]:
    filter = particle_filter.build_filter(init_sample, propagate_sample, log_potential, PARTICLES, resampling)
    key = jax.random.key(seed)
    state = filter.init_prepare(key=key)
    for number, y in enumerate(OBSERVATIONS):
        prepared = filter.filter_prepare(jnp.asarray(y), key=jax.random.fold_in(key, number))
        before, state = state, filter.filter_combine(state, prepared)
        belief = weighted(state.particles, jnp.exp(state.log_weights - jax.nn.logsumexp(state.log_weights)))
        evidence = float(state.log_normalizing_constant - before.log_normalizing_constant)
        yield Step(*belief, float(ess(state.log_weights)), evidence, distinct(state.ancestor_indices))


WAYS = {
    "systematic resampling at every step": systematic.resampling,
    "systematic resampling where ESS < n/2": ess_decorator(systematic.resampling, 0.5),
}

if __name__ == "__main__":
    report("cuthbert", {way: partial(run, resampling=resampling) for way, resampling in WAYS.items()}, ("jax",))
