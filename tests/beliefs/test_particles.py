"""Log weights and the belief that weighted particles are, against NumPy and SciPy in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from tolerances import FLOAT, SEED, monte_carlo

from nbf.beliefs.particles import ParticleBelief
from nbf.errors import InputError
from nbf.resampling.weights import effective_sample_size, normalize


def _log_weights(name: str) -> np.ndarray:
    rng = np.random.default_rng(SEED)
    return {
        "ordinary": rng.normal(size=32),
        "1e-300 to 1": np.linspace(np.log(1e-300), 0.0, 32),
        "all tiny": rng.normal(size=32) - 5000.0,
        "all huge": rng.normal(size=32) + 5000.0,
        "some zero": np.where(np.arange(32) % 3 == 0, -np.inf, rng.normal(size=32)),
        "one": np.array([-3.0]),
    }[name]


NORMALIZE, SIZE = jax.jit(normalize), jax.jit(effective_sample_size)
CASES = ["ordinary", "1e-300 to 1", "all tiny", "all huge", "some zero", "one"]


@pytest.mark.parametrize("case", CASES)
def test_normalize_is_log_sum_exp(case):
    # The truth starts from what float32 makes of the weights: near 5000 that is a matter of 2e-4.
    given = jnp.asarray(_log_weights(case), jnp.float32)
    exact = np.asarray(given, np.float64)
    log_weights, log_total = NORMALIZE(given)
    total = scipy.special.logsumexp(exact)
    np.testing.assert_allclose(log_total, total, **FLOAT)
    np.testing.assert_allclose(log_weights, exact - total, rtol=FLOAT["rtol"], atol=1e-3 if "all" in case else 1e-5)
    np.testing.assert_allclose(scipy.special.logsumexp(np.asarray(NORMALIZE(log_weights)[0], np.float64)), 0, **FLOAT)


@pytest.mark.parametrize("case", CASES)
def test_effective_sample_size(case):
    given = jnp.asarray(_log_weights(case), jnp.float32)
    weights = scipy.special.softmax(np.asarray(given, np.float64))
    np.testing.assert_allclose(SIZE(given), 1 / np.sum(weights**2), **FLOAT)


def test_effective_sample_size_of_the_extremes():
    np.testing.assert_allclose(SIZE(np.full(40, -7.0, np.float32)), 40.0, **FLOAT)
    np.testing.assert_allclose(SIZE(np.asarray([0.0, -np.inf, -200.0], np.float32)), 1.0, **FLOAT)


@pytest.mark.parametrize("bad", [-jnp.inf, jnp.inf, jnp.nan])
def test_no_weight_at_all_is_never_nan(bad):
    log_weights, log_total = normalize(jnp.full(5, bad))
    np.testing.assert_array_equal(log_weights, np.full(5, -np.inf))
    assert log_total == -jnp.inf
    assert effective_sample_size(jnp.full(5, bad)) == 0.0


@pytest.mark.parametrize("bad", [jnp.inf, jnp.nan])
def test_nan_and_infinite_weights_count_as_none(bad):
    given = jnp.asarray([0.0, bad, 1.0])
    kept = jnp.asarray([0.0, -jnp.inf, 1.0])
    for marred, clean in zip(normalize(given), normalize(kept), strict=True):
        np.testing.assert_array_equal(marred, clean)
    np.testing.assert_array_equal(effective_sample_size(given), effective_sample_size(kept))


def _belief() -> tuple[ParticleBelief, np.ndarray]:
    """Six particles of a two-leaf state, two of them equal; not normalised; one without weight."""
    states = {"cell": jnp.asarray([[0, 1], [2, 3], [0, 1], [0, 2], [5, 5], [0, 1]]), "card": jnp.arange(6) // 3}
    weights = np.array([1.0, 2.0, 3.0, 4.0, 0.0, 6.0])
    with np.errstate(divide="ignore"):
        return ParticleBelief(states, jnp.asarray(np.log(weights) + 7.0, jnp.float32)), weights / weights.sum()


def test_expectation_is_the_weighted_mean():
    belief, weights = _belief()
    mean = jax.jit(lambda b: b.expectation(lambda x: {"square": x["cell"] ** 2, "card": x["card"] == 1}))(belief)
    np.testing.assert_allclose(mean["square"], weights @ np.asarray(belief.states["cell"]) ** 2, **FLOAT)
    np.testing.assert_allclose(mean["card"], weights @ np.array([0, 0, 0, 1, 1, 1]), **FLOAT)


def test_expectation_does_not_look_where_the_weight_is_zero():
    belief, weights = _belief()
    mean = belief.expectation(lambda x: 1.0 / (5.0 - x["cell"][0]))
    truth = weights[:4] @ (1.0 / (5.0 - np.array([0, 2, 0, 0]))) + weights[5] / 5.0
    np.testing.assert_allclose(mean, truth, **FLOAT)


def test_log_prob_adds_up_equal_states():
    belief, weights = _belief()

    def prob(cell, card):
        return np.exp(belief.log_prob({"cell": jnp.asarray(cell), "card": jnp.asarray(card)}))

    np.testing.assert_allclose(prob([0, 1], 0), weights[0] + weights[2], **FLOAT)
    np.testing.assert_allclose(prob([0, 1], 1), weights[5], **FLOAT)
    np.testing.assert_allclose(prob([2, 3], 0), weights[1], **FLOAT)
    assert prob([5, 5], 1) == 0.0
    assert prob([0, 1], 2) == 0.0


def test_log_prob_over_all_states_sums_to_one_under_vmap():
    n = 200
    rng = np.random.default_rng(SEED)
    belief = ParticleBelief(jnp.asarray(rng.integers(0, 9, n)), jnp.asarray(rng.normal(size=n), jnp.float32))
    log_probs = jax.jit(jax.vmap(belief.log_prob))(jnp.arange(12))
    np.testing.assert_allclose(np.sum(np.exp(log_probs)), 1.0, **FLOAT)
    np.testing.assert_array_equal(log_probs[9:], np.full(3, -np.inf))
    everything = ParticleBelief(jnp.zeros(n, int), belief.log_weights)
    assert everything.log_prob(jnp.asarray(0)) <= 0.0


def test_sample_frequencies(key):
    belief, weights = _belief()
    n = 20_000
    samples = jax.jit(lambda k, b: b.sample(k, n))(key, belief)
    assert samples["cell"].shape == (n, 2)
    match = (samples["cell"][:, None, :] == belief.states["cell"]).all(-1)
    match &= samples["card"][:, None] == belief.states["card"]
    share = np.asarray(match).mean(axis=0)
    truth = weights.copy()
    truth[[0, 2]] = weights[0] + weights[2]
    np.testing.assert_array_less(np.abs(share - truth), monte_carlo(np.sqrt(truth * (1 - truth)), n) + 1e-9)


def test_many_beliefs_are_one_vmap(key):
    log_weights = jnp.asarray(np.random.default_rng(SEED).normal(size=(3, 10)), jnp.float32)
    states = np.tile(np.arange(10), (3, 1))

    @jax.jit
    @jax.vmap
    def of_each(key, states, log_weights):
        belief = ParticleBelief(states, log_weights)
        return belief.expectation(lambda x: x), belief.sample(key, 4)

    means, samples = of_each(jax.random.split(key, 3), states, log_weights)
    np.testing.assert_allclose(means, scipy.special.softmax(log_weights, axis=1) @ np.arange(10), **FLOAT)
    assert samples.shape == (3, 4)


@pytest.mark.parametrize(
    ("states", "log_weights", "message"),
    [
        (jnp.arange(3), jnp.zeros(4), "same length"),
        (jnp.arange(0), jnp.zeros(0), "n >= 1"),
        ({}, jnp.zeros(4), "same length"),
        (jnp.arange(2), jnp.full(2, -jnp.inf), "at least one that is finite"),
        (jnp.arange(2), jnp.asarray([0.0, jnp.nan]), "1 NaN"),
    ],
)
def test_bad_beliefs_are_refused(states, log_weights, message):
    with pytest.raises(InputError, match=message):
        ParticleBelief(states, log_weights)
