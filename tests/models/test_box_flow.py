"""The coupling flow over a box: its density integrates to one, in the state's units, and it samples what it says."""

from __future__ import annotations

import functools
import itertools
from typing import Any

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
from nbf.models.belief_model import BoxConfig, ModelConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.spaces import Box, Lattice, Tokens

ENDS = ((-1.0, 10.0), (3.0, 15.0))
MIDDLE, SCALE = np.array([1.0, 12.5]), np.array([2.0, 2.5])
REACH = {"normal": 6.0, "uniform": 10.0}
"""How far a grid reaches in the coordinates that a flow acts on; there, little mass is left beyond."""
SIDE, BINS, DRAWS = 480, 8, 40_000
QUADRATURE = 2e-3
"""What a midpoint rule of `SIDE` points an axis loses where a density has kinks."""
KINDS = list(itertools.product(["affine", "nlsq", "spline"], REACH))
each_kind = pytest.mark.parametrize(("transform", "base"), KINDS)
one_of_each = pytest.mark.parametrize(("transform", "base"), [KINDS[0], KINDS[3], KINDS[4]])
STEEP = {"rtol": 0, "atol": 1e-3}
"""Log densities in float32 where a map is steep: its slope multiplies the rounding of a place."""
CONDITION = jnp.asarray([0.5, -1.0, 2.0])
SMALL: dict[str, Any] = {"layers": 2, "width": 8, "depth": 1, "bins": 4}


def space_of(base):
    """Bounded for a uniform base; without ends for a normal one, so that nothing is clipped."""
    return Box(*ENDS, bounded=base == "uniform")


@functools.cache
def decoder_of(transform, base):
    config = CouplingFlowConfig(transform, base, **SMALL)
    config.check(space_of(base))
    return with_random_parameters(
        lambda key: config.build(key, space_of(base), EMBEDDING), jax.random.key(5), scale=0.25
    )


@eqx.filter_jit
def log_prob(decoder, condition, states):
    return decoder.log_prob(condition, states, decoder.space)


@eqx.filter_jit
def draw(decoder, key, condition, n):
    return decoder.sample(key, condition, n, decoder.space)


def cell(coordinates, base):
    """The bin of each point of flow coordinates; those beyond the reach share the last one."""
    places = np.floor((coordinates / REACH[base] + 1.0) / 2.0 * BINS).astype(int)
    inside = np.all((places >= 0) & (places < BINS), axis=1)
    return np.where(inside, places[:, 0] * BINS + places[:, 1], BINS**2)


def coordinates_of(states, base):
    encoded = (np.asarray(states, np.float64) - MIDDLE) / SCALE
    return encoded if base == "normal" else 2.0 * np.arctanh(np.clip(encoded, -1 + 1e-12, 1 - 1e-12))


@functools.cache
def masses(transform, base):
    """The mass of every bin, by the midpoint rule."""
    axis = ((np.arange(SIDE) + 0.5) / SIDE * 2.0 - 1.0) * REACH[base]
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    encoded, slope = (
        (grid, np.ones_like(grid)) if base == "normal" else (np.tanh(grid / 2), 0.5 / np.cosh(grid / 2) ** 2)
    )
    states = jnp.asarray(encoded * SCALE + MIDDLE, jnp.float32)
    density = np.exp(np.asarray(log_prob(decoder_of(transform, base), CONDITION, states), np.float64))
    mass = density * np.prod(slope * SCALE, axis=1) * (axis[1] - axis[0]) ** 2
    return np.bincount(cell(grid, base), mass, minlength=BINS**2 + 1)[: BINS**2]


@functools.cache
def counts(transform, base):
    states = draw(decoder_of(transform, base), jax.random.key(3), CONDITION, DRAWS)
    assert states.shape == (DRAWS, 2)
    assert states.dtype == jnp.float32
    return np.bincount(cell(coordinates_of(states, base), base), minlength=BINS**2 + 1)


@pytest.mark.slow
@each_kind
def test_the_density_integrates_to_one(transform, base):
    """With what samples say lies beyond the grid."""
    beyond = counts(transform, base)[-1] / DRAWS
    assert beyond < 0.5
    error = monte_carlo(np.sqrt(beyond * (1 - beyond)), DRAWS)
    np.testing.assert_allclose(masses(transform, base).sum(), 1.0 - beyond, rtol=0, atol=QUADRATURE + error)


@pytest.mark.slow
@each_kind
def test_samples_have_the_density_it_says(transform, base):
    mass, seen = masses(transform, base), counts(transform, base)
    assert mass.max() < 0.9
    assert_frequencies(seen[:-1], mass / mass.sum(), detects=0.05)


@pytest.mark.slow
@one_of_each
def test_the_objective_is_the_log_density_of_each_belief(transform, base, key):
    decoder = decoder_of(transform, base)
    conditions = jax.random.normal(key, (3, EMBEDDING))
    states = jnp.stack([draw(decoder, key, condition, 16) for condition in conditions])
    spaces = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), decoder.space)
    together = eqx.filter_jit(decoder.objective)(key, conditions, states, spaces)
    alone = [log_prob(decoder, condition, some) for condition, some in zip(conditions, states, strict=True)]
    assert together.shape == (3, 16)
    np.testing.assert_allclose(together, np.stack(alone), **STEEP)


@pytest.mark.parametrize("base", REACH)
def test_a_fresh_flow_is_its_base_in_the_units_of_the_state(base, key):
    """A normal one of the box's middle and half its side, or the uniform one of the box."""
    decoder = jax.jit(lambda key: CouplingFlowConfig("nlsq", base, **SMALL).build(key, space_of(base), EMBEDDING))(key)
    states = np.random.default_rng(0).uniform(*ENDS, (50, 2))
    truth = stats.norm.logpdf(states, MIDDLE, SCALE) if base == "normal" else np.full((50, 2), -np.log(2.0 * SCALE))
    actual = log_prob(decoder, CONDITION, jnp.asarray(states, jnp.float32))
    np.testing.assert_allclose(actual, truth.sum(axis=1), **FLOAT)


def test_a_bounded_box_clips_samples_of_a_normal_base_and_not_the_density(key):
    free = decoder_of("affine", "normal")
    bounded = eqx.tree_at(lambda decoder: decoder.space, free, Box(*ENDS), is_leaf=lambda leaf: isinstance(leaf, Box))
    states, clipped = (np.asarray(draw(decoder, key, CONDITION, 2000)) for decoder in (free, bounded))
    np.testing.assert_array_equal(clipped, np.clip(states, *np.asarray(ENDS, np.float32)))
    assert 0.01 < np.mean(np.any(states != clipped, axis=1)) < 0.99
    states = jnp.asarray(states)
    np.testing.assert_array_equal(log_prob(bounded, CONDITION, states), log_prob(free, CONDITION, states))


@eqx.filter_jit
@eqx.filter_value_and_grad
def mean_log_prob(decoder, condition, states):
    return jnp.mean(decoder.log_prob(condition, states, decoder.space))


@pytest.mark.slow
@one_of_each
def test_densities_and_gradients_are_finite_at_extremes(transform, base, key):
    """At the corners of the box and, where it has no ends, a thousand of its sizes away; for any embedding."""
    states = jnp.asarray(list(itertools.product(*zip(*ENDS, strict=True))))
    far = states if base == "uniform" else jnp.concatenate([states, 1e3 * states])
    for size in (1.0, 100.0):
        value, gradient = mean_log_prob(decoder_of(transform, base), size * CONDITION, far)
        assert np.isfinite(value)
        for leaf in jax.tree.leaves(gradient):
            assert np.all(np.isfinite(leaf))
    assert np.all(np.isfinite(draw(decoder_of(transform, base), key, 100.0 * CONDITION, DRAWS)))


REFUSED = {
    "dimension 1": (CouplingFlowConfig(), Box((0.0,), (1.0,)), "dimension 1"),
    "a lattice": (CouplingFlowConfig(), Lattice((3, 3)), "lattice.*dequantized"),
    "tokens": (CouplingFlowConfig(), Tokens(3, 3), "tokens"),
    "no such transform": (CouplingFlowConfig("cubic"), Box(*ENDS), "transform.*affine.*'cubic'"),
    "no such base": (CouplingFlowConfig(base="cauchy"), Box(*ENDS), "base.*normal.*'cauchy'"),
    "uniform without ends": (CouplingFlowConfig(base="uniform"), Box(*ENDS, bounded=False), "bounded"),
    "a spline without bins": (CouplingFlowConfig("spline", bins=0), Box(*ENDS), "bins"),
}


@pytest.mark.parametrize(("config", "space", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(config, space, message):
    with pytest.raises(InputError, match=message):
        config.check(space)


def test_a_model_over_a_box_conditions_on_its_context(key):
    """Built from a config; another context is another belief."""
    decoder = CouplingFlowConfig("spline", **SMALL)
    config = ModelConfig(BoxConfig(*ENDS), decoder, embedding=EMBEDDING, context=2)
    model = with_random_parameters(config.build, key)
    one, other = (Box(*ENDS, context=jnp.asarray(context)) for context in ([1.0, 0.0], [0.0, 1.0]))

    @eqx.filter_jit
    def look(space):
        states = jnp.asarray(ENDS)
        embedding = model.embed(states, jnp.zeros(2), space)
        drawn = model.sample(key, embedding, 100, space)
        return drawn, model.log_prob(embedding, states, space)

    drawn, densities = look(one)
    assert drawn.shape == (100, 2)
    assert all(bool(one.contains(state)) for state in drawn[:5])
    assert np.abs(densities - look(other)[1]).max() > 1e-3
