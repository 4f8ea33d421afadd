"""A simulator of NumPy functions: the same laws as one of JAX, and n states in one call."""

from __future__ import annotations

import dataclasses
import functools

import chores
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.environments.host_calls import generator
from nbf.errors import HostError, InputError, WorkerError
from nbf.executors import InProcess, Processes
from nbf.filters.run import run

CALLS: list[int] = []
SPACE = nbf.Box((-3.0,), (3.0,), bounded=False)


def init(rng, n, shift):
    return rng.normal(size=(n, 1))


def transition(rng, states, policy, shift):
    CALLS.append(len(states))
    return 0.9 * states + shift + rng.normal(scale=0.3, size=states.shape)


def observe(rng, states, next_states, shift):
    return next_states[:, 0] + rng.normal(scale=0.5, size=len(states))


def log_likelihood(observation, states, next_states, shift):
    return -0.5 * ((observation - next_states[:, 0]) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))


GIVEN = {"init": init, "transition": transition, "observe": observe, "log_likelihood": log_likelihood}


def walker(shift=0.1, **others):
    return nbf.host_environment(**{**GIVEN, "space": SPACE, "parameters": np.float32(shift), **others})


WALKER = walker(emission="state")


@pytest.mark.slow
def test_it_keeps_the_contract():
    report = nbf.testing.check_environment(WALKER, None)
    assert report.passed, str(report)


def test_n_states_are_one_call(key):
    filter = nbf.ParticleFilter(64, max_attempts=1)
    state = filter.init(key, WALKER)
    CALLS.clear()
    filter.step(key, state, np.float32(0.5), WALKER, None)
    assert CALLS == [64]


def test_states_that_share_parameters_are_one_call(key):
    """Three episodes with their own shift, four states each: three calls of four states."""
    shifts = jnp.asarray([0.0, 10.0, 20.0])
    keys = jax.random.split(key, (3, 4))
    states = jnp.arange(12.0).reshape(3, 4, 1)

    def moved(shift, keys, states):
        return jax.vmap(dataclasses.replace(WALKER, parameters=shift).transition, (0, 0, None))(keys, states, None)

    CALLS.clear()
    together = jax.jit(jax.vmap(moved))(shifts, keys, states)
    assert CALLS == [4, 4, 4]
    apart = jnp.stack([moved(*one) for one in zip(shifts, keys, states, strict=True)])
    np.testing.assert_allclose(together, apart, **FLOAT)
    np.testing.assert_allclose(together[2] - 0.9 * states[2], 20.0, atol=2.0)


def test_the_particle_filter_finds_the_kalman_evidence(key):
    """log p(y_1:T) of the same linear system."""
    readings, count = np.asarray([0.4, 0.9, 0.2, -0.3], np.float32), 4000
    mean, variance, truth = 0.0, 1.0, 0.0
    for reading in readings:
        mean, variance = 0.9 * mean + 0.1, 0.81 * variance + 0.09
        spread = variance + 0.25
        truth += -0.5 * ((reading - mean) ** 2 / spread + np.log(2 * np.pi * spread))
        mean, variance = mean + variance / spread * (reading - mean), variance * 0.25 / spread
    filtered = jax.jit(lambda key: run(nbf.ParticleFilter(count), key, readings, WALKER, None)[1].log_evidence)
    np.testing.assert_allclose(np.sum(filtered(key)), truth, rtol=0, atol=2.0 * monte_carlo(1.0, count))


def one_init(rng):
    return rng.normal(size=1)


def one_transition(rng, state, policy):
    return 0.9 * state + rng.normal(scale=0.3, size=1)


def one_observe(rng, state, next_state):
    return next_state[0] + rng.normal(scale=0.5)


def one_log_likelihood(observation, state, next_state):
    return -0.5 * ((observation - next_state[0]) / 0.5) ** 2


class Backwards(InProcess):
    """An executor that makes its calls in another order."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def map(self, function, calls, *, report=None):
        self.sizes.append(len(calls))
        return [function(*call) for call in reversed(calls)][::-1]


def test_functions_of_one_state_and_where_they_run(key):
    """Each state has its own generator, so neither the calls nor their order matter."""
    ones = {
        "init": one_init, "transition": one_transition, "observe": one_observe, "log_likelihood": one_log_likelihood,
    }  # fmt: skip
    elsewhere = Backwards()
    build = functools.partial(nbf.host_environment, **ones, space=SPACE, batched=False)
    made = [build(), build(chunk=3), build(chunk=2, executor=elsewhere)]
    keys, states = jax.random.split(key, 7), jnp.arange(7.0)[:, None]
    moved = [jax.vmap(one.transition, (0, 0, None))(keys, states, None) for one in made]
    np.testing.assert_array_equal(moved[0], moved[1])
    np.testing.assert_array_equal(moved[0], moved[2])
    assert elsewhere.sizes[-1] == 4
    assert len(np.unique(np.asarray(moved[0]) - 0.9 * np.asarray(states))) == 7


def test_a_generator_follows_from_its_keys():
    keys = np.arange(8, dtype=np.uint32).reshape(4, 2)
    assert generator(keys).random() == generator(keys.copy()).random() != generator(keys[::-1]).random()


def short(rng, states, policy, shift):
    return states[:-1]


def complexes(rng, states, policy, shift):
    return states.astype(complex)


def pairs(rng, states, policy, shift):
    return states, states


def stops(rng, states, policy, shift):
    raise RuntimeError("the engine stopped")


WRONG = {
    "a simulator that raises": (stops, "`transition` failed for 8 states: RuntimeError: the engine stopped"),
    "another count": (short, r"`transition` gave an array of shape \(7, 1\) for 8 states"),
    "another type": (complexes, "`transition` gave numbers of type complex128"),
    "another tree": (pairs, "`transition` gave"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_call_and_the_filter_goes_on(name, key):
    function, message = WRONG[name]
    filter, broken = nbf.ParticleFilter(8), walker(transition=function)
    state = filter.init(key, broken)
    with pytest.raises(HostError, match=message):
        filter.step(key, state, np.float32(0.5), broken, None)
    after, info = filter.step(key, state, np.float32(0.5), WALKER, None)
    assert np.isfinite(info.log_evidence)
    assert after.states.shape == (8, 1)


class Losing(InProcess):
    """An executor that has lost its workers, for a while."""

    lost = False

    def map(self, function, calls, *, report=None):
        if self.lost:
            raise WorkerError("calls[1] died (killed by signal 9). It was tried 2 times.", 1)
        return super().map(function, calls, report=report)


def test_a_lost_worker_is_an_error_that_names_the_call_and_the_filter_goes_on(key):
    workers, filter = Losing(), nbf.ParticleFilter(8)
    shared = walker(executor=workers, chunk=4)
    state = filter.init(key, shared)
    expected, _ = filter.step(key, state, np.float32(0.5), shared, None)
    workers.lost = True
    with pytest.raises(HostError, match=r"`transition` failed for 8 states: WorkerError: calls\[1\] died"):
        filter.step(key, state, np.float32(0.5), shared, None)
    workers.lost = False
    after, _ = filter.step(key, state, np.float32(0.5), shared, None)
    np.testing.assert_array_equal(after.states, expected.states)


@pytest.mark.slow
@pytest.mark.parametrize(("mood", "message"), [(1.0, r"calls\[0\] died"), (2.0, r"calls\[0\] did not finish within")])
def test_a_worker_process_that_dies_or_hangs(mood, message, key):
    filter = nbf.ParticleFilter(8)
    with Processes(2, timeout=20.0, retries=0) as workers:
        shared = walker(executor=workers, chunk=4, transition=chores.moody_transition)
        state = filter.init(key, shared)
        with pytest.raises(HostError, match=rf"(?s)`transition` failed for 8 states: WorkerError: .*{message}"):
            filter.step(key, state, np.float32(0.5), shared, np.float32(mood))
        _, info = filter.step(key, state, np.float32(0.5), shared, np.float32(0.0))
    assert np.isfinite(info.log_evidence)


def test_a_state_of_nan_has_no_weight(key):
    def sometimes(rng, states, policy, shift):
        return np.where(np.arange(len(states))[:, None] == 0, np.nan, states)

    filter = nbf.ParticleFilter(8)
    broken = walker(transition=sometimes)
    after, info = filter.step(key, filter.init(key, broken), np.float32(0.5), broken, None)
    assert not info.recovered
    assert after.log_weights[0] == -np.inf


def test_what_cannot_be_built():
    with pytest.raises(HostError, match=r"`init` failed at its first call, as init\(rng, n\)"):
        walker(init=lambda rng: rng.normal(size=1))
    with pytest.raises(HostError, match="leading axis of 1"):
        walker(init=lambda rng, n, shift: rng.normal(size=(n + 1, 1)))
    with pytest.raises(InputError, match="chunk=0"):
        walker(chunk=0)
    with pytest.raises(InputError, match="symbols=0"):
        walker(symbols=0)
    with pytest.raises(InputError, match="shape"):
        WALKER.check_observation(np.zeros(3, np.float32))
