"""Every kind of dequantized flow: its cells sum to one, it samples them, and its bounds lie below and approach them.

What holds of Gridworld's kind alone is in `test_decoders`.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import EMBEDDING, with_random_parameters
from tolerances import FLOAT, monte_carlo

from nbf.errors import InputError
from nbf.models.belief_model import FlowConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.spaces import Box, Lattice

SPACE = Lattice((3, 4))
SMALL: dict[str, Any] = {
    "layers": 2,
    "width": 8,
    "depth": 1,
    "noise_width": 8,
    "noise_depth": 1,
    "bins": 4,
    "quadrature": 24,
}
KINDS = {
    "goofspiel": DequantizedFlowConfig("nlsq", "normal", "coupling", **SMALL),
    "spline, uniform noise": DequantizedFlowConfig("spline", "uniform", "uniform", **SMALL),
    "affine, normal": DequantizedFlowConfig("affine", "normal", "mlp", **SMALL),
}
each_kind = pytest.mark.parametrize("name", KINDS)
ROWS = 2000
CONDITION = jnp.asarray([0.5, -1.0, 2.0])
QUADRATURE = 3e-3
"""What a Gauss-Legendre rule loses at the box's edges, where a flow's density may be steep."""


@functools.cache
def decoder_of(name):
    return with_random_parameters(lambda key: KINDS[name].build(key, SPACE, EMBEDDING), jax.random.key(2), scale=0.2)


@functools.cache
def log_probs(name):
    """Of every cell, by quadrature."""
    run = eqx.filter_jit(lambda decoder: decoder.log_prob(CONDITION, jnp.asarray(SPACE.points()), SPACE))
    return np.asarray(run(decoder_of(name)), np.float64)


@eqx.filter_jit
def estimates(decoder, keys, samples):
    """Independent estimates for every cell, a row for each key."""
    states = jnp.asarray(SPACE.points())
    return jax.vmap(lambda key: decoder.log_prob_estimate(key, CONDITION, states, SPACE, samples))(keys)


@pytest.mark.slow
@each_kind
def test_cells_sum_to_one(name):
    probs = np.exp(log_probs(name))
    assert probs.std() > 0.01
    np.testing.assert_allclose(probs.sum(), 1.0, rtol=0, atol=QUADRATURE)


@pytest.mark.slow
@each_kind
def test_samples_have_the_probabilities_it_says(name, key):
    run = eqx.filter_jit(lambda decoder, key: decoder.sample(key, CONDITION, 40_000, SPACE))
    states = np.asarray(run(decoder_of(name), key))
    probs = np.exp(log_probs(name))
    counts = np.bincount(np.ravel_multi_index(tuple(states.T), SPACE.shape), minlength=SPACE.size)
    assert_frequencies(counts, probs / probs.sum(), detects=0.03)


@functools.cache
def tables(name, samples):
    return np.asarray(estimates(decoder_of(name), jax.random.split(jax.random.key(9), ROWS), samples), np.float64)


@pytest.mark.slow
@each_kind
def test_estimates_rise_with_samples_from_the_bound_to_the_log_probability(name):
    """In the mean: the bound, which is the estimate of one sample, then of 16, then quadrature."""
    one, many = (tables(name, samples) for samples in (1, 16))
    assert one.shape == (ROWS, SPACE.size)
    means = [one.mean(axis=0), many.mean(axis=0), log_probs(name)]
    errors = [monte_carlo(table.std(axis=0), ROWS, k=5) for table in (one, many)] + [np.full(SPACE.size, QUADRATURE)]
    for lower, higher, low_error, high_error in zip(means[:-1], means[1:], errors[:-1], errors[1:], strict=True):
        np.testing.assert_array_less(lower, higher + low_error + high_error)
    # Over all cells the rise is seen, not only not contradicted.
    assert means[0].mean() < means[1].mean() - 1e-3


@pytest.mark.sampled
@each_kind
def test_weights_of_the_noise_average_to_the_probability(name):
    """E_q[p(x + u) / q(u | x)] = P(x), whatever the noise q is."""
    weights = np.exp(tables(name, 1) - log_probs(name))
    error = np.abs(weights.mean(axis=0) - 1.0)
    np.testing.assert_array_less(error, monte_carlo(weights.std(axis=0), ROWS, k=5) + QUADRATURE)


def test_the_objective_is_the_bound_of_every_belief(key):
    """Its mean over the noise, for a batch of beliefs, is the mean of the estimate of one sample."""
    decoder = decoder_of("goofspiel")
    conditions = jnp.stack([-CONDITION, CONDITION])
    states = jnp.stack([jnp.asarray(SPACE.points())] * 2)
    run = eqx.filter_jit(lambda keys: jax.vmap(lambda key: decoder.objective(key, conditions, states, SPACE))(keys))
    values, single = np.asarray(run(jax.random.split(key, ROWS)), np.float64), tables("goofspiel", 1)
    assert values.shape == (ROWS, 2, SPACE.size)
    slack = monte_carlo(np.hypot(values[:, 1].std(axis=0), single.std(axis=0)), ROWS, k=5)
    np.testing.assert_array_less(np.abs(values[:, 1].mean(axis=0) - single.mean(axis=0)), slack)


@pytest.mark.slow
@each_kind
def test_bounds_have_finite_gradients_at_extremes(name):
    """At the corners of the box, with noise at the ends of its range, for embeddings of any size."""
    states = jnp.asarray(SPACE.points()).T[:, :, None]
    uniform = jnp.asarray([[0.0, 1e-6, 0.5, 1.0 - 1e-7], [0.5, 0.0, 1.0 - 1e-7, 1.0 - 1e-7]])[:, None]

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def bound(decoder, embedding):
        return jnp.mean(decoder.log_ratio(embedding, states, uniform))

    for size in (1.0, 100.0):
        value, gradient = bound(decoder_of(name), size * CONDITION[:, None, None])
        assert np.isfinite(value)
        for leaf in jax.tree.leaves(gradient):
            assert np.all(np.isfinite(leaf))


def test_uniform_noise_has_no_parameters():
    assert decoder_of("spline, uniform noise").noise is None
    assert decoder_of("spline, uniform noise").noise_projection is None


def test_the_defaults_are_gridworlds_decoder(key):
    """The same decoder that the paper's Gridworld config builds, parameter by parameter."""
    sizes: dict[str, Any] = {"layers": 2, "width": 4, "depth": 1, "noise_width": 4, "noise_depth": 1}
    theirs = FlowConfig((3, 4), flow_layers=2, flow_width=4, flow_depth=1, noise_width=4, noise_depth=1)
    decoder_key = jax.random.split(key)[1]
    one = jax.jit(lambda key: DequantizedFlowConfig(**sizes).build(key, SPACE, theirs.embedding))(decoder_key)
    other = jax.jit(lambda key: theirs.build(key).decoder)(key)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, **FLOAT)


REFUSED = {
    "dimension 1": (DequantizedFlowConfig(), Lattice((5,)), "dimension 1"),
    "a box": (DequantizedFlowConfig(), Box((0.0, 0.0), (1.0, 1.0)), "box.*coupling flow"),
    "no such transform": (DequantizedFlowConfig("cubic"), SPACE, "transform.*affine.*'cubic'"),
    "no such base": (DequantizedFlowConfig(base="cauchy"), SPACE, "base.*normal.*'cauchy'"),
    "no such noise": (DequantizedFlowConfig(noise="white"), SPACE, "noise.*coupling.*'white'"),
    "too many points": (DequantizedFlowConfig(quadrature=65), SPACE, "quadrature.*at most 64.*65"),
    "too many in 7-D": (DequantizedFlowConfig(quadrature=4), Lattice((2,) * 7), "quadrature.*at most 3.*4"),
}


@pytest.mark.parametrize(("config", "space", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(config, space, message):
    with pytest.raises(InputError, match=message):
        config.check(space)


def test_an_estimate_of_no_samples_is_refused(key):
    with pytest.raises(InputError, match=r"samples.*0"):
        decoder_of("goofspiel").log_prob_estimate(key, CONDITION, jnp.asarray(SPACE.points()), SPACE, 0)
