"""Laws of the energy distance between weighted sets."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from tolerances import FLOAT, SEED, monte_carlo

from nbf.evaluation.energy import mean_pairwise_distance, typical_width, weighted_energy_distance


def mean_length(centre: float, deviation: float) -> float:
    """E|Z| of a Gaussian."""
    wide = deviation * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * (centre / deviation) ** 2)
    return wide + centre * math.erf(centre / (deviation * math.sqrt(2.0)))


distance = jax.jit(weighted_energy_distance)


def test_equal_sets_have_no_distance():
    rng = np.random.default_rng(SEED)
    points, weights = rng.normal(size=(17, 3)).astype(np.float32), rng.normal(size=17).astype(np.float32)
    order = rng.permutation(17)
    np.testing.assert_allclose(distance(points, weights, points[order], weights[order] + 5.0), 0.0, **FLOAT)
    assert float(distance(points, weights, points + 1.0, weights)) > 0.1


def test_a_weight_stands_for_copies_and_none_for_nothing():
    rng = np.random.default_rng(SEED)
    points, other = rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32)
    copies, even = points[[0, 0, 0, 1, 2, 2]], np.zeros(6, np.float32)
    weighted = np.concatenate([points, np.full((1, 2), np.nan, np.float32)])
    log_weights = np.log(np.asarray([3.0, 1.0, 2.0, 0.0], np.float32), where=[True, True, True, False],
                         out=np.full(4, -np.inf, np.float32))  # fmt: skip
    one = distance(copies, even, other, even[:4])
    np.testing.assert_allclose(distance(weighted, log_weights, other, even[:4]), one, **FLOAT)


def test_gaussians_have_the_distance_of_the_closed_form(key):
    """N(0, 1) and N(2, 4): 2 E|X - Y| - E|X - X'| - E|Y - Y'|, each a mean of |Gaussian|; 40 sets of 200 draws."""
    truth = 2.0 * mean_length(2.0, math.sqrt(5.0)) - mean_length(0.0, math.sqrt(2.0)) - mean_length(0.0, math.sqrt(8.0))

    def estimate(key):
        draws = jax.random.normal(key, (2, 200, 1)) * jnp.asarray([1.0, 2.0])[:, None, None]
        one, other = draws[0], draws[1] + 2.0
        plain = weighted_energy_distance(one, jnp.zeros(200), other, jnp.zeros(200))
        # A set taken for the distribution itself has the distance 0 of each point from itself in its mean.
        return plain - (mean_pairwise_distance(one) + mean_pairwise_distance(other)) / 200

    found = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(key, 40)))
    np.testing.assert_allclose(found.mean(), truth, rtol=0, atol=monte_carlo(found.std(), len(found)))


def test_the_typical_width_is_that_within_beliefs_and_never_zero(key):
    spread = np.asarray([[1.0, 3.0], [7.0, 3.0]])[:, None]
    offsets = np.asarray([-1.0, 1.0])[:, None] * spread  # two beliefs of two points
    points = np.concatenate([offsets, np.ones((2, 2, 1))], axis=-1).astype(np.float32) + np.float32(10.0)
    np.testing.assert_allclose(typical_width(points), [5.0, 3.0, 1.0], **FLOAT)
