"""Options that would do nothing are refused, or a description says so; numbers out of range are refused too."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid

import nbf
from nbf.contracts import StateSpace
from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.filters.neural import (
    CarryRule,
    EvenProposal,
    LookAheadProposal,
    MomentMatching,
    NeuralBayesianFilter,
    RegeneratingProposal,
    Trust,
)
from nbf.filters.regeneration import KernelSmoother, Regeneration
from nbf.filters.surrogate import Surrogate
from nbf.models.tabular import TabularModel
from nbf.spaces import Box, Lattice, Tokens

CELLS, LINE, WORDS = Lattice((5,)), Box((-4.0,), (4.0,), bounded=False), Tokens(1, 5)
NAMES = ("model_share=0.25", "kernel_scale=0.3", "carry=CarryRule")


def still(space, *, look_ahead=None):
    """Something that stays where it is, and is read off."""
    real = isinstance(space, Box)
    return nbf.environment(
        init=lambda key: jnp.zeros(1) if real else jnp.zeros(1, jnp.int32),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: jnp.zeros(()) if real else next_state[0],
        log_likelihood=lambda observation, state, next_state: -0.5 * (observation - next_state[0]) ** 2.0,
        space=space,
        look_ahead=look_ahead,
    )


def ahead(space: StateSpace = LINE):
    return still(space, look_ahead=lambda observation, state, policy: -0.5 * (observation - state[0]) ** 2.0)


# Trust


@pytest.mark.parametrize(
    ("environment", "used"),
    [(still(CELLS), (0, 1)), (still(WORDS), (0,)), (small_grid()[0], (2,)), (ahead(), ()),
     (TriangulationFamily().environment(), ())],
    ids=["cells", "words", "grid", "look-ahead", "triangulation"],
)  # fmt: skip
def test_a_description_says_which_parts_of_the_trust_are_used(environment, used):
    filter = NeuralBayesianFilter(TabularModel(CELLS), 64, trust=Trust(0.25, 0.3, CarryRule(0.9)))
    line = filter.describe(environment).splitlines()[-1]
    told, _, rest = line.partition("(not used: ")
    assert line.startswith("  trust: ")
    assert ("trust: not used" in line) == (not used)
    for number, name in enumerate(NAMES):
        assert (name in told) == (number in used)
        assert (name.split("=")[0] in rest) == (bool(used) and number not in used)


def test_a_proposal_that_is_named_has_no_trust():
    filter = NeuralBayesianFilter(TabularModel(CELLS), 8, proposal=RegeneratingProposal())
    assert "trust: not used" in filter.describe(still(CELLS))


# Newton steps


class Wide(TabularModel):
    """Decodes to a mixture with the uniform distribution, so that moments have something to correct."""

    def all_log_probs(self, embedding, space):
        return jnp.log(0.5 * embedding + 0.5 / 5)


@eqx.filter_jit
def embedded(filter, key, environment):
    """After one reading of a belief that is sure."""
    start = eqx.tree_at(lambda state: state.embedding, filter.init(key, environment), jnp.eye(5)[1])
    return filter.update(key, start, jnp.int32(2), environment, None)[0].embedding


def test_the_newton_steps_of_moment_matching_are_used_with_look_ahead(key):
    def found(steps, of_proposal=2):
        proposal, correction = LookAheadProposal(newton_steps=of_proposal), MomentMatching(newton_steps=steps)
        filter = NeuralBayesianFilter(Wide(CELLS), 4, proposal=proposal, correction=correction)
        return np.asarray(embedded(filter, key, ahead(CELLS)))

    np.testing.assert_array_equal(found(None), found(2))  # the default is the proposal's
    assert np.abs(found(0) - found(None)).max() > 1e-3
    assert np.abs(found(1, 1) - found(None, 2)).max() > 1e-3


def test_without_look_ahead_moments_are_matched_by_three_newton_steps(key):
    def found(steps):
        correction = MomentMatching(newton_steps=steps)
        filter = NeuralBayesianFilter(Wide(CELLS), 4, proposal=EvenProposal(), correction=correction)
        return np.asarray(embedded(filter, key, still(CELLS)))

    np.testing.assert_array_equal(found(None), found(3))
    assert not np.array_equal(found(None), found(1))


# What an environment does not use


def test_samples_of_a_start_that_is_listed_are_refused(key):
    filter = NeuralBayesianFilter(TabularModel(Lattice((3, 3))), 4, initial_samples=16)
    with pytest.raises(InputError, match=r"initial_samples=16 would do nothing: Gridworld is Enumerable.*Leave"):
        filter.init(key, small_grid()[0])
    faithful = NeuralBayesianFilter.faithful(TabularModel(Lattice((3, 3))), 4, initial_samples=16)
    with pytest.raises(InputError, match="initial_samples"):
        faithful.init(key, small_grid()[0])


def test_elsewhere_a_start_is_1024_samples(key):
    usual, same, fewer = (
        NeuralBayesianFilter(TabularModel(CELLS), 4, initial_samples=count).init(key, random_start()).embedding
        for count in (None, 1024, 16)
    )
    np.testing.assert_array_equal(usual, same)
    assert not np.array_equal(usual, fewer)


def random_start():
    return nbf.environment(
        init=lambda key: jax.random.randint(key, (1,), 0, 5),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0],
        log_likelihood=lambda observation, state, next_state: jnp.zeros(()),
        space=CELLS,
    )


UNUSED: dict[str, tuple[Any, Any, str]] = {
    "kernel, words": (RegeneratingProposal(kernel=KernelSmoother(0.3)), WORDS, r"kernel of Regen.*tokens.*Lattice"),
    "surrogate, words": (RegeneratingProposal(surrogate=Surrogate(64)), WORDS, "surrogate of Regen.*needs a Box"),
    "surrogate, cells": (RegeneratingProposal(surrogate=Surrogate(64)), CELLS, "surrogate of Regen.*lattice"),
}


@pytest.mark.parametrize(("proposal", "space", "message"), UNUSED.values(), ids=UNUSED)
def test_an_option_of_a_proposal_that_does_nothing_is_refused(proposal, space, message, key):
    filter = NeuralBayesianFilter(TabularModel(CELLS), 4, proposal=proposal)
    with pytest.raises(InputError, match=message):
        filter.describe(still(space))


@pytest.mark.parametrize(
    ("proposal", "space"),
    [(RegeneratingProposal(), WORDS), (RegeneratingProposal(model_share=0.1), WORDS),
     (RegeneratingProposal(kernel=KernelSmoother(float(np.exp(np.log(0.7))))), WORDS),
     (RegeneratingProposal(kernel=KernelSmoother(jnp.float32(0.3))), WORDS),
     (RegeneratingProposal(kernel=KernelSmoother(0.3)), CELLS),
     (RegeneratingProposal(surrogate=Surrogate(64), kernel=KernelSmoother(0.3)), LINE)],
)  # fmt: skip
def test_one_that_does_something_is_taken(proposal, space):
    proposal.check(still(space), 4)


def regularized(**options):
    return nbf.RegularizedParticleFilter(4, **options)


REGULARIZED: dict[str, tuple[Any, Any, str]] = {
    "candidates": (regularized(candidates=64), still(LINE), r"candidates of .* does nothing without look-ahead"),
    "defensive": (regularized(defensive=0.5), still(LINE), r"defensive of .* without look-ahead.*Leave defensive out"),
    "lattice": (regularized(candidates=64), ahead(CELLS), "without look-ahead.*over a Box"),
    "regeneration": (regularized(regeneration=Regeneration(stages=1)), ahead(), "regeneration of .* with look-ahead"),
    "surrogate": (regularized(surrogate=Surrogate(64)), ahead(), "surrogate of .* with look-ahead"),
    "surrogate, cells": (regularized(surrogate=Surrogate(64)), still(CELLS), "surrogate of .*lattice"),
}


@pytest.mark.parametrize(("filter", "environment", "message"), REGULARIZED.values(), ids=REGULARIZED)
def test_an_option_of_a_regularised_filter_that_does_nothing_is_refused(filter, environment, message, key):
    with pytest.raises(InputError, match=message):
        filter.init(key, environment)
    state = regularized().init(key, environment)
    with pytest.raises(InputError, match=message):
        filter.update(key, state, None, environment, None)


def test_one_of_a_regularised_filter_that_does_something_is_taken(key):
    regularized(candidates=64, defensive=0.5).init(key, ahead())
    regularized(regeneration=Regeneration(stages=1), surrogate=Surrogate(64)).init(key, still(LINE))
    regularized(regeneration=Regeneration(stages=1)).init(key, still(CELLS))


# Numbers out of range

WRONG = {
    "share above 1": lambda: CarryRule(share=3.0),
    "share below 0": lambda: CarryRule(share=-1.0),
    "share nan": lambda: CarryRule(share=float("nan")),
    "fading": lambda: CarryRule(fading=-2),
    "model share": lambda: Trust(model_share=7.0),
    "model share, NumPy": lambda: Trust(model_share=np.float32(7.0)),  # type: ignore[arg-type]
    "kernel scale": lambda: Trust(kernel_scale=0.0),
    "kernel scale without end": lambda: Trust(kernel_scale=float("inf")),
    "least ridge": lambda: MomentMatching(min_ridge=-1.0),
    "ridge of noise": lambda: MomentMatching(noise_ridge=-4.0),
    "ridge of a calibration": lambda: LookAheadProposal(calibration_ridge=-1.0),
    "a word": lambda: MomentMatching(min_ridge="much"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("build", WRONG.values(), ids=WRONG)
def test_a_number_out_of_range_is_refused(build, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # which would refuse some of them first
    with pytest.raises(InputError, match=r"needs a number (between 0 and 1|of at least 0|above 0) as \w+; got \w+="):
        build()


def test_numbers_at_the_ends_of_a_range_are_taken():
    CarryRule(share=0.0, fading=0)
    CarryRule(share=1.0, fading=0.5)
    Trust(model_share=0.0, kernel_scale=1e-3)
    Trust(model_share=1.0)
    MomentMatching(min_ridge=0.0, noise_ridge=0.0)
    LookAheadProposal(calibration_ridge=0.0)


def test_trust_may_be_traced():
    found = jax.jit(lambda share: Trust(model_share=share, kernel_scale=share).model_share)(7.0)
    assert float(found) == 7.0
