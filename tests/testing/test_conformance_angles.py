"""Angles: right likelihoods of them pass wherever they wrap, and wrong ones do not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import nbf
from nbf.spaces import Box
from nbf.testing import check_environment
from nbf.testing.periods import find_periods
from nbf.testing.statistics import Reference

EMISSION = "observe agrees with log_likelihood"


class Compass(nbf.Environment):
    """A heading near the seam turns a little; a compass reads it, and a wheel says how fast. What the likelihood
    takes for the compass's noise, and how it subtracts, may be wrong."""

    space: Box
    turn: Float[Array, ""]
    """One turn, in the units of the heading."""
    told_noise: Float[Array, ""]
    told_turn: Float[Array, ""]
    """The period by which the likelihood wraps differences."""

    def init(self, key):
        return self.turn * (0.49 + 0.01 * jax.random.normal(key, (1,)))

    def transition(self, key, state, policy):
        return self.space.nearest(state + self.turn * 0.01 * jax.random.normal(key, (1,)))

    def observe(self, key, state, next_state):
        noises = 0.03 * jax.random.normal(key, (2,))
        seen = next_state[0] / self.turn + noises[0]
        return {"compass": self.turn * (seen - jnp.round(seen)), "speed": 1.0 + noises[1]}

    def log_likelihood(self, observation, state, next_state):
        apart = observation["compass"] - next_state[0]
        apart = apart - self.told_turn * jnp.round(apart / self.told_turn)
        norm = jax.scipy.stats.norm.logpdf
        return norm(apart, 0.0, self.told_noise * self.turn) + norm(observation["speed"], 1.0, 0.03)

    def check_observation(self, observation):
        if not all(np.isfinite(leaf) for leaf in jax.tree.leaves(observation)):
            raise nbf.InputError("not finite")


def compass(turn=2 * np.pi, noise=0.03, told_turn=None, circular=(0,)):
    space = Box((-turn / 2,), (turn / 2,), bounded=False, circular=circular)
    return Compass(space, *map(jnp.asarray, (turn, noise, turn if told_turn is None else told_turn)))


@pytest.mark.parametrize(
    ("turn", "circular"),
    [
        pytest.param(24.0, (0,), id="hours, of which the space tells"),
        pytest.param(2 * np.pi, (), id="radians, of which nothing tells"),
        pytest.param(360.0, (0,), id="degrees", marks=pytest.mark.slow),
    ],
)
def test_a_right_likelihood_of_angles_passes(turn, circular):
    """Its round trips are judged on the circle."""
    check_environment(compass(turn, circular=circular), None).raise_if_failed()


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"noise": 0.06}, "does not have the density"), ({"told_turn": 1e6}, "looks like an angle")],
)
def test_a_wrong_likelihood_of_angles_fails(settings, said):
    """Another noise; a difference that is not wrapped, which is said."""
    report = check_environment(compass(circular=(), **settings), None)
    assert [check.name for check in report.failures if check.name == EMISSION] == [EMISSION]
    assert said in next(check.detail for check in report.failures if check.name == EMISSION)


def test_periods_are_found_where_they_are_and_nowhere_else():
    rows = np.random.default_rng(0).normal(size=(2, 500, 4)) * [0.3, 30.0, 100.0, 0.3]

    def log_likelihood(rows):
        radians, degrees, wide, narrow = np.moveaxis(rows, -1, 0)
        return np.cos(radians) + 3 * np.cos(np.radians(degrees)) - (wide / 100.0) ** 2 / 2 - (narrow / 0.3) ** 2 / 2

    found = find_periods(log_likelihood, rows, np.ones(4, bool), ())
    np.testing.assert_array_equal(found, [2 * np.pi, 360.0, np.inf, np.inf])
    np.testing.assert_array_equal(find_periods(log_likelihood, rows, np.zeros(4, bool), ()), np.full(4, np.inf))


def test_a_reference_on_a_circle_is_a_density_there():
    """It integrates to one over a period and is the same a period further; its draws lie in it."""
    rng = np.random.default_rng(1)
    rows = ((rng.normal(size=(200, 1)) + np.pi) % (2 * np.pi)) - np.pi
    reference = Reference(rows, np.ones(1, bool), np.array([2 * np.pi]))
    grid = np.linspace(-np.pi, np.pi, 2001)[:-1, None]
    density = np.exp(reference.log_density(grid))
    np.testing.assert_allclose(density.mean() * 2 * np.pi, 1.0, rtol=0, atol=1e-3)
    np.testing.assert_allclose(np.exp(reference.log_density(grid + 2 * np.pi)), density, rtol=1e-3)
    assert density.max() > 2 * density.min()
    drawn = reference.sample(rng, 1000)
    assert -np.pi <= drawn.min() < -2.5
    assert 2.5 < drawn.max() <= np.pi + 1e-6
