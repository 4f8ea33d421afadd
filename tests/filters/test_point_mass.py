"""The point-mass filter against closed forms, quadrature, a million particles, and itself; filters as sources."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import small_grid
from scipy import stats
from tolerances import FLOAT, Tolerance, monte_carlo

from nbf.beliefs.histogram import HistogramBelief
from nbf.environments.functional import One
from nbf.environments.triangulation import ScanPolicy, TriangulationFamily
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter, motion
from nbf.filters.run import run
from nbf.sources.filtered import FilterPosteriors, widen_walls
from nbf.spaces import Box

FAMILY = TriangulationFamily()
SQUARE = FAMILY.space
RESOLUTIONS = (40, 80, 160)
SECOND_ORDER = 3.0
"""Doubling the resolution divides an error of second order by 4; by at least this where cells are wider than σ."""


def step_of(time, scanning):
    return FAMILY.environment().at(jnp.int32(time), jnp.bool_(scanning))


def policy_of(direction):
    return ScanPolicy(jnp.int32(direction), jnp.float32(0.5))


@functools.cache
def an_episode():
    """A move to the left and a scan, three times, up to the wall: environments, policies and readings."""
    scans = jnp.asarray([False, True] * 3)
    environments = jax.vmap(FAMILY.environment().at)(jnp.arange(6, dtype=jnp.int32), scans)
    policies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (6,)), policy_of(0))
    return environments, policies, jnp.asarray([0.0, 4.3, 0.0, 3.9, 0.0, 7.5])


@eqx.filter_jit
def tracked(tracker, key, environments, policies, readings):
    return run(tracker, key, readings, environments, policies, changing=True)


@functools.cache
def filtered(resolution):
    """The masses and infos of the point-mass filter in this episode."""
    return tracked(PointMassFilter(resolution), jax.random.key(0), *an_episode())


def coarsened(masses, cells) -> np.ndarray:
    """The masses of fewer cells, without the walls."""
    return np.asarray(jax.jit(lambda masses: HistogramBelief(masses, SQUARE).coarsen(cells))(masses))


@functools.cache
def compiled_motion(resolution):
    return jax.jit(lambda mean, deviation: motion(resolution, mean, deviation))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("mean", "deviation"), [(0.0, 1.0), (2.3, 0.4), (-3.0, 2.0), (0.7, 5.0), (-0.4, 1e-4), (1.5, 0.0), (9.0, 0.5)]
)
def test_motion_is_a_clipped_gaussian(mean, deviation):
    """From each wall and from points of each cell, by SciPy's distribution function and quadrature."""
    r = 6
    nodes, weights = np.polynomial.legendre.leggauss(400)
    edges = np.arange(r + 1.0)

    def below(start):
        """P(x' <= each edge); the last place is the upper wall."""
        distance = edges - start - mean
        return stats.norm.cdf(distance, scale=deviation) if deviation else (distance >= 0).astype(float)

    rows = [below(0.0)]
    rows += [np.average([below(i + (z + 1) / 2) for z in nodes], axis=0, weights=weights) for i in range(r)]
    expected = np.diff(np.asarray([*rows, below(float(r))], float), axis=1, prepend=0.0, append=1.0)
    actual = compiled_motion(r)(jnp.float32(mean), jnp.float32(deviation))
    # Where the distribution function is a jump, 400 points place it within a 400th of a cell.
    steep: Tolerance = {"rtol": 0, "atol": 1 / 200}
    np.testing.assert_allclose(actual, expected, **(FLOAT if deviation > 0.1 else steep))
    assert np.all(np.asarray(actual) >= 0)
    np.testing.assert_allclose(np.sum(actual, axis=1), np.ones(r + 2), **FLOAT)


def test_standing_still_is_the_identity():
    np.testing.assert_array_equal(compiled_motion(6)(jnp.float32(0.0), jnp.float32(0.0)), np.eye(8))


def uniform_moved(edges, mean, deviation):
    """The mass that a uniform start on (-5, 5) has between edges after a Gaussian step, by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(2000)
    below = stats.norm.cdf(np.asarray(edges)[:, None] - 5.0 * nodes - mean, scale=deviation) @ weights / 2.0
    return np.diff(below)


def exact_masses(cells, reading, beacon):
    """p(x' in each cell | reading) after a move to the left from a uniform start, and log p(reading): the density
    in closed form, its atom on the walls by quadrature, and 20 points along each axis of a cell."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    side = 10.0 / cells
    points = (-5.0 + side * (np.arange(cells)[:, None] + (nodes + 1) / 2)).ravel()
    tiled = np.tile(weights * side / 2.0, cells)

    def axis(mean):
        inside = (stats.norm.cdf(points + 5.0 - mean, scale=0.1) - stats.norm.cdf(points - 5.0 - mean, scale=0.1)) / 10
        low = uniform_moved([-np.inf, -5.0], mean, 0.1)
        high = uniform_moved([5.0, np.inf], mean, 0.1)
        where = np.concatenate([[-5.0], points, [5.0]])
        return (
            where,
            np.concatenate([low, inside * tiled, high]),
            np.concatenate([[0], np.arange(cells).repeat(20), [cells - 1]]),
        )

    (x, mass_x, cell_x), (y, mass_y, cell_y) = axis(-0.5), axis(0.0)
    likelihood = stats.norm.pdf(reading, np.hypot(x[:, None] - beacon[0], y[None] - beacon[1]), 0.5)
    joint = mass_x[:, None] * mass_y[None] * likelihood
    masses = np.zeros((cells, cells))
    np.add.at(masses, (cell_x[:, None], cell_y[None]), joint)
    return masses / masses.sum(), np.log(masses.sum())


@pytest.mark.slow
def test_a_move_and_a_scan_against_quadrature():
    """The error of the cells' masses falls with the square of their side, and the evidence is right."""
    truth, log_evidence = exact_masses(10, 4.3, np.asarray(step_of(1, True).beacon))
    errors, found = [], 0.0
    for resolution in RESOLUTIONS:
        masses, info = filtered(resolution)
        found = info.log_evidence[1]
        errors.append(np.abs(coarsened(masses[1], 10) - truth).sum())
        np.testing.assert_allclose(info.log_evidence[0], 0.0, **FLOAT)
    assert errors[0] > SECOND_ORDER * errors[1] > SECOND_ORDER**2 * errors[2]
    np.testing.assert_allclose(found, log_evidence, **FLOAT)


@pytest.mark.slow
def test_the_error_falls_with_the_resolution():
    """Against itself at twice the resolution, over a whole episode: mass is kept, nothing is negative or NaN."""
    coarse = []
    for resolution in RESOLUTIONS:
        masses, info = filtered(resolution)
        assert np.all(np.asarray(masses) >= 0)
        np.testing.assert_allclose(np.sum(masses, axis=(1, 2)), np.ones(6), **FLOAT)
        assert not np.any(info.recovered)
        assert np.all(np.isfinite(info.log_evidence))
        assert np.asarray(masses)[-1, 0].sum() > 0.05, "the left wall has collected some mass"
        coarse.append(coarsened(masses[-1], 20))
    first, second = np.abs(coarse[1] - coarse[0]).sum(), np.abs(coarse[2] - coarse[1]).sum()
    assert first > SECOND_ORDER * second


@pytest.mark.slow
def test_a_million_particles_agree(key):
    """Never resampled, so that a cell's weight is a mean over independent particles with a known error."""
    n, cells, step = 10**6, 10, 3
    masses, info = filtered(160)
    particles, particle_info = tracked(ParticleFilter(n, threshold=0.0, max_attempts=1), key, *an_episode())
    weights = np.exp(np.asarray(particles.log_weights[step], np.float64))
    place = np.clip((np.asarray(particles.states[step]) + 5.0) / 10.0 * cells, 0, cells - 1).astype(int)
    share, square = (np.bincount(place @ [cells, 1], part, cells**2) for part in (weights, weights**2))
    truth = coarsened(masses[step], cells).ravel()
    # The variance of a self-normalised mean; and a cell that is hardly ever reached may catch a few particles.
    deviation = np.sqrt(square * (1 - truth) ** 2 + (square.sum() - square) * truth**2)
    tolerance = monte_carlo(deviation, 1, k=5.0) + 5.0 * weights.max()
    assert tolerance.max() < 0.01
    np.testing.assert_array_less(np.abs(share - truth), tolerance)
    total, evidence = (np.sum(np.asarray(part.log_evidence, np.float64)[: step + 1]) for part in (particle_info, info))
    np.testing.assert_allclose(total, evidence, rtol=0, atol=monte_carlo(np.sqrt(n * square.sum()), n))


def test_a_missing_observation_predicts_and_an_impossible_one_is_reported(key):
    tracker = PointMassFilter(8)
    start = tracker.init(key, step_of(0, True))

    @jax.jit
    def updates(reading):
        seen = tracker.update(key, start, reading, step_of(0, True), policy_of(0))
        return seen, tracker.update(key, start, None, step_of(0, False), policy_of(0))

    (kept, info), (moved, predicted) = updates(jnp.asarray(jnp.inf))
    assert bool(info.recovered)
    assert float(info.log_evidence) == -np.inf
    assert float(info.ess) == 0.0
    np.testing.assert_allclose(kept, start, **FLOAT)
    (far, info), _ = updates(jnp.asarray(500.0))
    assert not bool(info.recovered)
    assert np.isfinite(info.log_evidence)
    np.testing.assert_allclose(np.sum(far), 1.0, **FLOAT)
    assert float(predicted.log_evidence) == 0.0
    wall = uniform_moved([-np.inf, -5.0], -0.5, 0.1)
    np.testing.assert_allclose(np.sum(moved, axis=1)[:1], wall, **FLOAT)


def a_histogram() -> HistogramBelief:
    """Six cells an axis, with mass on walls, in a corner, and none at all in a row."""
    masses = np.random.default_rng(5).dirichlet(np.full(64, 0.5)).reshape(8, 8)
    masses[3] = 0.0
    return HistogramBelief(jnp.asarray(masses / masses.sum(), jnp.float32), Box((-5.0, 0.0), (5.0, 3.0)))


def test_histogram_samples_have_its_masses_and_lie_on_its_walls(key):
    belief, n = a_histogram(), 40_000
    samples, mean = jax.jit(lambda belief: (belief.sample(key, n), belief.expectation(lambda x: x)))(belief)
    samples = np.asarray(samples, np.float64)
    place = [
        np.searchsorted(np.linspace(low, high, 7), samples[:, i]) for i, (low, high) in enumerate([(-5, 5), (0, 3)])
    ]
    place = [np.where(samples[:, i] >= high, 7, place[i]) for i, high in enumerate((5.0, 3.0))]
    counts = np.bincount(place[0] * 8 + place[1], minlength=64)
    assert_frequencies(counts, np.asarray(belief.masses).ravel(), detects=0.04)
    inside = (samples[:, 0] > -5) & (samples[:, 0] < 5)
    assert stats.kstest((samples[inside, 0] + 5.0) / (10 / 6) % 1.0, "uniform").pvalue > 1e-5
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - mean), monte_carlo(samples.std(axis=0), n))


def test_histogram_density_and_coarsening():
    belief = a_histogram()
    masses = np.asarray(belief.masses, np.float64)
    folded = np.zeros((6, 6))
    for i, j in np.ndindex(8, 8):
        folded[np.clip(i - 1, 0, 5), np.clip(j - 1, 0, 5)] += masses[i, j]
    fine, coarse = jax.jit(lambda belief: (belief.coarsen(6), belief.coarsen(2)))(belief)
    np.testing.assert_allclose(fine, folded, **FLOAT)
    np.testing.assert_allclose(coarse, folded.reshape(2, 3, 2, 3).sum(axis=(1, 3)), **FLOAT)
    area = (10 / 6) * 0.5
    points = jnp.asarray([[-4.9, 0.1], [0.1, 1.6], [5.0, 3.0], [5.1, 1.0]])
    expected = [*np.log(folded[[0, 3, 5], [0, 3, 5]] / area), -np.inf]
    np.testing.assert_allclose(jax.jit(lambda belief: belief.log_probs(points))(belief), expected, **FLOAT)
    with pytest.raises(InputError, match="cells must divide the resolution 6; got 4"):
        belief.coarsen(4)


def test_bad_arguments_are_refused(key):
    with pytest.raises(InputError, match="resolution of at least 1; got 0"):
        PointMassFilter(0)
    with pytest.raises(InputError, match=r"needs the capability Drifting.*Gridworld"):
        PointMassFilter(4).init(key, small_grid()[0])
    with pytest.raises(InputError, match="horizon and wall_band must be 0 or more; got -1"):
        FilterPosteriors(PointMassFilter(4), FAMILY, -1)
    source = FilterPosteriors(ExactFilter(), One(*small_grid()), 1, wall_band=0.5)
    with pytest.raises(InputError, match="Only a Box has walls"):
        jax.eval_shape(lambda key: source.sample(key, 2)[0], key)


@pytest.mark.slow
def test_samples_of_posteriors_are_marginally_states(key):
    """E over observations of p(x | y) is p(x): one sample of each of many posteriors is a state of an episode, and
    has the mass on each wall that a step from a uniform start leaves there, spread out beyond it."""
    source = FilterPosteriors(PointMassFilter(20), FAMILY, 1, wall_band=0.5)
    keys = jax.random.split(key, 2500)
    draw = jax.jit(lambda keys: jax.lax.map(lambda key: source.sample(key, 1)[0][0], keys))
    samples = np.asarray(draw(keys), np.float64)
    to, sideways, back = (uniform_moved([-np.inf, -5.0], mean, 0.1)[0] for mean in (-0.5, 0.0, 0.5))
    wall = 0.5 * 0.5 * (to + back + 2 * sideways) / 4  # at depth 1, if it was a move
    for axis in range(2):
        counts = [int(np.sum(samples[:, axis] <= -5.0)), int(np.sum(samples[:, axis] >= 5.0))]
        assert_frequencies([*counts, len(samples) - sum(counts)], [wall, wall, 1 - 2 * wall], detects=0.08)
        assert np.all(np.abs(samples) <= 5.5)
        inside = samples[np.abs(samples[:, axis]) < 4.0, axis]
        assert stats.kstest(inside, stats.uniform(-4.0, 8.0).cdf).pvalue > 1e-5


def test_posteriors_of_a_family_that_stays_the_same(key):
    environment, policy = small_grid()
    source = FilterPosteriors(ExactFilter(), One(environment, policy), 1)
    samples, _ = jax.jit(jax.vmap(lambda key: source.sample(key, 1)))(jax.random.split(key, 4000))
    ends, log_probs = jax.jit(jax.vmap(lambda state: environment.successors(state, policy)))(environment.states())
    start = np.asarray(environment.free) / np.sum(environment.free)
    moved = np.zeros(9)
    np.add.at(moved, np.asarray(ends) @ np.asarray([3, 1]), start[:, None] * np.exp(log_probs))
    probs = (start + moved) / 2
    assert_frequencies(np.bincount(np.asarray(samples)[:, 0] @ [3, 1], minlength=9), probs, detects=0.08)


def test_spreading_moves_what_is_on_a_wall_and_nothing_else(key):
    states = jnp.asarray([[-5.0, 5.0], [4.9, -5.0], [0.0, 1.0], [5.0, 5.0]])
    spread = np.asarray(jax.vmap(lambda key: widen_walls(key, states, SQUARE, 0.5))(jax.random.split(key, 2000)))
    np.testing.assert_array_equal(np.clip(spread, -5.0, 5.0), np.tile(states, (2000, 1, 1)))
    assert stats.kstest(np.abs(spread[:, 3]).ravel(), stats.uniform(5.0, 0.5).cdf).pvalue > 1e-5
    assert stats.kstest(-spread[:, 0, 0], stats.uniform(5.0, 0.5).cdf).pvalue > 1e-5
