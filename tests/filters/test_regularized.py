"""The regularised particle filter against Kalman, quadrature and its own claims; the prior against predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid
from scipy import stats
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.beliefs.kde import KernelDensityBelief
from nbf.environments.linear_gaussian import LinearGaussian
from nbf.environments.triangulation import ScanPolicy, TriangulationFamily
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.gaussian import KalmanFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.regeneration import KernelSmoother, Regeneration
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.filters.run import run
from nbf.spaces import Tokens

READING = 2.0
POLICY = ScanPolicy(jnp.int32(0), jnp.asarray(0.5))


def scan():
    """A first step of Triangulation that is a scan."""
    return TriangulationFamily().environment().at(jnp.int32(0), jnp.bool_(True))


@pytest.mark.sampled
@pytest.mark.parametrize("candidates", [1, 64])
def test_the_evidence_of_the_first_step_is_unbiased(candidates, key):
    """Candidates are then draws of p0, uniform on the square, whatever the look-ahead weight selects among them: the
    mean over many filters is p(y), here an integral by the midpoint rule."""
    world, filter, repeats = scan(), RegularizedParticleFilter(8, candidates=candidates), 3000

    def evidence(key):
        return filter.update(key, filter.init(key, world), jnp.asarray(READING), world, POLICY)[1].log_evidence

    found = np.exp(np.asarray(jax.jit(jax.vmap(evidence))(jax.random.split(key, repeats)), np.float64))
    middle = (np.arange(400) + 0.5) / 40.0 - 5.0
    x, y = np.meshgrid(middle, middle)
    beacon = np.asarray(world.beacon)
    truth = stats.norm.pdf(READING, np.hypot(x - beacon[0], y - beacon[1]), 0.5).mean()
    assert abs(found.mean() - truth) < monte_carlo(found.std(), repeats)


def test_looking_ahead_selects_where_the_observation_is_likely(key):
    """With as many calls the effective sample size is several times that of a filter that simulates blindly."""
    world, keys = scan(), jax.random.split(key, 200)

    def ess(filter, key):
        return filter.update(key, filter.init(key, world), jnp.asarray(READING), world, POLICY)[1].ess

    ours, blind = (
        np.asarray(jax.jit(lambda keys, filter=filter: jax.lax.map(lambda key: ess(filter, key), keys))(keys))
        for filter in (RegularizedParticleFilter(16), ParticleFilter(16))
    )
    assert ours.mean() > 3 * blind.mean()


def test_it_follows_a_kalman_filter(key):
    """Without look-ahead, its mean is that of the exact posterior: kernels are symmetric."""
    world = LinearGaussian([[0.9]], [[0.3]], [[1.0]], [[0.2]], [0.0], [[1.0]])
    observations = jnp.asarray([[0.5], [1.4], [-0.3], [0.2]])

    @jax.jit
    def both(key):
        return tuple(run(each, key, observations, world, None)[0] for each in (KalmanFilter(), filter))

    filter = RegularizedParticleFilter(2048)
    exact, states = both(key)
    weights = np.exp(np.asarray(states.log_weights))
    mean = (weights[..., None] * np.asarray(states.states)).sum(axis=1)
    deviation = np.abs(np.asarray(exact.root)[:, 0, 0])
    assert np.all(np.abs(mean[:, 0] - np.asarray(exact.mean)[:, 0]) < monte_carlo(deviation, 500))


def test_its_belief_is_a_kernel_density(key):
    world = scan()
    filter = RegularizedParticleFilter(16)
    belief = filter.belief(filter.init(key, world), world)
    assert isinstance(belief, KernelDensityBelief)
    assert np.isfinite(belief.log_prob(jnp.zeros(2)))


def test_states_without_kernels_are_refused(key):
    words = nbf.environment(
        init=lambda key: jnp.zeros(2, jnp.int32),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0],
        log_likelihood=lambda observation, state, next_state: jnp.log(0.5),
        space=Tokens(2, 3),
    )
    with pytest.raises(InputError, match=r"Box or a Lattice.*ParticleFilter"):
        RegularizedParticleFilter(4).init(key, words)
    wrong: list[dict[str, Any]] = [{"candidates": 0}, {"defensive": 0.0}, {"max_attempts": 0}]
    for settings in wrong:
        with pytest.raises(InputError, match="regularised particle filter needs"):
            RegularizedParticleFilter(4, **settings)
    wrong = [{"threshold": -1.0}, {"tempering": 0.0}, {"candidates": 0}, {"stages": 0}]
    for settings in wrong:
        with pytest.raises(InputError, match="Regeneration needs"):
            Regeneration(**settings)
    with pytest.raises(InputError, match="scale"):
        KernelSmoother(0.0)


def test_the_prior_ignores_what_is_observed(key):
    """It is the exact prediction, whatever the observations are, even impossible ones."""
    world, policy = small_grid()
    prior = jax.jit(lambda seen: run(PredictionFilter(ExactFilter()), key, seen, world, policy))
    one, other = (prior(jnp.asarray(seen)) for seen in ([0, 1, 4], [3, 3, 3]))
    state = ExactFilter().init(key, world)
    for step in range(3):
        state, _ = ExactFilter().step(key, state, None, world, policy)
        np.testing.assert_allclose(np.asarray(one[0])[step], state, **FLOAT)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_allclose(one[1].log_evidence, 0.0, **FLOAT)
