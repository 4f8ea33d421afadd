"""Donuts: closed forms against quadrature over the plane and against samples."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from tolerances import FLOAT, monte_carlo

from nbf.errors import InputError
from nbf_paper.donuts import Donut, Donuts

RINGS = [(1.0, 0.2), (0.3, 0.4), (2.0, 0.05)]
each_ring = pytest.mark.parametrize(("radius", "width"), RINGS)


def donut(radius, width) -> Donut:
    return Donut(jnp.asarray([0.5, -1.0]), jnp.asarray(radius), jnp.asarray(width))


def density(distance, radius, width):
    """By the definition, in float64."""
    return (stats.norm.pdf(distance, radius, width) + stats.norm.pdf(-distance, radius, width)) / (2 * np.pi * distance)


@each_ring
def test_the_density_is_that_of_the_definition_and_integrates_to_one(radius, width, key):
    ring = donut(radius, width)
    points = np.asarray(ring.sample(key, 50))
    distances = np.linalg.norm(points - np.asarray(ring.mean), axis=1)
    np.testing.assert_allclose(
        np.exp(ring.log_probs(jnp.asarray(points))), density(distances, radius, width), rtol=1e-3
    )
    edges = np.linspace(1e-9, radius + 10 * width, 9)
    total = sum(
        integrate.quad(lambda r: 2 * np.pi * r * density(r, radius, width), *ends)[0]
        for ends in itertools.pairwise(edges)
    )
    np.testing.assert_allclose(total, 1.0, **FLOAT)


@each_ring
def test_samples_have_that_density(radius, width, key):
    ring = donut(radius, width)
    centred = np.asarray(ring.sample(key, 4000), np.float64) - np.asarray(ring.mean)
    distances, angles = np.linalg.norm(centred, axis=1), np.arctan2(centred[:, 1], centred[:, 0])
    folded = lambda r: stats.norm.cdf(r, radius, width) - stats.norm.cdf(-r, radius, width)  # noqa: E731
    assert stats.kstest(distances, folded).pvalue > 1e-4
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-4


@pytest.mark.slow
@each_ring
def test_the_entropy_is_the_mean_surprise(radius, width, key):
    ring = donut(radius, width)
    surprise = -np.asarray(ring.log_probs(ring.sample(key, 20_000)))
    np.testing.assert_allclose(ring.entropy(), surprise.mean(), rtol=0, atol=monte_carlo(surprise.std(), len(surprise)))


def test_the_density_is_finite_at_the_centre_and_far_away():
    both = jax.jit(jax.value_and_grad(donut(1.0, 0.2).log_prob))
    for point in ([0.5, -1.0], [1e3, 1e3]):
        value, gradient = both(jnp.asarray(point))
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))


def test_random_donuts_keep_to_their_ranges(key):
    source = Donuts(offset=1.0, radius=(0.5, 0.7), width=(0.1, 0.2))
    rings = jax.jit(jax.vmap(source.belief))(jax.random.split(key, 500))
    assert np.all(np.abs(rings.mean) <= 1.0)
    assert 0.5 <= rings.radius.min() < 0.52 < 0.68 < rings.radius.max() <= 0.7
    assert 0.1 <= rings.width.min() < 0.11 < 0.19 < rings.width.max() <= 0.2
    states, space = source.sample(key, 7)
    assert states.shape == (7, 2)
    assert space.high == (1.7, 1.7)


@pytest.mark.parametrize("settings", [{"radius": (0.0, 1.0)}, {"width": (0.3, 0.2)}, {"offset": -1.0}])
def test_impossible_ranges_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Donuts(**settings)
