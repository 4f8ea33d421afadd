"""Environments of listed states from plain functions: they are what their functions say, and mistakes are named."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from tolerances import FLOAT

import nbf
from nbf.capabilities import KnownTransitions, StateEmission
from nbf.environments.listed import ListedEnvironment
from nbf.errors import InputError
from nbf.filters.neural import default_proposal
from nbf.testing import check_environment

SIDE = 3
RINGS = np.linspace(0.1, 0.9, SIDE * SIDE).reshape(SIDE, SIDE)
"""Probability that a bell rings in each cell."""


def ring_probability(cell, scale):
    return scale * jnp.asarray(RINGS, jnp.float32)[cell[0], cell[1]]


def observe(key, state, next_state, scale):
    return jax.random.bernoulli(key, ring_probability(next_state, scale)).astype(jnp.int32)


def log_likelihood(observation, state, next_state, scale):
    rings = ring_probability(next_state, scale)
    return jnp.log(jnp.where(observation == 1, rings, 1 - rings))


def branches(state, stay, scale):
    """Stays, or moves on to the next row, the last one to the first."""
    return jnp.stack([state, (state + jnp.array([1, 0])) % SIDE]), jnp.log(jnp.stack([stay, 1 - stay]))


@functools.cache
def still(scale: float = 1.0) -> ListedEnvironment:
    return nbf.listed_environment(
        observe=observe, log_likelihood=log_likelihood, space=nbf.Lattice((SIDE, SIDE)), symbols=2,
        parameters=jnp.asarray(scale),
    )  # fmt: skip


@functools.cache
def moving() -> ListedEnvironment:
    return nbf.listed_environment(
        observe=observe, log_likelihood=log_likelihood, space=nbf.Lattice((SIDE, SIDE)), symbols=2,
        parameters=jnp.asarray(1.0), branches=branches, num_branches=2,
        initial=jnp.log(jnp.arange(1.0, SIDE * SIDE + 1)),
    )  # fmt: skip


STAY = 0.3


def posterior(seen: list[int], *, moves: bool, scale: float = 1.0) -> np.ndarray:
    """By sums over all cells, in NumPy."""
    probs = np.arange(1.0, SIDE * SIDE + 1) if moves else np.ones(SIDE * SIDE)
    probs = (probs / probs.sum()).reshape(SIDE, SIDE)
    for symbol in seen:
        if moves:
            probs = STAY * probs + (1 - STAY) * np.roll(probs, 1, axis=0)
        probs = probs * (scale * RINGS if symbol else 1 - scale * RINGS)
        probs = probs / probs.sum()
    return probs.ravel()


@pytest.mark.parametrize("moves", [False, True])
def test_the_exact_filter_gives_the_posterior(moves, key):
    world, policy = (moving(), jnp.asarray(STAY)) if moves else (still(), None)
    state = nbf.ExactFilter().init(key, world)
    for symbol in (seen := [1, 0, 1]):
        state, _ = nbf.ExactFilter().step(key, state, symbol, world, policy)
    np.testing.assert_allclose(nbf.ExactFilter().belief(state, world).probs, posterior(seen, moves=moves), **FLOAT)


def test_parameters_are_those_of_the_step(key):
    state = nbf.ExactFilter().init(key, still())
    state, _ = nbf.ExactFilter().step(key, state, 0, replace(still(), parameters=jnp.asarray(0.5)), None)
    np.testing.assert_allclose(
        nbf.ExactFilter().belief(state, still()).probs, posterior([0], moves=False, scale=0.5), **FLOAT
    )


@pytest.mark.slow
@pytest.mark.parametrize("moves", [False, True])
def test_it_passes_all_checks(moves):
    report = check_environment(moving() if moves else still(), jnp.asarray(STAY) if moves else None)
    assert report.passed, str(report)


def test_it_starts_and_moves_with_the_probabilities_that_it_claims(key):
    world, draws = moving(), 8000

    @jax.jit
    @jax.vmap
    def drawn(key):
        first = world.init(key)
        return world.index(first), world.transition(jax.random.fold_in(key, 1), first, jnp.asarray(STAY)) - first

    place, step = drawn(jax.random.split(key, draws))
    assert_frequencies(np.bincount(place, minlength=SIDE * SIDE), posterior([], moves=True), detects=0.05)
    moved = int(np.any(step != 0, axis=1).sum())
    assert_frequencies(np.array([draws - moved, moved]), [STAY, 1 - STAY], detects=0.05)


def test_what_it_can_do():
    assert {KnownTransitions, StateEmission, nbf.Enumerable} <= still().capabilities
    assert still().num_branches == 1
    assert moving().num_branches == 2
    assert "BranchProposal" in repr(default_proposal(still(), 4))


def test_states_of_other_spaces_are_given():
    pairs = jnp.asarray([[0, 1], [1, 0]])
    world = nbf.listed_environment(
        observe=lambda key, state, after: after[0], space=nbf.Tokens(2, 2), states=pairs, index=lambda state: state[0],
        log_likelihood=lambda seen, state, after: jnp.where(seen == after[0], 0.0, -jnp.inf),
    )  # fmt: skip
    np.testing.assert_array_equal(world.states(), pairs)
    np.testing.assert_allclose(world.initial_log_probs(), np.log([0.5, 0.5]), **FLOAT)
    assert int(world.init(jax.random.key(0)).sum()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"space": nbf.Tokens(2, 2)}, "Only the points of a Lattice list themselves; for tokens.*`states` and `index`"),
        ({"states": jnp.zeros((3, 2), jnp.int32)}, "`states`.*`index`.*belong together"),
        ({"branches": branches}, "`branches` and `num_branches`.*belong together"),
        ({"num_branches": 2}, "`branches` and `num_branches`.*belong together"),
        ({"branches": branches, "num_branches": 0}, "one branch at least.*num_branches=0"),
        ({"initial": jnp.zeros(4)}, r"for each of the 9 states; got shape \(4,\)"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else None,
)
def test_mistakes_are_named(options, said):
    whole = {"space": nbf.Lattice((SIDE, SIDE)), "observe": observe, "log_likelihood": log_likelihood} | options
    with pytest.raises(InputError, match=said):
        nbf.listed_environment(parameters=jnp.asarray(1.0), **whole)
