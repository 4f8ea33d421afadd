"""A linear-Gaussian system has a closed form: the particle filter must agree with the Kalman filter, which is written
here in float64, in its mean and in the evidence, whose estimate is unbiased."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tolerances import FLOAT, SEED, monte_carlo

import nbf
from nbf.contracts import InputError

STEPS, STATES, READINGS = 5, 2, 1
SPACE = nbf.Box((-5.0,) * STATES, (5.0,) * STATES, bounded=False)
SYSTEMS = range(3)
DETECTS = 0.05
"""A bias of the evidence that the test would find, relative to it."""


def random_system(number: int) -> dict[str, np.ndarray]:
    """A random stable system: the spectral radius of A is 0.9."""
    rng = np.random.default_rng([SEED, number])
    matrix = rng.normal(size=(STATES, STATES))
    roots = [rng.normal(size=(size, size)) for size in (STATES, READINGS, STATES)]
    Q, R, P0 = (root @ root.T + 0.3 * np.eye(len(root)) for root in roots)  # noqa: N806
    return {
        "A": 0.9 * matrix / np.abs(np.linalg.eigvals(matrix)).max(),
        "Q": 0.3 * Q,
        "C": rng.normal(size=(READINGS, STATES)),
        "R": R,
        "m0": rng.normal(size=STATES),
        "P0": P0,
    }


def kalman(A, Q, C, R, m0, P0, observations, push) -> tuple[np.ndarray, float]:  # noqa: N803
    """E[x_T | y_1:T] and log p(y_1:T)."""
    mean, covariance, log_evidence = m0, P0, 0.0
    for y in observations:
        mean, covariance = A @ mean + push, A @ covariance @ A.T + Q
        spread = C @ covariance @ C.T + R
        log_evidence += stats.multivariate_normal(C @ mean, spread).logpdf(y)
        gain = covariance @ C.T @ np.linalg.inv(spread)
        mean, covariance = mean + gain @ (y - C @ mean), covariance - gain @ C @ covariance
    return mean, float(log_evidence)


@eqx.filter_jit
def runs(key, environment, policy, observations, filter, count):
    """Mean of the belief after the last step and the log of the evidence, of many independent runs."""

    def look(state):
        return jnp.exp(state.log_weights) @ state.states

    def one(key):
        means, infos = nbf.run(filter, key, observations, environment, policy, look=look)
        return means[-1], jnp.sum(infos.log_evidence)

    return jax.vmap(one)(jax.random.split(key, count))


@pytest.mark.parametrize("number", SYSTEMS)
def test_the_particle_filter_agrees_with_kalman(number, key):
    system, push = random_system(number), np.array([0.3, -0.2])
    observations = np.random.default_rng([SEED, number, 1]).normal(size=(STEPS, READINGS)).astype(np.float32)
    mean, log_evidence = kalman(**system, observations=observations.astype(np.float64), push=push)
    environment = nbf.LinearGaussian(**system, space=SPACE)
    n, particles = 2048, 128
    filter = nbf.ParticleFilter(particles, max_attempts=1)
    inputs = (environment, jnp.asarray(push, jnp.float32), jnp.asarray(observations))
    means, log_estimates = (np.asarray(part, np.float64) for part in runs(key, *inputs, filter, n))
    estimates = np.exp(log_estimates - log_evidence)
    assert estimates.std() * 2 * monte_carlo(1.0, n) < DETECTS, "too few runs for the power stated"
    np.testing.assert_allclose(estimates.mean(), 1.0, rtol=0, atol=monte_carlo(estimates.std(), n))
    # Weighed by their evidence the runs together are unbiased, where the mean of one run is off by O(1/particles).
    weighed = estimates[:, None] * (means - mean)
    np.testing.assert_allclose(weighed.mean(axis=0) / weighed.std(axis=0), 0.0, rtol=0, atol=monte_carlo(1.0, n))


def test_the_likelihood_is_the_density_of_the_reading(key):
    R = np.array([[0.5, 0.2], [0.2, 0.3]])  # noqa: N806
    environment = nbf.LinearGaussian(np.eye(2), np.eye(2), [[1.0, 2.0], [0.0, 1.0]], R, [0.0, 0.0], np.eye(2))
    state = jnp.array([0.3, -0.7])
    readings = np.random.default_rng(SEED).normal(size=(8, 2)).astype(np.float32)
    found = jax.vmap(environment.log_likelihood, (0, None, None))(jnp.asarray(readings), state, state)
    expected = stats.multivariate_normal([0.3 - 1.4, -0.7], R).logpdf(readings)
    np.testing.assert_allclose(found, expected, **FLOAT)


def test_noise_without_full_rank_moves_states_along_it_alone(key):
    direction = np.array([1.0, 2.0])
    environment = nbf.LinearGaussian(
        np.eye(2), np.outer(direction, direction), [[1.0, 0.0]], [[1.0]], [1.0, 1.0], np.zeros((2, 2))
    )
    start = environment.init(key)
    np.testing.assert_allclose(start, [1.0, 1.0], **FLOAT)
    moved = np.asarray(environment.transition(key, start, None)) - np.asarray(start)
    assert abs(moved[0]) > 0
    np.testing.assert_allclose(moved[1], 2.0 * moved[0], **FLOAT)


def test_a_family_of_systems_is_a_vmap(key):
    def build(scale):
        environment = nbf.LinearGaussian(
            scale * jnp.eye(2), jnp.eye(2), jnp.eye(2), jnp.eye(2), jnp.zeros(2), jnp.eye(2), space=SPACE
        )
        return environment.matrix @ jnp.ones(2)

    np.testing.assert_allclose(jax.jit(jax.vmap(build))(jnp.array([0.5, 2.0])), [[0.5, 0.5], [2.0, 2.0]], **FLOAT)


GOOD = random_system(0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"A": np.eye(3)}, r"A must have shape \(2, 2\)"),
        ({"R": np.zeros((1, 1))}, "R must be positive definite"),
        ({"Q": np.array([[1.0, 0.5], [0.0, 1.0]])}, "Q must be a covariance"),
        ({"P0": -np.eye(2)}, "P0 must be a covariance"),
        ({"m0": np.array([np.nan, 0.0])}, "m0 must be finite"),
        ({"space": nbf.Box((0.0,), (1.0,))}, "any vectors of 2 numbers"),
    ],
)
def test_what_is_no_system_is_refused(change, named):
    with pytest.raises(InputError, match=named):
        nbf.LinearGaussian(**(GOOD | change))


@pytest.mark.parametrize("observation", [np.zeros(2), np.zeros(1, int), np.array([np.nan]), np.array([1e300])])
def test_an_observation_outside_its_space_is_refused(observation):
    environment = nbf.LinearGaussian(**GOOD)
    environment.check_observation(np.zeros(1))
    with pytest.raises(InputError):
        environment.check_observation(observation)
