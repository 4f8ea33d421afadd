"""The mixture decoder against SciPy's Gaussians, quadrature, and the closed forms of a mixture's moments."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import EMBEDDING, with_random_parameters
from scipy import stats
from tolerances import FLOAT, monte_carlo

from nbf.errors import InputError
from nbf.models.belief_model import BoxConfig, ModelConfig, TokensConfig
from nbf.models.mixture import WIDEST, MixtureConfig
from nbf.spaces import Box, Lattice, Tokens

CONDITION = jnp.asarray([0.7, -1.2, 0.4])
BOXES = {
    1: Box((-3.0,), (5.0,), bounded=False),
    2: Box((0.0, -100.0), (1.0, 100.0), bounded=False),
    3: Box((-1.0, 0.0, 10.0), (1.0, 6.0, 10.5), bounded=False),
}
"""By dimension; the scales differ by orders of magnitude."""
each_dimension = pytest.mark.parametrize("d", BOXES)


@functools.cache
def decoder_of(d, components=4):
    config = MixtureConfig(components, width=8, depth=1)
    return with_random_parameters(lambda key: config.build(key, BOXES[d], EMBEDDING), jax.random.key(5), scale=0.5)


@eqx.filter_jit
def parameters(decoder):
    return decoder.parameters(CONDITION)


@functools.cache
def oracle(d):
    """Weights and SciPy's Gaussians, in the units of the state."""
    log_weights, means, factors = (np.asarray(part, np.float64) for part in parameters(decoder_of(d)))
    low, high = np.array(BOXES[d].low), np.array(BOXES[d].high)
    scale = (high - low) / 2
    factors = scale[:, None] * factors
    covariances = factors @ factors.transpose(0, 2, 1)
    return np.exp(log_weights), [
        stats.multivariate_normal(mean * scale + (low + high) / 2, covariance)
        for mean, covariance in zip(means, covariances, strict=True)
    ]


@eqx.filter_jit
def log_prob(decoder, condition, states, space):
    return decoder.log_prob(condition, states, space)


@eqx.filter_jit
def draw(decoder, key, condition, space, n=40_000):
    return decoder.sample(key, condition, n, space)


def points(d):
    """Fifty states, most of them in the box."""
    low, high = np.array(BOXES[d].low), np.array(BOXES[d].high)
    codes = 0.8 * np.random.default_rng(d).normal(size=(50, d))
    return jnp.asarray((low + high) / 2 + codes * (high - low) / 2, jnp.float32)


def assert_density(values, d):
    weights, gaussians = oracle(d)
    density = sum(w * gaussian.pdf(points(d)) for w, gaussian in zip(weights, gaussians, strict=True))
    np.testing.assert_allclose(values, np.log(density), **FLOAT)


@each_dimension
def test_the_density_is_that_of_scipys_gaussians(d):
    assert_density(log_prob(decoder_of(d), CONDITION, points(d), BOXES[d]), d)
    assert len({gaussian.mean.tobytes() for gaussian in oracle(d)[1]}) == 4


def test_factors_are_lower_triangular_with_all_correlations_in_use():
    _, _, factors = parameters(decoder_of(3))
    assert np.all(np.asarray(factors)[:, *np.triu_indices(3, 1)] == 0)
    assert np.all(np.asarray(factors)[:, *np.tril_indices(3)] != 0)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_the_density_integrates_to_one_in_units_of_the_state(d):
    """By the trapezoidal rule after x = sinh t, which reaches 74 times the box with a thirtieth of it for a step."""
    space, points = BOXES[d], 301
    low, high = np.array(space.low), np.array(space.high)
    t = np.linspace(-5.0, 5.0, points)
    grid = np.stack(np.meshgrid(*[np.sinh(t)] * d, indexing="ij"), axis=-1).reshape(-1, d)
    slope = np.prod(np.cosh(np.arcsinh(grid)) * (high - low) / 2 * (t[1] - t[0]), axis=1)
    states = jnp.asarray((low + high) / 2 + grid * (high - low) / 2, jnp.float32)
    density = np.exp(np.asarray(log_prob(decoder_of(d), CONDITION, states, space), np.float64))
    np.testing.assert_allclose(np.sum(density * slope), 1.0, **FLOAT)


@each_dimension
def test_samples_have_the_closed_form_moments(d, key):
    n = 40_000
    states = np.asarray(draw(decoder_of(d), key, CONDITION, BOXES[d], n), np.float64)
    assert states.shape == (n, d)
    weights, gaussians = oracle(d)
    mean = sum(w * gaussian.mean for w, gaussian in zip(weights, gaussians, strict=True))
    second = sum(
        w * (gaussian.cov + np.outer(gaussian.mean - mean, gaussian.mean - mean))
        for w, gaussian in zip(weights, gaussians, strict=True)
    )
    centred = states - mean
    assert np.all(np.abs(centred.mean(axis=0)) < monte_carlo(np.sqrt(np.diag(second)), n))
    products = centred[:, :, None] * centred[:, None, :]
    assert np.all(np.abs(products.mean(axis=0) - second) < monte_carlo(products.std(axis=0), n))


@pytest.mark.slow
def test_frequencies_of_bins_are_those_of_the_density(key):
    """In one dimension, bins between the quantiles of a grid, with SciPy's distribution functions."""
    weights, gaussians = oracle(1)
    ends = np.linspace(-8.0, 10.0, 25)
    cdf = sum(
        w * stats.norm.cdf(ends, gaussian.mean[0], np.sqrt(gaussian.cov[0, 0]))
        for w, gaussian in zip(weights, gaussians, strict=True)
    )
    states = np.asarray(draw(decoder_of(1), key, CONDITION, BOXES[1]))[:, 0]
    counts = np.bincount(np.searchsorted(ends, states), minlength=len(ends) + 1)
    assert_frequencies(counts, np.diff(cdf, prepend=0.0, append=1.0), detects=0.03)


def test_a_bounded_box_clips_samples_and_leaves_the_density_alone(key):
    free = BOXES[2]
    bounded = Box(free.low, free.high)
    inside, anywhere = (np.asarray(draw(decoder_of(2), key, CONDITION, space)) for space in (bounded, free))
    np.testing.assert_array_equal(inside, np.clip(anywhere, *np.asarray([free.low, free.high], np.float32)))
    assert np.any(inside == np.asarray(bounded.low, np.float32))
    assert np.any((points(2) < jnp.asarray(free.low)) | (points(2) > jnp.asarray(free.high)))
    assert_density(log_prob(decoder_of(2), CONDITION, points(2), bounded), 2)


def test_different_embeddings_are_different_beliefs():
    one, other = (log_prob(decoder_of(2), sign * CONDITION, points(2), BOXES[2]) for sign in (1.0, -1.0))
    assert np.abs(one - other).max() > 1e-2


def test_a_fresh_mixture_has_components_all_over_the_box_that_learn_apart(key):
    config, space = MixtureConfig(16, width=8, depth=1), Box((-1.0, -1.0), (1.0, 1.0))
    decoder = eqx.filter_jit(lambda key: config.build(key, space, EMBEDDING))(key)
    log_weights, means, factors = parameters(decoder)
    np.testing.assert_allclose(log_weights, np.full(16, -np.log(16)), **FLOAT)
    # A quarter of the box each way; what bounds a scale softly takes two hundredths of it.
    np.testing.assert_allclose(factors, np.tile(np.eye(2) / 4, (16, 1, 1)), rtol=0.02)
    assert np.all(np.abs(means) < 1)
    # The mean of 32 uniform numbers, whose standard deviation is 1/√3, and about their spread.
    assert abs(float(jnp.mean(means))) < monte_carlo(3**-0.5, 32)
    assert 0.3 < float(jnp.std(means)) < 0.9
    loss = lambda decoder: decoder.log_prob(CONDITION, jnp.asarray([[0.3, -0.4]]), space)[0]  # noqa: E731
    slopes = eqx.filter_jit(eqx.filter_grad(loss))(decoder).network.biases[-1].reshape(16, -1)
    assert len(np.unique(np.asarray(slopes)[:, 0])) == 16


@eqx.filter_jit
@eqx.filter_value_and_grad
def mean_objective(decoder, conditions, states, spaces):
    return jnp.mean(decoder.objective(jax.random.key(0), conditions, states, spaces))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_everything_is_finite_at_extremes(d, key):
    """Embeddings of a thousand, of either sign, and states far outside the box."""
    decoder, space = decoder_of(d), BOXES[d]
    conditions = 1000.0 * jnp.stack([CONDITION, -CONDITION])
    states = jnp.asarray(np.random.default_rng(0).normal(size=(2, 20, d)) * 1e4, jnp.float32)
    value, gradient = mean_objective(decoder, conditions, states, space)
    assert np.isfinite(value)
    for leaf in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(leaf))
    for condition in conditions:
        drawn = np.asarray(draw(decoder, key, condition, space))
        assert np.all(np.isfinite(drawn))
        value, _ = mean_objective(decoder, jnp.stack([condition] * 2), jnp.asarray(drawn[:40].reshape(2, 20, d)), space)
        assert np.isfinite(value)


def test_the_objective_is_the_log_probability_of_each_belief(key):
    states = jnp.stack([points(2), 2.0 * points(2)])
    conditions = jnp.stack([CONDITION, -CONDITION])
    values = eqx.filter_jit(decoder_of(2).objective)(key, conditions, states, BOXES[2])
    for condition, belief, row in zip(conditions, states, values, strict=True):
        np.testing.assert_allclose(row, log_prob(decoder_of(2), condition, belief, BOXES[2]), **FLOAT)


# Bad input


def test_states_that_are_not_finite_are_refused_outside_jit_and_have_no_density_inside():
    states = np.array(points(2))
    states[1, 0], states[2, 1] = np.nan, -np.inf
    states = jnp.asarray(states)
    with pytest.raises(InputError, match=r"number 1 is \[nan"):
        decoder_of(2).log_prob(CONDITION, states, BOXES[2])
    values = log_prob(decoder_of(2), CONDITION, states, BOXES[2])
    np.testing.assert_array_equal(np.isfinite(values), (np.arange(50) < 1) | (np.arange(50) > 2))
    np.testing.assert_array_equal(values[1:3], np.full(2, -np.inf))
    with pytest.raises(InputError, match="has 2 numbers; got 3"):
        decoder_of(2).log_prob(CONDITION, jnp.zeros((4, 3)), BOXES[2])


@pytest.mark.parametrize("space", [BOXES[1], Lattice((3, 3)), Tokens(2, 3)])
def test_a_decoder_refuses_another_space_than_its_own(space, key):
    with pytest.raises(InputError, match="Box of 2 dimensions"):
        jax.eval_shape(lambda key: decoder_of(2).sample(key, CONDITION, 2, space), key)


@pytest.mark.parametrize("space", [Lattice((3, 3)), Tokens(2, 3)])
def test_a_config_refuses_what_is_no_box(space):
    with pytest.raises(InputError, match="does not fit"):
        MixtureConfig().check(space)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(TokensConfig(2, 3), MixtureConfig()), r"does not fit tokens\(2, 3\)"),
        (ModelConfig(BoxConfig((0.0,), (1.0,)), MixtureConfig(components=0)), "components must be at least 1"),
        (ModelConfig(BoxConfig((0.0,), (1.0,)), MixtureConfig(width=0)), "width must be at least 1"),
        (ModelConfig(BoxConfig((0.0,), (0.0,)), MixtureConfig()), "A box needs"),
    ],
)
def test_misfits_are_refused(config, message, key):
    with pytest.raises(InputError, match=message):
        config.build(key)


def test_a_model_with_this_decoder_embeds_samples_and_scores(key):
    config = ModelConfig(BoxConfig((0.0, -100.0), (1.0, 100.0)), MixtureConfig(3, 8, 1), embedding=EMBEDDING)
    model = with_random_parameters(config.build, key)

    @eqx.filter_jit
    def there_and_back(model, key):
        embedding = model.embed(jnp.asarray([[0.1, 5.0], [0.3, 9.0]]), jnp.zeros(2))
        states = model.sample(key, embedding, 10, model.space)
        return states, model.log_prob(embedding, states, model.space)

    states, values = there_and_back(model, key)
    assert np.all(jax.vmap(model.space.contains)(states))
    assert np.all(np.isfinite(values))


# Circular coordinates

CIRCULAR = {
    "a circle": Box((0.0,), (360.0,), circular=(0,)),
    "a pose": Box((-1.0, -5.0, -np.pi), (1.0, 5.0, np.pi), bounded=False, circular=(2,)),
    "a torus and a line": Box((-np.pi, -1.0, 0.0), (np.pi, 1.0, 2.0), bounded=False, circular=(0, 2)),
}


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize("name", CIRCULAR)
def test_wrapped_components_are_sums_over_all_images(name, scale):
    """Eleven along each circular coordinate by SciPy; with parameters as they start, and far beyond."""
    space = CIRCULAR[name]
    config = MixtureConfig(3, width=8, depth=1)
    decoder = with_random_parameters(lambda key: config.build(key, space, EMBEDDING), jax.random.key(5), scale=scale)
    log_weights, means, factors = (np.asarray(part, np.float64) for part in parameters(decoder))
    low, high = np.array(space.low), np.array(space.high)
    half, middle = (high - low) / 2, (high + low) / 2
    states = middle + half * np.random.default_rng(1).uniform(-1.0, 1.0, (20, len(low)))
    turns = np.stack(np.meshgrid(*[np.arange(-5, 6) if wraps else [0] for wraps in space.wraps]), axis=-1)
    images = states[:, None] + turns.reshape(-1, len(low)) * (high - low)
    # A mean outside is the same as one inside, whose images are all near.
    means = np.where(space.wraps, (means + 1) % 2 - 1, means)
    density = np.zeros(20)
    for weight, mean, factor in zip(np.exp(log_weights), means, factors, strict=True):
        root = half[:, None] * factor
        gaussian = stats.multivariate_normal(mean * half + middle, root @ root.T, allow_singular=True)
        density += weight * gaussian.pdf(images).reshape(images.shape[:2]).sum(axis=1)
    found = log_prob(decoder, CONDITION, jnp.asarray(states, jnp.float32), space)
    np.testing.assert_allclose(np.exp(np.asarray(found, np.float64)), density, rtol=2e-3, atol=1e-6)
    moved = jnp.asarray(states - 2 * np.where(space.wraps, high - low, 0.0), jnp.float32)
    again = log_prob(decoder, CONDITION, moved, space)
    np.testing.assert_allclose(np.exp(np.asarray(again, np.float64)), density, rtol=2e-3, atol=1e-6)


def test_a_wide_component_is_narrowed_along_circular_coordinates_alone():
    space = CIRCULAR["a torus and a line"]
    config = MixtureConfig(4, width=8, depth=1)
    decoder = with_random_parameters(lambda key: config.build(key, space, EMBEDDING), jax.random.key(5), scale=3.0)
    lengths = np.linalg.norm(np.asarray(parameters(decoder)[2]), axis=-1)
    assert np.all(lengths[:, [0, 2]] < WIDEST * (1 + FLOAT["rtol"]))
    assert lengths[:, 1].max() > 2 * WIDEST


def test_a_decoder_of_a_circle_does_not_fit_a_line():
    decoder = with_random_parameters(
        lambda key: MixtureConfig(2, 8, 1).build(key, CIRCULAR["a circle"], EMBEDDING), jax.random.key(0)
    )
    with pytest.raises(InputError, match=r"coordinates \(0,\) circular"):
        decoder.log_prob(CONDITION, jnp.zeros((1, 1)), Box((0.0,), (360.0,)))
    with pytest.raises(InputError, match="at most 4"):
        MixtureConfig().check(Box((0.0,) * 5, (1.0,) * 5, circular=range(5)))
