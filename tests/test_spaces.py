"""Lattices and tokens against Python's own enumeration of their points, boxes against NumPy."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.spaces import Box, Lattice, Tokens

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
    np.testing.assert_array_equal(jax.jit(jax.vmap(space.index))(space.points()), np.arange(space.size))
    np.testing.assert_array_equal(expected @ np.array(space.strides), np.arange(space.size))


@each_shape
def test_an_index_outside_is_that_of_the_nearest_point_inside(shape):
    points = around(shape)
    nearest = np.clip(points, 0, np.array(shape) - 1)
    expected = np.ravel_multi_index(tuple(nearest.T), shape)
    np.testing.assert_array_equal(jax.jit(jax.vmap(Lattice(shape).index))(points), expected)


@each_shape
@pytest.mark.parametrize("walls", [False, True])
def test_contains_the_legal_points_of_the_box_and_no_others(shape, walls):
    legal = np.random.default_rng(0).random(np.prod(shape)) < (0.6 if walls else 2.0)
    space = Lattice(shape, jnp.asarray(legal) if walls else None)
    allowed = set(itertools.compress(itertools.product(*(range(side) for side in shape)), legal))
    points = around(shape)
    expected = [tuple(point) in allowed for point in points.tolist()]
    np.testing.assert_array_equal(jax.jit(jax.vmap(space.contains))(points), expected)


@each_shape
def test_codes_are_centred_evenly_spaced_and_inside_the_unit_box(shape):
    space = Lattice(shape)
    points = space.points()
    of_columns = jax.jit(lambda points: (space.encode(points), space.encode(points[:, :, None])))
    codes = np.asarray(jax.jit(jax.vmap(space.encode))(points), np.float64)
    assert np.all(np.abs(codes) < 1)
    np.testing.assert_allclose(codes.mean(axis=0), np.zeros(len(shape)), **FLOAT)
    for axis, side in enumerate(shape):
        levels = np.unique(codes[:, axis])
        np.testing.assert_allclose(levels, -1 + (2 * np.arange(side) + 1) / side, **FLOAT)
    # Further axes are more states.
    columns, with_an_axis = of_columns(points.T)
    np.testing.assert_allclose(columns, codes.T, **FLOAT)
    np.testing.assert_allclose(np.asarray(with_an_axis)[..., 0], codes.T, **FLOAT)


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


# Boxes

BOXES = [
    Box((-3.0,), (5.0,)),
    Box((0.0, -100.0), (1.0, 100.0)),
    Box((0.0, -100.0), (1.0, 100.0), bounded=False),
    Box((10.0, -1e-3, -1e6), (10.5, 1e-3, 1e6)),
]
each_box = pytest.mark.parametrize("box", BOXES, ids=lambda box: box.signature)


@eqx.filter_jit
def each(method, states):
    """A method of a space, of each state."""
    return jax.vmap(method)(states)


def around_a_box(box):
    """Random points of the box and of as much again on every side."""
    low, high = np.array(box.low), np.array(box.high)
    return low + (high - low) * np.random.default_rng(0).uniform(-1.0, 2.0, (200, len(low)))


@each_box
def test_a_box_is_encoded_as_the_cube_of_side_two(box):
    """Its ends as -1 and 1, linearly; there and back is where it came from, to the nearest point of the box."""
    points = around_a_box(box)
    low, high = np.array(box.low), np.array(box.high)
    codes = np.asarray(each(box.encode, jnp.asarray(points, jnp.float32)))
    assert codes.shape == (200, box.num_features)
    np.testing.assert_allclose(codes, (2 * points - low - high) / (high - low), **FLOAT)
    back = np.asarray(each(box.decode, jnp.asarray(codes)))
    expected = np.clip(points, low, high) if box.bounded else points
    np.testing.assert_allclose(back / (high - low), expected / (high - low), **FLOAT)
    ends = each(box.encode, jnp.asarray([box.low, box.high]))
    np.testing.assert_allclose(ends, [[-1.0] * len(low), [1.0] * len(low)], **FLOAT)
    np.testing.assert_allclose(box.scale, (high - low) / 2, **FLOAT)


@each_box
def test_a_box_contains_what_lies_between_its_ends(box):
    points = np.vstack([around_a_box(box), [box.low], [box.high]]).astype(np.float32)
    between = np.all((points >= np.float32(box.low)) & (points <= np.float32(box.high)), axis=1)
    assert box.bounded is False or 0 < between.sum() < len(points)
    found = each(box.contains, jnp.asarray(points))
    np.testing.assert_array_equal(found, between if box.bounded else np.ones(len(points), bool))
    decoded = each(box.decode, each(box.encode, jnp.asarray(points)))
    assert np.all(each(box.contains, decoded))
    for number, bad in enumerate((np.nan, np.inf, -np.inf)):
        points[number, -1] = bad
    assert not np.any(each(box.contains, jnp.asarray(points))[:3])


def test_signatures_of_boxes_tell_ends_apart_and_not_how_they_were_written():
    assert len({box.signature for box in BOXES}) == len(BOXES)
    written = [Box((0.0, 1.0), (2.0, 3.0)), Box((0, 1), (2, 3)), Box(np.array([0, 1]), np.asarray([2, 3], np.float32))]
    assert len({box.signature for box in written}) == 1
    assert len({hash(jax.tree.structure(box)) for box in written}) == 1


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((), ()),
        ((0.0,), (1.0, 2.0)),
        ((0.0, 1.0), (1.0, 1.0)),
        ((2.0,), (1.0,)),
        ((float("nan"),), (1.0,)),
        ((0.0,), (float("inf"),)),
        ((1.0,), (1.0 + 1e-12,)),
        ((-3e38,), (3e38,)),
        ((0.0,), (1e300,)),
    ],
    ids=str,
)
def test_a_box_without_volume_is_refused(low, high):
    """Also one whose volume float32 cannot hold."""
    with pytest.raises(InputError, match="A box needs"):
        Box(low, high)


# Circular coordinates

POSE = Box((0.0, -np.pi, -5.0), (2.0, np.pi, 5.0), circular=(1,))
DEGREES = Box((0.0, 10.0), (360.0, 11.0), bounded=False, circular=(0, 1))
each_circular = pytest.mark.parametrize("box", [POSE, DEGREES], ids=lambda box: box.signature)


def turned(box, points, turns=3):
    """The same points some periods further along every circular coordinate."""
    return points + np.where(box.wraps, turns * (np.array(box.high) - np.array(box.low)), 0.0)


@each_circular
def test_circular_coordinates_are_encoded_as_cosine_and_sine(box):
    points = around_a_box(box)
    low, high = np.array(box.low), np.array(box.high)
    numbers = (2 * points - low - high) / (high - low)
    parts = [
        [np.cos(np.pi * numbers[:, axis]), np.sin(np.pi * numbers[:, axis])] if wraps else [numbers[:, axis]]
        for axis, wraps in enumerate(box.wraps)
    ]
    expected = np.stack([column for part in parts for column in part], axis=1)
    assert box.num_features == expected.shape[1] == box.dimension + len(box.circular)
    for states in (points, turned(box, points)):
        codes = each(box.encode, jnp.asarray(states, jnp.float32))
        # float32 resolves 1e-7 of the state, which is three periods from zero
        np.testing.assert_allclose(codes, expected, rtol=0, atol=1e-3 if box is DEGREES else 1e-5)


@each_circular
def test_decoded_they_are_the_same_point_of_the_circle_between_the_ends(box):
    points = around_a_box(box)
    low, high = np.array(box.low), np.array(box.high)
    back = np.asarray(each(box.decode, each(box.encode, jnp.asarray(points, jnp.float32))), np.float64)
    assert np.all(np.where(box.wraps | box.bounded, (back >= np.float32(low)) & (back <= np.float32(high)), True))
    turns = (back - points) / (high - low)
    np.testing.assert_allclose(np.where(box.wraps, turns - np.round(turns), 0.0), 0.0 * turns, **FLOAT)
    straight = np.clip(points, low, high) if box.bounded else points
    np.testing.assert_allclose(np.where(box.wraps, 0.0, back), np.where(box.wraps, 0.0, straight), **FLOAT)
    nearest = each(box.nearest, jnp.asarray(points, jnp.float32))
    moved = (np.asarray(nearest, np.float64) - back) / (high - low)
    np.testing.assert_allclose(moved - np.round(moved), 0.0 * moved, **FLOAT)


@each_circular
def test_every_number_is_an_angle_and_walls_stay_walls(box):
    points = around_a_box(box).astype(np.float32)
    inside = (points >= np.float32(box.low)) & (points <= np.float32(box.high))
    expected = np.all(inside | ~box.walled, axis=1)
    np.testing.assert_array_equal(each(box.contains, jnp.asarray(points)), expected)
    assert np.any(expected)
    assert not np.any(each(box.contains, jnp.asarray([[np.nan] * box.dimension, [np.inf] * box.dimension])))


@each_circular
def test_a_difference_is_the_shortest_of_all_ways_round(box):
    points, others = around_a_box(box), around_a_box(box)[::-1]
    period = np.where(box.wraps, np.array(box.high) - np.array(box.low), 0.0)
    images = np.stack([points - others + turns * period for turns in range(-5, 6)])
    expected = np.abs(images).min(axis=0)
    found = np.asarray(box.difference(jnp.asarray(points), jnp.asarray(others)), np.float64)
    np.testing.assert_allclose(np.abs(found), expected, rtol=1e-4, atol=1e-4)
    straight = np.where(box.wraps, 0.0, points - others)
    np.testing.assert_allclose(np.where(box.wraps, 0.0, found), straight, **FLOAT)


def test_derivatives_of_circular_codes_are_finite():
    """Also at the ends, and of the decoding of no direction at all."""
    states = jnp.asarray([POSE.low, POSE.high, POSE.middle])
    slopes = each(jax.jacfwd(POSE.encode), states)
    back = each(jax.jacfwd(POSE.decode), jnp.stack([jnp.zeros(4), POSE.encode(states[2])]))
    assert np.all(np.isfinite(slopes))
    assert np.all(np.isfinite(back))
    assert np.all(np.linalg.norm(np.asarray(slopes)[:, 1:3, 1], axis=1) > 0.9)


def test_signatures_tell_circular_coordinates():
    ends = (0.0, 0.0), (1.0, 1.0)
    boxes = [Box(*ends), *(Box(*ends, circular=which) for which in ((0,), (1,), (0, 1)))]
    assert len({box.signature for box in boxes}) == 4
    assert Box(*ends, circular=[1, 0, 1]).signature == boxes[3].signature
    assert Box(*ends, circular=1).signature == boxes[2].signature
    assert Box(*ends, circular=()).signature == boxes[0].signature


@pytest.mark.parametrize("circular", [(2,), (-1,), (True, False), np.array([False, True])], ids=str)
def test_circular_coordinates_that_are_no_indices_are_refused(circular):
    with pytest.raises(InputError, match="by their indices"):
        Box((0.0, 0.0), (1.0, 1.0), circular=circular)


# Tokens


def rising(prefix, context):
    """Each symbol is larger than the last; the first is at most what the context says."""
    if len(prefix) == 0:
        return jnp.arange(4) <= context[0]
    return jnp.arange(4) > prefix[-1]


def rises(state, first):
    return all(0 <= symbol < 4 for symbol in state) and state[0] <= first and state[0] < state[1]


def test_tokens_contain_the_legal_sequences_and_no_others():
    states = np.array(list(itertools.product(range(-1, 6), repeat=2)), np.int32)
    contains = jax.jit(lambda space, states: jax.vmap(space.contains)(states))
    inside = np.all((states >= 0) & (states < 4), axis=1)
    np.testing.assert_array_equal(contains(Tokens(2, 4), jnp.asarray(states)), inside)
    for first in (0, 2):
        space = Tokens(2, 4, rising, jnp.asarray([float(first)]))
        expected = [rises(state, first) for state in states.tolist()]
        np.testing.assert_array_equal(contains(space, jnp.asarray(states)), expected)


def test_masks_say_what_may_stand_at_each_place():
    masks = Tokens(2, 4, rising, jnp.asarray([1.0])).masks(jnp.asarray([1, 3]))
    np.testing.assert_array_equal(masks, [[True, True, False, False], [False, False, True, True]])
    assert np.all(Tokens(2, 4).masks(jnp.asarray([1, 3])))


@pytest.mark.parametrize(("length", "categories"), [(1, 1), (1, 4), (3, 2)])
def test_tokens_are_encoded_one_hot_and_back(length, categories):
    space = Tokens(length, categories)
    states = np.array(list(itertools.product(range(categories), repeat=length)), np.int32)
    codes = each(space.encode, jnp.asarray(states))
    assert codes.shape == (len(states), space.num_features)
    np.testing.assert_array_equal(codes, np.eye(categories)[states].reshape(len(states), -1))
    np.testing.assert_array_equal(each(space.decode, codes), states)
    np.testing.assert_array_equal(each(space.decode, 0.6 * codes - 0.3), states)


def test_a_thousand_contexts_are_one_vmap():
    limits = jnp.arange(1000.0)[:, None] % 4
    spaces = jax.vmap(lambda context: Tokens(2, 4, rising, context))(limits)
    found = jax.jit(jax.vmap(lambda space: space.mask(jnp.zeros(0, jnp.int32))))(spaces)
    np.testing.assert_array_equal(found, np.arange(4) <= np.asarray(limits))


@pytest.mark.parametrize(("length", "categories"), [(0, 3), (3, 0), (-1, 2)])
def test_empty_tokens_are_refused(length, categories):
    with pytest.raises(InputError, match="at least 1"):
        Tokens(length, categories)


@pytest.mark.parametrize("mask", [jnp.ones(3, bool), jnp.ones((1, 4), bool), jnp.ones(4), jnp.asarray(True)], ids=str)
def test_a_mask_of_another_shape_or_kind_is_refused(mask):
    with pytest.raises(InputError, match="each of the 4 categories; after 1 symbols"):
        Tokens(2, 4, lambda prefix, context: mask).mask(jnp.zeros(1, jnp.int32))
