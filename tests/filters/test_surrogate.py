"""Points that follow simulated ones: against the simulator itself, Kalman's prediction, a larger particle filter."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.beliefs.particles import ParticleBelief
from nbf.environments.linear_gaussian import LinearGaussian
from nbf.errors import InputError
from nbf.filters.gaussian import KalmanFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.filters.run import run
from nbf.filters.surrogate import Surrogate
from nbf.spaces import Box, Lattice

MOTION, SPREAD, SEEN = np.array([[1.0, 0.5], [0.0, 0.9]]), np.diag([0.02, 0.1]), [[1.0, 0.0]]
WORLD = LinearGaussian(MOTION, SPREAD, SEEN, [[0.05]], [0.0, 0.0], np.eye(2))
POINTS, CALLS = 512, 64


def points(count: int = POINTS) -> ParticleBelief:
    rng = np.random.default_rng(7)
    states = rng.normal(size=(count, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    return ParticleBelief(jnp.asarray(states, jnp.float32), jnp.asarray(rng.normal(size=count), jnp.float32))


@eqx.filter_jit
def moved(surrogate, key, belief, world, calls):
    return surrogate(key, belief, world, None, calls)


def world_of(transition, space):
    return nbf.environment(
        init=lambda key: jnp.zeros(space.dimension), transition=transition,
        observe=lambda key, old, new: new, log_likelihood=lambda y, old, new: -jnp.sum((y - new) ** 2), space=space,
    )  # fmt: skip


def test_with_as_many_calls_as_points_it_is_the_simulator(key):
    belief = points(32)
    found = moved(Surrogate(), key, belief, WORLD, 32)
    keys = jax.random.split(key, 32)
    np.testing.assert_allclose(found, jax.vmap(WORLD.transition, (0, 0, None))(keys, belief.states, None), **FLOAT)


def test_the_prediction_has_kalmans_mean_and_covariance(key):
    """Over many draws of the noise: 64 calls say as much of the noise as 64 particles would, and all 512 points of the
    belief take part."""
    belief, repeats = points(), 200
    weights = np.exp(np.asarray(belief.log_weights, np.float64))
    weights /= weights.sum()
    states = np.asarray(belief.states, np.float64)
    mean, centred = weights @ states, states - weights @ states
    truth = MOTION @ mean, MOTION @ ((centred.T * weights) @ centred) @ MOTION.T + SPREAD
    many = jax.vmap(lambda key: moved(Surrogate(), key, belief, WORLD, CALLS))(jax.random.split(key, repeats))
    many = np.asarray(many, np.float64)
    means = np.einsum("k,rkd->rd", weights, many)
    deviations = np.sqrt(np.diag(truth[1]))
    # One prediction: its mean is off by the noise of 64 calls. The mean of all: no bias.
    assert np.all(np.abs(means - truth[0]) < monte_carlo(deviations, CALLS, k=5.0))
    assert np.all(np.abs(means.mean(axis=0) - truth[0]) < monte_carlo(means.std(axis=0), repeats))
    apart = many - means[:, None]
    covariances = np.einsum("k,rki,rkj->rij", weights, apart, apart)
    # Two numbers of the regression and the mean are fitted to the noise of 64 calls, so it looks smaller by 3 in 64.
    scale = np.outer(deviations, deviations)
    assert np.all(np.abs(covariances.mean(axis=0) - truth[1]) < 3.0 / CALLS * scale)
    assert np.all(np.abs(covariances - truth[1]) < monte_carlo(np.sqrt(2.0) * scale, CALLS, k=5.0))


def test_motion_without_noise_is_followed_better_the_more_is_simulated(key):
    """A turn by an angle that grows with the distance from the origin."""

    def turn(key, state, policy):
        angle = 0.3 + 0.05 * jnp.sum(state**2)
        return jnp.cos(angle) * state + jnp.sin(angle) * jnp.stack([-state[1], state[0]])

    world, belief = world_of(turn, Box((-4.0, -4.0), (4.0, 4.0), bounded=False)), points()
    truth = np.asarray(jax.vmap(turn, (None, 0, None))(key, belief.states, None))

    def error(calls):
        keys = jax.random.split(key, 20)
        many = jax.vmap(lambda key: moved(Surrogate(), key, belief, world, calls))(keys)
        apart = np.sum((np.asarray(many) - truth) ** 2, axis=2).mean(axis=0)
        return np.sqrt(np.average(apart, weights=np.exp(belief.log_weights)))

    errors = [error(calls) for calls in (8, 64, 256)]
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2] > 0.0


def test_an_angle_is_followed_round_the_circle(key):
    """States on both sides of ±π are neighbours, and a turn takes all of them on by the same angle."""
    space = Box((-np.pi,), (np.pi,), circular=(0,))
    world = world_of(lambda key, state, policy: space.nearest(state + 0.4), space)
    states = np.mod(np.pi + 0.3 * np.random.default_rng(3).normal(size=(256, 1)) + np.pi, 2 * np.pi) - np.pi
    belief = ParticleBelief(jnp.asarray(states, jnp.float32), jnp.zeros(256))
    found = moved(Surrogate(), key, belief, world, 16)
    assert np.all(np.abs(np.asarray(found)) <= np.float32(np.pi))
    np.testing.assert_allclose(np.asarray(space.difference(found, belief.states)), 0.4, rtol=0, atol=1e-3)


def test_what_diverges_is_not_followed(key):
    """Where the simulator fails for some states, others are followed; where it fails for all, nothing is finite."""
    space, belief = Box((-4.0, -4.0), (4.0, 4.0), bounded=False), points()
    some = world_of(lambda key, state, policy: jnp.where(state[0] > 0.5, jnp.nan, state + 0.1), space)
    found = np.asarray(moved(Surrogate(), key, belief, some, 32))
    simulated = ~np.isfinite(found).all(axis=1)
    assert 0 < simulated.sum() < 32  # only states that were simulated and failed
    np.testing.assert_allclose(found[~simulated], np.asarray(belief.states)[~simulated] + 0.1, rtol=0, atol=1e-3)
    none = world_of(lambda key, state, policy: jnp.full(2, jnp.nan), space)
    assert np.isnan(np.asarray(moved(Surrogate(), key, belief, none, 32))).all()


def test_a_step_makes_as_many_calls_as_asked_for(key):
    calls = []

    def counted(state):
        calls.append(1)
        return np.asarray(state, np.float32)

    def transition(key, state, policy):
        return jax.pure_callback(counted, jax.ShapeDtypeStruct((2,), jnp.float32), state, vmap_method="sequential")

    world = world_of(transition, Box((-4.0, -4.0), (4.0, 4.0), bounded=False))
    filter = RegularizedParticleFilter(8, surrogate=Surrogate(64))
    state = filter.init(key, world)
    assert state.log_weights.shape == (64,)
    jax.block_until_ready(filter.step(key, state, jnp.zeros(2), world, None))
    assert len(calls) == 8


def test_few_calls_with_many_points_are_worth_many_particles(key):
    """A sharp sensor of a system with little noise: 16 calls are nearer to the exact mean than a particle filter of
    128, whose particles become copies of few."""
    keys, world = jax.random.split(key, 40), LinearGaussian(MOTION, SPREAD / 50, SEEN, [[0.01]], [0.0, 0.0], np.eye(2))

    @eqx.filter_jit
    def errors(filter):
        def one(key):
            _, observations = nbf.rollout(key, world, None, 12)
            exact, _ = run(KalmanFilter(), key, observations, world, None)
            found, _ = run(filter, key, observations, world, None)
            means = jnp.einsum("tn,tnd->td", jnp.exp(found.log_weights), found.states)
            return jnp.sqrt(jnp.mean((means - exact.mean) ** 2))

        return jax.lax.map(one, keys)

    ours, larger = (np.asarray(errors(filter)) for filter in (RegularizedParticleFilter(16), ParticleFilter(128)))
    assert (larger - ours).mean() > monte_carlo((larger - ours).std(), len(keys), k=2.0)


def test_where_there_are_no_displacements_all_points_are_simulated():
    assert Surrogate(1024).size(Lattice((3, 3)), 16) == 16
    assert Surrogate(1024).size(Box((0.0,), (1.0,)), 16) == 1024
    assert Surrogate(64).size(Box((0.0,), (1.0,)), 128) == 128


@pytest.mark.parametrize("wrong", [{"points": 0}, {"reach": 0.0}, {"reach": float("nan")}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match=r"at least 1|above 0"):
        Surrogate(**wrong)
