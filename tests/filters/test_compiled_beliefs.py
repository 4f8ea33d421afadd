"""Beliefs called from Python: compiled once, the same numbers as inside a trace, and nothing remembered too long."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from constructors import MODELS, small_grid
from tolerances import FLOAT

import nbf
from nbf import dispatch

TRACED = []


class Counted(nbf.Belief):
    """A point; it notes every time its methods run in Python."""

    point: Any

    def sample(self, key, n):
        TRACED.append(("sample", n))
        return jnp.broadcast_to(self.point, (n, 1)) + 0.0 * jax.random.normal(key, (n, 1))

    def log_prob(self, state):
        TRACED.append(("log_prob", None))
        return jnp.where(jnp.all(state == self.point), 0.0, -jnp.inf)

    def log_probs(self, states):
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function):
        return function(self.point)


def test_methods_are_traced_once_for_each_size(key):
    TRACED.clear()
    for number in range(3):
        belief = Counted(jnp.asarray([float(number)]))
        for n in (2, 5):
            np.testing.assert_array_equal(belief.sample(key, n), np.full((n, 1), number))
        np.testing.assert_array_equal(belief.sample(key, n=5), np.full((5, 1), number))
        assert belief.log_prob(jnp.asarray([1.0])) == (0.0 if number == 1 else -jnp.inf)
    assert sorted(TRACED, key=str) == [("log_prob", None), ("sample", 2), ("sample", 5)]


def test_inside_a_trace_nothing_is_dispatched(key):
    before = set(dispatch._COMPILED)
    points = jnp.arange(3.0)[:, None]
    found = jax.vmap(lambda point: Counted(point).sample(key, 4))(points)
    np.testing.assert_array_equal(found[:, :, 0], np.repeat(np.arange(3.0)[:, None], 4, axis=1))
    assert set(dispatch._COMPILED) == before


def test_a_belief_with_something_else_in_it_is_called_as_it_is(key):
    class Named(Counted):
        name: Any = None

    named = Named(jnp.asarray([1.0]), name=object())
    assert named.sample(key, 2).shape == (2, 1)
    TRACED.clear()
    for _ in range(2):
        named.log_prob(jnp.asarray([1.0]))
    assert len(TRACED) == 2


def test_a_filters_belief_is_what_it_is_inside_a_trace(key):
    """Also where the particles are only a share of it."""
    grid, _ = small_grid()
    filter = nbf.NeuralBayesianFilter(MODELS["tabular"](key, (3, 3)), 4)
    state = eqx.tree_at(lambda state: state.carried_share, eqx.filter_jit(filter.init)(key, grid), jnp.asarray(0.4))
    points = jnp.asarray(grid.space.points())

    @eqx.filter_jit
    def traced(filter, state, grid):
        belief = filter.belief(state, grid)
        return belief.sample(key, 8), belief.log_prob(points[2]), belief.log_probs(points), belief.expectation(jnp.exp)

    belief = filter.belief(state, grid)
    found = belief.sample(key, 8), belief.log_prob(points[2]), belief.log_probs(points), belief.expectation(jnp.exp)
    for mine, theirs in zip(found, traced(filter, state, grid), strict=True):
        np.testing.assert_allclose(mine, theirs, **FLOAT)


def test_a_belief_shares_the_parameters_of_its_filters_model(key):
    grid, _ = small_grid()
    filter = nbf.NeuralBayesianFilter(MODELS["enumerated"](key, (3, 3)), 4)
    belief = filter.belief(eqx.filter_jit(filter.init)(key, grid), grid)
    mine, theirs = jax.tree.leaves(belief.model), jax.tree.leaves(filter.model)
    assert all(one is other for one, other in zip(mine, theirs, strict=True))


def test_a_function_that_has_changed_is_called_anew(key):
    grid, _ = small_grid()
    belief = nbf.ExactFilter().belief(nbf.ExactFilter().init(key, grid), grid)
    particles = nbf.ParticleBelief(jnp.zeros((3, 1)), jnp.zeros(3))
    decoded = nbf.ModelBelief(MODELS["tabular"](key, (3, 3)), jnp.ones(9) / 9, grid.space)
    for each in (belief, particles, decoded):
        number = [1.0]
        function = lambda state: jnp.asarray(number[0])  # noqa: B023, E731
        first = float(each.expectation(function))
        number[0] = 2.0
        np.testing.assert_allclose([first, float(each.expectation(function))], [1.0, 2.0], **FLOAT)


def test_programs_of_many_sizes_are_let_go(key, monkeypatch):
    monkeypatch.setattr(dispatch, "COMPILED_STEPS", 3)
    belief = Counted(jnp.asarray([0.0]))
    for n in range(1, 6):
        belief.sample(key, n)
        assert len(dispatch._COMPILED) <= 3
