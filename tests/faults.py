"""Bad days, arranged: what the fault tests share, the quick ones and the slow ones."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from constructors import FILTERS, MODELS, small_grid
from tolerances import Tolerance

from nbf.environments.gridworld import Gridworld
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice

NEVER = 0
"""The symbol of `deaf_grid` that no move explains."""
BELIEF_SUM: Tolerance = {"rtol": 0, "atol": 1e-3}
"""How far a belief may be from summing to one: the flow's is a quadrature that is exact to three digits."""


@functools.cache
def filter_of(name):
    return FILTERS[name]()


class DeafGrid(Gridworld):
    """Counts how often it is traced, and gives one symbol no likelihood at all."""

    traces = [0]  # noqa: RUF012

    def log_likelihood(self, observation, state, next_state):
        self.traces[0] += 1
        return jnp.where(observation == NEVER, -jnp.inf, super().log_likelihood(observation, state, next_state))


def deaf_grid(error=0.3, legal=None):
    grid, policy = small_grid(error=error)
    space = grid.space if legal is None else Lattice((3, 3), jnp.asarray(legal))
    return DeafGrid(space, grid.error), policy


def assert_sound(state):
    for leaf in jax.tree.leaves(state):
        assert not np.any(np.isnan(np.asarray(leaf, np.float64)))


@eqx.filter_jit
def begin(filter, key, environment):
    """The state before any observation. Compiled at once: op by op, each is compiled by itself."""
    return filter.init(key, environment)


@eqx.filter_jit
def probabilities(filter, state, environment):
    """What a belief over a lattice gives to each of its cells."""
    return jnp.exp(filter.belief(state, environment).log_probs(jnp.asarray(environment.space.points())))


# Likelihood zero


@eqx.filter_jit
def bad_days(filter, key, environment, policy, observations):
    """The last states, whether all were free of NaN, and the infos: [day, step]."""

    def step(state, inputs):
        state, info = filter.update(*inputs[:1], state, *inputs[1:], environment, policy)
        sound = jnp.all(jnp.stack([~jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(state)]))
        return state, (sound, info)

    def day(observations):
        start, keys = filter.init(key, environment), jax.random.split(key, observations.shape[0])
        return jax.lax.scan(step, start, (keys, observations))

    return jax.vmap(day)(observations)


def check_bad_days(name, key, steps):
    """Recovered at exactly the impossible steps (the first, all, one in ten, none), and a belief to the end."""
    environment, policy = deaf_grid()
    step = np.arange(steps)
    bad = np.stack([step == 0, step >= 0, step % 10 == 5, step < 0])
    good = np.random.default_rng(0).integers(1, 5, bad.shape)
    observations = jnp.asarray(np.where(bad, NEVER, good), jnp.int32)
    last, (sound, info) = bad_days(filter_of(name), key, environment, policy, observations)
    assert np.all(sound)
    np.testing.assert_array_equal(info.recovered, bad)
    np.testing.assert_array_equal(np.asarray(info.ess) == 0, bad)
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, bad)
    assert not np.any(np.isnan(info.log_evidence))
    attempts = 5 if name.startswith(("particle", "neural")) else 1
    np.testing.assert_array_equal(np.asarray(info.attempts)[bad], np.full(bad.sum(), attempts))
    for day in range(len(bad)):
        probs = probabilities(filter_of(name), jax.tree.map(lambda leaf, day=day: leaf[day], last), environment)
        np.testing.assert_allclose(np.sum(probs), 1.0, **BELIEF_SUM)


# A million particles

MILLION = 1_000_000
MILLIONS = {
    "particle": lambda: ParticleFilter(MILLION),
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((3, 3))), MILLION),
    "neural, dequantized flow": lambda: NeuralBayesianFilter(
        MODELS["dequantized flow"](jax.random.key(1), (3, 3)), MILLION
    ),
    "approx": lambda: ApproxBeliefs(TabularModel(Lattice((3, 3))), MILLION),
}
BYTES_EACH = 1024
"""Memory of a step for each particle: a few dozen numbers and the hidden units of a network, but no n x n."""


def check_million(name, key):
    filter = MILLIONS[name]()
    grid, policy = deaf_grid()
    start = begin(filter, key, grid)
    update = jax.jit(lambda *inputs: filter.update(*inputs))
    compiled = update.lower(key, start, jnp.asarray(1), grid, policy).compile()
    taken = compiled.memory_analysis()
    assert taken is not None
    each = (taken.temp_size_in_bytes + taken.output_size_in_bytes) / MILLION
    print(f"{name}: {each:.0f} bytes for each of a million particles")
    assert each < BYTES_EACH
    state, info = compiled(key, start, jnp.asarray(1), grid, policy)
    assert_sound((state, info))
    assert not bool(info.recovered)
    truth, evidence = ExactFilter().step(key, begin(ExactFilter(), key, grid), jnp.asarray(1), grid, policy)
    if "flow" not in name:
        np.testing.assert_allclose(info.log_evidence, evidence.log_evidence, rtol=0, atol=0.01)
        if name != "particle":
            np.testing.assert_allclose(state.embedding, truth, rtol=0, atol=0.005)
