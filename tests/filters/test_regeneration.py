"""Regeneration against Kalman, enumeration and quadrature; kernels against quadrature; what a likelihood reads."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import integrate
from tolerances import FLOAT, SEED, monte_carlo

import nbf
from nbf.beliefs.gaussian_kernels import GaussianKernels
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import StateEmission
from nbf.capability import capability
from nbf.environments.dependence import reads
from nbf.errors import InputError
from nbf.filters.neural import EvenProposal, RegeneratingProposal, Trust
from nbf.filters.regeneration import KernelSmoother, Regeneration, RegenerationInfo
from nbf.filters.regularized import RegularizedParticleFilter
from nbf.models.tabular import TabularModel
from nbf.spaces import Box, Lattice, Tokens

LINE = Box((-4.0,), (4.0,), bounded=False)


def gaussian_set(key, n=512):
    """A set of N(1, 0.5²)."""
    return ParticleBelief(1.0 + 0.5 * jax.random.normal(key, (n, 1)), jnp.full(n, -np.log(n)))


def regenerated(key, regeneration, deviation, reading=0.0, n=512):
    """New particles for N(1, 0.5²) after a reading with that deviation."""
    particles = gaussian_set(key, n)

    def likelihoods(_, states):
        return norm.logpdf(reading, states[:, 0], deviation)

    return regeneration(key, KernelSmoother(0.3), particles.states, particles, likelihoods, LINE)


@pytest.mark.parametrize("deviation", [0.5, 0.02])
def test_the_new_particles_stand_for_the_posterior(deviation, key):
    """That of a Gaussian prior and a Gaussian reading, sharp or not, is known."""
    found = jax.jit(lambda key: regenerated(key, Regeneration(), deviation))(key)
    variance = 1.0 / (1.0 / 0.5**2 + 1.0 / deviation**2)
    weights = np.exp(np.asarray(found.log_weights, np.float64))
    mean = (weights * np.asarray(found.states)[:, 0]).sum()
    # The mean of the set itself varies as that of so many draws; its kernels and stages add a little.
    noise = np.sqrt(variance) * np.hypot(1.0, np.sqrt(variance) / deviation)
    assert abs(mean - variance * (1.0 / 0.5**2)) < monte_carlo(noise, 100)
    spread = (weights * (np.asarray(found.states)[:, 0] - mean) ** 2).sum()
    assert abs(np.log(spread / variance)) < monte_carlo(np.sqrt(2.0), 60)
    evidence = norm.logpdf(0.0, 1.0, np.hypot(0.5, deviation))
    assert abs(float(found.log_evidence) - float(evidence)) < monte_carlo(1.0, 60)


def test_a_sharp_reading_needs_stages(key):
    """In one stage, hardly a candidate explains a reading far out; in several, many particles are left."""
    keys = jax.random.split(key, 20)

    def left(stages):
        regeneration = Regeneration(candidates=128, stages=stages)
        find = jax.jit(lambda keys: jax.lax.map(lambda key: regenerated(key, regeneration, 0.002, -0.2, 32), keys))
        weights = np.exp(np.asarray(find(keys).log_weights, np.float64))
        return np.mean(1.0 / (weights**2).sum(axis=1))

    assert left(8) > 4 * left(1)


def test_an_impossible_observation_is_told(key):
    particles = gaussian_set(key, 16)
    found = Regeneration()(
        key, KernelSmoother(), particles.states, particles, lambda _, states: jnp.full(len(states), -jnp.inf), LINE
    )
    assert float(found.log_evidence) == -np.inf


@eqx.filter_jit
def kernel_log_probs(states, log_weights, space, points):
    return GaussianKernels.of(ParticleBelief(states, log_weights), space).log_probs(points)


@pytest.mark.parametrize("space", [Box((-2.0, -1.0), (2.0, 1.0), bounded=False), Lattice((9, 7))])
def test_a_kernel_density_adds_up_to_one(space):
    rng = np.random.default_rng(SEED)
    if isinstance(space, Lattice):
        states = jnp.asarray(rng.integers(2, 5, size=(12, 2)), jnp.int32)
        points = jnp.asarray(Lattice((41, 41)).points() - 16)
        volume = 1.0
    else:
        states = jnp.asarray(rng.normal(size=(12, 2)) @ [[0.4, 0.3], [0.0, 0.1]], jnp.float32)
        side = np.linspace(-4.0, 4.0, 321)
        points = jnp.asarray(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2), jnp.float32)
        volume = 0.025**2
    found = kernel_log_probs(states, jnp.asarray(rng.normal(size=12), jnp.float32), space, points)
    assert abs(np.exp(np.asarray(found, np.float64)).sum() * volume - 1.0) < 1e-3


def test_kernels_follow_correlations():
    """A position that goes with its velocity: along the diagonal there is more density than across."""
    rng = np.random.default_rng(SEED)
    states = rng.normal(size=(64, 1)) * [1.0, 1.0] + 0.01 * rng.normal(size=(64, 2))
    space = Box((-2.0, -2.0), (2.0, 2.0), bounded=False)
    points = jnp.asarray([[1.0, 1.0], [1.0, 0.0]])
    along, across = np.asarray(kernel_log_probs(jnp.asarray(states, jnp.float32), jnp.zeros(64), space, points))
    assert along > across + 3


def test_draws_of_a_lattice_have_the_masses_of_cells(key):
    space = Lattice((5,))
    kernels = GaussianKernels.of(ParticleBelief(jnp.asarray([[2], [3]]), jnp.log(jnp.asarray([0.7, 0.3]))), space)
    drawn = np.asarray(kernels.sample(key, 20_000))[:, 0]
    masses = np.exp(np.asarray(kernels.log_probs(jnp.asarray(space.points()))))
    found = np.bincount(drawn[(drawn >= 0) & (drawn < 5)], minlength=5) / len(drawn)
    assert np.all(np.abs(found - masses) < monte_carlo(np.sqrt(masses * (1 - masses)) + 1e-3, len(drawn)))


def test_there_are_no_kernels_on_tokens(key):
    with pytest.raises(InputError, match="Box or a Lattice"):
        GaussianKernels.of(ParticleBelief(jnp.zeros((3, 2), jnp.int32), jnp.zeros(3)), Tokens(2, 3))


def constant(reading=0.3):
    """A hidden number that never moves."""
    return nbf.environment(
        init=lambda key: jax.random.normal(key, (1,)),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0] + reading * jax.random.normal(key),
        log_likelihood=lambda observation, state, next_state: norm.logpdf(observation, next_state[0], reading),
        space=LINE,
    )


def test_a_constant_that_never_moves_is_found(key):
    """Where copies of particles never differ again, regeneration keeps the filter at the posterior."""
    world, filter = constant(), RegularizedParticleFilter(64)
    truth, readings = -1.7, np.asarray(jax.random.normal(key, (60,))) * 0.3 - 1.7

    @jax.jit
    def both(readings):
        return tuple(nbf.run(each, key, readings, world, None) for each in (filter, nbf.ParticleFilter(64)))

    (state, info), (plain, _) = both(jnp.asarray(readings))
    belief = filter.belief(jax.tree.map(lambda leaf: leaf[-1], state), world)
    variance = 1.0 / (1.0 + 60 / 0.3**2)
    mean = variance * float(readings.sum()) / 0.3**2
    assert abs(float(belief.expectation(lambda state: state[0])) - mean) < 4 * np.sqrt(variance)
    assert isinstance(info, RegenerationInfo)
    assert np.any(info.regenerated)
    assert not np.all(info.regenerated)
    assert abs(mean - truth) < 0.2
    assert len(np.unique(np.asarray(plain.states)[-1])) < 8 < len(np.unique(np.asarray(state.states)[-1]))


def test_what_a_likelihood_reads_is_found(key):
    pair = jnp.zeros(2), jnp.zeros(2)
    assert not reads(lambda y, x, new: norm.logpdf(y, new[0]), (0.0, *pair), 1)
    assert reads(lambda y, x, new: norm.logpdf(y, new[0] - x[1]), (0.0, *pair), 1)
    assert not reads(jax.jit(lambda y, x, new: norm.logpdf(y, new[0])), (0.0, *pair), 1)
    # A value that is computed and thrown away is not read.
    assert not reads(lambda y, x, new: (x.sum(), norm.logpdf(y, new[0]))[1], (0.0, *pair), 1)
    assert capability(constant(), StateEmission) is not None


def test_an_emission_that_is_said_wrongly_is_refused(unchecked):
    settings = {
        "init": lambda key: jnp.zeros(1),
        "transition": lambda key, state, policy: state,
        "observe": lambda key, state, next_state: next_state[0] - state[0],
        "log_likelihood": lambda observation, state, next_state: norm.logpdf(observation, (next_state - state)[0]),
        "space": LINE,
    }
    world = nbf.environment(**settings)
    assert capability(world, StateEmission) is None
    with pytest.raises(InputError, match="reads the state before"):
        nbf.environment(**settings, emission="state")
    with pytest.raises(InputError, match="emission"):
        nbf.environment(**{**settings, "emission": "both"})
    said = nbf.environment(
        **{**settings, "log_likelihood": lambda y, x, new: norm.logpdf(y, new[0])}, emission="transition"
    )
    assert capability(said, StateEmission) is None
    assert dataclasses.replace(said, emission="state").emission == "state"


def test_the_kernel_density_is_that_of_quadrature():
    """In one dimension, by hand: a Gaussian of Silverman's width on each point."""
    points, weights = np.asarray([-1.0, 0.5, 0.7]), np.asarray([0.2, 0.5, 0.3])
    states, log_weights = (jnp.asarray(part, jnp.float32) for part in (points[:, None], np.log(weights)))
    (found,) = np.asarray(kernel_log_probs(states, log_weights, LINE, jnp.asarray([[0.2]])))
    mean = (weights * points).sum()
    deviation = np.sqrt((weights * (points - mean) ** 2).sum())
    width = deviation * (4.0 / (3.0 / (weights**2).sum())) ** 0.2

    def density(x):
        return float((weights * np.exp(-0.5 * ((x - points) / width) ** 2)).sum() / (width * np.sqrt(2 * np.pi)))

    assert abs(integrate.quad(density, -8, 8)[0] - 1.0) < 1e-6
    np.testing.assert_allclose(np.exp(found), density(0.2), rtol=2e-3)
    np.testing.assert_allclose(found, np.log(density(0.2)), rtol=2e-3, atol=FLOAT["atol"])


CELLS = Lattice((5,))
SIGNALS = np.asarray([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]])


def placement():
    """One of five cells, which never changes, and a signal whose odds depend on it."""
    return nbf.environment(
        init=lambda key: jax.random.randint(key, (1,), 0, 5),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: jax.random.categorical(key, jnp.log(SIGNALS)[next_state[0]]),
        log_likelihood=lambda observation, state, next_state: jnp.log(SIGNALS)[next_state[0], observation],
        space=CELLS,
        symbols=3,
    )


@pytest.mark.parametrize("threshold", [pytest.param(0.5, marks=pytest.mark.slow), 2.0], ids=["seldom", "at every step"])
def test_with_a_perfect_model_the_belief_is_bayes(threshold, key):
    """However often particles are drawn anew from it; only the first draw of p0 is random."""
    n, seen = 4096, [0, 2, 2, 1]
    proposal = RegeneratingProposal(Regeneration(threshold=threshold), model_share=1.0)
    filter = nbf.NeuralBayesianFilter(TabularModel(CELLS), n, proposal=proposal)
    world = placement()

    @jax.jit
    def found_by(key):
        states, info = nbf.run(filter, key, jnp.asarray(seen), world, None)
        belief = filter.belief(jax.tree.map(lambda leaf: leaf[-1], states), world)
        return jnp.exp(belief.log_probs(jnp.asarray(CELLS.points()))), info.log_evidence

    found, log_evidence = (np.asarray(part) for part in found_by(key))
    posterior = SIGNALS[:, seen].prod(axis=1)
    evidence, posterior = posterior.mean(), posterior / posterior.sum()
    assert np.all(np.abs(found - posterior) < monte_carlo(np.sqrt(posterior * (1 - posterior)) * 2.0, n))
    assert abs(log_evidence.sum() - np.log(evidence)) < monte_carlo(2.0, n)


def test_a_neural_filter_picks_regeneration_where_it_can():
    filter = nbf.NeuralBayesianFilter(TabularModel(CELLS), 8, trust=Trust(0.9))
    assert "RegeneratingProposal" in filter.describe(placement())
    with pytest.raises(InputError, match="StateEmission"):
        RegeneratingProposal().check(dataclasses.replace(placement(), emission="transition"), 8)
    assert "model_share=0.9" in filter.describe(placement())
    with pytest.raises(InputError, match="RegeneratingProposal"):
        nbf.NeuralBayesianFilter(TabularModel(CELLS), 8, proposal=EvenProposal(), trust=Trust())
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            RegeneratingProposal(model_share=wrong)
