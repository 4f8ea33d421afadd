"""The Gaussian belief against SciPy's distribution, closed forms, and its own samples."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from scipy import stats
from tolerances import FLOAT, SEED

from nbf.beliefs.gaussian import NARROWEST, GaussianBelief
from nbf.beliefs.histogram import cell_probabilities
from nbf.errors import InputError
from nbf.spaces import Box

SQUARE = Box((-5.0, -5.0), (5.0, 5.0))


@jax.jit
def a_square_belief(mean, root):
    return GaussianBelief.of(mean, root, SQUARE)


def a_belief(mean, root):
    return a_square_belief(jnp.asarray(mean, jnp.float32), jnp.asarray(root, jnp.float32))


@functools.partial(jax.jit, static_argnums=1)
def cells_of(belief, cells):
    return cell_probabilities(belief, SQUARE, cells)


WIDE = ([1.0, -3.5], [[-1.5, 0.7], [0.9, 2.0]])
"""Reaches beyond the walls; the root is neither triangular nor of positive diagonal."""


def test_the_density_is_the_gaussian_one(key):
    mean, root = (np.asarray(part) for part in WIDE)
    belief = a_belief(mean, root)
    states = jnp.asarray(np.random.default_rng(SEED).normal(size=(16, 2)), jnp.float32)
    expected = stats.multivariate_normal(mean, root @ root.T).logpdf(np.asarray(states))
    np.testing.assert_allclose(jax.jit(lambda belief: belief.log_probs(states))(belief), expected, **FLOAT)
    np.testing.assert_allclose(belief.log_prob(states[0]), expected[0], **FLOAT)


@pytest.mark.parametrize(
    ("mean", "root"),
    [WIDE, ([0.3, 0.1], [[0.05, 0.0], [0.04, 0.03]]), ([2.0, 2.0], [[1.0, 0.0], [0.99, 0.2]])],
    ids=["beyond the walls", "within a cell", "correlated"],
)
def test_cells_have_the_masses_of_rectangles(mean, root):
    """By SciPy's distribution function in two dimensions; the outermost cells reach to infinity."""
    cells = 5
    edges = np.concatenate([[-60.0], np.linspace(-5.0, 5.0, cells + 1)[1:-1], [60.0]])
    corners = np.stack(np.meshgrid(edges, edges, indexing="ij"), axis=-1)
    below = stats.multivariate_normal(mean, np.asarray(root) @ np.asarray(root).T).cdf(corners)
    expected = np.diff(np.diff(below, axis=0), axis=1)
    found = cells_of(a_belief(mean, root), cells)
    # Eight points across a row leave a share of a steep one open; SciPy's own error is 1e-5.
    np.testing.assert_allclose(found.reshape(cells, cells), expected, rtol=0, atol=1e-3)
    np.testing.assert_allclose(np.sum(found), 1.0, **FLOAT)


def test_samples_fall_into_cells_as_their_masses_say(key):
    belief, cells, n = a_belief(*WIDE), 5, 20_000
    samples = np.asarray(jax.jit(lambda belief: belief.sample(key, n))(belief))
    assert np.all(np.abs(samples) <= 5.0)
    assert np.any(np.abs(samples) == 5.0)
    places = np.clip(np.floor((samples + 5.0) / 2.0), 0, cells - 1).astype(int)
    counts = np.bincount(places[:, 0] * cells + places[:, 1], minlength=cells**2)
    assert_frequencies(counts, cells_of(belief, cells), detects=0.04)


def test_expectations_of_cubic_polynomials_are_exact():
    mean, root = np.array([0.2, -0.4]), np.array([[0.5, 0.0], [0.3, 0.4]])
    covariance = root @ root.T
    look = lambda belief: belief.expectation(lambda x: (x, jnp.outer(x, x), x[0] ** 3))  # noqa: E731
    found = jax.jit(look)(a_belief(mean, root))
    np.testing.assert_allclose(found[0], mean, **FLOAT)
    np.testing.assert_allclose(found[1], covariance + np.outer(mean, mean), **FLOAT)
    np.testing.assert_allclose(found[2], mean[0] ** 3 + 3 * mean[0] * covariance[0, 0], **FLOAT)


def test_what_is_known_exactly_has_a_narrow_density(key):
    belief = a_belief([0.0, 0.0], np.zeros((2, 2)))
    np.testing.assert_allclose(belief.root, NARROWEST * 5.0 * np.eye(2), **FLOAT)
    assert np.isfinite(belief.log_prob(belief.mean))
    np.testing.assert_allclose(belief.sample(key, 8), 0.0, rtol=0, atol=10 * NARROWEST * 5.0)


def test_a_mean_of_another_dimension_is_refused():
    with pytest.raises(InputError, match="mean of 2"):
        GaussianBelief.of(jnp.zeros(3), jnp.eye(3), SQUARE)
