"""Algorithm 1, and what is done better than it, with the theorem's perfect model against the exact filter, on bad
days, and at any batch size."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import MODELS, small_grid
from tolerances import FLOAT, monte_carlo
from worlds import trap_door

import nbf
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ListedStates
from nbf.capability import capability
from nbf.contracts import BeliefModel, Environment
from nbf.environments.gridworld import GoalPolicy, Gridworld
from nbf.errors import InputError
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import (
    BranchProposal,
    CarryRule,
    EvenProposal,
    IndependentProposal,
    LookAheadProposal,
    MomentMatching,
    NeuralBayesianFilter,
    NoCorrection,
)
from nbf.filters.run import run
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice

OBSERVATIONS = np.asarray([1, 1, 2, 4, 0, 3], np.int32)
NEVER, ALWAYS_NAN, ALWAYS_INFINITE = 2, 3, 4
"""Symbols of `trap_door` that no trajectory explains."""
OPTIONS = {
    "Algorithm 1": {"proposal": IndependentProposal(), "correction": NoCorrection()},
    "even draws": {"proposal": EvenProposal(), "correction": NoCorrection()},
    "moment matching": {"proposal": IndependentProposal(), "correction": MomentMatching()},
    "even draws, moment matching": {"proposal": EvenProposal(), "correction": MomentMatching()},
}
"""What makes random choices; with `BranchProposal` the perfect model is exact on a small grid."""
tabular = functools.partial(NeuralBayesianFilter, TabularModel(Lattice((3, 3))))
rooms = functools.partial(NeuralBayesianFilter, TabularModel(Lattice((3,))))
rooms9 = functools.partial(NeuralBayesianFilter, TabularModel(Lattice((9,))))
faithful_rooms = functools.partial(NeuralBayesianFilter.faithful, TabularModel(Lattice((3,))))


@eqx.filter_jit
def many(filter, keys, environment, policy, observations: Any = OBSERVATIONS):
    """States and infos of every step of one run for each key."""
    return jax.vmap(lambda key: run(filter, key, observations, environment, policy))(keys)


@eqx.filter_jit
def started(filter, key, environment):
    """The first state, by one program."""
    return filter.init(key, environment)


def without_carried(state):
    """The same state, of which no particle is carried on."""
    return eqx.tree_at(lambda state: state.carried_share, state, np.zeros((), np.float32))


def stepped(filter, key, environment, policy):
    """The same of one run, step by step, whose program tests share; and the last state."""
    state, found = started(filter, key, environment), []
    for t, observation in enumerate(OBSERVATIONS):
        state, info = filter.step(jax.random.fold_in(key, t), state, observation, environment, policy)
        found.append((state, info))
    return *jax.tree.map(lambda *leaves: np.stack(leaves), *found), state


def value(state):
    """A bounded function of the state, different in every cell."""
    return jnp.sin(1.0 + state[0] + 3.0 * state[1])


# The theorem


@pytest.fixture(scope="module")
def truth():
    """Of `small_grid`, where every observation has a likelihood of at least 0.3 / 4."""
    environment, policy = small_grid()
    probs, info = many(ExactFilter(), jax.random.split(jax.random.key(0), 1), environment, policy)
    return np.asarray(probs[0], np.float64), np.asarray(info.log_evidence[0], np.float64)


SHOWN = ("Algorithm 1", "even draws, moment matching")
"""What is always run; each improvement alone is slow to compile."""


@pytest.fixture(
    scope="module", params=[name if name in SHOWN else pytest.param(name, marks=pytest.mark.slow) for name in OPTIONS]
)
def runs(request):
    """200 runs with each number of particles."""
    environment, policy = small_grid()
    keys = jax.random.split(jax.random.key(1), 200)
    return {n: many(tabular(n, **OPTIONS[request.param]), keys, environment, policy) for n in (32, 512)}


def slope_of(sizes, errors):
    """The log-log slope of the mean error by size, and its standard error; errors are [size, run]."""
    means = errors.mean(axis=1)
    spread = errors.std(axis=1) / means / np.sqrt(errors.shape[1])
    x = np.log(sizes) - np.mean(np.log(sizes))
    return np.sum(x * np.log(means)) / np.sum(x**2), np.sqrt(np.sum((x * spread) ** 2)) / np.sum(x**2)


def test_the_largest_error_of_the_estimates_falls_as_the_root_of_n(runs, truth):
    """sup_t |μ̂_t - E_t[f]| = O(n^-1/2): the slope is -1/2 within four standard errors, a 99.99 % interval."""
    probs, _ = truth
    expected = probs @ np.sin(1.0 + Lattice((3, 3)).points() @ [1.0, 3.0])
    errors = []
    for states, _ in runs.values():
        estimate = jax.jit(jax.vmap(jax.vmap(lambda state: tabular(1).estimate(state, value))))
        errors.append(np.abs(np.asarray(estimate(states), np.float64) - expected).max(axis=1))
    slope, error = slope_of(list(runs), np.stack(errors))
    assert error < 0.02, "too noisy to tell a rate of 1/2 from others"
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * error)


def test_the_embedding_converges_to_the_posterior(runs, truth):
    """The largest error of any probability at any step falls at the same rate, to nothing but noise."""
    probs, _ = truth
    errors = [np.abs(np.asarray(states.embedding) - probs).max(axis=(1, 2)) for states, _ in runs.values()]
    slope, error = slope_of(list(runs), np.stack(errors))
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * error)
    last = np.asarray(runs[512][0].embedding, np.float64)
    np.testing.assert_array_less(np.abs(last.mean(axis=0) - probs), monte_carlo(last.std(axis=0), 200, k=5) + 1e-3)


@pytest.mark.sampled
@pytest.mark.parametrize("options", [{}, OPTIONS["Algorithm 1"]], ids=["default", "Algorithm 1"])
def test_the_evidence_is_unbiased(options, truth, key):
    """Drawing from a table is multinomial resampling, and drawing evenly an optimal one, so E[product of evidences]
    = p(y_1:T) at any n."""
    environment, policy = small_grid()
    _, info = many(tabular(8, **options), jax.random.split(key, 2000), environment, policy)
    ratio = np.exp(np.asarray(info.log_evidence, np.float64).sum(axis=1) - truth[1].sum())
    assert ratio.std() > 0.05
    np.testing.assert_allclose(ratio.mean(), 1.0, rtol=0, atol=monte_carlo(ratio.std(), 2000))
    assert not np.any(info.recovered)
    np.testing.assert_array_equal(info.attempts, np.ones((2000, 6)))


def test_the_evidence_converges_to_the_exact_one(runs, truth):
    """Step by step, at the rate of everything else."""
    errors = [np.abs(np.asarray(info.log_evidence, np.float64) - truth[1]).max(axis=1) for _, info in runs.values()]
    slope, error = slope_of(list(runs), np.stack(errors))
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * error)
    assert errors[-1].max() < 0.3


def test_with_calls_for_all_branches_it_is_exact(truth, key):
    """4 branches of each of 8 free cells, and some calls more: the default is Bayes' rule, step by step."""
    environment, policy = small_grid()
    for each in (key, jax.random.fold_in(key, 99)):
        states, info, _ = stepped(tabular(35), each, environment, policy)
        np.testing.assert_allclose(states.embedding, truth[0], **FLOAT)
        np.testing.assert_allclose(info.log_evidence, truth[1], **FLOAT)


# Particles that are carried


TABLE = jnp.arange(1.0, 10.0) / 45.0


class Forgetful(TabularModel):
    """Always tells the same, whatever was embedded."""

    def sample(self, key, embedding, n, space):
        return super().sample(key, TABLE, n, space)

    def log_prob(self, embedding, states, space):
        return super().log_prob(TABLE, states, space)

    @property
    def capabilities(self):
        return frozenset({ListedStates})

    def all_log_probs(self, embedding, space):
        return jnp.log(TABLE)


class Wide(TabularModel):
    """Decodes to a mixture with the uniform distribution, so that moments have something to correct."""

    def all_log_probs(self, embedding, space):
        return jnp.log(0.5 * embedding + 0.5 / 9)


class Drawn(Forgetful):
    """The same, by draws that are all cells, instead of a list."""

    @property
    def capabilities(self):
        return frozenset()

    def draw(self, key, embedding, n, space):
        assert isinstance(space, Lattice)
        rest = n - 9
        return jnp.asarray(np.pad(space.points(), ((0, rest), (0, 0)))), jnp.pad(
            jnp.log(TABLE), (0, rest), constant_values=-jnp.inf
        )


CALLS = 36
"""All branches of nine cells."""


@pytest.mark.sampled
@pytest.mark.parametrize("model", [Forgetful, Drawn])
def test_carried_particles_are_a_share_of_the_next_belief(model, key):
    """What a model forgets, exact particles remember: the filter is Bayes' rule for a mixture of both."""
    environment, policy = small_grid()
    filter = NeuralBayesianFilter(model(Lattice((3, 3))), CALLS)
    bare = NeuralBayesianFilter(model(Lattice((3, 3))), CALLS, proposal=BranchProposal(carry=None))
    points = jnp.asarray(Lattice((3, 3)).points())
    start = without_carried(started(filter, key, environment))
    first, _ = filter.step(key, start, OBSERVATIONS[0], environment, policy)
    share = float(first.carried_share)
    exact = ExactFilter()

    def step(probs, symbol):
        return np.asarray(exact.step(key, jnp.asarray(probs, jnp.float32), symbol, environment, policy)[0])

    own = np.where(environment.free, TABLE, 0.0)
    own = own / own.sum()
    # Chance has no part, but for the lightest of what was drawn.
    lightest = float(np.min(own[own > 0])) if model is Drawn else 0.0
    assert share == pytest.approx(CarryRule().share * (1.0 - lightest) ** CarryRule().fading, rel=1e-4)
    after_one = step(own, OBSERVATIONS[0])
    told = np.exp(np.asarray(filter.belief(first, environment).log_probs(points), np.float64))
    # The model's own share is of the legal cells, here and when particles are made of it.
    np.testing.assert_allclose(told, (1 - share) * own + share * after_one, **FLOAT)
    second, _ = filter.step(key, first, OBSERVATIONS[1], environment, policy)
    expected = step((1 - share) * own + share * after_one, OBSERVATIONS[1])
    np.testing.assert_allclose(second.embedding, expected, **FLOAT)
    forgotten, _ = bare.step(key, first, OBSERVATIONS[1], environment, policy)
    np.testing.assert_allclose(forgotten.embedding, step(own, OBSERVATIONS[1]), **FLOAT)
    # The more is carried, the more a filter that carries nothing misses.
    assert np.abs(np.asarray(forgotten.embedding) - expected).max() > 0.072 * share


@pytest.mark.sampled
@pytest.mark.parametrize("model", [Forgetful, Drawn])
def test_while_chance_has_no_part_any_model_will_do(model, truth, key):
    """With calls for all branches of all states the particles are Bayes' rule from the start on."""
    environment, policy = small_grid()
    filter = NeuralBayesianFilter(model(Lattice((3, 3))), CALLS)
    states, info, last = stepped(filter, key, environment, policy)
    np.testing.assert_array_equal(states.carried_share, np.ones(len(OBSERVATIONS)))
    np.testing.assert_allclose(states.embedding, truth[0], **FLOAT)
    np.testing.assert_allclose(info.log_evidence, truth[1], **FLOAT)
    told = filter.belief(last, environment).log_probs(jnp.asarray(Lattice((3, 3)).points()))
    np.testing.assert_allclose(np.exp(told), truth[0][-1], **FLOAT)


def test_a_belief_with_carried_particles_is_sampled_as_it_says(key):
    environment, policy = small_grid()
    filter = NeuralBayesianFilter(Forgetful(Lattice((3, 3))), CALLS)
    start = without_carried(started(filter, key, environment))
    state, _ = filter.step(key, start, OBSERVATIONS[0], environment, policy)
    assert 0.0 < float(state.carried_share) < 1.0
    belief, space = filter.belief(state, environment), Lattice((3, 3))
    drawn = np.ravel_multi_index(tuple(np.asarray(belief.sample(key, 20_000)).T), (3, 3))
    probs = np.exp(np.asarray(belief.log_probs(jnp.asarray(space.points())), np.float64))
    assert_frequencies(np.bincount(drawn, minlength=9), probs, detects=0.05)
    np.testing.assert_allclose(belief.expectation(lambda state: state[0]), probs @ space.points()[:, 0], **FLOAT)


@pytest.mark.sampled
@pytest.mark.parametrize("model", [Forgetful, Drawn])
def test_particles_that_a_new_environment_forbids_are_not_carried(model, key):
    environment, policy = small_grid()
    filter = NeuralBayesianFilter(model(Lattice((3, 3))), CALLS)
    state, _ = filter.step(key, started(filter, key, environment), OBSERVATIONS[0], environment, policy)
    free = np.isin(np.arange(9), [4, 7, 8])
    for legal in (free, np.asarray(state.embedding) <= 0):
        world = Gridworld(Lattice((3, 3), jnp.asarray(legal)), jnp.asarray(0.3))
        after, info = filter.step(key, state, None, world, policy)
        assert not info.recovered
        assert np.asarray(after.embedding)[legal].sum() == pytest.approx(1.0)


def test_what_chance_made_is_not_carried(key):
    """One branch of each of nine cells is no expansion."""
    environment, policy = small_grid()
    start = started(tabular(9), key, environment)
    state, _ = tabular(9).step(key, start, OBSERVATIONS[0], environment, policy)
    assert float(state.carried_share) == 0.0


# What is picked, and what is refused


class Blind(TabularModel):
    """A model whose embedding is no mean of features."""

    @property
    def capabilities(self):
        return frozenset({ListedStates})


def test_the_default_is_picked_from_what_environment_and_model_can_do():
    grid, emitting = small_grid()[0], dataclasses.replace(rooms_of("nothing"), emission="state")
    cases = [
        (tabular(35), grid, "BranchProposal", "MomentMatching", "KnownTransitions"),
        (tabular(4), grid, "EvenProposal", "MomentMatching", "few enough branches"),
        (tabular(8), rooms_of("right"), "LookAheadProposal", "MomentMatching", "has LookAhead"),
        (tabular(8), rooms_of("nothing"), "EvenProposal", "MomentMatching", "neither LookAhead"),
        (tabular(8), emitting, "RegeneratingProposal", "MomentMatching", "has StateEmission"),
        (NeuralBayesianFilter(Blind(Lattice((3, 3))), 35), grid, "BranchProposal", "NoCorrection", "KnownTransitions"),
        (NeuralBayesianFilter.faithful(tabular(4).model, 4), grid, "IndependentProposal", "NoCorrection", "as asked"),
    ]
    for filter, environment, proposal, correction, why in cases:
        told = filter.describe(environment)
        assert f"proposal: {proposal}" in told
        assert f"correction: {correction}" in told
        assert why in told
    assert "picked by environment" in repr(tabular(4))
    assert "EvenProposal" in repr(tabular(4, proposal=EvenProposal()))


def test_a_proposal_that_does_not_suit_an_environment_is_refused(key):
    grid, policy = small_grid()
    wrong = {
        "LookAhead.*look_ahead.*Gridworld.*EvenProposal": (tabular(4, proposal=LookAheadProposal()), grid),
        "as many particles.*5 in Gridworld; got 4": (tabular(4, proposal=BranchProposal()), grid),
        "KnownTransitions.*FunctionalEnvironment": (rooms9(8, proposal=BranchProposal()), rooms_of("right")),
    }
    for message, (filter, environment) in wrong.items():
        with pytest.raises(InputError, match=message):
            filter.init(key, environment)
        state = started(tabular(filter.num_particles), key, grid)
        with pytest.raises(InputError, match=message):
            filter.update(key, state, None, environment, policy)


def test_parts_that_a_filter_cannot_use_are_refused(monkeypatch):
    with pytest.raises(InputError, match=r"MomentMatching needs the capability MeanFeatures.*NoCorrection"):
        NeuralBayesianFilter(Blind(Lattice((3, 3))), 4, correction=MomentMatching())
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # which would refuse them first, in tests alone
    wrong: list[dict[str, Any]] = [{"proposal": True}, {"correction": EvenProposal()}, {"proposal": NoCorrection()}]
    for part in wrong:
        with pytest.raises(InputError, match="or None for the default"):
            tabular(4, **part)
    with pytest.raises(InputError, match="candidates of at least 1"):
        LookAheadProposal(candidates=0)
    with pytest.raises(InputError, match="not a capability"):
        capability(TabularModel(Lattice((3, 3))), TabularModel)


def test_the_constants_of_a_part_are_used(key):
    """A ridge without bound leaves the model as it is, and a rule that carries nothing is none."""
    grid, policy = small_grid()
    start = eqx.tree_at(lambda state: state.embedding, started(tabular(8), key, grid), np.eye(9, dtype=np.float32)[8])
    found = {}
    for name, parts in {
        "none": {"correction": NoCorrection()},
        "stiff": {"correction": MomentMatching(min_ridge=1e9)},
        "matched": {"correction": MomentMatching()},
    }.items():
        filter = NeuralBayesianFilter(Wide(Lattice((3, 3))), 8, proposal=EvenProposal(), **parts)
        found[name] = np.asarray(filter.step(key, start, 1, grid, policy)[0].embedding)
    np.testing.assert_allclose(found["stiff"], found["none"], **FLOAT)
    assert np.abs(found["matched"] - found["none"]).max() > 0.01
    nothing = tabular(35, proposal=BranchProposal(CarryRule(share=0.0)))
    inexact = without_carried(started(nothing, key, grid))
    assert float(nothing.step(key, inexact, 1, grid, policy)[0].carried_share) == 0.0


# Look-ahead


def _reading(observation, state, next_state):
    return jnp.log(jnp.where(observation == next_state[0], 0.6, 0.05))


LOOK_AHEADS = {
    "nothing": None, "right": (1.0, 0.0), "wrong": (-1.0, 0.0), "never": (0.0, -np.inf), "nan": (0.0, np.nan)
}  # fmt: skip
"""Of one of nine rooms that somebody stays in: a factor of what is right, and what is added."""


@functools.cache
def rooms_that_tell(something):
    return nbf.environment(
        init=lambda key, said: jax.random.randint(key, (1,), 0, 9),
        transition=lambda key, state, policy, said: state,
        observe=lambda key, state, next_state, said: next_state[0],
        log_likelihood=lambda observation, state, next_state, said: _reading(observation, state, next_state),
        space=Lattice((9,)),
        symbols=9,
        look_ahead=(lambda observation, state, policy, said: said[0] * _reading(observation, state, state) + said[1])
        if something
        else None,
        parameters=jnp.zeros(2),
        emission="transition",  # so that nothing is regenerated
    )


def rooms_of(say):
    """What is said is an argument of one program."""
    said = LOOK_AHEADS[say]
    return dataclasses.replace(rooms_that_tell(said is not None), parameters=jnp.asarray(said or (0.0, 0.0)))


@eqx.filter_jit
def after_four(filter, keys, environment):
    """Embeddings and log-evidences of many runs after a uniform start and the reading 4."""
    start = eqx.tree_at(lambda state: state.embedding, filter.init(keys[0], environment), jnp.ones(9) / 9)
    state, info = jax.vmap(lambda key: filter.update(key, start, jnp.int32(4), environment, None))(keys)
    return state.embedding, info.log_evidence


@pytest.fixture(scope="module")
def read():
    """2000 runs with three particles."""
    keys = jax.random.split(jax.random.key(3), 2000)
    return keys, {say: after_four(rooms9(3, correction=NoCorrection()), keys, rooms_of(say)) for say in LOOK_AHEADS}


@pytest.fixture(scope="module")
def ratios(read):
    """Estimates of p(y), over the exact one."""
    return {say: 9.0 * np.exp(np.asarray(log_evidence, np.float64)) for say, (_, log_evidence) in read[1].items()}


@pytest.mark.parametrize("say", LOOK_AHEADS)
def test_whatever_the_look_ahead_says_the_evidence_is_unbiased(say, ratios):
    """Σ_x p(x) p(y | x) = (0.6 + 8 · 0.05) / 9."""
    atol = monte_carlo(ratios[say].std(), 2000) + FLOAT["atol"]
    np.testing.assert_allclose(ratios[say].mean(), 1.0, rtol=0, atol=atol)


def test_a_right_look_ahead_removes_the_variance_and_a_wrong_one_adds_some(ratios):
    """The room that was read is simulated for certain, and the others are all alike. One that says nothing is none."""
    np.testing.assert_allclose(ratios["right"], np.ones(2000), **FLOAT)
    spread = {say: values.var() for say, values in ratios.items()}
    assert spread["nothing"] > 0.1
    assert spread["wrong"] > 1.2 * spread["nothing"]
    np.testing.assert_allclose([spread["never"], spread["nan"]], spread["nothing"], rtol=0.2)


def test_a_filter_that_does_not_look_ahead_asks_nobody(read):
    keys, found = read
    blind = after_four(rooms9(3, proposal=EvenProposal(), correction=NoCorrection()), keys, rooms_of("right"))
    for mine, wanted in zip(blind, found["nothing"], strict=True):
        np.testing.assert_array_equal(mine, wanted)
    assert not np.array_equal(blind[0], found["right"][0])


# One step


def test_a_belief_of_few_states_is_updated_exactly(key):
    """Two cells with 4 branches each, for 8 calls; a third cell that all but nothing is believed of may go."""
    environment, policy = small_grid()
    belief = jnp.zeros(9).at[jnp.asarray([0, 5, 8])].set(jnp.asarray([0.3, 0.7, 1e-9]))

    @jax.jit
    def update(key, observation):
        start = eqx.tree_at(
            lambda s: (s.embedding, s.carried_share), tabular(8).init(key, environment), (belief, jnp.zeros(()))
        )
        found = tabular(8).update(key, start, observation, environment, policy)
        return found, ExactFilter().update(key, belief, observation, environment, policy)

    (state, info), (truth, exact) = update(key, jnp.asarray(2))
    np.testing.assert_allclose(state.embedding, truth, **FLOAT)
    np.testing.assert_allclose(info.log_evidence, exact.log_evidence, **FLOAT)


@eqx.filter_jit
def first_update(filter, key, observation, environment, policy):
    return filter.update(key, filter.init(key, environment), observation, environment, policy)


def one_step(filter, key, observation, *world):
    """One program for all worlds."""
    return first_update(filter, key, observation, *(world or small_grid()))


def test_the_estimate_is_the_self_normalised_sum(key):
    filter = tabular(50)
    state, info = one_step(filter, key, jnp.asarray(1))
    weights = np.exp(np.asarray(state.particles.log_weights, np.float64))
    values = np.sin(1.0 + np.asarray(state.particles.states) @ [1.0, 3.0])
    np.testing.assert_allclose(filter.estimate(state, value), weights @ values / weights.sum(), **FLOAT)
    np.testing.assert_allclose(info.ess, weights.sum() ** 2 / np.sum(weights**2), **FLOAT)
    assert 5 < float(info.ess) < 49
    # The new embedding is that of the same weighted set.
    cells = np.ravel_multi_index(tuple(np.asarray(state.particles.states).T), (3, 3))
    np.testing.assert_allclose(state.embedding, np.bincount(cells, weights, 9) / weights.sum(), **FLOAT)


def test_the_first_embedding_is_that_of_the_start(key):
    environment, _ = small_grid()
    state = started(tabular(4), key, environment)
    np.testing.assert_allclose(state.embedding, np.exp(environment.initial_log_probs()), **FLOAT)
    assert state.particles.states.shape == (4, 2)
    np.testing.assert_allclose(np.exp(state.particles.log_weights).sum(), 1.0, **FLOAT)


class Unlisted(Environment):
    """A grid that does not tell which states there are."""

    space: Lattice
    grid: Gridworld

    def init(self, key):
        return self.grid.init(key)

    def transition(self, key, state, policy):
        return self.grid.transition(key, state, policy)

    def observe(self, key, state, next_state):
        return self.grid.observe(key, state, next_state)

    def log_likelihood(self, observation, state, next_state):
        return self.grid.log_likelihood(observation, state, next_state)

    def check_observation(self, observation):
        self.grid.check_observation(observation)


def test_a_start_that_cannot_be_listed_is_sampled(key):
    grid, policy = small_grid()
    filter, environment = tabular(64, initial_samples=5000), Unlisted(grid.space, grid)
    state = started(filter, key, environment)
    assert_frequencies(5000 * np.asarray(state.embedding), np.asarray(grid.free) / 8, detects=0.06)
    state, info = filter.step(key, state, jnp.asarray(1), environment, policy)
    assert np.all(np.isfinite(state.embedding))
    assert float(info.ess) > 1


# Illegal particles, missing observations, zero weights


class Scripted(BeliefModel):
    """Always draws the same cells; an embedding is the weighted histogram."""

    space: Lattice
    cells: Any

    def embed(self, states, log_weights, space=None):
        return TabularModel(self.space).embed(states, log_weights)

    def sample(self, key, embedding, n, space):
        return jnp.asarray(self.space.points())[self.cells]

    def log_prob(self, embedding, states, space):
        return TabularModel(self.space).log_prob(embedding, states, space)

    def objective(self, key, embeddings, states, space):
        raise NotImplementedError

    def prepared(self):
        return self


WALL = 1
"""The cell that is an obstacle in `small_grid`."""


def scripted(*cells, even=True, **settings):
    """Those with the same number of cells share a program."""
    proposal = None if even else IndependentProposal()
    model = Scripted(Lattice((3, 3)), jnp.asarray(cells, jnp.int32))
    return NeuralBayesianFilter(model, len(cells), proposal=proposal, **settings)


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("observation", [1, None])
def test_particles_on_illegal_states_have_no_weight(observation, even, key):
    """Of those that are drawn evenly, copies of the others take their places."""
    observation = None if observation is None else jnp.asarray(observation)
    state, info = one_step(scripted(WALL, 0, WALL, 5, 8, even=even), key, observation)
    weights = np.exp(np.asarray(state.particles.log_weights))
    np.testing.assert_array_equal(weights > 0, [True] * 5 if even else [False, True, False, True, True])
    distance = np.abs(np.asarray(state.particles.states)[:, None] - Lattice((3, 3)).points()[[0, 5, 8]]).sum(axis=-1)
    assert np.all(distance.min(axis=1)[weights > 0] <= 1)
    np.testing.assert_allclose(weights.sum(), 1.0, **FLOAT)
    assert 1.0 <= float(info.ess) <= (5.0 if even else 3.0) + 1e-4
    assert not bool(info.recovered)


@pytest.mark.parametrize("even", [True, False])
def test_draws_on_illegal_states_are_not_evidence_against_an_observation(even, key):
    """A deaf agent's symbols are all equally likely, wherever it is: p(y) = 1/5 for any model, also one of walls."""
    environment, policy = small_grid(error=0.8)
    filter = scripted(WALL, 0, WALL, 5, 8, even=even)
    _, info = one_step(filter, key, jnp.asarray(1), environment, policy)
    np.testing.assert_allclose(info.log_evidence, np.log(0.2), **FLOAT)


def test_a_missing_observation_is_no_evidence(key):
    """Its log-evidence is 0, also where the model put some particles on walls."""
    for cells in [(0, 5, 8, 0, 5), (0, WALL, 8, WALL, 5)]:
        _, info = one_step(scripted(*cells), key, None)
        np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)


def test_a_missing_observation_is_a_prediction(key):
    environment, policy = small_grid()
    predicted, _ = one_step(ExactFilter(), key, None, environment, policy)
    state, info = one_step(tabular(5000, proposal=EvenProposal()), key, None)
    assert_frequencies(5000 * np.asarray(state.embedding), predicted, detects=0.06)
    np.testing.assert_allclose(info.ess, 5000, **FLOAT)
    assert int(info.attempts) == 1


def test_a_model_that_knows_only_walls_recovers_to_something_finite(key):
    state, info = one_step(scripted(WALL, WALL, WALL, max_attempts=3), key, jnp.asarray(1))
    assert bool(info.recovered)
    assert int(info.attempts) == 3
    assert float(info.ess) == 0.0
    assert float(info.log_evidence) == -np.inf
    assert np.all(np.isfinite(state.embedding))
    assert np.all(np.isfinite(state.particles.log_weights))


def test_a_recovered_belief_keeps_off_the_walls(key):
    """With an observation that nothing explains the belief is the prediction, of the legal particles only."""
    environment, policy = small_grid(error=0.0)
    filter = scripted(WALL, 6, 6, WALL, 6)
    # From the corner (2, 0), where the goal is, the agent never moves up to (1, 0) at this temperature.
    policy = GoalPolicy(policy.goal, jnp.asarray(1e-5))
    state, info = one_step(filter, key, jnp.asarray(0), environment, policy)
    assert bool(info.recovered)
    np.testing.assert_allclose(state.embedding[6], 1.0, **FLOAT)


@pytest.mark.parametrize("impossible", [NEVER, ALWAYS_NAN, ALWAYS_INFINITE])
def test_an_impossible_observation_leaves_the_prediction(impossible, key):
    """At exactly those steps, never NaN, and forgotten afterwards."""
    world, policy = trap_door(0.1), jnp.asarray(0.0)
    observations = jnp.asarray([0, impossible, 0, impossible, impossible, 0])
    states, info = many(rooms(64), jax.random.split(key, 100), world, policy, observations)
    bad = np.tile(np.asarray(observations) == impossible, (100, 1))
    np.testing.assert_array_equal(info.recovered, bad)
    np.testing.assert_array_equal(np.asarray(info.ess) == 0, bad)
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, bad)
    np.testing.assert_array_equal(info.attempts, np.where(bad, 5, 1))
    for leaf in jax.tree.leaves(states):
        assert np.all(np.isfinite(leaf)) or leaf is states.particles.log_weights
    np.testing.assert_allclose(np.sum(states.embedding, axis=-1), np.ones((100, 6)), **FLOAT)
    exact, _ = many(ExactFilter(), jax.random.split(key, 1), world, policy, observations)
    sigma = np.asarray(states.embedding).std(axis=0)
    gap = np.abs(np.asarray(states.embedding).mean(axis=0) - np.asarray(exact[0]))
    np.testing.assert_array_less(gap, monte_carlo(sigma, 100, k=5) + 0.02)


def test_redraws_happen_as_often_as_chance_says(key):
    """Each attempt fails with probability q = (1 - p)^n, so their number is geometric, cut at five."""
    p, n, repeats = 0.1, 8, 4000
    world, policy = trap_door(p), jnp.asarray(0.0)
    states, info = many(faithful_rooms(n), jax.random.split(key, repeats), world, policy, jnp.asarray([1]))
    q = (1 - p) ** n
    counts = np.bincount(np.asarray(info.attempts)[:, 0], minlength=6)[1:]
    assert_frequencies(counts, [*((1 - q) * q**k for k in range(4)), q**4], detects=0.06)
    lost = np.asarray(info.recovered)[:, 0]
    np.testing.assert_allclose(lost.mean(), q**5, rtol=0, atol=monte_carlo(np.sqrt(q**5 * (1 - q**5)), repeats))
    # However many attempts it took, the belief is the posterior: behind the door for certain.
    behind = np.asarray(states.embedding)[:, 0, 2]
    np.testing.assert_allclose(behind[~lost], np.ones(np.sum(~lost)), **FLOAT)
    np.testing.assert_allclose(behind[lost], np.zeros(np.sum(lost)), **FLOAT)


# Approx Beliefs


def test_approx_beliefs_embed_samples_of_the_true_posterior(truth, key):
    environment, policy = small_grid()
    states, info = many(ApproxBeliefs(TabularModel(Lattice((3, 3))), 64), jax.random.split(key, 200),
                        environment, policy)  # fmt: skip
    np.testing.assert_allclose(states.truth, np.tile(truth[0], (200, 1, 1)), **FLOAT)
    np.testing.assert_allclose(info.log_evidence, np.tile(truth[1], (200, 1)), **FLOAT)
    assert_frequencies(64 * np.asarray(states.embedding, np.float64).sum(axis=0), truth[0], detects=0.05)
    # 64 draws: each probability is a multiple of 1/64.
    np.testing.assert_allclose(np.round(64 * states.embedding), 64 * states.embedding, rtol=0, atol=1e-3)


# Bad input


@pytest.mark.parametrize("name", MODELS)
def test_a_model_for_another_space_is_refused(name, key):
    environment, policy = small_grid()
    filter = NeuralBayesianFilter(MODELS[name](key, (3, 4)), 4)
    with pytest.raises(InputError, match=r"\(3, 4\).*\(3, 3\)"):
        filter.init(key, environment)
    state = started(tabular(4), key, environment)
    with pytest.raises(InputError, match=r"\(3, 4\).*\(3, 3\)"):
        filter.update(key, state, jnp.asarray(0), environment, policy)


@pytest.mark.parametrize("settings", [{"num_particles": 0}, {"num_particles": -1}, {"max_attempts": 0},
                                      {"initial_samples": 0}], ids=str)  # fmt: skip
def test_a_filter_without_particles_is_refused(settings):
    with pytest.raises(InputError, match="at least 1"):
        tabular(**{"num_particles": 4, **settings})


def test_approx_beliefs_without_samples_are_refused():
    with pytest.raises(InputError, match="at least 1"):
        ApproxBeliefs(TabularModel(Lattice((3, 3))), 0)


def test_approx_beliefs_for_another_space_are_refused(key):
    """Before anything is embedded: a lattice of another shape would only shift the cells around."""
    environment, _ = small_grid()
    with pytest.raises(InputError, match=r"\(3, 4\).*\(3, 3\)"):
        ApproxBeliefs(TabularModel(Lattice((3, 4))), 4).init(key, environment)


@pytest.mark.parametrize("weights", [[-jnp.inf] * 3, [jnp.nan, 0.0, 0.0]], ids=str)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(InputError, match="log weights"):
        ParticleBelief(jnp.zeros((3, 2), jnp.int32), jnp.asarray(weights))
