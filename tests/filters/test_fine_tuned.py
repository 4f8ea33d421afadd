"""Fine-tuning at test time: without steps it is the recurrent filter, with them it learns the world it is in."""

from __future__ import annotations

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import small_grid, with_random_parameters
from tolerances import FLOAT

from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.evaluation.divergence import jensen_shannon
from nbf.filters.exact import ExactFilter
from nbf.filters.fine_tuned import FineTunedFilter, simulated
from nbf.filters.recurrent import RecurrentFilter
from nbf.filters.run import run
from nbf.models.belief_model import LatticeConfig, ModelConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.recurrent import RecurrentConfig
from nbf.testing import check_filter

SMALL = ModelConfig(
    LatticeConfig((3, 3)), EnumeratedDecoderConfig(depth=0), RecurrentConfig(symbols=5, width=6, depth=1), embedding=6
)
ENVIRONMENT, POLICY = small_grid(error=0.05, temperature=0.3)
LONGEST = 6


@functools.cache
def model(config=SMALL):
    return with_random_parameters(config.build, jax.random.key(3))


@functools.cache
def tuned(steps=2):
    return FineTunedFilter(model(), steps, batch=8, longest=LONGEST)


@eqx.filter_jit
def divergences(filter, key, observations):
    """JS to the truth by step, and what the filter carried at the end."""
    look = lambda state: (jnp.exp(filter.belief(state, ENVIRONMENT).log_probs(ENVIRONMENT.states())), state)  # noqa: E731
    (found, states), info = run(filter, key, observations, ENVIRONMENT, POLICY, look=look)
    truth, _ = run(ExactFilter(), key, observations, ENVIRONMENT, POLICY)
    return jax.vmap(jensen_shannon)(truth, found), found, states, info


@functools.cache
def episode():
    return jax.jit(lambda key: rollout(key, ENVIRONMENT, POLICY, 8)[1])(jax.random.key(11))


@pytest.mark.slow
def test_without_gradient_steps_it_is_the_recurrent_filter_bit_for_bit(key):
    """Longer than the history that it keeps, and with a missing observation."""
    one, other = tuned(0), RecurrentFilter(model())
    state, plain = one.init(key, ENVIRONMENT), other.init(key, ENVIRONMENT)
    for observation in [*np.asarray(episode()).tolist()[:4], None, *np.asarray(episode()).tolist()[4:]]:
        state, info = one.step(key, state, observation, ENVIRONMENT, POLICY)
        plain, wanted = other.step(key, plain, observation, ENVIRONMENT, POLICY)
        assert eqx.tree_equal(state.remembered, plain)
        assert eqx.tree_equal(info, wanted)
    assert eqx.tree_equal(state.parameters, eqx.filter(model(), eqx.is_inexact_array))
    beliefs = one.belief(state, ENVIRONMENT), other.belief(plain, ENVIRONMENT)
    one_probs, other_probs = (belief.log_probs(ENVIRONMENT.states()) for belief in beliefs)
    np.testing.assert_array_equal(one_probs, other_probs)


@functools.cache
def followed():
    """An episode longer than the history that is kept."""
    return divergences(FineTunedFilter(model(), 100, batch=16, longest=LONGEST), jax.random.key(12), episode())


@pytest.mark.slow
def test_it_comes_near_the_truth_of_the_world_it_is_in_and_the_recurrent_filter_does_not(key):
    js, _, states, info = followed()
    blind, *_ = divergences(RecurrentFilter(model()), key, episode())
    assert np.mean(js[3:]) < np.mean(blind[3:]) / 2.0, (js, blind)
    assert not np.any(info.recovered)
    np.testing.assert_array_equal(states.length, np.arange(1, len(episode()) + 1))


@eqx.filter_jit
def losses(filter, key, parameters):
    """Of many fresh trajectories."""
    data_key, loss_key = jax.random.split(key)
    seen, length = jnp.ones(filter.longest, bool), jnp.int32(filter.longest)
    pairs = simulated(data_key, ENVIRONMENT, POLICY, filter.batch, filter.longest, length)
    return filter.loss(parameters, loss_key, *pairs, seen, length)


def test_it_learns_trajectories_that_it_has_not_seen(key):
    fresh, (*_, states, _) = FineTunedFilter(model(), 0, batch=512, longest=LONGEST), followed()
    before = losses(fresh, key, fresh.init(key, ENVIRONMENT).parameters)
    parameters = [jax.tree.map(lambda leaf, step=step: np.asarray(leaf)[step], states.parameters) for step in (0, -1)]
    after = [losses(fresh, key, each) for each in parameters]
    assert after[1] < after[0] < before


def test_what_is_simulated_is_the_world_up_to_now(key):
    """Starts as p0 has them, every move one that the world allows and sees so, and nothing after the last step."""
    n, length = 4000, 3
    states, observations = jax.jit(
        lambda key, length: simulated(key, ENVIRONMENT, POLICY, n, LONGEST, length)
    )(key, length)  # fmt: skip
    cells = np.asarray(states) @ [3, 1]
    assert_frequencies(np.bincount(cells[:, 0], minlength=9), np.exp(ENVIRONMENT.initial_log_probs()), detects=0.08)
    ends, log_probs = jax.jit(jax.vmap(ENVIRONMENT.successors, (0, None)))(ENVIRONMENT.states(), POLICY)
    kernel = np.zeros((9, 9))
    for cell in range(9):
        np.add.at(kernel[cell], np.asarray(ends[cell]) @ np.asarray([3, 1]), np.exp(log_probs[cell]))
    prior = np.exp(ENVIRONMENT.initial_log_probs()) @ np.linalg.matrix_power(kernel, length)
    assert_frequencies(np.bincount(cells[:, length], minlength=9), prior, detects=0.08)
    states, observations = np.asarray(states), np.asarray(observations)
    right = jax.jit(jax.vmap(jax.vmap(ENVIRONMENT.symbol)))(states[:, :length], states[:, 1 : length + 1])
    wrong = np.asarray(observations[:, :length] != right).ravel()
    error = float(ENVIRONMENT.error)
    assert_frequencies([wrong.sum(), (~wrong).sum()], [error, 1.0 - error], detects=0.04)
    np.testing.assert_array_equal(cells[:, length + 1 :], np.repeat(cells[:, :1], LONGEST - length, axis=1))
    np.testing.assert_array_equal(observations[:, length:], 0)


@pytest.mark.slow
def test_a_missing_observation_is_time_that_passed(key):
    state, _ = tuned().step(key, tuned().init(key, ENVIRONMENT), 2, ENVIRONMENT, POLICY)
    after, info = tuned().step(key, state, None, ENVIRONMENT, POLICY)
    assert (int(after.length), bool(info.recovered), float(info.log_evidence)) == (2, False, 0.0)
    np.testing.assert_array_equal(after.seen, np.arange(LONGEST) == 0)
    assert not eqx.tree_equal(after.parameters, state.parameters)


def test_after_the_longest_history_the_memory_is_carried_on():
    observations, (_, found, states, _) = episode(), followed()
    np.testing.assert_array_equal(states.observations[-1], observations[:LONGEST])
    assert np.all(np.isfinite(found))
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[-1], states.parameters)
    before, after = np.asarray(states.remembered.memory)[-2:]
    read = eqx.filter_jit(lambda parameters, *seen: eqx.combine(parameters, model()).encoder.read(*seen, model().space))
    np.testing.assert_allclose(after, read(last, before, np.asarray(observations)[-1]), **FLOAT)


@pytest.mark.slow
def test_the_contract_but_for_impossible_observations_which_it_cannot_notice():
    report = check_filter(tuned(), ENVIRONMENT, POLICY)
    assert [check.name for check in report.failures] == ["zero likelihood"], str(report)
    assert all(check.passed is not None for check in report.checks)


def test_calls_are_what_is_simulated():
    assert [FineTunedFilter(model(), 10, batch=32, longest=5).calls(time) for time in (1, 5, 9)] == [320, 1600, 1600]
    assert FineTunedFilter(model(), 0).calls(20) == 0


@pytest.mark.parametrize(
    "fields", [{"steps": -1}, {"batch": 0}, {"longest": 0}, {"learning_rate": 0.0}, {"learning_rate": np.nan}], ids=str
)
def test_filters_that_cannot_be_are_refused(fields):
    with pytest.raises(
        InputError, match=f"Fine-tuning needs .*{next(iter(fields))}.*got .*{next(iter(fields.values()))}"
    ):
        FineTunedFilter(model(), **{"steps": 1, **fields})


def test_models_that_cannot_be_tuned_are_refused():
    told = model(replace(SMALL, encoder=RecurrentConfig(context=2, width=6)))
    with pytest.raises(InputError, match=r"reads a context of 2 numbers"):
        FineTunedFilter(told, 1)
    other = model(ModelConfig(LatticeConfig((3, 3)), EnumeratedDecoderConfig(4, 0), embedding=2))
    with pytest.raises(InputError, match=r"needs the capability RecurrentModel"):
        FineTunedFilter(other, 1)
