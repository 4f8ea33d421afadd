"""A family's schedule is checked with it: what is wrong at a later step alone is found."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import nbf
from nbf.capabilities import Scheduled
from nbf.spaces import Box
from nbf.testing import check


class Walk(nbf.Environment):
    """A walk between walls that is seen with noise; some of it may be wrong."""

    space: Box
    told_noise: Float[Array, ""]
    reach: Float[Array, ""]
    """Where it is stopped."""

    def init(self, key):
        return jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)

    def transition(self, key, state, policy):
        return jnp.clip(state + policy + 0.1 * jax.random.normal(key, (1,)), -self.reach, self.reach)

    def observe(self, key, state, next_state):
        return next_state[0] + 0.1 * jax.random.normal(key)

    def log_likelihood(self, observation, state, next_state):
        return jax.scipy.stats.norm.logpdf(observation, next_state[0], self.told_noise)

    def check_observation(self, observation):
        if not np.isfinite(observation):
            raise nbf.InputError("not finite")


class Changing(Scheduled):
    """The noise that the likelihood tells, the reach and the drift of the last step differ from those before."""

    noise: Float[Array, ""]
    reach: Float[Array, ""]
    drift: Float[Array, ""]
    missing: int = eqx.field(static=True)
    """How many steps too few the policy has."""
    space: Box = Box((-1.5,), (1.5,))

    def sample(self, key):
        return Walk(Box((-1.5,), (1.5,)), jnp.asarray(0.1), jnp.asarray(1.5)), jnp.asarray(0.05)

    def schedule(self, key, steps):
        last = jnp.arange(steps) == steps - 1
        environment = Walk(self.space, jnp.where(last, self.noise, 0.1), jnp.where(last, self.reach, 1.5))
        return environment, jnp.where(last, self.drift, 0.05)[: steps - self.missing]


def family(noise=0.1, reach=1.5, drift=0.05, missing=0, **more):
    return Changing(jnp.asarray(noise), jnp.asarray(reach), jnp.asarray(drift), missing, **more)


def test_a_sound_schedule_passes():
    report = check(family())
    report.raise_if_failed()
    assert sum(check.name.startswith("schedule: ") for check in report.checks) == 9


WRONG = {
    "a likelihood of the last step": ({"noise": 0.3}, "schedule: environment and policy of step 19"),
    "a wall of the last step": ({"reach": 9.0, "drift": 5.0}, "schedule: states are legal and finite"),
    "a policy of the last step": ({"drift": np.nan}, "schedule: states are legal and finite"),
    "too few policies": ({"missing": 1}, "schedule: one entry for each step"),
    "another space": ({"space": Box((-2.0,), (2.0,))}, "schedule: the same space"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "another space")) for name in WRONG]
)
def test_what_is_wrong_in_a_schedule_alone_is_found(name):
    settings, expected = WRONG[name]
    failed = [check.name for check in check(family(**settings)).failures]
    assert expected in failed
    assert all(name.startswith("schedule: ") for name in failed)
