"""One contract over real vectors: a particle belief has a density, a decoded one has expectations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from constructors import with_random_parameters
from tolerances import EXACT, FLOAT, monte_carlo

import nbf
from nbf.beliefs.model import EXPECTATION_DRAWS, ModelBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.filters.particle import ParticleState
from nbf.models.belief_model import ModelConfig, space_config
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig

PLANE = nbf.Box((-4.0, -4.0), (4.0, 4.0), bounded=False)
LINE = nbf.Box((-3.0,), (3.0,), bounded=False)


def plane() -> nbf.Environment:
    return nbf.environment(
        init=lambda key: jax.random.normal(key, (2,)),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0],
        log_likelihood=lambda observation, state, next_state: -jnp.abs(observation - next_state[0]),
        space=PLANE,
    )


def kernel_density(states, weights, at):
    """Silverman's product kernel, eq. 4.14, in float64."""
    weights = weights / weights.sum()
    mean = weights @ states
    deviation = np.sqrt(weights @ (states - mean) ** 2)
    n, d = 1.0 / np.sum(weights**2), states.shape[1]
    width = deviation * (4.0 / ((d + 2) * n)) ** (1.0 / (d + 4))
    kernels = np.exp(-0.5 * ((at[:, None] - states) / width) ** 2) / (width * np.sqrt(2.0 * np.pi))
    return kernels.prod(axis=-1) @ weights


def weighted_set():
    rng = np.random.default_rng(2026)
    return rng.normal(size=(40, 2)), rng.random(40)


def test_a_particle_filters_density_is_a_kernel_density(key):
    """A particle without weight may be NaN."""
    states, weights = weighted_set()
    at = np.random.default_rng(1).normal(size=(20, 2))
    with_lost = np.concatenate([states, [[np.nan, 0.0]]])
    log_weights = jnp.log(jnp.asarray([*(weights / weights.sum()), 0.0], jnp.float32))
    state = ParticleState(jnp.asarray(with_lost, jnp.float32), log_weights)
    belief = nbf.ParticleFilter(41).belief(state, plane())
    found = np.exp(np.asarray(belief.log_probs(jnp.asarray(at, jnp.float32)), np.float64))
    np.testing.assert_allclose(found, kernel_density(states, weights, at), **FLOAT)
    np.testing.assert_allclose(np.exp(belief.log_prob(jnp.asarray(at[0], jnp.float32))), found[0], **FLOAT)


def test_its_samples_and_expectations_are_those_of_the_points(key):
    filter = nbf.ParticleFilter(16)
    state = filter.init(key, plane())
    belief, points = filter.belief(state, plane()), ParticleBelief(state.states, state.log_weights)
    assert isinstance(belief, ParticleBelief)
    np.testing.assert_array_equal(belief.sample(key, 50), points.sample(key, 50))
    np.testing.assert_array_equal(belief.expectation(jnp.square), points.expectation(jnp.square))


def test_over_a_finite_space_a_particle_belief_is_what_it_was(key):
    world = nbf.from_matrices([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5])
    filter = nbf.ParticleFilter(4)
    assert filter.belief(filter.init(key, world), world).density is None


def decoded(key) -> ModelBelief:
    config = ModelConfig(space_config(LINE), MixtureConfig(3, width=8, depth=1), MeanConfig(8, 1), embedding=3)
    return ModelBelief(with_random_parameters(config.build, key), jnp.asarray([0.3, -0.8, 0.5]), LINE)


def moments(state):
    return {"mean": state[0], "square": state[0] ** 2}


def test_an_expectation_over_the_line_is_that_of_the_density(key):
    """By quadrature; the sampling error of both moments is k·σ/√n at most."""
    belief = decoded(key)
    grid = np.linspace(-30.0, 30.0, 60_001)
    density = np.exp(np.asarray(belief.log_probs(jnp.asarray(grid, jnp.float32)[:, None]), np.float64)) * (60 / 60_000)
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-3)
    truth = [np.sum(density * grid**power) for power in range(1, 5)]
    found = belief.expectation(moments)
    sigma = np.sqrt([truth[1] - truth[0] ** 2, truth[3] - truth[1] ** 2])
    atol = monte_carlo(sigma, EXPECTATION_DRAWS)
    assert abs(float(found["mean"]) - truth[0]) < atol[0]
    assert abs(float(found["square"]) - truth[1]) < atol[1]
    again = belief.expectation(moments)
    np.testing.assert_allclose([again[name] for name in again], [found[name] for name in found], **EXACT)


def test_carried_particles_have_their_share_of_an_expectation(key):
    alone, share = decoded(key), 0.25
    particles = ParticleBelief(jnp.asarray([[10.0], [20.0]]), jnp.log(jnp.asarray([0.5, 1.5])))
    both = ModelBelief(alone.model, alone.embedding, LINE, None, particles, jnp.asarray(share))
    wanted = (1 - share) * np.asarray(alone.expectation(moments)["mean"]) + share * (0.25 * 10 + 0.75 * 20)
    np.testing.assert_allclose(both.expectation(moments)["mean"], wanted, **FLOAT)
