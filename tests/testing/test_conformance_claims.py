"""What an environment claims is checked, and a report lists what it, its space and its family claim."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import nbf
from nbf.capabilities import Episodic, Scheduled
from nbf.spaces import Box
from nbf.testing import check_environment, check_family


class Echo(nbf.StateEmission):
    """A number that stays, read with noise that may depend on the state before, which it says that it does not."""

    space: Box
    leak: Float[Array, ""]
    told: Float[Array, ""]
    """What `state_log_likelihood` adds."""

    def init(self, key):
        return jax.random.normal(key, (1,))

    def transition(self, key, state, policy):
        return 0.5 * state + jax.random.normal(key, (1,))

    def observe(self, key, state, next_state):
        return next_state[0] + self.leak * state[0] + jax.random.normal(key)

    def log_likelihood(self, observation, state, next_state):
        return jax.scipy.stats.norm.logpdf(observation, next_state[0] + self.leak * state[0])

    def state_log_likelihood(self, observation, next_state):
        return jax.scipy.stats.norm.logpdf(observation, next_state[0]) + self.told

    def check_observation(self, observation):
        if not np.isfinite(observation):
            raise nbf.InputError("not finite")


def echo(leak=0.0, told=0.0):
    return Echo(Box((-4.0,), (4.0,), bounded=False), jnp.float32(leak), jnp.float32(told))


def test_a_true_claim_of_a_state_emission_passes():
    report = check_environment(echo(), None)
    assert report.passed
    assert "state emission: likelihood" in [check.name for check in report.checks]


@pytest.mark.parametrize(("wrong", "said"), [({"leak": 0.5}, "changes with the state before"),
                                             ({"told": 1.0}, "is not log_likelihood")])  # fmt: skip
def test_a_false_claim_of_a_state_emission_is_found(wrong, said):
    report = check_environment(echo(**wrong), None)
    assert [check.name for check in report.failures] == ["state emission: likelihood"]
    assert said in report.failures[0].detail
    assert {"next_state", "observation", "expected", "found"} <= set(report.failures[0].case)


class Whole(Episodic, Scheduled):
    """Echoes, by whole episodes or by a schedule."""

    def sample(self, key):
        return echo(), None

    def schedule(self, key, steps):
        return jax.vmap(lambda _: echo())(jnp.arange(steps)), None

    def episode(self, key):
        raise NotImplementedError


def test_the_report_lists_what_space_and_family_can_do():
    assert {"StateEmission", "ContinuousSpace"} == set(check_environment(echo(), None).capabilities)
    found = check_family(Whole())
    assert {"StateEmission", "ContinuousSpace", "Scheduled", "Episodic"} == set(found.capabilities)
    assert "can do   Episodic: buys beliefs of such episodes" in str(found)
