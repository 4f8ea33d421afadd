"""Triangulation against SciPy's closed forms, its episodes, and how beliefs on the plane are scored."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from scipy import stats
from tolerances import FLOAT, monte_carlo

from nbf.beliefs.histogram import PAD, cell_probabilities
from nbf.beliefs.kde import KernelDensityBelief, silverman
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief
from nbf.environments.rollout import rollout
from nbf.environments.triangulation import BEACONS, DIRECTIONS, ScanPolicy, Triangulation, TriangulationFamily
from nbf.errors import InputError
from nbf.spaces import Box

FAMILY = TriangulationFamily()
SQUARE = Box((-5.0, -5.0), (5.0, 5.0))
STEPS = 12
EPISODES = 400


def step_of(time, scanning) -> Triangulation:
    return FAMILY.environment().at(jnp.int32(time), jnp.bool_(scanning))


def policy_of(direction, move=0.5) -> ScanPolicy:
    return ScanPolicy(jnp.int32(direction), jnp.float32(move))


@functools.cache
def episodes():
    """(environments, policies, states, observations) of many random episodes."""

    def one(key):
        schedule_key, walk_key = jax.random.split(key)
        environments, policies = FAMILY.schedule(schedule_key, STEPS)
        return environments, policies, *rollout(walk_key, environments, policies, STEPS, changing=True)

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), EPISODES))


@jax.jit
def moves(keys, start, policy):
    return jax.vmap(lambda key: step_of(0, False).transition(key, start, policy))(keys)


@eqx.filter_jit
def observations(keys, world, position):
    return jax.vmap(lambda key: world.observe(key, position, position))(keys)


@eqx.filter_jit
def likelihood(world, reading, position):
    return world.log_likelihood(reading, jnp.zeros(2), position)


@pytest.mark.parametrize("scanning", [True, False])
def test_a_look_ahead_is_the_evidence_of_a_place(scanning, key):
    """log p(y | x), by the mean likelihood of simulated steps: a scan does not move, and a move reads nothing."""
    world, place = step_of(1, scanning), jnp.asarray([1.0, -2.0])

    @jax.jit
    def both(reading):
        ends = jax.vmap(lambda key: world.transition(key, place, policy_of(2)))(jax.random.split(key, 100))
        simulated = jax.vmap(world.log_likelihood, (None, None, 0))(reading, place, ends)
        return simulated, world.look_ahead(reading, place, policy_of(2))

    for reading in (0.5, 5.0):
        simulated, found = both(np.float32(reading))
        expected = np.log(np.mean(np.exp(np.asarray(simulated, np.float64))))
        np.testing.assert_allclose(found, expected, **FLOAT)


@pytest.mark.parametrize("direction", range(4))
def test_a_move_is_a_gaussian_that_the_walls_stop(direction, key):
    """From a point near a corner: the atom on each wall and ten intervals along each axis have SciPy's masses."""
    start, n = np.asarray([-4.55, 4.4]), 20_000
    ends = np.asarray(moves(jax.random.split(key, n), jnp.asarray(start), policy_of(direction)), np.float64)
    for axis in range(2):
        law = stats.norm(start[axis] + 0.5 * DIRECTIONS[direction][axis], 0.1)
        edges = np.clip(law.ppf(np.linspace(0.05, 0.95, 10)), -4.999, 4.999)
        below = np.concatenate([[0.0], law.cdf([-5.0, *edges]), [law.cdf(5.0), 1.0]])
        place = np.searchsorted([-5.0, *edges, 5.0], ends[:, axis], side="left") + (ends[:, axis] >= 5.0)
        assert_frequencies(np.bincount(place, minlength=len(below) - 1), np.diff(below), detects=0.04)
    correlation = np.asarray(np.corrcoef(ends[(np.abs(ends) < 5.0).all(axis=1)].T))[0, 1]
    if not np.isnan(correlation):
        assert abs(correlation) < monte_carlo(1.0, n // 50)


@pytest.mark.parametrize("time", range(4))
def test_a_reading_is_the_distance_to_the_active_beacon(time, key):
    position, n = jnp.asarray([1.5, -3.0]), 4000
    world = step_of(time, True)
    distance = np.hypot(*(np.asarray(position) - BEACONS[time % 3]))
    readings = observations(jax.random.split(key, n), world, position)
    assert stats.kstest(np.asarray(readings), stats.norm(distance, 0.5).cdf).pvalue > 1e-5
    for reading in (0.0, 2.5, 7.0):
        value = likelihood(world, jnp.asarray(reading), position)
        np.testing.assert_allclose(value, stats.norm.logpdf(reading, distance, 0.5), **FLOAT)


def test_a_scan_stands_still_and_a_move_reads_nothing(key):
    position = jnp.asarray([1.5, -3.0])
    np.testing.assert_array_equal(step_of(1, True).transition(key, position, policy_of(0)), position)
    assert float(step_of(1, False).observe(key, position, position)) == 0.0
    assert float(step_of(1, False).log_likelihood(jnp.asarray(3.0), position, position)) == 0.0


def test_episodes_follow_their_schedule():
    environments, policies, states, observations = episodes()
    np.testing.assert_array_equal(environments.time, np.tile(np.arange(STEPS), (EPISODES, 1)))
    assert np.all(np.asarray(policies.move) == np.asarray(policies.move)[:, :1]), "one policy in an episode"
    scans, moved = np.asarray(environments.scanning), np.any(np.diff(states, axis=1) != 0, axis=-1)
    assert not np.any(scans & moved)
    assert np.all(np.abs(states) <= 5.0)
    assert np.all((np.asarray(observations) != 0) == scans)
    assert_frequencies(np.bincount(policies.direction[:, 0], minlength=4), np.full(4, 0.25), detects=0.2)
    # P(move) is uniform and the steps are Bernoulli, so the number of scans is uniform on 0..STEPS.
    expected = np.full(STEPS + 1, 1 / (STEPS + 1))
    assert_frequencies(np.bincount(scans.sum(axis=1), minlength=STEPS + 1), expected, detects=0.25)


def test_free_moves_have_the_drift():
    environments, policies, states, _ = (jax.tree.map(np.asarray, part) for part in episodes())
    free = ~environments.scanning & np.all(np.abs(states[:, :-1]) < 4.0, axis=-1)
    steps = np.diff(states, axis=1)[free] - 0.5 * np.asarray(DIRECTIONS)[policies.direction[free]]
    assert stats.kstest(steps.ravel() / 0.1, "norm").pvalue > 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"half_width": -1.0}, "each lower one below"),
        ({"step": -0.5}, "step must be 0 or more; got -0.5"),
        ({"motion_noise": -0.1}, "motion_noise must be 0 or more"),
        ({"range_noise": 0.0}, "range_noise must be above 0"),
        ({"beacons": ()}, "at least one beacon"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        TriangulationFamily(**arguments)


def test_bad_policies_and_observations_are_refused():
    with pytest.raises(InputError, match=r"direction is one of 0\.\.3; got 4"):
        policy_of(4)
    with pytest.raises(InputError, match=r"probability of a move must be in \[0, 1\]"):
        policy_of(0, 1.5)
    world = step_of(0, True)
    world.check_observation(jnp.asarray(2.5))
    for bad in (jnp.nan, jnp.inf, 3, jnp.zeros(2)):
        with pytest.raises(InputError, match="one finite real number"):
            world.check_observation(bad)


def a_cloud(key, n=40) -> ParticleBelief:
    """Weighted particles, some of them on a wall and one in a corner."""
    place_key, weight_key = jax.random.split(key)
    states = jnp.clip(3.0 + 1.5 * jax.random.normal(place_key, (n, 2)), -5.0, 5.0).at[0].set(5.0)
    return ParticleBelief(states, jax.random.normal(weight_key, (n,)))


@eqx.filter_jit
def smoothed(particles) -> KernelDensityBelief:
    return KernelDensityBelief.of(particles, SQUARE)


@eqx.filter_jit
def scored(belief, cells):
    return cell_probabilities(belief, SQUARE, cells)


def test_the_bandwidth_is_silvermans(key):
    cloud = a_cloud(key)
    weights = np.exp(np.asarray(cloud.log_weights, np.float64))
    kde = stats.gaussian_kde(np.asarray(cloud.states, np.float64).T, "silverman", weights)
    deviation = np.sqrt(np.diag(np.cov(np.asarray(cloud.states).T, aweights=weights, ddof=0)))
    np.testing.assert_allclose(jax.jit(silverman)(cloud.states, cloud.log_weights), kde.factor * deviation, **FLOAT)


def test_a_kernel_density_is_a_mixture_of_gaussians(key):
    cloud = a_cloud(key)
    belief = smoothed(cloud)
    weights = np.exp(np.asarray(belief.log_weights, np.float64))
    laws = stats.norm(np.asarray(cloud.states, np.float64), np.asarray(belief.bandwidth, np.float64))
    points = np.asarray([[3.0, 2.0], [4.9, -1.0], [5.0, 5.0]])
    expected = [np.log(np.sum(weights * laws.pdf(point).prod(axis=1))) for point in points]
    np.testing.assert_allclose(jax.jit(lambda belief: belief.log_probs(jnp.asarray(points)))(belief), expected, **FLOAT)
    edges = np.linspace(-5.0, 5.0, 9)
    edges[[0, -1]] = -np.inf, np.inf
    masses = np.diff([laws.cdf(edge) for edge in edges], axis=0)
    probs = np.einsum("n,in,jn->ij", weights, masses[..., 0], masses[..., 1]).ravel()
    np.testing.assert_allclose(scored(belief, 8), probs, **FLOAT)
    samples, mean = jax.jit(lambda belief: (belief.sample(key, 20_000), belief.expectation(lambda x: x)))(belief)
    samples = np.asarray(samples)
    assert np.all(np.abs(samples) <= 5.0)
    np.testing.assert_allclose(mean, weights @ np.asarray(cloud.states), **FLOAT)
    assert_frequencies(np.histogram2d(samples[:, 0], samples[:, 1], 8, [[-5, 5]] * 2)[0].ravel(), probs, detects=0.05)


def test_one_particle_still_has_a_density():
    belief = smoothed(ParticleBelief(jnp.asarray([[1.0, 1.0]]), jnp.zeros(1)))
    assert np.isfinite(jax.jit(lambda belief: belief.log_prob(jnp.asarray([1.0, 1.0])))(belief))
    np.testing.assert_allclose(np.sum(scored(belief, 7)), 1.0, **FLOAT)


def test_particles_are_scored_as_their_weighted_histogram(key):
    cloud = a_cloud(key)
    weights = np.exp(np.asarray(cloud.log_weights, np.float64))
    x, y = np.asarray(cloud.states).T
    expected, _, _ = np.histogram2d(x, y, 10, [[-5, 5]] * 2, weights=weights)
    np.testing.assert_allclose(scored(cloud, 10), expected.ravel() / weights.sum(), **FLOAT)


class Slope(Belief):
    """A density e^(x + y/2), known by nothing but its log."""

    def sample(self, key, n):
        raise NotImplementedError

    def log_prob(self, state):
        return state[0] + state[1] / 2.0

    def log_probs(self, states):
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function):
        raise NotImplementedError


def test_a_model_is_scored_by_its_density_with_what_lies_beyond_the_walls():
    centres = np.arange(-5.0 - PAD + 0.25, 5.0 + PAD, 0.5)
    density = np.exp(centres[:, None] + centres[None, :] / 2.0)
    density[1], density[-2] = density[1] + density[0], density[-2] + density[-1]
    density = density[1:-1]
    density[:, 1], density[:, -2] = density[:, 1] + density[:, 0], density[:, -2] + density[:, -1]
    expected = density[:, 1:-1] / density[:, 1:-1].sum()
    np.testing.assert_allclose(scored(Slope(), 20), expected.ravel(), **FLOAT)
    with pytest.raises(InputError, match="need 2 dimensions"):
        cell_probabilities(Slope(), Box((0.0,), (1.0,)))
