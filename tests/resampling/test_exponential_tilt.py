"""The tilt against the minimum of its dual as a general solver finds it in float64, and with little to tilt."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special
from tolerances import FLOAT

from nbf.resampling.exponential_tilt import LEAST, STEPS, tilt

ATOMS, FEATURES = 20, 3
find = jax.jit(tilt, static_argnums=4)


def problem(seed, strength):
    """Log weights, three of them none and all not normalised, features, and their mean after another tilt."""
    rng = np.random.default_rng(seed)
    log_weights = 1.5 + rng.normal(size=ATOMS)
    log_weights[[0, 7, 11]] = -np.inf
    features = rng.normal(size=(FEATURES, ATOMS))
    target = features @ special.softmax(log_weights + strength * rng.normal(size=FEATURES) @ features)
    return log_weights, features, target


def damping(log_weights, features, target, ridge):
    """The ridge in the features' own units: relative to their variance, and never less than a share of their size."""
    weights, centred = special.softmax(log_weights), features - target[:, None]
    centred = np.where(weights > 0, centred, 0.0)
    spread = np.mean((centred**2) @ weights - (centred @ weights) ** 2)
    return ridge * spread + LEAST * np.mean(centred**2)


def solved(log_weights, features, target, ridge):
    """The tilted probabilities, by BFGS on the dual."""
    centred, rho = features - target[:, None], damping(log_weights, features, target, ridge)

    def dual(multiplier):
        scores = log_weights + multiplier @ centred
        value = special.logsumexp(scores) + rho * multiplier @ multiplier / 2.0
        return value, centred @ special.softmax(scores) + rho * multiplier

    found = optimize.minimize(dual, np.zeros(FEATURES), jac=True, method="BFGS", options={"gtol": 1e-9})
    return special.softmax(log_weights + found.x @ centred)


def tilted(log_weights, features, target, ridge, steps=STEPS):
    """Probabilities and multiplier as the library finds them."""
    log_weights, features, target = (jnp.asarray(part, jnp.float32) for part in (log_weights, features, target))
    found = find(log_weights, features, target, jnp.asarray(ridge, jnp.float32), steps)
    return np.exp(np.asarray(found(log_weights, features), np.float64)), np.asarray(found.multiplier, np.float64)


@pytest.mark.parametrize(("strength", "ridge"), [(0.2, 0.0), (0.2, 0.01), (0.2, 1.0), (1.0, 1.0)])
def test_it_is_the_minimum_of_the_dual(strength, ridge):
    for seed in range(20):
        given = problem(seed, strength)
        probs, _ = tilted(*given, ridge)
        np.testing.assert_allclose(probs.sum(), 1.0, **FLOAT)
        np.testing.assert_array_equal(probs > 0, np.isfinite(given[0]))
        np.testing.assert_allclose(probs, solved(*given, ridge), **FLOAT)


def test_a_strong_tilt_with_little_ridge_comes_near_it():
    """Three steps are too few for some of these, but never lead away: the mean is nearer to the target."""
    for seed in range(20):
        log_weights, features, target = problem(seed, 1.0)
        probs, _ = tilted(log_weights, features, target, 0.01)
        before = np.linalg.norm(features @ special.softmax(log_weights) - target)
        assert np.linalg.norm(features @ probs - target) < 0.1 * before


def test_the_less_ridge_the_nearer_the_mean_is_to_the_target():
    """What is left is the ridge times the multiplier, and with none of it next to nothing."""
    for seed in range(20):
        log_weights, features, target = problem(seed, 0.2)
        distances, before = [], np.linalg.norm(target - features @ special.softmax(log_weights))
        for ridge in (10.0, 1.0, 0.1, 0.0):
            probs, multiplier = tilted(log_weights, features, target, ridge, steps=6)
            left = target - features @ probs
            rho = damping(log_weights, features, target, ridge)
            np.testing.assert_allclose(left, rho * multiplier, **FLOAT)
            distances.append(np.linalg.norm(left))
        assert np.all(np.diff(distances) < 0)
        assert distances[0] < before
        assert distances[-1] < 0.02 * before


def test_a_mean_that_is_the_target_is_left_alone():
    log_weights, features, _ = problem(3, 0.0)
    weights = special.softmax(log_weights)
    probs, multiplier = tilted(log_weights, features, features @ weights, 0.01)
    np.testing.assert_allclose(probs, weights, **FLOAT)
    np.testing.assert_allclose(multiplier, 0.0, rtol=0, atol=100 * FLOAT["atol"])


@pytest.mark.parametrize("strange", [np.nan, np.inf, 1e30])
def test_features_of_what_has_no_weight_do_not_matter(strange):
    log_weights, features, target = problem(4, 0.5)
    marred = np.where(np.isfinite(log_weights), features, strange)
    expected, _ = tilted(log_weights, features, target, 0.1)
    probs, _ = tilted(log_weights, marred, target, 0.1)
    np.testing.assert_allclose(probs, expected, **FLOAT)


@pytest.mark.parametrize("far", [1e-3, 1.0, 1e3])
def test_the_only_atom_keeps_all_weight(far):
    """However far its features are from the target."""
    _, features, target = problem(5, 0.5)
    log_weights = np.full(ATOMS, -np.inf)
    log_weights[2] = -3.0
    probs, _ = tilted(log_weights, features, target + far, 0.01)
    np.testing.assert_allclose(probs, np.eye(ATOMS)[2], **FLOAT)


def test_without_any_weight_nothing_is_tilted():
    _, features, target = problem(6, 0.5)
    probs, multiplier = tilted(np.full(ATOMS, -np.inf), features, target, 0.1)
    np.testing.assert_array_equal(multiplier, np.zeros(FEATURES))
    np.testing.assert_array_equal(probs, np.zeros(ATOMS))


def test_a_target_that_no_weights_have_leaves_a_distribution():
    """Outside of what the features span: as near as the steps come, never NaN."""
    for seed in range(20):
        log_weights, features, _ = problem(seed, 0.5)
        probs, _ = tilted(log_weights, features, np.full(FEATURES, 1e3), 0.01)
        np.testing.assert_allclose(probs.sum(), 1.0, **FLOAT)


def test_features_that_depend_on_each_other_do_no_harm():
    """A copy of a feature, and one that is constant: the same probabilities as without, up to the ridge."""
    log_weights, features, target = problem(7, 0.5)
    more = np.concatenate([features, features[:1], np.ones((1, ATOMS))])
    probs, _ = tilted(log_weights, more, np.concatenate([target, target[:1], [1.0]]), 0.0)
    left = features @ probs - target
    before = features @ special.softmax(log_weights) - target
    assert np.linalg.norm(left) < 0.02 * np.linalg.norm(before)
