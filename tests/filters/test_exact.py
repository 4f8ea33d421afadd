"""The exact filter against every trajectory there is, one by one, in float64."""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import all_walks, small_grid
from tolerances import FLOAT, monte_carlo
from worlds import hidden_markov, posterior, three_rooms, trap_door

from nbf.beliefs.categorical import BranchKernel, CategoricalBelief, StencilKernel, bayes, transition_kernel
from nbf.contracts import Environment
from nbf.environments.gridworld import Gridworld, RandomGridworlds
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.run import run
from nbf.spaces import Lattice

NEVER, ALWAYS_NAN, ALWAYS_INFINITE = 2, 3, 4
"""Symbols of `trap_door` that no trajectory explains."""
update = eqx.filter_jit(ExactFilter().update)
track = eqx.filter_jit(functools.partial(run, ExactFilter()))


@pytest.mark.parametrize("observations", [[1, 1, 2, 4], [0, 4, 3, 1]], ids=str)
def test_gridworld_against_all_walks(observations, key):
    environment, policy = small_grid()
    probs, info = track(key, jnp.asarray(observations), environment, policy)
    assert not np.any(info.recovered)
    for steps in range(1, len(observations) + 1):
        truth, evidence = all_walks(environment, policy, observations[:steps])
        np.testing.assert_allclose(probs[steps - 1], truth, **FLOAT)
        np.testing.assert_allclose(np.sum(info.log_evidence[:steps]), np.log(evidence), **FLOAT)


@pytest.mark.parametrize("observations", [[0], [2, 1], [0, 2, 2, 1, 0]], ids=str)
def test_hidden_markov_against_all_trajectories(observations, key):
    """The general kernel, the scatter over branches; the policy changes at every step."""
    world, policies = three_rooms(), [0.0, 0.3, 0.1, 0.5, 0.2][: len(observations)]
    truth, evidence = posterior(world, observations, policies)
    state, total = ExactFilter().init(key, world), 0.0
    for observation, policy in zip(observations, policies, strict=True):
        state, info = update(key, state, jnp.asarray(observation), world, jnp.asarray(policy))
        total += float(info.log_evidence)
    assert isinstance(transition_kernel(world, jnp.asarray(0.0)), BranchKernel)
    np.testing.assert_allclose(state, truth, **FLOAT)
    np.testing.assert_allclose(total, np.log(evidence), **FLOAT)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "family",
    [RandomGridworlds(5, 2, 1, 2, 0.7), RandomGridworlds(4, 3, 2, 2, 1.0)],
    ids=["2-D", "3-D"],
)
def test_shifts_and_scatters_are_the_same_kernel(family, key):
    """On random grids, for random beliefs and every symbol, and for a prediction."""

    @jax.jit
    def both(key):
        grid_key, belief_key = jax.random.split(key)
        environment, policy = family.sample(grid_key)
        probs = jnp.where(environment.free, jax.random.exponential(belief_key, environment.free.shape), 0.0)
        probs = probs / jnp.sum(probs)
        ends, log_probs = jax.vmap(environment.successors, (0, None))(environment.states(), policy)
        scatter = BranchKernel(jax.vmap(jax.vmap(environment.index))(ends), jnp.exp(log_probs))
        shifts = transition_kernel(environment, policy)
        assert isinstance(shifts, StencilKernel)
        symbols = jnp.arange(environment.num_symbols)

        def joints(kernel):
            scaled, log_scale = jax.vmap(lambda symbol: kernel.joint(probs, symbol, environment))(symbols)
            joint = scaled * jnp.exp(log_scale)[:, None]
            return joint, kernel.predict(probs)

        return joints(shifts), joints(scatter), environment.free

    (joint, predicted), (other_joint, other_predicted), free = jax.vmap(both)(jax.random.split(key, 50))
    np.testing.assert_allclose(joint, other_joint, **FLOAT)
    np.testing.assert_allclose(predicted, other_predicted, **FLOAT)
    # The joint over all symbols is the prediction, which is a distribution over free cells.
    np.testing.assert_allclose(np.sum(joint, axis=1), predicted, **FLOAT)
    np.testing.assert_allclose(np.sum(predicted, axis=1), np.ones(50), **FLOAT)
    assert not np.any(np.asarray(predicted)[~np.asarray(free)])


@pytest.mark.parametrize("impossible", [NEVER, ALWAYS_NAN, ALWAYS_INFINITE])
def test_an_impossible_observation_leaves_the_prediction(impossible, key):
    world, policy = trap_door(0.2), jnp.asarray(0.1)
    start = ExactFilter().init(key, world)
    state, info = update(key, start, jnp.asarray(impossible), world, policy)
    truth = 0.1 * np.asarray(world.start) + 0.9 * np.asarray(world.start) @ np.asarray(world.moves)
    np.testing.assert_allclose(state, truth, **FLOAT)
    assert bool(info.recovered)
    assert float(info.ess) == 0.0
    assert float(info.log_evidence) == -np.inf
    # And the next possible observation is filtered as ever.
    state, info = update(key, state, jnp.asarray(0), world, policy)
    assert not bool(info.recovered)
    assert np.all(np.isfinite(state))
    np.testing.assert_allclose(np.sum(state), 1.0, **FLOAT)


def test_infinite_likelihoods_of_every_state_leave_the_prediction(key):
    """Without a zero among the probabilities the joint is infinite, not NaN; the posterior must be neither."""
    world = hidden_markov([0.5, 0.5], [[0.5, 0.5], [0.4, 0.6]], np.full((2, 2, 1), np.inf))
    state, info = update(key, ExactFilter().init(key, world), jnp.asarray(0), world, jnp.asarray(0.0))
    np.testing.assert_allclose(state, [0.45, 0.55], **FLOAT)
    assert bool(info.recovered)


class Faint(Gridworld):
    """The same grid behind a sensor whose likelihoods are far below what float32 can hold."""

    def log_likelihood(self, observation, state, next_state):
        return super().log_likelihood(observation, state, next_state) - 300.0


def test_only_ratios_of_likelihoods_matter(key):
    """e^-300 of the likelihood gives the same posterior, and log-evidence less 300 a step."""
    environment, policy = small_grid()
    faint = Faint(environment.space, environment.error)
    observations = jnp.asarray([1, 1, 2, 4])
    probs, info = track(key, observations, environment, policy)
    other_probs, other_info = track(key, observations, faint, policy)
    assert not np.any(other_info.recovered)
    np.testing.assert_allclose(other_probs, probs, **FLOAT)
    np.testing.assert_allclose(other_info.log_evidence, info.log_evidence - 300.0, **FLOAT)


def test_a_missing_observation_is_a_prediction(key):
    environment, policy = small_grid()
    state, info = update(key, ExactFilter().init(key, environment), None, environment, policy)
    start = np.exp(np.asarray(environment.initial_log_probs(), np.float64))
    truth = np.zeros(9)
    for symbol in range(5):
        walk, evidence = all_walks(environment, policy, [symbol])
        truth += walk * evidence
    assert not np.allclose(start, truth, atol=0.01)
    np.testing.assert_allclose(state, truth, **FLOAT)
    assert float(info.log_evidence) == 0.0
    assert float(info.ess) == 9.0
    assert not bool(info.recovered)
    # For the general kernel as well.
    world = three_rooms()
    state, _ = update(key, ExactFilter().init(key, world), None, world, jnp.asarray(0.0))
    np.testing.assert_allclose(state, np.asarray(world.start) @ np.asarray(world.moves), **FLOAT)


@pytest.fixture(scope="module")
def episodes():
    """Posteriors at the end of 3000 random episodes, with the probability each gives to the true state."""
    family = RandomGridworlds(4, 2, 1, 2, temperature=0.5, error=0.2)

    @jax.jit
    def simulate(keys):
        def one(key):
            grid_key, walk_key = jax.random.split(key)
            environment, policy = family.sample(grid_key)
            states, observations = rollout(walk_key, environment, policy, 6)
            probs, info = run(ExactFilter(), walk_key, observations, environment, policy)
            return probs[-1], probs[-1][environment.index(states[-1])], info.recovered

        return jax.vmap(one)(keys)

    probs, true, recovered = simulate(jax.random.split(jax.random.key(5), 3000))
    assert not np.any(recovered)
    return np.asarray(probs, np.float64), np.asarray(true, np.float64)


def test_posteriors_are_calibrated(episodes):
    """The true state is as likely as the posterior says: E[log p(x)] = -E[H], E[p(x)] = E[Σ p²]."""
    probs, true = episodes
    assert np.all(true > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        negative_entropy = np.nansum(np.where(probs > 0, probs * np.log(probs), 0.0), axis=1)
    for gap in (np.log(true) - negative_entropy, true - np.sum(probs**2, axis=1)):
        assert gap.std() > 0.05
        np.testing.assert_allclose(gap.mean(), 0.0, rtol=0, atol=monte_carlo(gap.std(), len(gap)))


def test_states_called_likely_happen_as_often_as_claimed(episodes):
    """In bins of claimed probability, the share of true states is the mean claim."""
    probs, true = episodes
    chosen = probs.argmax(axis=1)
    hit = probs[np.arange(len(probs)), chosen] == true
    claim = probs.max(axis=1)
    edges = np.quantile(claim, [0.0, 0.25, 0.5, 0.75, 1.0])
    assert edges[-2] > edges[1] + 0.1
    for low, high in itertools.pairwise(edges):
        inside = (claim >= low) & (claim <= high)
        sigma = np.sqrt(np.mean(claim[inside] * (1 - claim[inside])))
        np.testing.assert_allclose(hit[inside].mean(), claim[inside].mean(), rtol=0,
                                   atol=monte_carlo(sigma, int(inside.sum())))  # fmt: skip


def test_a_categorical_belief_is_the_distribution_it_says(key):
    environment, _ = small_grid()
    probs = jnp.asarray([0.3, 0.0, 0.1, 0.05, 0.05, 0.2, 0.0, 0.25, 0.05])
    belief = ExactFilter().belief(probs, environment)
    assert isinstance(belief, CategoricalBelief)
    drawn = np.ravel_multi_index(tuple(np.asarray(belief.sample(key, 20_000)).T), (3, 3))
    assert_frequencies(np.bincount(drawn, minlength=9), probs, detects=0.03)
    np.testing.assert_allclose(np.exp(belief.log_probs(environment.states())), probs, **FLOAT)
    np.testing.assert_allclose(belief.log_prob(jnp.asarray([2, 1])), np.log(0.25), **FLOAT)
    assert float(belief.log_prob(jnp.asarray([0, 1]))) == -np.inf
    mean = belief.expectation(lambda state: {"place": state, "squares": jnp.sum(state**2)})
    points = np.array(list(np.ndindex(3, 3)))
    np.testing.assert_allclose(mean["place"], np.asarray(probs) @ points, **FLOAT)
    np.testing.assert_allclose(mean["squares"], np.asarray(probs) @ np.sum(points**2, axis=1), **FLOAT)


def test_bayes_is_the_product_of_prior_and_likelihood(key):
    """Nobody moves: the posterior is p·H, normalised."""
    world = three_rooms()
    step = jax.jit(lambda world, seen, stays: bayes(world.start, seen, world, transition_kernel(world, stays)))
    result, log_evidence = step(world, np.int32(1), np.float32(1.0))
    joint = np.asarray(world.start, np.float64) * np.asarray(world.symbols, np.float64)[range(3), range(3), 1]
    np.testing.assert_allclose(result, joint / joint.sum(), **FLOAT)
    np.testing.assert_allclose(log_evidence, np.log(joint.sum()), **FLOAT)


class Unlisted(Environment):
    """A world that cannot list its states."""

    space: Lattice = Lattice((3,))

    def init(self, key):
        return jnp.zeros(1, jnp.int32)

    def transition(self, key, state, policy):
        return state

    def observe(self, key, state, next_state):
        return jnp.asarray(0)

    def log_likelihood(self, observation, state, next_state):
        return jnp.zeros(())

    def check_observation(self, observation):
        return None


def test_an_environment_that_cannot_list_its_states_is_refused(key):
    for call in (
        lambda: ExactFilter().init(key, Unlisted()),
        lambda: ExactFilter().update(key, jnp.ones(3) / 3, jnp.asarray(0), Unlisted(), None),
        lambda: ExactFilter().belief(jnp.ones(3) / 3, Unlisted()),
    ):
        with pytest.raises(InputError, match=r"Enumerable.*Unlisted"):
            call()
