"""The monotone maps by themselves: against automatic differentiation, a root finder in float64, and FlowJAX."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import EMBEDDING, MAPS, TRANSFORMS, with_random_parameters
from flowjax import bijections
from paramax import Parameterize, unwrap
from scipy.optimize import brentq
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.models.transforms import LEAST_BIN_SHARE, Spline, transform_of

N = 256
each_map = pytest.mark.parametrize("name", MAPS)


def raws(name, key, scale):
    """Raw parameters of `N` maps: of ordinary size, or at ±50, where every bound is reached."""
    if scale == "extreme":
        return 50.0 * jax.random.choice(key, jnp.asarray([-1.0, 0.0, 1.0]), (MAPS[name].parameters, N))
    return scale * jax.random.normal(key, (MAPS[name].parameters, N))


def places(key):
    """Of every size up to 1000, and zero, the ends of a spline, and their neighbours."""
    sign_key, size_key = jax.random.split(key)
    sizes = 10.0 ** jax.random.uniform(size_key, (N,), minval=-3.0, maxval=3.0)
    ends = jnp.asarray([0.0, 5.0, -5.0, 5.0001, 4.9999, -1e3, 1e3, 2.5])
    return (jax.random.rademacher(sign_key, (N,)) * sizes).at[: len(ends)].set(ends)


@eqx.filter_jit
def forward(transform, raw, z):
    """And the slope there, by forward-mode differentiation."""
    return jax.jvp(lambda z: transform.forward(raw, z), (z,), (jnp.ones_like(z),))


@eqx.filter_jit
def inverse(transform, raw, x):
    return transform.inverse(raw, x)


@each_map
@pytest.mark.parametrize("scale", [1.0, 3.0, "extreme"])
def test_the_inverse_undoes_the_map_at_every_size(name, scale, key):
    """As far as float32 goes: relative to the largest number involved."""
    raw, x = raws(name, key, scale), places(key)
    z, _ = inverse(MAPS[name], raw, x)
    back, _ = forward(MAPS[name], raw, z)
    largest = 1.0 + np.abs(x) + np.abs(raw).max(axis=0)
    np.testing.assert_allclose(back / largest, x / largest, **FLOAT)


@each_map
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_log_slope_is_that_of_automatic_differentiation(name, scale, key):
    raw, x = raws(name, key, scale), places(key)
    z, log_slope = inverse(MAPS[name], raw, x)
    _, slope = forward(MAPS[name], raw, z)
    assert np.std(log_slope) > 0.1
    np.testing.assert_allclose(log_slope, -np.log(slope), rtol=0, atol=5 * FLOAT["rtol"])


@each_map
@pytest.mark.parametrize("scale", [1.0, "extreme"])
def test_maps_increase(name, scale, key):
    raw = raws(name, key, scale)
    z = jnp.linspace(-10.0, 10.0, 2001)[:, None]
    x = np.asarray(forward(MAPS[name], raw[:, None], jnp.broadcast_to(z, (2001, N)))[0])
    rises = np.diff(x, axis=0)
    assert np.all(rises >= 0)
    assert np.all(rises > 0) or scale == "extreme"
    assert np.all(x[-1] - x[0] > 1.0)


@each_map
def test_raw_zero_is_the_identity(name, key):
    raw, x = raws(name, key, 0.0), places(key)
    z, log_slope = inverse(MAPS[name], raw, x)
    np.testing.assert_allclose(z, x, **FLOAT)
    np.testing.assert_allclose(forward(MAPS[name], raw, x)[0], x, **FLOAT)
    np.testing.assert_allclose(log_slope, np.zeros(N), **FLOAT)


@eqx.filter_jit
def loss_and_gradients(transform, arguments):
    def loss(arguments):
        raw, x = arguments
        z, log_slope = transform.inverse(raw, x)
        return jnp.sum(z) + jnp.sum(log_slope) + jnp.sum(transform.forward(raw, x))

    return jax.value_and_grad(loss)(arguments)


@each_map
@pytest.mark.parametrize("scale", [0.0, 1.0, "extreme"])
def test_values_and_gradients_are_finite_at_extremes(name, scale, key):
    value, gradients = loss_and_gradients(MAPS[name], (raws(name, key, scale), places(key)))
    assert np.isfinite(value)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))


def test_nlsq_is_inverted_like_a_root_finder_does(key):
    """Brent's method in float64, with the paper's formula and parameters."""
    raw, x = raws("nlsq", key, 1.0), places(key)
    a, log_b, hump, log_d, g = np.asarray(raw, np.float64)
    b, d = (np.exp(2.0 * np.tanh(logs / 2.0)) for logs in (log_b, log_d))
    c = 0.95 * np.tanh(hump) * 8.0 * np.sqrt(3.0) / 9.0 * b / d
    truth = [
        brentq(lambda z, i=i: a[i] + b[i] * z + c[i] / (1.0 + (d[i] * z + g[i]) ** 2) - float(x[i]), -1e5, 1e5)
        for i in range(N)
    ]
    assert np.abs(truth).max() > 500
    np.testing.assert_allclose(inverse(MAPS["nlsq"], raw, x)[0], truth, **FLOAT)


def test_a_spline_is_the_identity_beyond_its_ends_and_keeps_them(key):
    raw = raws("spline", key, 3.0)
    for place in (-7.0, -5.0, 5.0, 7.0):
        x = jnp.full(N, place)
        np.testing.assert_allclose(forward(MAPS["spline"], raw, x)[0], x, **FLOAT)
        near = forward(MAPS["spline"], raw, x * (1.0 - 1e-6))[0]
        np.testing.assert_allclose(near, x, rtol=0, atol=1e-3)


@pytest.mark.parametrize("wrong", [{"bins": 0}, {"bound": 0.0}, {"bound": float("inf")}], ids=str)
def test_a_spline_without_bins_or_bound_is_refused(wrong):
    with pytest.raises(InputError, match="spline"):
        Spline(**wrong)


def test_an_unknown_transform_is_refused():
    with pytest.raises(InputError, match="affine, nlsq, spline; got 'cubic'"):
        transform_of("cubic", 8)


# FlowJAX


def soft(raw):
    return jnp.exp(2.0 * jnp.tanh(raw / 2.0))


def knots(raw):
    """Along the last axis; FlowJAX puts one axis of coordinates before it."""
    shares = LEAST_BIN_SHARE / raw.shape[-1] + (1.0 - LEAST_BIN_SHARE) * jax.nn.softmax(raw, axis=-1)
    sums = jnp.cumsum(shares, axis=-1)
    return jnp.concatenate([jnp.zeros_like(sums[..., :1]), sums], axis=-1) * 10.0 - 5.0


def end_slopes(raw):
    ends = jnp.ones_like(raw[..., :1])
    return jnp.concatenate([ends, soft(raw), ends], axis=-1)


def flowjax_affine():
    return eqx.tree_at(lambda affine: affine.scale, bijections.Affine(), Parameterize(soft, jnp.zeros(())))


def flowjax_spline():
    bins = MAPS["spline"].bins
    spline = bijections.RationalQuadraticSpline(knots=bins - 1, interval=5)
    slopes = Parameterize(end_slopes, jnp.zeros(bins - 1))
    places = [Parameterize(knots, jnp.zeros(bins)) for _ in range(2)]
    return eqx.tree_at(lambda it: (it.x_pos, it.y_pos, it.derivatives), spline, (*places, slopes))


def flowjax_layer(transformer, ours, layer, kept, moved, parameters):
    """One of FlowJAX's coupling layers with the weights of one of ours. It keeps the first coordinates."""
    theirs = bijections.Coupling(
        jax.random.key(0), transformer=transformer, untransformed_dim=len(kept), dim=len(kept) + len(moved),
        cond_dim=EMBEDDING, nn_width=8, nn_depth=2,
    )  # fmt: skip
    weights = [np.asarray(weight[layer]) for weight in ours.networks.weights]
    biases = [np.asarray(bias[layer]) for bias in ours.networks.biases]
    weights[0] = np.concatenate([weights[0][:, kept], np.asarray(ours.projection[layer])], axis=1)
    # Ours lists coordinates within parameters, theirs parameters within coordinates.
    order = np.arange(parameters * ours.dimension).reshape(parameters, -1)[:, moved].T.ravel()
    weights[-1], biases[-1] = weights[-1][order], biases[-1][order]
    where = lambda layer: [part for linear in layer.conditioner.layers for part in (linear.weight, linear.bias)]  # noqa: E731
    values = [jnp.asarray(part) for pair in zip(weights, biases, strict=True) for part in pair]
    return eqx.tree_at(where, theirs, values)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "transformer"), [("affine", flowjax_affine), ("spline", flowjax_spline)])
@pytest.mark.parametrize("dimension", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_flowjax_with_the_same_parameters_is_the_same_flow(name, transformer, dimension, key):
    """Values, inverses and log-determinants of a stack of layers, one of FlowJAX's after the other."""
    # Not too steep: the inverse of a nearly flat spline multiplies the roundings of both.
    ours = with_random_parameters(lambda key: TRANSFORMS[f"{name} coupling"](key, dimension), key, scale=0.25)
    z = 3.0 * jax.random.normal(key, (dimension, 64))
    embedding = jnp.asarray([0.5, -1.0, 2.0])

    halves = [(np.arange(dimension) + layer) % 2 == 1 for layer in range(ours.layers)]
    splits = [(np.flatnonzero(mask), np.flatnonzero(~mask)) for mask in halves]
    layers = [
        flowjax_layer(transformer(), ours, layer, *split, MAPS[name].parameters) for layer, split in enumerate(splits)
    ]

    def theirs(z):
        total = 0.0
        for split, layer in zip(splits, layers, strict=True):
            places = np.concatenate(split)
            out, log_det = unwrap(layer).transform_and_log_det(z[places], embedding)
            z, total = jnp.zeros(dimension).at[places].set(out), total + log_det
        return z, total

    x, log_det = jax.jit(jax.vmap(theirs, in_axes=1, out_axes=(1, 0)))(z)
    assert np.abs(x - z).max() > 0.1
    context = ours.condition(embedding)[..., None]
    np.testing.assert_allclose(eqx.filter_jit(ours.forward)(z, context), x, **FLOAT)
    back, ours_log_det = eqx.filter_jit(ours.inverse)(x, context)
    np.testing.assert_allclose(back, z, **FLOAT)
    np.testing.assert_allclose(ours_log_det, -log_det, **FLOAT)
