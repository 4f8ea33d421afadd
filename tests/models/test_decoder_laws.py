"""The laws of every decoder on every space that it fits."""

from __future__ import annotations

import functools
import itertools
from dataclasses import asdict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import DECODERS, EMBEDDING, with_random_parameters
from tolerances import FLOAT, WEIGHT_SIGMA, monte_carlo

from nbf.errors import InputError
from nbf.files.checkpoint import load_model, save_model
from nbf.models.belief_model import MODELS, ModelConfig, space_config
from nbf.models.set_encoder import MeanConfig
from nbf.spaces import Box, Lattice, Tokens

each_decoder = pytest.mark.parametrize("name", DECODERS)
DRAWS = 20_000
CELLS = 12
"""Along each axis of a plane, in which draws are counted."""
FINE = 16
"""Points of the quadrature along each axis of such a cell."""
WIDE = 3.0
"""How far an unbounded space is looked at, in units of its usual range; what lies beyond is counted by draws."""
QUADRATURE = 4e-3
"""What the midpoint rule misses of densities with kinks, and of those that are steep at the ends of a box."""


@functools.cache
def model_of(name):
    space, decoder = DECODERS[name]
    config = ModelConfig(space_config(space), decoder, MeanConfig(width=8, depth=1), embedding=EMBEDDING)
    # Over a box's logits a density may be infinite at its ends, unless the flow is near the identity.
    scale = 0.08 if "uniform base" in name or "dequantized" in name else 0.15
    return config, with_random_parameters(config.build, jax.random.key(11), scale=scale)


@functools.cache
def compiled(name):
    """Everything that the laws look at, compiled at once: compiling takes longer than any law."""
    space, _ = DECODERS[name]
    _, model = model_of(name)
    places = jnp.asarray(points(space))

    @eqx.filter_jit
    def look(model, places, key, embedding):
        states = model.sample(key, embedding, DRAWS, space)
        legal = jax.vmap(space.contains)(states)
        return states, legal, model.log_prob(embedding, places, space)

    return functools.partial(look, model, places)


def axes(space: Box, count: int) -> list[np.ndarray]:
    """The edges of `count` equal intervals along each axis."""
    reaches = np.where(space.bounded | space.wraps, 1.0, WIDE)
    ends = [(m - reach * s, m + reach * s) for m, s, reach in zip(space.middle, space.scale, reaches, strict=True)]
    return [np.linspace(*each, count + 1) for each in ends]


def points(space) -> np.ndarray:
    """Every state, or the middles of a fine grid."""
    if isinstance(space, Lattice):
        return space.points()
    if isinstance(space, Tokens):
        return np.asarray(list(itertools.product(range(space.categories), repeat=space.length)), np.int32)
    middles = [(edges[1:] + edges[:-1]) / 2.0 for edges in axes(space, CELLS * FINE)]
    return np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, space.dimension).astype(np.float32)


def masses(space, log_probs) -> np.ndarray:
    """The probability of every state, or of every cell of the coarse grid."""
    probs = np.exp(np.asarray(log_probs, np.float64))
    if not isinstance(space, Box):
        return probs
    volume = np.prod([edges[1] - edges[0] for edges in axes(space, CELLS * FINE)])
    shape = [part for _ in range(space.dimension) for part in (CELLS, FINE)]
    return volume * probs.reshape(shape).sum(axis=tuple(range(1, 2 * space.dimension, 2))).ravel()


def counts(space, states, weights=None) -> np.ndarray:
    """How many of the draws are each state, or lie in each cell, or their weight; the last entry is beyond."""
    states = np.asarray(states)
    if isinstance(space, Box):
        inner = np.histogramdd(states, axes(space, CELLS), weights=weights)[0].ravel()
        return np.append(inner, (len(states) if weights is None else weights.sum()) - inner.sum())
    shape = space.shape if isinstance(space, Lattice) else (space.categories,) * space.length
    cells = np.ravel_multi_index(tuple(states.T), shape)
    return np.append(np.bincount(cells, weights, minlength=int(np.prod(shape))), 0)


@pytest.mark.sampled
@each_decoder
def test_it_is_a_distribution_that_it_draws_from(name, key):
    """Draws are legal, probabilities sum to one, and draws have the probabilities that they are said to have."""
    space, decoder = DECODERS[name]
    embedding = jax.random.normal(key, (EMBEDDING,))
    states, legal, log_probs = compiled(name)(key, embedding)
    probs = masses(space, log_probs)
    assert np.all(np.isfinite(np.asarray(states, np.float64)))
    if not name.startswith("dequantized"):  # a flow over cells does not know the walls
        assert np.all(legal)
    seen = counts(space, states)
    beyond = seen[-1] / DRAWS
    chance = float(monte_carlo(np.sqrt(beyond * (1.0 - beyond)), DRAWS))
    samples = getattr(decoder, "importance_samples", 0)  # probabilities that are estimates
    guessed = float(monte_carlo(WEIGHT_SIGMA, samples)) if samples else 0.0
    np.testing.assert_allclose(probs.sum() + beyond, 1.0, rtol=0, atol=QUADRATURE + chance + guessed)
    assert probs.std() > 1e-4
    assert_frequencies(seen[:-1], probs / probs.sum(), detects=0.09)


EVEN = ("affine flow, normal base", "nlsq flow, uniform base", "mixture", "mixture on a cylinder",
        "dequantized flow, mlp noise", "autoregressive", "autoregressive, masked")  # fmt: skip
"""One of each kind whose `draw` is its own."""
FEW, SETS = 16, 1000


@functools.cache
def drawn(name):
    """Many small weighted sets for one embedding, and log p of every place."""
    space, _ = DECODERS[name]
    _, model = model_of(name)
    embedding = jax.random.normal(jax.random.key(5), (EMBEDDING,))

    @eqx.filter_jit
    def look(model, keys, places):
        states, log_weights = jax.vmap(lambda key: model.draw(key, embedding, FEW, space))(keys)
        numbers = jax.vmap(jax.vmap(space.encode))(states)
        return (
            states,
            jax.nn.softmax(log_weights),
            jnp.sin(2.0 * numbers[..., 0]),
            model.log_prob(embedding, places, space),
        )

    found = look(model, jax.random.split(jax.random.key(6), SETS), jnp.asarray(points(space)))
    return tuple(np.asarray(part, np.int64 if part.dtype == jnp.int32 else np.float64) for part in found)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*EVEN, "enumerated"])
def test_weighted_draws_stand_for_the_distribution(name):
    """The mean weight of every state, or of every cell, is its probability."""
    space, _ = DECODERS[name]
    states, weights, _, log_probs = drawn(name)
    probs = masses(space, log_probs)
    shares = np.stack([counts(space, some, own)[:-1] for some, own in zip(states, weights, strict=True)])
    chance = monte_carlo(np.maximum(shares.std(axis=0), np.sqrt(probs / FEW)), SETS, k=5)
    np.testing.assert_array_less(np.abs(shares.mean(axis=0) - probs), chance + QUADRATURE * probs + 1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("name", EVEN)
def test_even_draws_vary_less_than_independent_ones(name):
    """The mean of a smooth function over a set, by more than four standard errors of its variance."""
    _, weights, values, _ = drawn(name)
    means = np.sum(weights * values, axis=1)
    variance = np.mean(np.sum(weights * (values - means.mean()) ** 2, axis=1))
    assert means.var() * (1.0 + monte_carlo(np.sqrt(2.0), SETS)) < variance / FEW


@pytest.mark.parametrize("name", ["autoregressive", "autoregressive, masked"])
def test_sequences_are_drawn_once_each(name):
    space, _ = DECODERS[name]
    states, weights, _, _ = drawn(name)
    for some, own in zip(states[:50], weights[:50], strict=True):
        kept = [tuple(state) for state, weight in zip(some.tolist(), own, strict=True) if weight > 0]
        assert len(set(kept)) == len(kept) == (FEW if name == "autoregressive" else 6)
        assert name == "autoregressive" or all(len(set(sequence)) == space.length for sequence in kept)


def test_all_sequences_are_drawn_where_there_is_room_for_them():
    """Each with its own probability: the 6 permutations among 16 places."""
    space, _ = DECODERS["autoregressive, masked"]
    states, weights, _, log_probs = drawn("autoregressive, masked")
    for some, own in zip(states[:50], weights[:50], strict=True):
        np.testing.assert_allclose(counts(space, some, own)[:-1], np.exp(log_probs), **FLOAT)


@pytest.mark.sampled
@each_decoder
def test_its_gradients_are_finite_at_extreme_inputs(name, key):
    """Of the objective, for embeddings of 1e3 and for states at the ends of the space and beyond."""
    space, _ = DECODERS[name]
    _, model = model_of(name)
    embeddings = jnp.stack([jnp.full(EMBEDDING, 1e3), jnp.full(EMBEDDING, -1e3), jnp.zeros(EMBEDDING)])
    some = points(space)[:: max(1, len(points(space)) // 7)][:7]
    if isinstance(space, Box):
        ends = 1.0 if space.bounded else 100.0
        some = np.concatenate([some, [space.middle + ends * space.scale, space.middle - ends * space.scale]])
    elif name in ("enumerated", "autoregressive, masked"):
        some = some[np.asarray(jax.vmap(space.contains)(jnp.asarray(some)))]
    states = jnp.broadcast_to(jnp.asarray(some, points(space).dtype), (3, *some.shape))

    def loss(parameters, static):
        spaces = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), space)
        return -jnp.mean(eqx.combine(parameters, static).objective(key, embeddings, states, spaces))

    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    value, gradient = eqx.filter_jit(jax.value_and_grad(loss))(parameters, static)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@each_decoder
def test_saved_and_loaded_it_gives_the_same_numbers(name, tmp_path):
    config, model = model_of(name)
    save_model(tmp_path / "model.safetensors", model, config)
    loaded, found, _ = load_model(tmp_path / "model.safetensors", MODELS)
    assert asdict(found) == asdict(config)
    assert found == config
    for one, other in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(model) == jax.tree.structure(loaded)


SPACES = {"a line": Box((0.0,), (1.0,)), "a plane": Box((0.0,) * 2, (1.0,) * 2),
          "a cylinder": Box((0.0,) * 2, (1.0,) * 2, circular=(0,)), "a row": Lattice((4,)),
          "a grid": Lattice((3, 3)), "tokens": Tokens(2, 3)}  # fmt: skip
FITS = {
    "CouplingFlowConfig": {"a plane"}, "MixtureConfig": {"a line", "a plane", "a cylinder"},
    "FlowMatchingConfig": {"a line", "a plane"}, "DequantizedFlowConfig": {"a grid", "tokens"},
    "EnumeratedDecoderConfig": {"a row", "a grid"}, "AutoregressiveConfig": {"tokens"},
}  # fmt: skip
KINDS = {type(decoder).__name__: decoder for _, decoder in DECODERS.values()}


@pytest.mark.parametrize("where", SPACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_that_does_not_fit_a_space_is_refused_when_the_model_is_built(kind, where):
    space = SPACES[where]
    config = ModelConfig(space_config(space), KINDS[kind], MeanConfig(8, 1), embedding=EMBEDDING)
    if where in FITS[kind]:
        eqx.filter_eval_shape(config.build, jax.random.key(0))
    else:
        with pytest.raises(InputError, match=r"fit|dimension|Lattice|Tokens|Box") as error:
            config.build(jax.random.key(0))
        assert space.signature in str(error.value)
        assert (
            where != "a cylinder" or "Flow" not in kind or kind.startswith("Deq") or "MixtureConfig" in str(error.value)
        )
