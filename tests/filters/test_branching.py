"""The branching filter: exact with calls enough, unbiased with few, and on days when nothing fits."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import all_walks, small_grid
from tolerances import FLOAT, monte_carlo
from worlds import hidden_markov, posterior, three_rooms, trap_door

from nbf.environments.gridworld import GoalPolicy
from nbf.environments.linear_gaussian import LinearGaussian
from nbf.errors import InputError
from nbf.filters.branching import BranchingFilter
from nbf.filters.run import run

OBSERVATIONS, POLICIES = [0, 2, 2, 1, 0], [0.0, 0.3, 0.1, 0.5, 0.2]
ROOMS = BRANCHES = 3
both_ways = pytest.mark.parametrize("choose", [True, False], ids=["branches chosen", "all branches"])
CALLS = 11
NEVER, ALWAYS_NAN, ALWAYS_INFINITE = 2, 3, 4
"""Symbols of `trap_door` that no trajectory explains."""


@eqx.filter_jit
def track(filter, keys, world, observations, policies):
    """Filter a sequence once per key: the states and infos of all steps, [key, step, ...]."""

    def one(key):
        def step(state, inputs):
            key, observation, policy = inputs
            state, info = filter.update(key, state, observation, world, policy)
            return state, (state, info)

        start, *rest = jax.random.split(key, len(observations) + 1)
        return jax.lax.scan(step, filter.init(start, world), (jnp.stack(rest), observations, policies))[1]

    return jax.vmap(one)(keys)


def filtered(filter, key, world, observations, policies, *, repeats):
    observations, policies = jnp.asarray(observations, jnp.int32), jnp.asarray(policies, jnp.float32)
    return track(filter, jax.random.split(key, repeats), world, observations, policies)


def masses(states):
    """The weight on each room, and that no state of weight is there twice."""
    weights = np.exp(np.asarray(states.log_weights, np.float64))[..., None]
    there = (np.asarray(states.states)[..., 0][..., None] == np.arange(ROOMS)) & (weights > 0)
    assert np.all(there.sum(axis=-2) <= 1)
    return np.sum(weights * there, axis=-2)


@pytest.mark.sampled
@both_ways
def test_with_calls_for_all_branches_it_is_exact_on_a_grid(choose, key):
    """Against every walk there is; 36 calls are the 4 branches of each of 9 cells, of which those into a wall stay."""
    (environment, policy), observations, filter = small_grid(), [1, 1, 2, 4], BranchingFilter(36, choose)
    states, info = eqx.filter_jit(functools.partial(run, filter))(key, jnp.asarray(observations), environment, policy)
    cells = jnp.asarray(environment.space.points())
    for steps in range(1, len(observations) + 1):
        truth, evidence = all_walks(environment, policy, observations[:steps])
        belief = filter.belief(jax.tree.map(lambda leaf, step=steps - 1: leaf[step], states), environment)
        np.testing.assert_allclose(np.exp(belief.log_probs(cells)), truth, **FLOAT)
        np.testing.assert_allclose(np.sum(info.log_evidence[:steps]), np.log(evidence), **FLOAT)


@pytest.mark.slow
@both_ways
def test_with_calls_for_all_branches_it_is_exact_in_rooms(choose, key):
    """Where the policy changes, and calls are left over."""
    world = three_rooms()
    states, info = filtered(BranchingFilter(CALLS, choose), key, world, OBSERVATIONS, POLICIES, repeats=2)
    assert states.log_weights.shape[-1] == CALLS
    for steps in range(1, len(OBSERVATIONS) + 1):
        truth, evidence = posterior(world, OBSERVATIONS[:steps], POLICIES[:steps])
        np.testing.assert_allclose(masses(states)[:, steps - 1], np.tile(truth, (2, 1)), **FLOAT)
        found = np.sum(info.log_evidence[:, :steps], axis=1)
        np.testing.assert_allclose(found, np.full(2, np.log(evidence)), **FLOAT)
    np.testing.assert_allclose(info.ess, 1.0 / np.sum(masses(states) ** 2, axis=-1), **FLOAT)


@pytest.mark.sampled
@both_ways
def test_evidence_is_unbiased(choose, key):
    """E[product of the steps' evidence] = p(y_1:T), and of it times the weights, their mean."""
    world, repeats = three_rooms(), 4000
    truth, evidence = posterior(world, OBSERVATIONS, POLICIES)
    states, info = filtered(BranchingFilter(2 * BRANCHES, choose), key, world, OBSERVATIONS, POLICIES, repeats=repeats)
    estimates = np.exp(np.sum(np.asarray(info.log_evidence, np.float64), axis=1)) / evidence
    assert estimates.std() > 0.01
    np.testing.assert_allclose(estimates.mean(), 1.0, rtol=0, atol=monte_carlo(estimates.std(), repeats))
    joint = estimates[:, None] * masses(states)[:, -1]
    np.testing.assert_array_less(np.abs(joint.mean(axis=0) - truth), monte_carlo(joint.std(axis=0), repeats))


@pytest.mark.sampled
@both_ways
def test_evidence_is_unbiased_through_zeros(choose, key):
    """A set that explains nothing counts as an estimate of zero, as it should: a symbol tells the room that was left,
    and a single point, or a single branch, is of one of two."""
    world = hidden_markov([0.6, 0.4], [[0.9, 0.1], [0.2, 0.8]], np.repeat(np.eye(2)[:, None], 2, axis=1))
    observations, policies, repeats = [0, 0, 0], [0.0, 0.1, 0.2], 4000
    _, evidence = posterior(world, observations, policies)
    _, info = filtered(BranchingFilter(1 if choose else 2, choose), key, world, observations, policies, repeats=repeats)
    assert 0.1 < np.mean(np.any(info.recovered, axis=1)) < 0.9
    estimates = np.exp(np.sum(np.asarray(info.log_evidence, np.float64), axis=1)) / evidence
    np.testing.assert_allclose(estimates.mean(), 1.0, rtol=0, atol=monte_carlo(estimates.std(), repeats))


def test_a_branch_that_cannot_be_is_not_followed(key):
    """So as many calls as there are possible moves make it exact, fewer than all branches of all cells."""
    (environment, _), observations = small_grid(), [1, 1, 2, 4]
    policy = GoalPolicy(jnp.asarray([2, 2]), jnp.asarray(0.008))
    cells = jnp.asarray(environment.space.points())
    moves = jax.jit(jax.vmap(environment.transition_log_probs, (0, None)))(cells, policy)
    moves = np.asarray(moves)[np.asarray(environment.free)]
    filter = BranchingFilter(int(np.sum(np.exp(moves) > 0.0)))
    assert filter.num_calls < 4 * np.sum(environment.free) / 2
    states, _ = eqx.filter_jit(functools.partial(run, filter))(key, jnp.asarray(observations), environment, policy)
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    truth, _ = all_walks(environment, policy, observations)
    np.testing.assert_allclose(np.exp(filter.belief(last, environment).log_probs(cells)), truth, **FLOAT)


@pytest.mark.parametrize("impossible", [NEVER, ALWAYS_NAN, ALWAYS_INFINITE])
def test_an_impossible_observation_leaves_the_prediction(impossible, key):
    world = trap_door(0.2)
    states, info = filtered(BranchingFilter(CALLS), key, world, [impossible, 0], [0.1, 0.1], repeats=1)
    truth = 0.1 * np.asarray(world.start) + 0.9 * np.asarray(world.start) @ np.asarray(world.moves)
    np.testing.assert_allclose(masses(states)[0, 0], truth, **FLOAT)
    np.testing.assert_array_equal(info.recovered, [[True, False]])
    np.testing.assert_array_equal(np.asarray(info.ess) == 0, [[True, False]])
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, [[True, False]])
    np.testing.assert_allclose(masses(states).sum(axis=-1), np.ones((1, 2)), **FLOAT)


def test_a_missing_observation_is_a_prediction(key):
    world, filter = three_rooms(), BranchingFilter(CALLS)
    predict = eqx.filter_jit(lambda key: filter.update(key, filter.init(key, world), None, world, jnp.asarray(0.3)))
    state, info = predict(key)
    truth = 0.3 * np.asarray(world.start) + 0.7 * np.asarray(world.start) @ np.asarray(world.moves)
    np.testing.assert_allclose(masses(state), truth, **FLOAT)
    assert float(info.log_evidence) == 0.0
    assert not bool(info.recovered)


def test_a_start_of_more_states_than_calls_is_thinned_without_bias(key):
    """5 of 8 free cells, whose weights stand for all of them."""
    (environment, _), repeats = small_grid(), 2000
    starts = jax.jit(jax.vmap(BranchingFilter(5).init, (0, None)))(jax.random.split(key, repeats), environment)
    weights = np.exp(np.asarray(starts.log_weights, np.float64))
    places = np.asarray(jax.vmap(jax.vmap(environment.index))(starts.states))
    found = np.stack([np.bincount(at, share, 9) for at, share in zip(places, weights, strict=True)])
    assert np.all(np.sum(found > 0, axis=1) == 5)
    truth = np.exp(np.asarray(environment.initial_log_probs(), np.float64))
    np.testing.assert_allclose(found.mean(axis=0), truth, rtol=0, atol=monte_carlo(found.std(axis=0).max(), repeats))


def test_bad_arguments_are_refused(key):
    with pytest.raises(InputError, match="num_calls of at least 1; got 0"):
        BranchingFilter(0)
    environment, policy = small_grid()
    few = BranchingFilter(3, choose=False)
    with pytest.raises(InputError, match=r"Gridworld has 4 branches.*num_calls of at least 4; got 3"):
        eqx.filter_eval_shape(lambda: few.update(key, few.init(key, environment), None, environment, policy))
    with pytest.raises(InputError, match=r"capability Enumerable.*LinearGaussian"):
        few.init(key, LinearGaussian(np.eye(1), np.eye(1), np.eye(1), np.eye(1), [0.0], np.eye(1)))
