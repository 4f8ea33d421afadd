"""Laws of the energy distance between weighted sets."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from tolerances import FLOAT, monte_carlo

from nbf.evaluation.energy import spread_of_draws, typical_width, weighted_energy_distance


def mean_length(centre: float, deviation: float) -> float:
    """E|Z| of a Gaussian."""
    wide = deviation * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * (centre / deviation) ** 2)
    return wide + centre * math.erf(centre / (deviation * math.sqrt(2.0)))


def test_equal_sets_have_no_distance(key):
    points, weights = jax.random.normal(key, (17, 3)), jax.random.normal(jax.random.fold_in(key, 1), (17,))
    order = jax.random.permutation(jax.random.fold_in(key, 2), 17)
    found = weighted_energy_distance(points, weights, points[order], weights[order] + 5.0)
    np.testing.assert_allclose(found, 0.0, **FLOAT)
    assert float(weighted_energy_distance(points, weights, points + 1.0, weights)) > 0.1


def test_a_weight_stands_for_copies_and_none_for_nothing(key):
    points, other = jax.random.normal(key, (3, 2)), jax.random.normal(jax.random.fold_in(key, 1), (4, 2))
    copies = points[jnp.asarray([0, 0, 0, 1, 2, 2])]
    weighted = jnp.concatenate([points, jnp.full((1, 2), jnp.nan)])
    log_weights = jnp.log(jnp.asarray([3.0, 1.0, 2.0, 0.0]))
    one = weighted_energy_distance(copies, jnp.zeros(6), other, jnp.zeros(4))
    np.testing.assert_allclose(weighted_energy_distance(weighted, log_weights, other, jnp.zeros(4)), one, **FLOAT)


def test_gaussians_have_the_distance_of_the_closed_form(key):
    """N(0, 1) and N(2, 4): 2 E|X - Y| - E|X - X'| - E|Y - Y'|, each a mean of |Gaussian|; 40 sets of 200 draws."""
    truth = 2.0 * mean_length(2.0, math.sqrt(5.0)) - mean_length(0.0, math.sqrt(2.0)) - mean_length(0.0, math.sqrt(8.0))

    def estimate(key):
        draws = jax.random.normal(key, (2, 200, 1)) * jnp.asarray([1.0, 2.0])[:, None, None]
        one, other = draws[0], draws[1] + 2.0
        plain = weighted_energy_distance(one, jnp.zeros(200), other, jnp.zeros(200))
        # A set taken for the distribution itself has the distance 0 of each point from itself in its mean.
        return plain - (spread_of_draws(one) + spread_of_draws(other)) / 200

    found = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(key, 40)))
    np.testing.assert_allclose(found.mean(), truth, rtol=0, atol=monte_carlo(found.std(), len(found)))


def test_the_typical_width_is_that_within_beliefs_and_never_zero(key):
    spread = np.asarray([[1.0, 3.0], [7.0, 3.0]])[:, None]
    offsets = np.asarray([-1.0, 1.0])[:, None] * spread  # two beliefs of two points
    points = np.concatenate([offsets, np.ones((2, 2, 1))], axis=-1).astype(np.float32) + np.float32(10.0)
    np.testing.assert_allclose(typical_width(points), [5.0, 3.0, 1.0], **FLOAT)
