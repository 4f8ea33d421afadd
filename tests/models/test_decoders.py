"""Every decoder: its probabilities sum to one, it samples what it says, and its objective bounds them."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import FLOW, MODELS, SOFTMAX, an_embedding, with_random_parameters
from tolerances import FLOAT, monte_carlo

from nbf import prng
from nbf.beliefs.model import ModelBelief
from nbf.errors import InputError
from nbf.models.belief_model import EnumeratedConfig, FlowConfig
from nbf.models.flow import EDGE
from nbf.spaces import Lattice

SHAPES = [(5,), (3, 4), (2, 3, 2)]
each_model = pytest.mark.parametrize("name", MODELS)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
QUADRATURE = {"rtol": 0, "atol": 1e-3}
"""What a Gauss-Legendre rule loses at the box's edges, where a flow's density may be steep."""


@functools.cache
def model_of(name, shape):
    return MODELS[name](jax.random.key(7), shape)


@eqx.filter_jit
def log_probs(model, embedding, space):
    return model.log_prob(embedding, jnp.asarray(space.points()), space)


@eqx.filter_jit
def draw(model, key, embedding, n, space):
    return model.sample(key, embedding, n, space)


def cells(states, shape):
    return np.ravel_multi_index(tuple(np.asarray(states).T), shape)


@pytest.mark.sampled
@each_model
@each_shape
def test_probabilities_sum_to_one_over_the_cells(name, shape, key):
    model = model_of(name, shape)
    for belief in range(3):
        probs = np.exp(log_probs(model, an_embedding(model, jax.random.fold_in(key, belief)), model.space))
        assert probs.std() > 1e-3
        np.testing.assert_allclose(probs.sum(), 1.0, **QUADRATURE)


@pytest.mark.sampled
@each_model
@each_shape
def test_samples_have_the_probabilities_it_says(name, shape, key):
    model = model_of(name, shape)
    embedding = an_embedding(model, key)
    states = draw(model, key, embedding, 40_000, model.space)
    assert states.shape == (40_000, len(shape))
    assert np.all((np.asarray(states) >= 0) & (np.asarray(states) < shape))
    probs = np.exp(np.asarray(log_probs(model, embedding, model.space), np.float64))
    counts = np.bincount(cells(states, shape), minlength=len(probs))
    assert_frequencies(counts, probs / probs.sum(), detects=0.03)


@each_model
def test_different_embeddings_are_different_beliefs(name, key):
    model = model_of(name, (3, 4))
    one, other = (log_probs(model, an_embedding(model, jax.random.fold_in(key, i)), model.space) for i in range(2))
    assert np.abs(np.exp(one) - np.exp(other)).max() > 1e-3


@each_model
def test_the_objective_is_at_most_the_log_probability(name, key):
    """In the mean over its noise, for every belief and state; equal to it where there is no noise."""
    model = model_of(name, (3, 4))
    embeddings = jnp.stack([an_embedding(model, jax.random.fold_in(key, i)) for i in range(2)])
    states = jnp.asarray(model.space.points())
    spaces = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), model.space)
    draws = 2000

    @jax.jit
    def objectives(keys):
        return jax.vmap(lambda key: model.objective(key, embeddings, jnp.stack([states] * 2), spaces))(keys)

    values = np.asarray(objectives(jax.random.split(key, draws)), np.float64)
    assert values.shape == (draws, 2, 12)
    truth = np.stack([log_probs(model, embedding, model.space) for embedding in embeddings])
    slack = monte_carlo(values.std(axis=0), draws, k=5) + 1e-3
    np.testing.assert_array_less(values.mean(axis=0), truth + slack)
    if values.std() == 0:
        np.testing.assert_allclose(values.mean(axis=0), truth, **FLOAT)


# The dequantized flow


@eqx.filter_jit
def log_density(decoder, embedding, points):
    return decoder.log_density(embedding[:, None], points)


@pytest.mark.parametrize(("shape", "nodes"), [((5,), 20_000), ((3, 4), 500)], ids=str)
def test_the_density_integrates_to_one_over_the_box(shape, nodes, key):
    """By the trapezoidal rule in the logits of the coordinates. A flow with heavy tails puts some of its
    mass within `EDGE` of the box's edges, beyond the last logit; what is there is counted by sampling."""
    decoder = with_random_parameters(FlowConfig(shape, **FLOW).build, key).decoder
    embedding = jnp.asarray([0.5, -1.0, 2.0])
    end = np.log((1 - EDGE) / EDGE)
    logits = np.linspace(-end, end, nodes)
    place = 1.0 / (1.0 + np.exp(-logits))
    grid = np.stack(np.meshgrid(*[place] * len(shape), indexing="ij")).reshape(len(shape), -1)
    slope = np.prod(grid * (1.0 - grid), axis=0) * np.prod(shape) * (logits[1] - logits[0]) ** len(shape)
    points = jnp.asarray(grid * np.array(shape)[:, None], jnp.float32)
    values = np.asarray(log_density(decoder, embedding, points), np.float64)

    @jax.jit
    def moved(key):
        base = jax.random.logistic(key, (len(shape), 200_000))
        return decoder.flow.forward(base, decoder.flow.condition(embedding)[..., None])

    inside = np.mean(np.all(np.abs(np.asarray(moved(key))) < end, axis=0))
    error = monte_carlo(np.sqrt(inside * (1 - inside)), 200_000)
    np.testing.assert_allclose(np.sum(np.exp(values) * slope), inside, rtol=0, atol=1e-3 + error)
    assert inside > 0.5


@pytest.mark.parametrize("shape", [(5,), (3, 4)], ids=str)
def test_a_cell_is_the_density_integrated_over_its_cube(shape, key):
    """Against a midpoint rule of its own, 60 points along each axis."""
    model = model_of("dequantized flow", shape)
    embedding = an_embedding(model, key)
    offsets = (np.arange(60) + 0.5) / 60
    cube = np.stack(np.meshgrid(*[offsets] * len(shape), indexing="ij")).reshape(len(shape), 1, -1)
    points = model.space.points().T[:, :, None] + cube
    flat = jnp.asarray(points.reshape(len(shape), -1), jnp.float32)
    density = np.exp(np.asarray(log_density(model.decoder, embedding, flat), np.float64))
    by_hand = density.reshape(model.space.size, -1).mean(axis=1)
    np.testing.assert_allclose(np.exp(log_probs(model, embedding, model.space)), by_hand, **QUADRATURE)


def test_a_fresh_flow_is_uniform(key):
    """Its layers start as the identity and its base is uniform on the box."""
    model = eqx.filter_jit(FlowConfig((3, 4), **FLOW).build)(key)
    probs = log_probs(model, jnp.asarray([1.0, -2.0, 0.5]), model.space)
    np.testing.assert_allclose(probs, np.full(12, -np.log(12)), **FLOAT)


@pytest.fixture(scope="module", params=[(5,), (3, 4), pytest.param((2, 3, 2), marks=pytest.mark.slow)], ids=str)
def ratios(request):
    """log p(x + u) - log q(u | x, θ) of every cell for many draws of the noise, and log P(x) by quadrature."""
    model = model_of("dequantized flow", request.param)
    key = jax.random.key(11)
    embedding = an_embedding(model, key)
    uniform = jax.random.uniform(key, (len(request.param), 1, 4000))
    states = jnp.asarray(model.space.points()).T[:, :, None]
    log_ratio = eqx.filter_jit(lambda decoder, *args: decoder.log_ratio(*args))
    values = log_ratio(model.decoder, embedding[:, None, None], states, uniform)
    return np.asarray(values, np.float64), np.asarray(log_probs(model, embedding, model.space), np.float64)


def test_importance_sampling_agrees_with_quadrature(ratios):
    """E_q[p(x + u) / q(u | x)] = P(x), whatever the noise q is."""
    values, truth = ratios
    weights = np.exp(values - truth[:, None])
    assert weights.std(axis=1).max() > 0.1
    error = np.abs(weights.mean(axis=1) - 1.0)
    np.testing.assert_array_less(error, monte_carlo(weights.std(axis=1), values.shape[1]) + 2e-3)


def test_the_bound_is_below_the_importance_sampled_likelihood(ratios):
    """Strictly, by Jensen: by half the variance of log w, roughly. And above what it costs to be trivial."""
    values, _ = ratios
    likelihood = np.log(np.exp(values).mean(axis=1))
    bound = values.mean(axis=1)
    assert np.all(bound < likelihood)
    gap = likelihood - bound
    assert gap.max() > 0.01
    assert np.all(gap < 2.0 * values.var(axis=1))


@eqx.filter_jit
@eqx.filter_value_and_grad
def mean_bound(decoder, embedding, states, uniform):
    return jnp.mean(decoder.log_ratio(embedding, states, uniform))


@pytest.mark.parametrize("size", [1.0, 10.0, 100.0])
def test_the_bound_has_finite_gradients_at_extremes(size):
    """At the edges and corners of the box, with noise at the end of its range, for embeddings of any size."""
    model = model_of("dequantized flow", (3, 4))
    states = jnp.asarray(model.space.points()).T[:, :, None]
    uniform = jnp.asarray([[0.0, EDGE, 0.5, 1.0 - 1e-7], [0.5, 0.0, 1.0 - 1e-7, 1.0 - 1e-7]])[:, None]
    embedding = size * jnp.asarray([1.0, -1.0, 0.5])[:, None, None]
    value, gradient = mean_bound(model.decoder, embedding, states, uniform)
    assert np.isfinite(value)
    for leaf in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_the_density_and_the_samples_are_finite_at_extremes(size, key):
    model = model_of("dequantized flow", (3, 4))
    embedding = size * jnp.asarray([1.0, -1.0, 0.5])
    corners = jnp.asarray([[0.0, 0.0, 3.0, 3.0, 1.5], [0.0, 4.0, 0.0, 4.0, 4.0]])
    assert np.all(np.isfinite(log_density(model.decoder, embedding, corners)))
    states = np.asarray(draw(model, key, embedding, 1000, model.space))
    assert np.all((states >= 0) & (states < (3, 4)))
    assert np.all(np.isfinite(log_probs(model, embedding, model.space)))


# The enumerated decoder

WALLS = {
    "none": None,
    "some": [True, False, True, True, False, False, True, True, True, True, False, True],
    "all but one": [False] * 7 + [True] + [False] * 4,
}


@pytest.mark.sampled
@pytest.mark.parametrize("walls", WALLS.values(), ids=WALLS.keys())
def test_illegal_cells_have_no_mass(walls, key):
    """Probabilities, samples and the gradient of the objective, for the same parameters and any walls."""
    model = model_of("enumerated", (3, 4))
    legal = np.ones(12, bool) if walls is None else np.array(walls)
    space = Lattice((3, 4), None if walls is None else jnp.asarray(walls))
    embedding = an_embedding(model, key)
    probs = np.exp(np.asarray(log_probs(model, embedding, space), np.float64))
    np.testing.assert_array_equal(probs[~legal], np.zeros(np.sum(~legal)))
    np.testing.assert_allclose(probs.sum(), 1.0, **FLOAT)
    # Among the legal cells the odds are those without walls.
    free = np.exp(np.asarray(log_probs(model, embedding, model.space), np.float64))
    np.testing.assert_allclose(probs[legal], free[legal] / free[legal].sum(), **FLOAT)
    counts = np.bincount(cells(draw(model, key, embedding, 40_000, space), (3, 4)), minlength=12)
    assert_frequencies(counts, probs, detects=0.03)
    states = jnp.asarray(space.points()[legal])[None]
    spaces = jax.tree.map(lambda leaf: leaf[None], space)
    gradient = eqx.filter_grad(lambda model: jnp.mean(model.objective(key, embedding[None], states, spaces)))
    for leaf in jax.tree.leaves(eqx.filter_jit(gradient)(model)):
        assert np.all(np.isfinite(leaf))


def boundaries(probs):
    """Uniform numbers at, just below and just above every place where the answer of an inverse CDF changes."""
    steps = np.cumsum(probs, dtype=np.float64)
    # JAX's uniform numbers are multiples of 2^-23.
    near = np.floor(steps / steps[-1] * 2**23)[:, None] + np.arange(-3, 4)
    return np.unique(near[(near >= 0) & (near < 2**23)] / 2**23).astype(np.float32)


def test_what_has_probability_zero_is_never_drawn(key, monkeypatch):
    """On 512 cells, with the uniform numbers most likely to fall between two roundings of a sum."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        probs = np.where(rng.random(512) < 0.3, 0.0, rng.dirichlet(np.full(512, 0.3))).astype(np.float32)
        uniform = np.resize(boundaries(probs), 4096)  # of one length, to be compiled once
        with monkeypatch.context() as patch:
            patch.setattr(jax.random, "uniform", lambda key, shape=(), uniform=uniform: jnp.asarray(uniform))
            drawn = np.asarray(prng.categoricals(key, jnp.asarray(probs), len(uniform)))
        assert drawn.max() < 512
        assert np.all(probs[drawn] > 0)


# What all models share


@pytest.mark.sampled
@each_model
def test_a_model_belief_is_its_model(name, key):
    model = model_of(name, (3, 4))
    embedding = an_embedding(model, key)
    belief = ModelBelief(model, embedding, model.space)
    points = model.space.points()
    probs = np.asarray(log_probs(model, embedding, model.space))

    @eqx.filter_jit
    def look(belief):
        mean = belief.expectation(lambda state: state.astype(jnp.float32))
        states = jnp.asarray(points)
        return belief.log_probs(states), belief.log_prob(states[5]), mean, belief.sample(key, 40_000)

    several, one, mean, drawn = look(belief)
    np.testing.assert_allclose(several, probs, **FLOAT)
    np.testing.assert_allclose(one, probs[5], **FLOAT)
    weights = np.exp(probs.astype(np.float64))
    np.testing.assert_allclose(mean, weights @ points / weights.sum(), **FLOAT)
    # Two sets of independent draws: the variance of the difference of two frequencies is at most 1/2 a draw.
    theirs = draw(model, jax.random.fold_in(key, 1), embedding, 40_000, model.space)
    shares = [np.mean((np.asarray(states)[:, None] == points).all(-1), axis=0) for states in (drawn, theirs)]
    np.testing.assert_allclose(*shares, rtol=0, atol=monte_carlo(0.5**0.5, 40_000))


@pytest.mark.parametrize(
    "config",
    [
        FlowConfig((3, 3), **FLOW | {"embedding": 0}),
        FlowConfig((3, 3), **FLOW | {"flow_layers": 0}),
        FlowConfig((3, 3), **FLOW | {"quadrature": 0}),
        FlowConfig((3, 3), **FLOW | {"flow_width": 0}),
        FlowConfig((3, 3), **FLOW | {"encoder_width": 0}),
        FlowConfig((3, 3), **FLOW | {"noise_width": -1}),
        FlowConfig((3, 3), **FLOW | {"flow_depth": -1}),
        FlowConfig((0, 3), **FLOW),
        FlowConfig((), **FLOW),
        EnumeratedConfig((3, 3), **SOFTMAX | {"embedding": 0}),
        EnumeratedConfig((3, 3), **SOFTMAX | {"decoder_width": 0}),
        EnumeratedConfig((3, -3), **SOFTMAX),
    ],
    ids=lambda config: ",".join(f"{name}={value}" for name, value in vars(config).items() if not value or value == -1),
)
def test_a_model_without_any_size_is_refused(config, key):
    with pytest.raises(InputError, match="at least"):
        eqx.filter_eval_shape(config.build, key)
