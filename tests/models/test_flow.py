"""Every transform of a flow: there and back, and its log-determinant against autodiff."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import EMBEDDING, TRANSFORMS, with_random_parameters
from tolerances import FLOAT

from nbf.models.transforms import LOG_SCALE_LIMIT

N = 32
each_transform = pytest.mark.parametrize("name", TRANSFORMS)
affine_or_slow = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name.startswith("affine") else [pytest.mark.slow]) for name in TRANSFORMS]
)
"""What concerns the stack of layers, whatever their map: the others are for the slow run."""
each_dimension = pytest.mark.parametrize("dimension", [1, 2, 3, 4])


@functools.cache
def transform(name, dimension):
    """With random parameters, far from the identity; of a spline, not so far that it is nearly flat somewhere:
    there an inverse multiplies every rounding."""
    scale = 0.25 if name == "spline coupling" else 0.4
    return with_random_parameters(lambda key: TRANSFORMS[name](key, dimension), jax.random.key(dimension), scale)


def inputs(key, dimension, spread=2.0):
    """Points as columns, with one embedding for each of them."""
    point_key, embedding_key = jax.random.split(key)
    points = spread * jax.random.normal(point_key, (dimension, N))
    return points, jax.random.normal(embedding_key, (EMBEDDING, N))


@eqx.filter_jit
def forward(flow, points, embeddings):
    return flow.forward(points, flow.condition(embeddings))


@eqx.filter_jit
def inverse(flow, points, embeddings):
    return flow.inverse(points, flow.condition(embeddings))


@pytest.mark.sampled
@each_transform
@each_dimension
def test_there_and_back(name, dimension, key):
    flow = transform(name, dimension)
    z, embeddings = inputs(key, dimension)
    x = forward(flow, z, embeddings)
    assert np.abs(x - z).max() > 0.1
    np.testing.assert_allclose(inverse(flow, x, embeddings)[0], z, **FLOAT)
    np.testing.assert_allclose(forward(flow, inverse(flow, z, embeddings)[0], embeddings), z, **FLOAT)


@eqx.filter_jit
def jacobians(flow, points, embeddings):
    """Of `forward`, by forward-mode differentiation."""
    one = jax.jacfwd(lambda z, embedding: flow.forward(z, flow.condition(embedding)))
    return jax.vmap(one, in_axes=(1, 1))(points, embeddings)


@pytest.mark.sampled
@each_transform
@each_dimension
def test_log_determinant_is_that_of_the_jacobian(name, dimension, key):
    """Of the inverse map, hence minus that of the map itself."""
    flow = transform(name, dimension)
    x, embeddings = inputs(key, dimension)
    z, actual = inverse(flow, x, embeddings)
    signs, log_determinants = np.linalg.slogdet(np.asarray(jacobians(flow, z, embeddings), np.float64))
    np.testing.assert_array_equal(signs, np.ones(N))
    assert log_determinants.std() > 0.01
    np.testing.assert_allclose(actual, -log_determinants, **FLOAT)


@affine_or_slow
@pytest.mark.parametrize("dimension", [1, 3])
def test_starts_as_the_identity(name, dimension, key):
    flow = jax.jit(TRANSFORMS[name], static_argnums=1)(key, dimension)
    points, embeddings = inputs(key, dimension)
    np.testing.assert_allclose(forward(flow, points, embeddings), points, **FLOAT)
    back, log_determinant = inverse(flow, points, embeddings)
    np.testing.assert_allclose(back, points, **FLOAT)
    np.testing.assert_allclose(log_determinant, np.zeros(N), **FLOAT)


@affine_or_slow
@each_dimension
def test_every_coordinate_is_moved_and_depends_on_the_embedding(name, dimension, key):
    flow = transform(name, dimension)
    z, embeddings = inputs(key, dimension)
    x = forward(flow, z, embeddings)
    other = forward(flow, z, -embeddings)
    for axis in range(dimension):
        assert np.abs(x - z)[axis].max() > 0.05
        assert np.abs(x - other)[axis].max() > 0.01


@affine_or_slow
@pytest.mark.parametrize("dimension", [2, 3])
def test_coordinates_depend_on_each_other(name, dimension, key):
    """After all layers: a coupling that always keeps the same half would leave one of them alone."""
    flow = transform(name, dimension)
    z, embeddings = inputs(key, dimension)
    assert np.all(np.abs(jacobians(flow, z, embeddings)).max(axis=0) > 1e-3)


@affine_or_slow
@pytest.mark.parametrize("dimension", [1, 3])
def test_a_shared_context_is_the_same_as_one_for_each_point(name, dimension, key):
    """One belief's embedding, projected once, against the same embedding given with every point."""
    flow = transform(name, dimension)
    points, embeddings = inputs(key, dimension)
    shared, repeated = embeddings[:, :1], jnp.repeat(embeddings[:, :1], N, axis=1)
    np.testing.assert_allclose(forward(flow, points, shared), forward(flow, points, repeated), **FLOAT)
    for one, other in zip(inverse(flow, points, shared), inverse(flow, points, repeated), strict=True):
        np.testing.assert_allclose(one, other, **FLOAT)


@affine_or_slow
def test_more_axes_are_more_examples(name, key):
    """A grid of beliefs by points, in one call and one by one."""
    flow = transform(name, 2)
    points, embeddings = inputs(key, 2)
    grid, beliefs = points.reshape(2, 4, 8), embeddings[:, :4, None]
    together, log_determinant = inverse(flow, grid, beliefs)
    for belief in range(4):
        alone, one_determinant = inverse(flow, grid[:, belief], beliefs[:, belief])
        np.testing.assert_allclose(together[:, belief], alone, **FLOAT)
        np.testing.assert_allclose(log_determinant[belief], one_determinant, **FLOAT)
    np.testing.assert_allclose(forward(flow, together, beliefs), grid, **FLOAT)


@pytest.mark.slow
@each_transform
def test_gradients_are_finite_at_extreme_inputs(name, key):
    """At the largest logits that a box has (±14), far beyond them, and for embeddings of any size."""
    flow = transform(name, 3)
    points, embeddings = inputs(key, 3)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(flow_and_inputs):
        flow, points, embeddings = flow_and_inputs
        z, log_determinant = flow.inverse(points, flow.condition(embeddings))
        x = flow.forward(points, flow.condition(embeddings))
        return jnp.mean(z**2) + jnp.mean(log_determinant) + jnp.mean(x)

    for stretch, size in [(7.0, 1.0), (500.0, 1.0), (7.0, 1e3), (0.0, 1e6)]:
        value, gradient = loss((flow, stretch * points, size * embeddings))
        assert np.isfinite(value)
        for leaf in jax.tree.leaves(gradient):
            assert np.all(np.isfinite(leaf))


@pytest.mark.slow
def test_one_layer_scales_within_its_limit(key):
    """However large the network's output: a layer moves log-volume by less than the limit per coordinate."""
    flow = transform("affine coupling", 3)
    points, embeddings = inputs(key, 3)
    _, log_determinant = inverse(flow, points, 1e6 * embeddings)
    assert np.abs(log_determinant).max() <= LOG_SCALE_LIMIT * flow.layers * 3
    assert np.abs(log_determinant).max() > LOG_SCALE_LIMIT
