"""Embeddings of weighted sets: what they must not depend on, and what they are."""

from __future__ import annotations

import functools
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import EMBEDDING, ENCODERS, with_random_parameters
from tolerances import FLOAT

from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.files.checkpoint import load_model, save_model
from nbf.models.attention import AttentionConfig, AttentionTable, attention_weights
from nbf.models.belief_model import MODELS, AnyEncoder, BoxConfig, LatticeConfig, ModelConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.noise_level import NoiseLevelConfig
from nbf.models.set_encoder import TABLE_LIMIT, DeepSetsEncoder, MeanEncoder, OneHotConfig, TableEncoder
from nbf.models.tabular import TabularModel
from nbf.resampling.weights import mean_weights
from nbf.spaces import Box, Lattice

SHAPE = (3, 4)
SPACE = Lattice(SHAPE)
PLANE = Box((-1.0, -1.0), (1.0, 1.0), bounded=False)
ONE_HOT = OneHotConfig(SHAPE, width=8, depth=1)
ON_LATTICES = ENCODERS | {
    "one-hot": lambda key, inputs: with_random_parameters(lambda key: ONE_HOT.build(key, inputs, EMBEDDING), key, 0.7)
}
FORMS = (*ON_LATTICES, *(f"table of {name}" for name in ON_LATTICES), "tabular")
"""Every encoder over `SPACE`, and again as it is prepared for it."""
MEANS = ("mean", "table of mean", "one-hot", "table of one-hot", "tabular")
"""Those that are linear in the weights."""
SIZES = [1, 16]


@functools.cache
def encoder(name):
    if name == "tabular":
        return TabularModel(SPACE)
    made = ON_LATTICES[name.removeprefix("table of ")](jax.random.key(3), SPACE.num_features)
    return made.prepared(SPACE) if name.startswith("table of ") else made


@eqx.filter_jit
def embed(encoder, states, log_weights, space: StateSpace = SPACE):
    tabular = isinstance(encoder, TabularModel)
    return encoder.embed(states, log_weights) if tabular else encoder(states, log_weights, space)


@pytest.fixture(params=FORMS)
def form(request):
    return encoder(request.param)


@pytest.fixture(params=SIZES)
def weighted_set(request, key):
    """Random states with weights that differ by orders of magnitude."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))  # NumPy's, since each size would be compiled
    states = rng.integers(0, SHAPE, (request.param, 2), dtype=np.int32)
    return states, (3.0 * rng.normal(size=request.param)).astype(np.float32)


# What they must not depend on


@pytest.mark.sampled
def test_order_does_not_matter(form, weighted_set, key):
    states, log_weights = weighted_set
    order = np.random.default_rng(np.asarray(jax.random.key_data(key))).permutation(len(log_weights))
    np.testing.assert_allclose(
        embed(form, states[order], log_weights[order]), embed(form, states, log_weights), **FLOAT
    )


@pytest.mark.sampled
def test_a_particle_split_in_parts_is_the_same_particle(form, weighted_set):
    """Unevenly: one particle in parts of 60, 30 and 10 %, the next of 30, 10 and 60, and so on."""
    states, log_weights = weighted_set
    shares = np.stack([np.roll([0.6, 0.3, 0.1], i) for i in range(len(log_weights))], axis=1)
    parts = (log_weights + np.log(shares).astype(np.float32)).ravel()
    np.testing.assert_allclose(embed(form, np.tile(states, (3, 1)), parts), embed(form, states, log_weights), **FLOAT)


@pytest.mark.sampled
@pytest.mark.parametrize("filler", [0, 2, 10_000, -10_000])
def test_entries_of_weight_zero_are_padding(form, weighted_set, filler):
    """Wherever they are, and whatever stands in them."""
    states, log_weights = weighted_set
    padding, nothing = np.full_like(states, filler), np.full_like(log_weights, -np.inf)
    padded = np.concatenate([padding, states, padding])
    np.testing.assert_allclose(
        embed(form, padded, np.concatenate([nothing, log_weights, nothing])),
        embed(form, states, log_weights),
        **FLOAT,
    )


@pytest.mark.sampled
@pytest.mark.parametrize("shift", [-1000.0, -80.0, 5.0, 200.0])
def test_only_ratios_of_weights_matter(form, weighted_set, shift):
    """Also where the weights themselves are zero or infinite in float32; adding 1000 costs three digits."""
    states, log_weights = weighted_set
    np.testing.assert_allclose(
        embed(form, states, log_weights + shift), embed(form, states, log_weights), rtol=1e-3, atol=1e-4
    )


def test_the_size_of_the_set_does_not_matter(form, weighted_set):
    states, log_weights = weighted_set
    np.testing.assert_allclose(
        embed(form, jnp.tile(states, (3, 1)), jnp.tile(log_weights, 3)), embed(form, states, log_weights), **FLOAT
    )


def test_it_does_depend_on_states_and_weights(form):
    """Else all of the above would be trivial."""
    states = jnp.asarray([[0, 0], [2, 3], [2, 3]])
    weights = ([0.0, -9.0, -9.0], [-9.0, -9.0, 0.0], [0.0, 0.0, -9.0])
    one, other, both = (embed(form, states, jnp.asarray(w)) for w in weights)
    assert np.abs(one - other).max() > 0.1
    assert np.abs(one - both).max() > 0.05


# Extremes


@pytest.mark.sampled
@pytest.mark.parametrize("n", SIZES)
def test_a_set_without_any_weight_is_finite_whatever_stands_in_it(form, n):
    nothing = jnp.full(n, -jnp.inf)
    theta = embed(form, jnp.zeros((n, 2), jnp.int32), nothing)
    assert np.all(np.isfinite(theta))
    assert theta.dtype == jnp.float32
    np.testing.assert_array_equal(theta, embed(form, jnp.full((n, 2), 2), nothing))


@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_a_set_without_any_weight_is_zero(name):
    theta = embed(encoder(name), jnp.zeros((1, 2), jnp.int32), jnp.full(1, -jnp.inf))
    np.testing.assert_array_equal(theta, np.zeros_like(theta))


@eqx.filter_jit
def gradient(inputs, states, space):
    return eqx.filter_grad(lambda inputs: jnp.sum(embed(inputs[0], states, inputs[1], space) ** 2))(inputs)


@pytest.mark.sampled
def test_gradients_are_finite_with_padding_and_extreme_weights(form):
    """Of the parameters and of the weights, with entries of weight zero and of weight e^1000 beside them."""
    states = jnp.asarray([[0, 0], [2, 3], [1, 1], [2, 2]])
    for log_weights in ([0.0, -jnp.inf, -1.0, -jnp.inf], [1000.0, -1000.0, 999.0, -jnp.inf]):
        for leaf in jax.tree.leaves(gradient((form, jnp.asarray(log_weights)), states, SPACE)):
            assert np.all(np.isfinite(leaf))
    # Without any weight at all, that of the parameters still is, and zero in what comes before the mean.
    parameters, _ = gradient((form, jnp.full(4, -jnp.inf)), states, SPACE)
    for leaf in jax.tree.leaves(parameters):
        assert np.all(np.isfinite(leaf))
    before = {
        "mean": lambda e: e,
        "one-hot": lambda e: e,
        "deep sets": lambda e: e.mean,
        "attention": lambda e: (e.network, e.queries),
    }
    for name in ON_LATTICES:
        if form is encoder(name):
            for leaf in jax.tree.leaves(before[name](parameters)):
                np.testing.assert_array_equal(leaf, np.zeros_like(leaf))


@pytest.mark.parametrize("name", ENCODERS)
def test_states_and_weights_of_any_size_give_finite_embeddings_and_gradients(name):
    """States that are encoded as ±1000, and weights from e^-700 to e^700, none of which float32 holds."""
    states = jnp.asarray([[1e3, -1e3], [-1e3, 1e3], [1e3, 1e3], [0.0, 0.0]])
    for log_weights in ([-700.0, 700.0, 0.0, -jnp.inf], [700.0, -700.0, -700.0, 700.0], [-700.0] * 4):
        theta = embed(encoder(name), states, jnp.asarray(log_weights), PLANE)
        assert theta.dtype == jnp.float32
        for leaf in jax.tree.leaves((theta, gradient((encoder(name), jnp.asarray(log_weights)), states, PLANE))):
            assert np.all(np.isfinite(leaf))


def test_weights_sum_to_one_unless_there_are_none():
    total = jax.jit(lambda logits: (jnp.sum(mean_weights(logits)), jnp.sum(attention_weights(logits[None, None]))))
    for log_weights in ([0.0, -jnp.inf], [-500.0, -501.0], [3e38, -jnp.inf], [-3e38, -jnp.inf]):
        np.testing.assert_allclose(total(jnp.asarray(log_weights)), (1.0, 1.0), **FLOAT)
    np.testing.assert_array_equal(total(jnp.full(2, -jnp.inf)), (0.0, 0.0))


# What they are


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_is_the_weighted_mean_of_the_embeddings_of_single_states(name, weighted_set):
    states, log_weights = weighted_set
    singles = [np.asarray(embed(encoder(name), state[None], jnp.zeros(1)), np.float64) for state in states]
    weights = np.exp(np.asarray(log_weights, np.float64))
    expected = weights @ np.stack(singles) / weights.sum()
    np.testing.assert_allclose(embed(encoder(name), states, log_weights), expected, **FLOAT)


def perceptron(network, columns):
    """In NumPy and float64: ReLU after every layer but the last."""
    for i, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        columns = np.asarray(weight, np.float64) @ (np.maximum(columns, 0.0) if i else columns)
        columns = columns + np.asarray(bias, np.float64)[:, None]
    return columns


def mean_by_hand(encoder, columns, weights):
    return perceptron(encoder.network, columns) @ weights


def deep_sets_by_hand(encoder, columns, weights):
    return perceptron(encoder.after, mean_by_hand(encoder.mean, columns, weights)[:, None])[:, 0]


def attention_by_hand(encoder, columns, weights):
    """Head by head of query by query; keys and values of a head are its rows of the network's output."""
    queries = np.asarray(encoder.queries, np.float64)
    heads, size = queries.shape[1:]
    keys, values = np.split(perceptron(encoder.network, columns), 2)
    pooled = []
    for query in queries:
        for head in range(heads):
            rows = slice(head * size, (head + 1) * size)
            attention = weights * np.exp(query[head] @ keys[rows] / np.sqrt(size))
            pooled.append(values[rows] @ attention / attention.sum())
    return perceptron(encoder.output, np.concatenate(pooled)[:, None])[:, 0]


BY_HAND = {
    "mean": mean_by_hand,
    "one-hot": mean_by_hand,
    "deep sets": deep_sets_by_hand,
    "attention": attention_by_hand,
}


@pytest.mark.parametrize("name", ON_LATTICES)
def test_an_encoder_by_hand(name, weighted_set):
    """From the formula, in NumPy and float64."""
    states, log_weights = weighted_set
    weights = np.exp(np.asarray(log_weights, np.float64))
    columns = ((np.asarray(states) + 0.5) / np.array(SHAPE) * 2 - 1).T
    if name == "one-hot":
        columns = np.eye(12)[:, np.ravel_multi_index(tuple(np.asarray(states).T), SHAPE)]
    expected = BY_HAND[name](encoder(name), columns, weights / weights.sum())
    assert expected.shape == (EMBEDDING,)
    np.testing.assert_allclose(embed(encoder(name), states, log_weights), expected, **FLOAT)


def test_a_tabular_embedding_is_the_weighted_histogram(weighted_set):
    states, log_weights = weighted_set
    weights = np.exp(np.asarray(log_weights, np.float64))
    cells = np.ravel_multi_index(tuple(np.asarray(states).T), SHAPE)
    expected = np.bincount(cells, weights=weights, minlength=12) / weights.sum()
    np.testing.assert_allclose(embed(encoder("tabular"), states, log_weights), expected, **FLOAT)


# Tables


def test_one_hot_vectors_are_followed_by_the_context():
    space = Lattice(SHAPE, context=jnp.asarray([0.3, -2.0]))
    made = ON_LATTICES["one-hot"](jax.random.key(3), SPACE.num_features + 2)
    columns = np.concatenate([np.eye(12), np.tile([[0.3], [-2.0]], 12)])
    expected = mean_by_hand(made, columns, np.full(12, 1 / 12))
    np.testing.assert_allclose(embed(made, jnp.asarray(SPACE.points()), jnp.zeros(12), space), expected, **FLOAT)
    assert made.prepared(space) is made


@pytest.mark.parametrize("name", ON_LATTICES)
def test_the_table_is_the_network(name, weighted_set):
    states, log_weights = weighted_set
    network, table = encoder(name), encoder(f"table of {name}")
    np.testing.assert_allclose(embed(table, states, log_weights), embed(network, states, log_weights), **FLOAT)


@pytest.mark.parametrize("name", ON_LATTICES)
def test_what_is_prepared_holds_no_network_of_single_states(name, key):
    """On a lattice that is small enough; elsewhere the encoder stays as it is."""
    kinds = {"mean": TableEncoder, "one-hot": TableEncoder, "deep sets": DeepSetsEncoder, "attention": AttentionTable}
    network, table = encoder(name), encoder(f"table of {name}")
    assert type(table) is kinds[name]
    assert not isinstance(network, TabularModel)
    assert not isinstance(table, TabularModel)
    assert jax.tree.structure(table.prepared(SPACE)) == jax.tree.structure(table)
    assert not any(leaf.shape[-1:] == (SPACE.num_features,) for leaf in jax.tree.leaves(table))
    for space in (PLANE, Lattice((65, TABLE_LIMIT // 64))):
        assert eqx.tree_equal(*jax.device_get((network.prepared(space), network)))


def test_the_largest_lattice_to_tabulate(key):
    network = MeanEncoder(key, 2, 3, width=4, depth=1)
    assert isinstance(network.prepared(Lattice((64, TABLE_LIMIT // 64))), TableEncoder)
    assert network.prepared(Lattice((65, TABLE_LIMIT // 64))) is network


# Configs


# A noise level depends on the size of a set: its laws are in test_noise_level.py.
@pytest.mark.parametrize("kind", [kind for kind in get_args(AnyEncoder) if kind is not NoiseLevelConfig])
def test_every_encoder_that_a_config_names_is_held_to_these_laws_and_comes_back_from_a_file(kind, tmp_path):
    settings = kind(SHAPE) if kind is OneHotConfig else kind()
    config = ModelConfig(LatticeConfig(SHAPE), EnumeratedDecoderConfig(4, 0), settings, embedding=2)
    model = with_random_parameters(config.build, jax.random.key(0))
    assert type(model.encoder) in {type(encoder(name)) for name in ON_LATTICES}
    save_model(tmp_path / "model.safetensors", model, config)
    loaded, again, _ = load_model(tmp_path / "model.safetensors", MODELS)
    assert again == config
    assert eqx.tree_equal(*jax.device_get((loaded, model)))


@pytest.mark.parametrize("space", [LatticeConfig((4, 3)), LatticeConfig((12,)), BoxConfig((0.0,), (1.0,))], ids=str)
def test_one_hot_vectors_of_another_lattice_are_refused(space, key):
    decoder = MixtureConfig() if isinstance(space, BoxConfig) else EnumeratedDecoderConfig()
    with pytest.raises(InputError, match=r"each cell of lattice\(3, 4\)"):
        ModelConfig(space, decoder, ONE_HOT).build(key)


@pytest.mark.parametrize("fields", [{"width": 6, "heads": 4}, {"heads": 0}, {"queries": 0}, {"width": 0}], ids=str)
def test_attention_that_cannot_be_built_is_refused(fields, key):
    config = ModelConfig(LatticeConfig(SHAPE), EnumeratedDecoderConfig(4, 0), AttentionConfig(**fields))
    with pytest.raises(InputError, match=next(iter(fields))):
        config.build(key)
