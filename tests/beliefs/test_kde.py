"""Kernel densities with circular coordinates, against sums over many images, quadrature, and the plain ones."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from agreement import assert_frequencies
from scipy import stats
from tolerances import FLOAT

from nbf.beliefs.histogram import cell_probabilities
from nbf.beliefs.kde import NARROWEST, KernelDensityBelief, silverman
from nbf.beliefs.particles import ParticleBelief
from nbf.spaces import Box

CYLINDER = Box((-2.0, 0.0), (2.0, 3.0), bounded=False, circular=(1,))
TORUS = Box((-2.0, 0.0), (2.0, 3.0), circular=(0, 1))
PERIOD = 3.0
WEIGHTS = np.log(np.linspace(1.0, 3.0, 12))


def particles(space, *, spread=0.25, turn=0.0, n=12):
    """A set around the seam of the second coordinate, all of it moved along by `turn`."""
    rng = np.random.default_rng(3)
    states = rng.normal(size=(n, 2)) * [0.5, spread] + [0.3, turn]
    return ParticleBelief(jnp.asarray(states, jnp.float32), jnp.asarray(WEIGHTS[:n], jnp.float32))


@eqx.filter_jit
def on_kernels(particles, space):
    return KernelDensityBelief.of(particles, space)


def belief(space, **settings):
    return on_kernels(particles(space, **settings), space)


@eqx.filter_jit
def log_probs(belief, states):
    return belief.log_probs(states)


def grid(space, cells=120, reach=3.0):
    """Midpoints, and the volume of a cell; an unbounded axis is looked at `reach` times its range."""
    ends = [(m - s * r, m + s * r) for m, s, r in zip(
        space.middle, space.scale, np.where(space.wraps, 1.0, reach), strict=True)]  # fmt: skip
    edges = [np.linspace(*each, cells + 1) for each in ends]
    middles = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    points = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.asarray(points, np.float32), np.prod([edge[1] - edge[0] for edge in edges])


def test_kernels_are_sums_over_all_images():
    """Fifteen by SciPy, here three; narrow ones and ones as wide as the circle."""
    points, _ = grid(CYLINDER, cells=9, reach=1.0)
    for spread in (0.05, 0.25, 2.0):
        found = belief(CYLINDER, spread=spread)
        states, width = np.asarray(found.states, np.float64), np.asarray(found.bandwidth, np.float64)
        apart = np.asarray(points, np.float64)[:, None] - states
        straight = stats.norm.pdf(apart[..., 0], scale=width[0])
        around = sum(stats.norm.pdf(apart[..., 1] + turns * PERIOD, scale=width[1]) for turns in range(-7, 8))
        density = (straight * around) @ np.exp(np.asarray(found.log_weights, np.float64))
        np.testing.assert_allclose(np.exp(log_probs(found, points)), density, rtol=1e-3, atol=1e-6)


def test_the_density_has_the_period_and_integrates_to_one():
    for space in (CYLINDER, TORUS):
        points, volume = grid(space)
        found = belief(space)
        density = np.exp(np.asarray(log_probs(found, points), np.float64))
        np.testing.assert_allclose(volume * density.sum(), 1.0, rtol=0, atol=1e-3)
        further = log_probs(found, points + np.asarray([0.0, 2 * PERIOD], np.float32))
        np.testing.assert_allclose(np.exp(further), density, rtol=1e-3, atol=1e-5)


def test_the_bandwidth_does_not_depend_on_where_the_seam_is():
    """For a narrow set it is the plain one, as it is far from the seam."""
    far = particles(CYLINDER, turn=1.5, spread=0.05)
    plain = jax.jit(silverman)(far.states, far.log_weights)
    around = jax.jit(
        lambda states, log_weights: silverman(jax.vmap(CYLINDER.nearest)(states), log_weights, CYLINDER)
    )  # fmt: skip
    for turn in (0.0, 0.7, 1.5, 2.9, 100.0 * PERIOD):
        some = particles(CYLINDER, turn=turn, spread=0.05)
        np.testing.assert_allclose(around(some.states, some.log_weights), plain, rtol=1e-3)
    assert (
        np.ptp(np.asarray(jax.vmap(CYLINDER.nearest)(particles(CYLINDER).states))[:, 1]) > PERIOD / 2
    )  # across the seam


def test_samples_have_the_masses_of_the_cells(key):
    """And those are integrals of the density."""
    found, cells = belief(TORUS, spread=0.4), 6
    masses = np.asarray(eqx.filter_jit(cell_probabilities)(found, TORUS, cells), np.float64)
    points, volume = grid(TORUS, cells=20 * cells)
    density = np.exp(np.asarray(log_probs(found, points), np.float64)).reshape(cells, 20, cells, 20)
    np.testing.assert_allclose(masses, volume * density.sum(axis=(1, 3)).ravel(), rtol=0, atol=1e-3)
    drawn = np.asarray(found.sample(key, 20_000))
    assert np.all(jax.jit(jax.vmap(TORUS.contains))(drawn))
    assert np.all((drawn >= np.asarray(TORUS.low)) & (drawn <= np.asarray(TORUS.high)))
    seen = np.histogramdd(drawn, [np.linspace(low, high, cells + 1) for low, high in ((-2, 2), (0, 3))])[0]
    assert_frequencies(seen.ravel(), masses / masses.sum(), detects=0.05)


def test_derivatives_are_finite_where_particles_coincide_or_oppose():
    """Of the density, in the particles: no variance, and no direction of their mean."""

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def density(states):
        belief = KernelDensityBelief.of(ParticleBelief(states, jnp.zeros(len(states))), CYLINDER)
        return belief.log_prob(states[0] + 0.001), belief.bandwidth

    bandwidth = None
    for angles in ([1.0, 1.0], [0.0, 1.5], [1.0]):
        (value, bandwidth), slope = density(jnp.asarray([[0.5, angle] for angle in angles]))
        assert np.isfinite(value)
        assert np.all(np.isfinite(slope))
    # The last one is alone.
    np.testing.assert_allclose(bandwidth, NARROWEST * CYLINDER.scale, **FLOAT)
