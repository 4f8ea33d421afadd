"""Resamplers: E[children] = n·w, each scheme's own variance, and no child of an entry without weight."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, SEED, monte_carlo

from nbf.resampling import schemes as resampling
from nbf.resampling.schemes import RESAMPLERS

KEYS = 4000
RESAMPLE = {name: jax.jit(jax.vmap(resampler, in_axes=(0, None))) for name, resampler in RESAMPLERS.items()}


def _log_weights(name: str) -> np.ndarray:
    """Float64 log weights, not normalised. Sizes on both sides of every change of method."""
    rng = np.random.default_rng(SEED)
    if name == "even":
        return np.full(50, 3.0)
    if name == "one":
        return np.array([-700.0])
    if name == "all on one":
        return np.where(np.arange(32) == 20, 0.0, -np.inf)
    if name == "steep":  # 1e-300 .. 1
        return np.linspace(-690.0, 0.0, 32)
    if name == "ordinary":
        return rng.normal(size=32)
    if name == "zeros between":
        return np.where(rng.random(50) < 0.5, -np.inf, rng.normal(size=50))
    assert name == "long"
    return np.where(np.arange(600) >= 590, -np.inf, 2 * rng.normal(size=600))


CASES = ["even", "one", "all on one", "steep", "ordinary", "zeros between", "long"]


def _weights(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _ancestors(resampler: str, key, log_weights: np.ndarray) -> np.ndarray:
    """Ancestors for KEYS keys: always as many, so that equal sizes are compiled once."""
    n = len(log_weights)
    ancestors = np.asarray(RESAMPLE[resampler](jax.random.split(key, KEYS), jnp.asarray(log_weights, jnp.float32)))
    assert ancestors.shape == (KEYS, n)
    assert ancestors.min() >= 0
    assert ancestors.max() < n
    return ancestors


def _variance(resampler: str, weights: np.ndarray) -> np.ndarray:
    """The variance of each entry's number of children, from the definition of the scheme."""
    n = len(weights)
    expected = n * weights
    if resampler == "multinomial":
        return expected * (1 - weights)
    fraction = expected - np.floor(expected + 1e-9)
    if resampler == "systematic":
        return np.maximum(fraction * (1 - fraction), 0.0)
    if resampler == "residual":
        rest = max(round(fraction.sum()), 1)
        return np.maximum(fraction * (1 - fraction / rest), 0.0)
    ends = np.cumsum(expected)
    stretches = np.arange(n)[:, None]
    overlap = np.clip(np.minimum(ends, stretches + 1) - np.maximum(ends - expected, stretches), 0.0, 1.0)
    return np.sum(overlap * (1 - overlap), axis=0)


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_children(resampler, case, key):
    log_weights = _log_weights(case)
    weights = _weights(log_weights)
    n = len(weights)
    counts = np.stack([np.bincount(row, minlength=n) for row in _ancestors(resampler, key, log_weights)])
    assert np.all(counts.sum(axis=1) == n)
    assert np.all(counts[:, weights == 0] == 0)

    # Mean and variance. One child in all the draws is nothing unusual for an entry of next to no weight.
    variance = _variance(resampler, weights)
    atol = monte_carlo(np.sqrt(variance), KEYS, k=5) + n * FLOAT["atol"] + 2 / KEYS
    np.testing.assert_array_less(np.abs(counts.mean(axis=0) - n * weights), atol)
    squares = np.sum((counts - n * weights) ** 2, axis=1)
    atol = monte_carlo(squares.std(), KEYS, k=5) + n * FLOAT["atol"]
    np.testing.assert_allclose(squares.mean(), variance.sum(), rtol=0, atol=atol)

    # What each scheme promises for every single draw, up to float32.
    slack = n * 1e-6
    if resampler == "systematic":
        assert np.max(np.abs(counts - n * weights)) < 1 + slack
    if resampler == "stratified":
        assert np.max(np.abs(counts - n * weights)) < 2 + slack
    if resampler == "residual":
        assert np.all(counts >= np.floor(n * weights - slack))


@pytest.mark.parametrize("n", [32, 1000])
@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_edges_of_the_random_numbers(resampler, n, monkeypatch):
    """At the smallest and the largest random number, zeros at both ends and in between stay childless."""

    def resample(bits, log_weights):
        uniform = jnp.minimum(bits.astype(jnp.float32) * 2.0**-32, np.float32(1 - 2**-24))
        monkeypatch.setattr(jax.random, "bits", lambda key, shape=(), dtype=None: jnp.full(shape, bits))
        monkeypatch.setattr(jax.random, "uniform", lambda key, shape=(): jnp.full(shape, uniform))
        return RESAMPLERS[resampler](jax.random.key(0), log_weights)

    rng = np.random.default_rng(n)
    weights = np.where(rng.random((40, n)) < 0.5, 0.0, rng.random((40, n)) ** 3)
    weights[:, [0, -1]] = 0.0
    weights[:, n // 2] = 0.7
    with np.errstate(divide="ignore"):
        log_weights = jnp.asarray(np.log(weights), jnp.float32)
    bits = jnp.tile(jnp.asarray([0, 2**31 - 1, 2**31, 2**32 - 1], jnp.uint32), 10)
    ancestors = np.asarray(jax.jit(jax.vmap(resample))(bits, log_weights))
    assert ancestors.min() >= 0
    assert ancestors.max() < n
    assert np.all(np.take_along_axis(weights, ancestors, axis=1) > 0)


@pytest.mark.parametrize("n", [32, 700, 100_000])
def test_weights_divide_the_line(n):
    """The partition ends exactly at the line's end, keeps order, and gives nothing to weight zero."""
    rng = np.random.default_rng(n)
    total = n << resampling._spacing_bits(n)
    partition = jax.jit(resampling._partition, static_argnums=1)
    assert 2**30 <= total <= 2**31
    for power in (0.0, 1.0, 8.0):
        weights = np.where(rng.random(n) < 0.3, 0.0, rng.random(n) ** power)
        with np.errstate(divide="ignore"):
            ends = np.asarray(partition(jnp.asarray(np.log(weights), jnp.float32), total), np.int64)
        ticks = np.diff(ends, prepend=0)
        assert ends[-1] == total
        assert ticks.min() >= 0
        assert np.all(ticks[weights == 0] == 0)
        share = weights / weights.sum()
        # float32 weights, one tick lost to rounding down, and n ticks shared out again.
        np.testing.assert_allclose(ticks, share * total, rtol=3e-6 + n / total * 1.01, atol=2)


def test_hundred_thousand_particles(key):
    n = 100_000
    log_weights = np.random.default_rng(SEED).normal(size=n)
    ancestors = np.asarray(jax.jit(resampling.systematic)(key, jnp.asarray(log_weights, jnp.float32)))
    assert np.all(np.diff(ancestors) >= 0)
    assert np.max(np.abs(np.bincount(ancestors, minlength=n) - n * _weights(log_weights))) < 1.001


@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_a_common_factor_and_bad_weights_change_nothing(resampler, key):
    # Rounded, so that adding a power of two is exact.
    log_weights = np.round(_log_weights("zeros between") * 2**10) / 2**10
    reference = _ancestors(resampler, key, log_weights)
    np.testing.assert_array_equal(_ancestors(resampler, key, log_weights - 512.0), reference)
    for bad in (np.nan, np.inf):
        marred = np.where(log_weights == -np.inf, bad, log_weights)
        np.testing.assert_array_equal(_ancestors(resampler, key, marred), reference)


@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_without_any_weight_all_count_the_same(resampler, key):
    nothing = _ancestors(resampler, key, np.full(50, -np.inf))
    np.testing.assert_array_equal(nothing, _ancestors(resampler, key, np.zeros(50)))


@pytest.mark.parametrize("case", ["ordinary", "zeros between"])
@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_one_by_one_gives_the_same_as_vmap(resampler, case, key):
    together = _ancestors(resampler, key, _log_weights(case))
    one = jax.jit(RESAMPLERS[resampler])(jax.random.split(key, KEYS)[7], jnp.asarray(_log_weights(case), jnp.float32))
    np.testing.assert_array_equal(together[7], one)


def test_draws_are_independent(key):
    """Two draws of one call agree as often as two independent ones."""
    weights = np.array([0.5, 0.0, 0.3, 0.2])
    with np.errstate(divide="ignore"):
        log_weights = jnp.asarray(np.log(weights), jnp.float32)
    drawn = np.asarray(jax.jit(resampling.draw, static_argnums=2)(key, log_weights, 40_000)).reshape(-1, 2)
    agree = np.sum(weights**2)
    sigma = np.sqrt(agree * (1 - agree))
    np.testing.assert_allclose(np.mean(drawn[:, 0] == drawn[:, 1]), agree, atol=monte_carlo(sigma, len(drawn)))
    assert np.all(weights[drawn] > 0)
