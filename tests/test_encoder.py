"""Embeddings of weighted sets: what they must not depend on, and what they are."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import MODELS
from tolerances import FLOAT

from nbf.models.set_encoder import TABLE_LIMIT, MeanEncoder, TableEncoder, mean_weights
from nbf.spaces import Lattice

SHAPE = (3, 4)
ENCODERS = {
    "network": lambda key: MODELS["dequantized flow"](key, SHAPE),
    "table of the network": lambda key: MODELS["dequantized flow"](key, SHAPE).prepared(),
    "tabular": lambda key: MODELS["tabular"](key, SHAPE),
}
"""key -> something with `embed(states, log_weights)` over `SHAPE`."""
SIZES = [1, 16]
embed = eqx.filter_jit(lambda model, states, log_weights: model.embed(states, log_weights))


@functools.cache
def encoder(name):
    return ENCODERS[name](jax.random.key(3))


@pytest.fixture(params=ENCODERS)
def model(request):
    return encoder(request.param)


@pytest.fixture(params=SIZES)
def weighted_set(request, key):
    """Random states with weights that differ by orders of magnitude."""
    state_key, weight_key = jax.random.split(key)
    states = jax.random.randint(state_key, (request.param, 2), 0, jnp.asarray(SHAPE))
    return states, 3.0 * jax.random.normal(weight_key, (request.param,))


def test_order_does_not_matter(model, weighted_set, key):
    states, log_weights = weighted_set
    order = jax.random.permutation(key, len(log_weights))
    np.testing.assert_allclose(
        embed(model, states[order], log_weights[order]), embed(model, states, log_weights), **FLOAT
    )


def test_a_particle_split_in_two_is_the_same_particle(model, weighted_set):
    """Unevenly: 30 % of the first particle's weight goes to a copy of it."""
    states, log_weights = weighted_set
    split = log_weights.at[0].add(np.log(0.7))
    copied = jnp.append(split, log_weights[0] + np.log(0.3))
    np.testing.assert_allclose(
        embed(model, jnp.concatenate([states, states[:1]]), copied), embed(model, states, log_weights), **FLOAT
    )


@pytest.mark.parametrize("filler", [0, 2, 10_000, -10_000])
def test_entries_of_weight_zero_are_padding(model, weighted_set, filler):
    """Wherever they are, and whatever stands in them."""
    states, log_weights = weighted_set
    padding = jnp.full((5, 2), filler)
    padded = jnp.concatenate([padding, states, padding])
    nothing = jnp.full(5, -jnp.inf)
    np.testing.assert_allclose(
        embed(model, padded, jnp.concatenate([nothing, log_weights, nothing])),
        embed(model, states, log_weights),
        **FLOAT,
    )


@pytest.mark.parametrize("shift", [-1000.0, -80.0, 5.0, 200.0])
def test_only_ratios_of_weights_matter(model, weighted_set, shift):
    """Also where the weights themselves are zero or infinite in float32; adding 1000 costs three digits."""
    states, log_weights = weighted_set
    np.testing.assert_allclose(
        embed(model, states, log_weights + shift), embed(model, states, log_weights), rtol=1e-3, atol=1e-4
    )


def test_the_size_of_the_set_does_not_matter(model, weighted_set):
    states, log_weights = weighted_set
    np.testing.assert_allclose(
        embed(model, jnp.tile(states, (3, 1)), jnp.tile(log_weights, 3)), embed(model, states, log_weights), **FLOAT
    )


def test_it_does_depend_on_states_and_weights(model):
    """Else all of the above would be trivial."""
    states = jnp.asarray([[0, 0], [2, 3]])
    one, other, both = (embed(model, states, jnp.asarray(w)) for w in ([0.0, -9.0], [-9.0, 0.0], [0.0, 0.0]))
    assert np.abs(one - other).max() > 0.1
    assert np.abs(one - both).max() > 0.05


def test_an_embedding_is_the_weighted_mean_of_the_embeddings_of_single_states(model, weighted_set):
    states, log_weights = weighted_set
    singles = [np.asarray(embed(model, state[None], jnp.zeros(1)), np.float64) for state in states]
    weights = np.exp(np.asarray(log_weights, np.float64))
    expected = weights @ np.stack(singles) / weights.sum()
    np.testing.assert_allclose(embed(model, states, log_weights), expected, **FLOAT)


@pytest.mark.parametrize("n", SIZES)
def test_a_set_without_any_weight_is_zero_and_not_nan(model, n):
    theta = embed(model, jnp.zeros((n, 2), jnp.int32), jnp.full(n, -jnp.inf))
    np.testing.assert_array_equal(theta, np.zeros_like(theta))


def test_gradients_are_finite_with_padding_and_extreme_weights(model):
    """Of the parameters and of the weights, with entries of weight zero and of weight e^1000 beside them."""
    states = jnp.asarray([[0, 0], [2, 3], [1, 1], [2, 2]])

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(inputs):
        model, log_weights = inputs
        return jnp.sum(model.embed(states, log_weights) ** 2)

    for log_weights in ([0.0, -jnp.inf, -1.0, -jnp.inf], [1000.0, -1000.0, 999.0, -jnp.inf]):
        for leaf in jax.tree.leaves(gradient((model, jnp.asarray(log_weights)))):
            assert np.all(np.isfinite(leaf))
    # Without any weight at all, that of the parameters is still zero.
    parameters, _ = gradient((model, jnp.full(4, -jnp.inf)))
    for leaf in jax.tree.leaves(parameters):
        np.testing.assert_array_equal(leaf, np.zeros_like(leaf))


def test_a_network_by_hand():
    """The weighted mean of the perceptron's outputs, computed in NumPy."""
    model = encoder("network")
    states = np.array([[0, 0], [2, 3], [1, 2], [2, 3]])
    log_weights = np.array([0.0, -1.0, 0.5, -2.0])
    network = model.encoder.network
    hidden = ((states + 0.5) / np.array(SHAPE) * 2 - 1).T
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        hidden = np.asarray(weight, np.float64) @ hidden + np.asarray(bias, np.float64)[:, None]
        if i < len(network.weights) - 1:
            hidden = np.maximum(hidden, 0.0)
    weights = np.exp(log_weights) / np.exp(log_weights).sum()
    np.testing.assert_allclose(
        embed(model, jnp.asarray(states), jnp.asarray(log_weights, jnp.float32)), hidden @ weights, **FLOAT
    )


def test_the_table_is_the_network(weighted_set):
    states, log_weights = weighted_set
    network, table = encoder("network"), encoder("table of the network")
    assert isinstance(network.encoder, MeanEncoder)
    assert isinstance(table.encoder, TableEncoder)
    assert table.prepared().encoder is table.encoder
    np.testing.assert_allclose(embed(table, states, log_weights), embed(network, states, log_weights), **FLOAT)


def test_a_lattice_too_large_to_tabulate_stays_a_network(key):
    encoder = MeanEncoder(key, 2, 3, width=4, depth=1)
    assert isinstance(encoder.prepared(Lattice((64, TABLE_LIMIT // 64))), TableEncoder)
    assert encoder.prepared(Lattice((65, TABLE_LIMIT // 64))) is encoder


def test_a_tabular_embedding_is_the_weighted_histogram(weighted_set):
    states, log_weights = weighted_set
    weights = np.exp(np.asarray(log_weights, np.float64))
    cells = np.ravel_multi_index(tuple(np.asarray(states).T), SHAPE)
    expected = np.bincount(cells, weights=weights, minlength=12) / weights.sum()
    np.testing.assert_allclose(embed(encoder("tabular"), states, log_weights), expected, **FLOAT)


def test_weights_sum_to_one_unless_there_are_none():
    for log_weights in ([0.0], [-500.0, -501.0], [3e38, -jnp.inf], [-3e38, -jnp.inf]):
        np.testing.assert_allclose(np.sum(mean_weights(jnp.asarray(log_weights))), 1.0, **FLOAT)
    assert float(np.sum(mean_weights(jnp.full(3, -jnp.inf)))) == 0.0
