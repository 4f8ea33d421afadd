"""Bad days, for every filter: nothing that happens to a filter makes it NaN, and the caller sees what happened.

`test_particle_filter` and `test_neural_filter` compare single filters with the truth on such days; here and in
`test_fault_worlds` are the laws that hold for all of them. The long ones are in `test_faults_slow`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import FILTERS, MODELS
from faults import (
    BELIEF_SUM,
    NEVER,
    DeafGrid,
    assert_sound,
    begin,
    check_bad_days,
    deaf_grid,
    filter_of,
    probabilities,
)
from tolerances import FLOAT

from nbf import dispatch
from nbf.environments.gridworld import GoalPolicy, RandomGridworlds
from nbf.errors import InputError
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.run import run
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice

LONG = "neural, dequantized flow"
"""The same filter with a model that takes long to compile."""
each_filter = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == LONG else name for name in FILTERS]
)


@pytest.mark.sampled
@each_filter
def test_an_impossible_observation_is_seen_and_survived(name, key):
    """At step 1, at every step, at one step in ten: recovered at exactly those, and a distribution at the end."""
    check_bad_days(name, key, 20)


# Observations that are none

WRONG = {
    "above": 5, "below": -1, "huge": 2**40, "NaN": np.nan, "infinite": np.inf, "a float": 1.0,
    "float array": jnp.asarray(1.0), "text": "1", "truth": True, "vector": [1], "matrix": np.zeros((1, 1), int),
    "empty": np.zeros(0, int), "object": object(), "complex": 1j, "two": (1, 2),
}  # fmt: skip


@each_filter
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_observation_is_refused_before_anything_is_compiled(name, wrong, key):
    compiled = len(dispatch._COMPILED)
    with pytest.raises(InputError, match=r"observation|Observation"):
        filter_of(name).step(key, None, wrong, *deaf_grid())
    assert len(dispatch._COMPILED) == compiled


# Missing observations, one particle, duplicates


@pytest.mark.slow
@each_filter
def test_a_missing_observation_is_one_that_tells_nothing(name, key):
    """With an error of 4 in 5 all five symbols are equally likely, whatever happened: same key, same belief."""
    grid, policy = deaf_grid(error=0.8)
    filter = filter_of(name)
    start = begin(filter, key, grid)
    predicted, info = filter.step(key, start, None, grid, policy)
    updated, other = filter.step(key, start, jnp.asarray(2), grid, policy)
    for one, two in zip(jax.tree.leaves(predicted), jax.tree.leaves(updated), strict=True):
        np.testing.assert_allclose(one, two, **FLOAT)
    np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)
    np.testing.assert_allclose(other.log_evidence, np.log(0.2), **FLOAT)


@pytest.mark.sampled
@each_filter
def test_particles_that_are_all_the_same_state(name, key):
    """A grid of one free cell: every particle is a duplicate of every other, and bumps for ever."""
    grid, policy = deaf_grid(legal=np.arange(9) == 4)
    filter = filter_of(name)
    state = begin(filter, key, grid)
    for _ in range(3):
        state, info = filter.step(key, state, jnp.asarray(4), grid, policy)
        assert_sound((state, info))
    probability = np.asarray(probabilities(filter, state, grid))[4]
    if "flow" in name:  # an untrained one puts mass on walls
        assert 0 < probability <= 1
    else:
        np.testing.assert_allclose(probability, 1.0, **FLOAT)


SINGLE = {
    "particle": lambda: ParticleFilter(1),
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((3, 3))), 1),
    "neural, enumerated": lambda: NeuralBayesianFilter(MODELS["enumerated"](jax.random.key(1), (3, 3)), 1),
    "approx": lambda: ApproxBeliefs(TabularModel(Lattice((3, 3))), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_a_single_particle_is_a_filter(name, key):
    grid, policy = deaf_grid()
    filter = SINGLE[name]()
    state = begin(filter, key, grid)
    for t, symbol in enumerate([1, NEVER, 4, 2]):
        state, info = filter.step(jax.random.fold_in(key, t), state, jnp.asarray(symbol), grid, policy)
        assert_sound((state, info))
        assert bool(info.recovered) == (symbol == NEVER)
        if name != "approx":
            np.testing.assert_allclose(info.ess, 0.0 if symbol == NEVER else 1.0, **FLOAT)
        np.testing.assert_allclose(np.sum(probabilities(filter, state, grid)), 1.0, **BELIEF_SUM)


# Environment and policy swapped at every step

COMPILATIONS: list[str] = []


def note(event: str, duration_secs: float, **_: object) -> None:
    if "compile" in event or "trace" in event:
        COMPILATIONS.append(event)


jax.monitoring.register_event_duration_secs_listener(note)


@functools.cache
def many_grids(count=100):
    """More than `dispatch` remembers."""
    family = RandomGridworlds(3, 2, 1, 1, temperature=0.5, error=0.2)
    batch, policies = jax.jit(jax.vmap(family.sample))(jax.random.split(jax.random.key(8), count))
    grids, policies = jax.device_get(((batch.space.legal, batch.error), policies))
    return [
        (
            DeafGrid(Lattice((3, 3), jnp.asarray(grids[0][i])), jnp.asarray(grids[1][i])),
            GoalPolicy(jnp.asarray(policies.goal[i]), jnp.asarray(policies.temperature[i])),
        )
        for i in range(count)
    ]


@pytest.mark.sampled
@each_filter
def test_swapping_environment_and_policy_at_every_step_compiles_nothing(name, key):
    """A hundred grids and goals, none twice: one compilation, one trace, and beliefs that tell them apart."""
    filter, worlds = filter_of(name), many_grids()
    assert len(worlds) > dispatch.CACHED_MODULES
    symbols = [jnp.asarray(symbol) for symbol in range(1, 5)]
    keys = list(jax.random.split(key, len(worlds)))
    state = begin(filter, key, worlds[0][0])
    state, _ = filter.step(keys[0], state, symbols[0], *worlds[0])
    traces, programs, events = DeafGrid.traces[0], len(dispatch._COMPILED), len(COMPILATIONS)
    assert traces > 0
    assert events > 0
    for t in range(1, len(worlds)):
        state, info = filter.step(keys[t], state, symbols[t % 4], *worlds[t])
        assert_sound(info)
    assert DeafGrid.traces[0] == traces
    assert len(dispatch._COMPILED) == programs
    assert COMPILATIONS[events:] == []
    assert_sound(state)
    print(f"{name}: {len(worlds) - 1} swaps, 0 compilations, 0 traces")


def test_a_swapped_environment_is_the_one_that_is_used(key):
    """The exact filter, step by step in other grids, against one scan over all of them."""
    worlds = many_grids()[:10]
    observations = jnp.asarray([1, 2, 3, 4, 1, 2, 3, 4, 1, 2])
    environments, policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)
    together, _ = jax.jit(lambda: run(ExactFilter(), key, observations, environments, policies, changing=True))()
    state = begin(ExactFilter(), key, worlds[0][0])
    for t, (environment, policy) in enumerate(worlds):
        state, _ = ExactFilter().step(key, state, observations[t], environment, policy)
        np.testing.assert_allclose(state, together[t], **FLOAT)
    assert np.abs(np.asarray(together[0]) - np.asarray(together[1])).max() > 0.01
