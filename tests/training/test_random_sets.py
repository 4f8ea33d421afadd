"""Training on random sets: sizes and weights as a filter's particles have them, without bias, and only if asked for."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import MODELS
from paths import RESULTS
from scipy import special
from tolerances import FLOAT, monte_carlo

from nbf.spaces import Lattice
from nbf.training.config import FitConfig, described
from nbf.training.loss import batch_loss, random_log_weights

KEY = jax.random.key(12)
SETS = 10_000
HALF = 8


@functools.cache
def random_sets(n=HALF):
    """Weights of many sets, in float64."""
    draw = jax.jit(jax.vmap(lambda key: random_log_weights(key, n)))
    return np.exp(np.asarray(draw(jax.random.split(KEY, SETS)), np.float64))


@pytest.mark.parametrize("half", [3, HALF])
def test_a_random_set_is_of_any_size_between_its_bounds_and_padded(half):
    """The size is the whole part of a log-uniform number: it is k with a probability in proportion to log (k+1)/k."""
    weights = random_sets(half)
    sizes = np.sum(weights > 0, axis=1)
    np.testing.assert_array_equal(weights > 0, np.arange(half) < sizes[:, None])
    least = min(4, half)
    assert (sizes.min(), sizes.max()) == (least, half)
    probs = [np.log((k + 1) / k) / np.log((half + 1) / least) for k in range(least, half + 1)]
    assert_frequencies(np.bincount(sizes, minlength=half + 1)[least:], probs, detects=0.06)


def test_random_weights_are_gamma_variables():
    """Of every concentration between 0.2 and 10: E[w] = E[a], E[w²] = E[a(a + 1)], E[log w] = E[ψ(a)], each the mean
    over a log-uniform a, by quadrature."""
    first = random_sets()[:, 0]
    log_a = np.linspace(np.log(0.2), np.log(10.0), 10_001)
    a = np.exp(log_a)
    for actual, moment in ((first, a), (first**2, a * (a + 1)), (np.log(first), special.digamma(a))):
        truth = np.trapezoid(moment, log_a) / (log_a[-1] - log_a[0])
        np.testing.assert_allclose(actual.mean(), truth, rtol=0, atol=monte_carlo(actual.std(), SETS))


def test_random_weights_represent_the_belief_without_bias():
    """Every sample has the same share on average, given the size of the set, and shares are far from even."""
    weights = random_sets()
    sizes = np.sum(weights > 0, axis=1)
    shares = weights / weights.sum(axis=1, keepdims=True)
    for size in range(4, HALF + 1):
        some = shares[sizes == size][:, :size]
        np.testing.assert_array_less(np.abs(some.mean(axis=0) - 1 / size), monte_carlo(some.std(axis=0), len(some)))
    effective = 1.0 / np.sum(shares**2, axis=1)
    assert np.quantile(effective, 0.1) < 2.0
    assert np.quantile(effective, 0.9) > 5.0


def test_the_loss_of_random_sets_is_that_of_their_weights(key):
    """Belief by belief: the second half given the first, weighted as the step's key has it."""
    model = MODELS["enumerated"](key, (3, 3))
    cells = np.random.default_rng(1).integers(0, 9, (2, 10))
    states = jnp.asarray(Lattice((3, 3)).points()[cells])
    spaces = jax.vmap(lambda legal: Lattice((3, 3), legal))(jnp.ones((2, 9), bool))

    @jax.jit
    def log_probs(states, log_weights):
        theta = model.embed(states, log_weights)
        return model.log_prob(theta, jnp.asarray(Lattice((3, 3)).points()), Lattice((3, 3)))

    def by_hand(log_weights):
        given = [log_probs(states[belief, :5], log_weights[belief]) for belief in range(2)]
        return -np.mean([np.asarray(given[belief])[cells[belief, 5:]] for belief in range(2)])

    draw = jax.jit(lambda key: random_log_weights(key, 5))
    expected = by_hand([draw(set_key) for set_key in jax.random.split(jax.random.split(key)[1], 2)])
    loss = eqx.filter_jit(batch_loss)(model, key, states, spaces, random_sets=True)
    np.testing.assert_allclose(loss, expected, **FLOAT)
    assert abs(by_hand(jnp.zeros((2, 5))) - expected) > 1e-3


def test_configs_are_described_as_when_they_were_recorded():
    """Those of the committed records, too; and whatever differs from a default is told."""
    plain = {"steps": 5, "batch": 4, "samples": 8, "optimizer": "adam", "learning_rate": 0.01}
    config = FitConfig(**plain)
    assert described(config) == plain
    assert described(replace(config, random_sets=True)) == {**plain, "random_sets": True}
    runs = json.loads((RESULTS / "gridworld" / "runs.json").read_text())
    configs = [run["config"]["training"] for run in runs if "training" in run["config"]]  # kernels need none
    assert configs
    for recorded in configs:
        assert described(FitConfig(**recorded)) == recorded
