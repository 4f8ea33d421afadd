"""Calls that cannot work say what is wrong with them, and what to do: an `InputError`, not one of JAX."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from card_games import network_pool
from constructors import FILTERS, small_grid
from tolerances import FLOAT
from worlds import hidden_markov

import nbf
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import GoofspielGame
from nbf.environments.gridworld import Gridworld
from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.filters.fine_tuned import FineTunedFilter
from nbf.filters.neural import LookAheadProposal, MomentMatching
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice

LINE = nbf.Box((-4.0,), (4.0,), bounded=False)


@eqx.filter_jit
def started(filter, key, environment):
    """The first state, by one program."""
    return filter.init(key, environment)


def wandering(log_likelihood, *, needs_policy=False):
    """A position on a line, by functions."""
    return nbf.environment(
        init=lambda key: jax.random.normal(key, (1,)),
        transition=lambda key, x, policy: x + (policy["step"] if needs_policy else 0.1),
        observe=lambda key, x, after: after[0],
        log_likelihood=log_likelihood,
        space=LINE,
    )


# The likelihood


class Vectorial(Gridworld):
    """Its log-likelihood is a vector of one number."""

    def log_likelihood(self, observation, state, next_state):
        return super().log_likelihood(observation, state, next_state)[None]


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in FILTERS if "flow" not in name])
def test_a_likelihood_is_one_number(name, key):
    grid, policy = small_grid()
    world, filter = Vectorial(grid.space, grid.error), FILTERS[name]()
    start = started(filter, key, world)
    with pytest.raises(InputError, match=r"log_likelihood.*Vectorial.*shape \(1,\).*value\[0\]"):
        filter.step(key, start, 0, world, policy)


def test_a_likelihood_of_functions_is_one_number(key):
    world, filter = wandering(lambda y, x, after: -((y - after) ** 2)), nbf.ParticleFilter(4)
    with pytest.raises(InputError, match=r"shape \(1,\)"):
        filter.step(key, filter.init(key, world), 0.5, world, None)


def partly(value):
    """Symbol 1 has this likelihood on arriving in state 0, and 1/2 in states 1 and 2."""
    symbols = np.full((3, 3, 2), 0.5)
    symbols[:, 0, 1] = value
    return hidden_markov([0.5, 0.25, 0.25], np.full((3, 3), 1 / 3), symbols)


@pytest.mark.sampled
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["exact", "particle", "branching", "neural"])
def test_likelihoods_that_are_none_are_counted(name, value, key):
    """And count as impossible: the belief is that of a likelihood of zero, where none is counted."""
    filters = {
        "exact": nbf.ExactFilter(), "particle": nbf.ParticleFilter(64), "branching": nbf.BranchingFilter(9),
        "neural": nbf.NeuralBayesianFilter(TabularModel(Lattice((3,))), 64),
    }  # fmt: skip
    filter, told = filters[name], []
    for world in (partly(value), partly(0.0)):
        told.append(filter.step(key, started(filter, key, world), 1, world, jnp.asarray(0.0)))
    (state, info), (sound, nothing) = told
    assert int(nothing.invalid) == 0
    assert 0 < int(info.invalid) < 64
    if name in ("exact", "branching"):
        assert int(info.invalid) == 3  # from each state one branch leads to state 0
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(sound), strict=True):
        np.testing.assert_allclose(one, other, **FLOAT)
    missing = filter.step(key, state, None, partly(value), jnp.asarray(0.0))[1]
    assert int(missing.invalid) == 0


def test_invalid_likelihoods_of_real_vectors_are_counted(key):
    """Half of a uniform square, for the filters that need one."""
    family = TriangulationFamily()
    environment = family.environment().at(jnp.int32(0), jnp.bool_(True))

    class HalfBlind(type(environment)):
        def log_likelihood(self, observation, state, next_state):
            value = super().log_likelihood(observation, state, next_state)
            return jnp.where(next_state[0] > 0, jnp.nan, value)

    world = HalfBlind(*(getattr(environment, name) for name in environment.__dataclass_fields__))
    _, policy = family.sample(key)
    counted = []
    for filter in (nbf.PointMassFilter(6), nbf.RegularizedParticleFilter(64, candidates=64, defensive=1.0)):
        _, info = filter.step(key, started(filter, key, world), 3.0, world, policy)
        counted.append(int(info.invalid))
        assert counted[-1] > 0
        assert not bool(info.recovered)
    # The 3 x 6 cells of one half; walls have no mass before a move.
    assert counted[0] == 18


# The policy


WORLDS = {
    "grid": lambda: (small_grid()[0], 0),
    "triangulation": lambda: (TriangulationFamily().environment(), 0.0),
    "goofspiel": lambda: (GoofspielFamily(network_pool(3), GoofspielGame(3)).sample(jax.random.key(0))[0], 0),
    "functions": lambda: (wandering(lambda *_: jnp.zeros(()), needs_policy=True), 0.5),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", WORLDS)
def test_a_missing_policy_is_named(name, key):
    (world, observation), filter = WORLDS[name](), nbf.ParticleFilter(4)
    with pytest.raises(InputError, match=r"policy is None.*transition.*pass that of this step"):
        filter.step(key, started(filter, key, world), observation, world, None)
    with pytest.raises(InputError, match="policy is None"):
        nbf.rollout(key, world, None, 2)


def test_a_missing_policy_is_named_inside_a_run(key):
    with pytest.raises(InputError, match="policy is None"):
        nbf.run(nbf.ExactFilter(), key, jnp.zeros(2, jnp.int32), small_grid()[0], None)


def test_another_mistake_is_not_taken_for_a_missing_policy(key):
    def wrong(observation, state, next_state):
        raise KeyError("mine")

    world, filter = wandering(wrong), nbf.ParticleFilter(4)
    with pytest.raises(KeyError, match="mine"):
        filter.step(key, filter.init(key, world), 0.5, world, None)


# The state


@functools.cache
def grid_of(side):
    return jax.jit(nbf.gridworld_family(side, 2).sample)(jax.random.key(3))


@pytest.mark.parametrize(
    ("made", "used"), [("neural, tabular", "particle"), ("particle", "exact"), ("exact", "branching")]
)
def test_a_state_of_another_filter_is_refused(made, used, key):
    grid, policy = small_grid()
    state = started(FILTERS[made](), key, grid)
    with pytest.raises(InputError, match=r"not a state of \w+ in Gridworld.*filter\.init"):
        FILTERS[used]().step(key, state, 0, grid, policy)


def test_a_state_of_another_number_of_particles_is_refused(key):
    grid, policy = small_grid()
    state = started(nbf.ParticleFilter(8), key, grid)
    with pytest.raises(InputError, match=r"\[8, 2\].*\[16, 2\]"):
        nbf.ParticleFilter(16).step(key, state, 0, grid, policy)


@pytest.mark.sampled
@pytest.mark.parametrize("filter", [nbf.ParticleFilter(4), nbf.BranchingFilter(4), nbf.Surprise(nbf.ParticleFilter(4))])
def test_a_state_of_another_space_is_refused(filter, key):
    """Whenever that is: at the start, after a step, and after the environment has been used."""
    (large, policy), (small, other) = grid_of(8), grid_of(5)
    state = started(filter, key, large)
    own, _ = filter.step(key, started(filter, key, small), 0, small, other)
    for each in (state, filter.step(key, state, 0, large, policy)[0]):
        with pytest.raises(InputError, match=r"over lattice\(8, 8\).*lattice\(5, 5\)"):
            filter.step(key, each, 0, small, other)
    filter.step(key, own, 0, small, other)


def test_the_space_of_a_state_is_not_saved(key, tmp_path):
    """A file of before, without it, is read as it was."""
    grid, _ = grid_of(5)
    state = started(nbf.ParticleFilter(4), key, grid)
    nbf.save_state(tmp_path / "a", state._replace(space=None))
    loaded = nbf.load_state(tmp_path / "a", like=state)
    assert loaded.space == state.space == "lattice(5, 5)"


# Sizes

MODEL = functools.partial(TabularModel, Lattice((3, 3)))
SIZES = {
    "particle": lambda n: nbf.ParticleFilter(n),
    "attempts": lambda n: nbf.ParticleFilter(4, max_attempts=n),
    "regularized": lambda n: nbf.RegularizedParticleFilter(n),
    "candidates": lambda n: nbf.RegularizedParticleFilter(4, candidates=n),
    "branching": lambda n: nbf.BranchingFilter(n),
    "neural": lambda n: nbf.NeuralBayesianFilter(MODEL(), n),
    "neural, attempts": lambda n: nbf.NeuralBayesianFilter(MODEL(), 4, max_attempts=n),
    "neural, samples": lambda n: nbf.NeuralBayesianFilter(MODEL(), 4, initial_samples=n),
    "look-ahead": lambda n: LookAheadProposal(n),
    "newton": lambda n: MomentMatching(newton_steps=n),
    "approx": lambda n: nbf.ApproxBeliefs(MODEL(), n),
    "point-mass": lambda n: nbf.PointMassFilter(n),
    "points": lambda n: nbf.PointMassFilter(6, n),
    "ensemble": lambda n: nbf.EnsembleKalmanFilter(n),
    "draws": lambda n: nbf.Surprise(nbf.ExactFilter(), draws=n),
    "surprise": lambda n: nbf.Surprise(nbf.ExactFilter(), particles=n),
    "fine-tuned": lambda n: FineTunedFilter(MODEL(), n),
    "fine-tuned, batch": lambda n: FineTunedFilter(MODEL(), 1, batch=n),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", [2.5, "x", None, True])
@pytest.mark.parametrize("build", SIZES.values(), ids=SIZES)
def test_a_size_is_a_whole_number(build, wrong):
    if wrong is None and build in (SIZES["neural, samples"], SIZES["newton"]):
        build(None)  # the default
        return
    with pytest.raises(InputError, match="whole number"):
        build(wrong)


# Derivatives


NOISY = nbf.environment(
    init=lambda key, noise: jax.random.normal(key, (1,)),
    transition=lambda key, x, policy, noise: 0.9 * x + 0.5 * jax.random.normal(key, (1,)),
    observe=lambda key, x, after, noise: after[0] + noise * jax.random.normal(key),
    log_likelihood=lambda y, x, after, noise: -0.5 * ((y - after[0]) / noise) ** 2 - jnp.log(noise),
    space=LINE,
    parameters=jnp.asarray(1.0),
)


def evidence(noise, filter, key, steps=3):
    """The estimate of log p(y_1:T) where the readings have this noise."""
    world, readings = dataclasses.replace(NOISY, parameters=noise), jnp.linspace(0.5, -0.5, steps)
    return jnp.sum(nbf.run(filter, key, readings, world, None)[1].log_evidence)


def evidence_of_a_step(noise, filter, key):
    """The same of one step, from weights that depend on the noise too."""
    world = dataclasses.replace(NOISY, parameters=noise)
    weights = jax.nn.log_softmax(noise * jnp.linspace(-1.0, 0.0, 8))
    start = filter.init(key, world)._replace(log_weights=weights)
    return filter.update(key, start, jnp.asarray(0.5), world, None)[1].log_evidence


@pytest.mark.parametrize("estimate", [evidence_of_a_step, pytest.param(evidence, marks=pytest.mark.slow)])
def test_a_step_that_may_be_simulated_again_has_a_derivative(estimate, key):
    """That of the attempt which counted: here the first, so the same as where there is no other."""
    noise = jnp.asarray(1.5)
    once, again = (functools.partial(estimate, filter=nbf.ParticleFilter(8, max_attempts=n), key=key) for n in (1, 5))

    @jax.jit
    def derivatives(noise):
        return jax.grad(again)(noise), jax.jacfwd(again)(noise), jax.vmap(jax.grad(again))(noise[None])[0]

    wanted = jax.jit(jax.grad(once))(noise)
    np.testing.assert_allclose(derivatives(noise), [wanted] * 3, **FLOAT)
    assert np.abs(wanted) > 0.01


def test_a_resampling_without_a_derivative_says_so(key):
    def told(error):
        grid, policy = small_grid()
        world, filter = Gridworld(grid.space, error), nbf.BranchingFilter(4)
        return jnp.sum(nbf.run(filter, key, jnp.asarray([0, 4, 3]), world, policy)[1].log_evidence)

    with pytest.raises(InputError, match=r"has no derivative.*Differentiate an update of ExactFilter"):
        jax.jit(jax.grad(told))(jnp.asarray(0.3))
    regularized = functools.partial(evidence, filter=nbf.RegularizedParticleFilter(8), key=key, steps=1)
    with pytest.raises(InputError, match="has no derivative"):
        jax.jit(jax.grad(regularized))(jnp.asarray(0.3))
