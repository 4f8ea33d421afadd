"""A pool of beliefs is the source it was made of, drawn once; encoders see only states of the box."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tolerances import EXACT, FLOAT, monte_carlo

from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.executors import Executor, InProcess, Processes
from nbf.executors.contract import Outcomes
from nbf.filters.particle import ParticleFilter
from nbf.models.belief_model import ModelConfig, space_config
from nbf.models.mixture import MixtureConfig
from nbf.sources.filtered import FilterPosteriors
from nbf.sources.pool import BeliefPool
from nbf.spaces import Box
from nbf.training.config import FitConfig
from nbf.training.fit import large_arrays, train, training_chunk

HORIZON, EPISODES, SAMPLES = 3, 300, 16
SOURCE = FilterPosteriors(ParticleFilter(32), TriangulationFamily(), HORIZON)


@functools.cache
def pooled() -> BeliefPool:
    return SOURCE.pool(jax.random.key(1), episodes=EPISODES, samples=SAMPLES, batch=EPISODES)


def small() -> BeliefPool:
    """Belief b holds the numbers 100 b, 100 b + 1, ..."""
    states = jnp.arange(3.0)[:, None, None] * 100.0 + jnp.arange(5.0)[None, :, None]
    spaces = jax.vmap(lambda context: Box((0.0,), (300.0,), context=context))(jnp.arange(3.0)[:, None])
    return BeliefPool(states, spaces)


def test_a_draw_is_a_stretch_of_one_belief_with_its_own_space(key):
    states, space = jax.jit(jax.vmap(lambda key: small().sample(key, 4)))(jax.random.split(key, 600))
    belief, place = np.divmod(np.asarray(states[..., 0]), 100)
    assert np.all(belief == belief[:, :1])
    assert isinstance(space, Box)
    assert space.context is not None
    np.testing.assert_array_equal(space.context[:, 0], belief[:, 0])
    np.testing.assert_array_equal(place, (place[:, :1] + np.arange(4)) % 5)
    for count, shares in ((3, belief[:, 0]), (5, place[:, 0])):
        found = np.bincount(shares.astype(int), minlength=count) / 600
        assert np.abs(found - 1 / count).max() < monte_carlo(np.sqrt(1 / count * (1 - 1 / count)), 600)


@pytest.mark.slow
def test_a_pool_has_every_depth_of_every_episode_and_the_law_of_its_source(key):
    pool = pooled()
    assert pool.states.shape == (EPISODES * (HORIZON + 1), SAMPLES, 2)
    assert pool.spaces == TriangulationFamily().space
    first = np.asarray(pool.states).reshape(EPISODES, HORIZON + 1, SAMPLES, 2)[:, 0]
    # Depth 0 is uniform in the square: E x = 0, E x² = 25 / 3. Samples of one belief are of 32 particles.
    assert np.abs(first[:, 0].mean(0)).max() < monte_carlo(5 / np.sqrt(3), EPISODES)
    direct, _ = jax.jit(jax.vmap(lambda key: SOURCE.sample(key, SAMPLES)))(jax.random.split(key, 600))

    def spread(states: np.ndarray) -> np.ndarray:  # of each belief
        return np.asarray(states).std(axis=1).sum(axis=-1)

    ours, theirs = spread(pool.states), spread(direct)
    error = np.sqrt(ours.var() / EPISODES + theirs.var() / 600)  # beliefs of one episode are not independent
    assert abs(ours.mean() - theirs.mean()) < monte_carlo(error, 1)


@pytest.mark.slow
def test_the_same_key_makes_the_same_pool_whatever_the_batch_and_progress_counts_episodes():
    done = []
    other = SOURCE.pool(jax.random.key(1), episodes=40, samples=SAMPLES, batch=17, advance=done.append)
    np.testing.assert_allclose(other.states, pooled().states[: 40 * (HORIZON + 1)], **FLOAT)
    assert done == [17, 17, 6]


class Reversed(Executor):
    """Does the last call first."""

    def outcomes(self, function: Callable[..., Any], calls: Sequence[tuple]) -> Outcomes:
        for number in reversed(range(len(calls))):
            yield number, function(*calls[number])

    def close(self) -> None: ...


def test_a_pool_does_not_depend_on_who_makes_it_in_which_order():
    first, *others = (
        SOURCE.pool(jax.random.key(1), episodes=40, samples=SAMPLES, batch=17, executor=executor)
        for executor in (None, InProcess(), Reversed())
    )
    for other in others:
        np.testing.assert_array_equal(other.states, first.states)


def test_out_of_time_a_pool_has_the_first_episodes_whole():
    whole = BeliefPool.of_episodes(SOURCE, jax.random.key(1), episodes=40, samples=SAMPLES, batch=17)
    options = {"episodes": 40, "samples": SAMPLES, "batch": 17, "seconds": 0.0}
    part = BeliefPool.of_episodes(SOURCE, jax.random.key(1), **options)
    np.testing.assert_array_equal(part.states, whole.states[: 17 * (HORIZON + 1)])
    late = BeliefPool.of_episodes(SOURCE, jax.random.key(1), **options, executor=Reversed())  # the first is the last
    np.testing.assert_array_equal(late.states, whole.states)


@pytest.mark.slow
def test_a_pool_of_worker_processes_is_that_of_this_process_bit_for_bit():
    here = SOURCE.pool(jax.random.key(1), episodes=40, samples=SAMPLES, batch=17)
    with Processes(2) as workers:
        there = SOURCE.pool(jax.random.key(1), episodes=40, samples=SAMPLES, batch=17, executor=workers)
    np.testing.assert_array_equal(there.states, here.states)
    assert there.spaces == here.spaces


@pytest.mark.parametrize("wrong", [{"episodes": 0}, {"samples": 0}, {"batch": 0}])
def test_an_empty_pool_is_refused(wrong):
    with pytest.raises(InputError, match="at least 1"):
        SOURCE.pool(jax.random.key(0), **{"episodes": 2, "samples": 2, "batch": 2, **wrong})


def test_more_samples_than_there_are_is_refused(key):
    with pytest.raises(InputError, match="5 samples of each belief; 6"):
        small().sample(key, 6)
    with pytest.raises(InputError, match="leading axes"):
        BeliefPool((jnp.zeros((3, 2)), jnp.zeros((2, 3))), Box((0.0,), (1.0,)))


def test_a_pool_is_an_argument_of_the_training_and_not_a_constant_of_it():
    pool = BeliefPool(jnp.zeros((1000, 200, 2)), TriangulationFamily().space)
    large, rest = large_arrays(pool)
    assert large.states is pool.states
    assert rest.states is None
    config = ModelConfig(space_config(pool.spaces), MixtureConfig(components=2, width=8, depth=1), embedding=4)
    shapes = eqx.filter_eval_shape(config.build, jax.random.key(0))
    parameters, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    chunk: Any = training_chunk(pool, static, FitConfig(steps=20, batch=2, samples=8, optimizer="adam"))
    state = jax.eval_shape(optax.adam(0.1).init, parameters)
    text = chunk.func.lower(
        parameters, state, jax.random.key(0), jnp.int32(0), jnp.int32(20), **chunk.keywords
    ).as_text()
    assert len(text) < 1_000_000  # the pool's 400 000 numbers would be 3 MB of text


def test_a_model_learns_from_a_pool():
    config = ModelConfig(space_config(pooled().spaces), MixtureConfig(components=2, width=8, depth=1), embedding=4)
    training = FitConfig(steps=400, batch=8, samples=16, optimizer="adam", learning_rate=1e-2)
    fitted = train(config.build(jax.random.key(0)), pooled(), training, key=jax.random.key(1), progress=False)
    assert fitted.losses[-5:].mean() < fitted.losses[0] - 0.1


def test_encoders_see_the_nearest_state_of_the_box(key):
    box = Box((-5.0, -5.0), (5.0, 5.0))
    model = ModelConfig(space_config(box), MixtureConfig(components=2, width=8, depth=1), embedding=4).build(key)
    beyond = jnp.asarray([[5.4, 1.0], [-5.2, -5.3]])
    inside = jnp.clip(beyond, -5.0, 5.0)
    even = jnp.zeros(2)
    np.testing.assert_allclose(model.embed(beyond, even), model.embed(inside, even), **EXACT)
