"""Lattices against Python's own enumeration of their points."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT

from nbf.contracts import InputError
from nbf.spaces import Lattice

SHAPES = [(4,), (1,), (3, 5), (2, 3, 4), (2, 1, 2, 3)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def around(shape):
    """Every point of the box and of a margin of two around it."""
    return np.array(list(itertools.product(*(range(-2, side + 2) for side in shape))), np.int32)


@each_shape
def test_points_are_all_cells_in_row_major_order(shape):
    space = Lattice(shape)
    expected = np.array(list(itertools.product(*(range(side) for side in shape))))
    np.testing.assert_array_equal(space.points(), expected)
    assert space.size == len(expected)
    assert space.dimension == len(shape)
    np.testing.assert_array_equal(jax.jit(jax.vmap(space.index))(jnp.asarray(space.points())), np.arange(space.size))
    np.testing.assert_array_equal(expected @ np.array(space.strides), np.arange(space.size))


@each_shape
def test_an_index_outside_is_that_of_the_nearest_point_inside(shape):
    points = around(shape)
    nearest = np.clip(points, 0, np.array(shape) - 1)
    expected = np.ravel_multi_index(tuple(nearest.T), shape)
    np.testing.assert_array_equal(jax.jit(jax.vmap(Lattice(shape).index))(jnp.asarray(points)), expected)


@each_shape
@pytest.mark.parametrize("walls", [False, True])
def test_contains_the_legal_points_of_the_box_and_no_others(shape, walls):
    legal = np.random.default_rng(0).random(np.prod(shape)) < (0.6 if walls else 2.0)
    space = Lattice(shape, jnp.asarray(legal) if walls else None)
    allowed = set(itertools.compress(itertools.product(*(range(side) for side in shape)), legal))
    points = around(shape)
    expected = [tuple(point) in allowed for point in points.tolist()]
    np.testing.assert_array_equal(jax.jit(jax.vmap(space.contains))(jnp.asarray(points)), expected)


@each_shape
def test_codes_are_centred_evenly_spaced_and_inside_the_unit_box(shape):
    space = Lattice(shape)
    points = jnp.asarray(space.points())
    codes = np.asarray(jax.jit(jax.vmap(space.encode))(points), np.float64)
    assert np.all(np.abs(codes) < 1)
    np.testing.assert_allclose(codes.mean(axis=0), np.zeros(len(shape)), **FLOAT)
    for axis, side in enumerate(shape):
        levels = np.unique(codes[:, axis])
        np.testing.assert_allclose(levels, -1 + (2 * np.arange(side) + 1) / side, **FLOAT)
    # Further axes are more states.
    np.testing.assert_allclose(space.encode(points.T), codes.T, **FLOAT)
    np.testing.assert_allclose(space.encode(points.T[:, :, None])[..., 0], codes.T, **FLOAT)


def test_a_thousand_lattices_with_different_walls_are_one_vmap(key):
    legal = jax.random.bernoulli(key, 0.5, (1000, 12))
    spaces = jax.vmap(lambda legal: Lattice((3, 4), legal))(legal)
    found = jax.jit(jax.vmap(lambda space: jax.vmap(space.contains)(jnp.asarray(Lattice((3, 4)).points()))))(spaces)
    np.testing.assert_array_equal(found, legal)


def test_signatures_tell_shapes_apart_and_walls_do_not_matter():
    assert len({Lattice(shape).signature for shape in SHAPES}) == len(SHAPES)
    assert Lattice((2, 2)).signature == Lattice((2, 2), jnp.asarray([True, False, True, True])).signature


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (3, -1)], ids=str)
def test_an_empty_lattice_is_refused(shape):
    with pytest.raises(InputError, match="at least"):
        Lattice(shape)
