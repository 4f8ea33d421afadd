"""Gridworld against the paper's own words, written again in plain Python, and against its own frequencies."""

from __future__ import annotations

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from tolerances import FLOAT, SEED

from nbf import prng
from nbf.environments.functional import One
from nbf.environments.gridworld import (
    GoalPolicy,
    Gridworld,
    RandomGridworlds,
    gridworld_family,
)
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.spaces import Lattice

FAMILIES = {
    "5-2D": RandomGridworlds(5, 2, 1, 2),
    "5-3D warm": RandomGridworlds(5, 3, 1, 2, temperature=0.4, error=0.25),
    "6-1D": RandomGridworlds(6, 1, 1, 2, temperature=2.0, error=0.5),
    "3-4D": RandomGridworlds(3, 4, 2, 1, temperature=1.0, error=0.01),
    "1-2D, a single cell": RandomGridworlds(1, 2, 0, 0),
}
each_name = pytest.mark.parametrize("name", FAMILIES)


@functools.cache
def instance(name: str) -> tuple[Gridworld, GoalPolicy]:
    """One grid and policy of a family."""
    return jax.jit(FAMILIES[name].sample)(prng.stream(SEED, "instance", name))


def by_hand(environment: Gridworld, policy: GoalPolicy, state: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """T(x, π) in float64: where the agent goes from a cell, with which probability."""
    shape = environment.space.shape
    walls = {cell for cell, free in zip(np.ndindex(shape), np.asarray(environment.free), strict=True) if not free}
    ends = []
    for axis, step in itertools.product(range(len(shape)), (-1, 1)):
        target = tuple(x + step * (i == axis) for i, x in enumerate(state))
        blocked = target in walls or any(not 0 <= x < side for x, side in zip(target, shape, strict=True))
        ends.append(state if blocked else target)
    distances = [sum(abs(x - g) for x, g in zip(end, policy.goal.tolist(), strict=True)) for end in ends]
    scores = [math.exp(-(distance - min(distances)) / float(policy.temperature)) for distance in distances]
    moves: dict[tuple[int, ...], float] = {}
    for end, score in zip(ends, scores, strict=True):
        moves[end] = moves.get(end, 0.0) + score / sum(scores)
    return moves


def table_by_hand(environment: Gridworld, policy: GoalPolicy) -> np.ndarray:
    """The same as a matrix; the rows of illegal cells are zero."""
    shape = environment.space.shape
    table = np.zeros((environment.space.size,) * 2)
    for row, cell in enumerate(np.ndindex(shape)):
        if environment.free[row]:
            for end, probability in by_hand(environment, policy, cell).items():
                table[row, np.ravel_multi_index(end, shape)] = probability
    return table


def legal_states(environment: Gridworld):
    return environment.states()[np.flatnonzero(environment.free)]


@pytest.mark.sampled
@each_name
def test_successors_are_those_of_the_paper(name):
    environment, policy = instance(name)
    states = legal_states(environment)
    ends, log_probs = jax.jit(jax.vmap(environment.successors, (0, None)))(states, policy)
    table = np.zeros((environment.space.size,) * 2)
    rows, columns = (
        np.asarray(np.ravel_multi_index(tuple(np.moveaxis(np.asarray(x), -1, 0)), environment.space.shape))
        for x in (states, ends)
    )
    np.add.at(table, (rows[:, None], columns), np.exp(np.asarray(log_probs, np.float64)))
    np.testing.assert_allclose(table, table_by_hand(environment, policy), **FLOAT)
    np.testing.assert_allclose(table[rows].sum(axis=1), np.ones(len(rows)), **FLOAT)


@pytest.mark.sampled
@each_name
def test_offsets_agree_with_successors(name):
    """Moving by each offset, written into a matrix, is T again; no offset leads out of the legal cells."""
    environment, policy = instance(name)
    states = np.asarray(legal_states(environment))
    log_probs = jax.jit(jax.vmap(environment.offset_log_probs, (0, None)))(jnp.asarray(states), policy)
    probs = np.exp(np.asarray(log_probs, np.float64))
    table = np.zeros((environment.space.size,) * 2)
    for offset, column in zip(environment.offsets, probs.T, strict=True):
        ends = states + np.asarray(offset)
        allowed = np.all((ends >= 0) & (ends < environment.space.shape[0]), axis=1)
        cells = np.ravel_multi_index(tuple(ends.T), environment.space.shape, mode="clip")
        allowed &= np.asarray(environment.free)[cells]
        np.testing.assert_array_equal(column[~allowed], np.zeros(np.sum(~allowed)))
        index = [np.ravel_multi_index(tuple(cells[allowed].T), environment.space.shape) for cells in (states, ends)]
        np.add.at(table, tuple(index), column[allowed])
    np.testing.assert_allclose(table, table_by_hand(environment, policy), **FLOAT)


@pytest.mark.sampled
@each_name
def test_transitions_are_drawn_with_the_probabilities_of_successors(name, key):
    environment, policy = instance(name)
    starts, draws = legal_states(environment)[:12], 15_000

    @jax.jit
    def count(environment, policy, key):
        def from_state(key, state):
            move = jax.vmap(lambda key: environment.index(environment.transition(key, state, policy)))
            return jnp.bincount(move(jax.random.split(key, draws)), length=environment.space.size)

        return jax.vmap(from_state)(jax.random.split(key, len(starts)), starts)

    counts = count(environment, policy, key)
    rows = np.ravel_multi_index(tuple(np.asarray(starts).T), environment.space.shape)
    assert_frequencies(counts, table_by_hand(environment, policy)[rows], detects=0.06)


def neighbours(dimension):
    """One move of each kind, staying included: (from, to) with the symbol that a flawless observer sees."""
    state = np.ones(dimension, np.int32)
    for axis, (up, step) in itertools.product(range(dimension), enumerate((-1, 1))):
        yield state, state + step * (np.arange(dimension) == axis), 2 * axis + up
    yield state, state, 2 * dimension


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_observations_are_drawn_with_their_likelihood(dimension, key):
    """H as the protocol says, the likelihood is H, sums to one over the symbols, and is what is drawn."""
    before, after, right = (np.stack(part).astype(np.int32) for part in zip(*neighbours(dimension), strict=True))
    symbols, draws = 2 * dimension + 1, 30_000

    @jax.jit
    def tables(key, error):
        environment = Gridworld(Lattice((3,) * dimension), error)

        def one(key, before, after):
            drawn = jax.vmap(environment.observe, (0, None, None))(jax.random.split(key, draws), before, after)
            likelihood = jax.vmap(environment.log_likelihood, (0, None, None))(jnp.arange(symbols), before, after)
            return jnp.bincount(drawn, length=symbols), jnp.exp(likelihood)

        return jax.vmap(one)(jax.random.split(key, len(before)), jnp.asarray(before), jnp.asarray(after))

    for error in (0.0, 0.1, 0.5, 0.9):
        expected = np.where(right[:, None] == np.arange(symbols), 1 - error, error / (symbols - 1))
        counts, likelihood = tables(key, jnp.asarray(error))
        np.testing.assert_allclose(likelihood, expected, **FLOAT)
        np.testing.assert_allclose(np.sum(likelihood, axis=1), np.ones(len(right)), **FLOAT)
        assert_frequencies(counts, expected, detects=0.03)


@pytest.mark.sampled
@each_name
def test_the_start_is_uniform_on_the_free_cells(name, key):
    environment, _ = instance(name)
    keys = jax.random.split(key, 60_000)
    starts = jax.jit(jax.vmap(lambda key: environment.index(environment.init(key))))(keys)
    uniform = np.asarray(environment.free) / np.sum(environment.free)
    np.testing.assert_allclose(np.exp(environment.initial_log_probs()), uniform, **FLOAT)
    assert_frequencies(np.bincount(starts, minlength=environment.space.size), uniform, detects=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("family", [RandomGridworlds(8, 2, 2, 3, 1.0), FAMILIES["5-3D warm"]], ids=["2-D", "3-D"])
def test_a_thousand_grids_by_one_vmap(family, key):
    """Different grids and goals; nobody enters a wall or leaves the grid; moves are of one step at most."""

    @jax.jit
    def episodes(keys):
        def one(key):
            environment, policy = family.sample(key)
            states, observations = rollout(key, environment, policy, 12)
            return environment, policy, states, observations

        return jax.vmap(one)(keys)

    environments, policies, states, observations = episodes(jax.random.split(key, 1000))
    legal, states = np.asarray(environments.space.legal), np.asarray(states)
    assert states.min() >= 0
    assert states.max() < family.size
    shape = (family.size,) * family.dimension
    cells = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(states, -1, 0)), shape))
    assert np.all(np.take_along_axis(legal, cells, axis=1))
    assert np.abs(np.diff(states, axis=1)).sum(axis=-1).max() == 1
    assert set(np.unique(observations)) == set(range(2 * family.dimension + 1))
    goals = np.ravel_multi_index(tuple(np.asarray(policies.goal).T), shape)
    assert np.all(legal[np.arange(1000), goals])
    assert len(np.unique(legal, axis=0)) > 30
    assert len(np.unique(goals)) > 30


def cubes(size, dimension, width):
    """Every place for an obstacle, as the set of cells that it covers."""
    for corner in itertools.product(range(size - width + 1), repeat=dimension):
        blocked = np.zeros((size,) * dimension, bool)
        blocked[tuple(slice(c, c + width) for c in corner)] = True
        yield blocked.ravel()


@pytest.mark.parametrize(("size", "dimension", "obstacles", "width"), [(5, 3, 1, 2), (8, 2, 2, 3), (4, 1, 3, 1)])
def test_obstacles_are_cubes_at_uniform_places(size, dimension, obstacles, width, key):
    family = RandomGridworlds(size, dimension, obstacles, width)
    legal = jax.jit(jax.vmap(lambda key: family.sample(key)[0].space.legal))(jax.random.split(key, 8000))
    blocked, counts = np.unique(~np.asarray(legal), axis=0, return_counts=True)
    places = list(cubes(size, dimension, width))
    expected: dict[bytes, float] = {}
    for chosen in itertools.product(places, repeat=obstacles):
        union = np.any(chosen, axis=0).tobytes()
        expected[union] = expected.get(union, 0.0) + len(places) ** -obstacles
    seen = {row.tobytes(): count for row, count in zip(blocked, counts, strict=True)}
    assert set(seen) <= set(expected)
    assert_frequencies([seen.get(union, 0) for union in expected], list(expected.values()), detects=0.15)


def test_the_goal_is_uniform_on_the_free_cells(key):
    family = RandomGridworlds(3, 2, 1, 2)

    def sample(key):
        environment, policy = family.sample(key)
        return environment.space.legal, environment.index(policy.goal)

    legal, goals = jax.jit(jax.vmap(sample))(jax.random.split(key, 30_000))
    for walls in np.unique(legal, axis=0):
        these = np.asarray(goals)[np.all(np.asarray(legal) == walls, axis=1)]
        assert_frequencies(np.bincount(these, minlength=9), walls / walls.sum(), detects=0.05)


def test_ties_stay_random_at_the_papers_temperature(key):
    """From a cell diagonal to the goal two moves are best: each is taken half of the time, no other ever."""
    environment = Gridworld(Lattice((4, 4)), jnp.asarray(0.1))
    policy = GoalPolicy(jnp.asarray([3, 3]), jnp.asarray(1e-5))
    keys = jax.random.split(key, 4000)
    ends = jax.jit(jax.vmap(environment.transition, (0, None, None)))(keys, jnp.asarray([1, 1]), policy)
    cells = np.bincount(np.ravel_multi_index(tuple(np.asarray(ends).T), (4, 4)), minlength=16)
    expected = np.zeros(16)
    expected[[1 * 4 + 2, 2 * 4 + 1]] = 0.5
    assert_frequencies(cells, expected, detects=0.06)


def test_at_the_goal_in_a_corner_the_agent_bumps(key):
    """The two moves off the grid keep it at distance 0; the observer sees the bump."""
    environment = Gridworld(Lattice((4, 4)), jnp.asarray(0.0))
    policy = GoalPolicy(jnp.asarray([0, 0]), jnp.asarray(1e-5))
    _, observations = jax.jit(rollout, static_argnums=3)(key, environment, policy, 12)
    np.testing.assert_array_equal(np.asarray(observations)[-4:], np.full(4, 4))


def test_environment_and_policy_are_arguments_not_constants(key):
    """New grids, goals, temperatures and errors do not compile anything anew."""
    traces = 0
    environments, policies = jax.jit(jax.vmap(FAMILIES["5-2D"].sample))(jax.random.split(key, 3))

    @eqx.filter_jit
    def step(key, environment, policy):
        nonlocal traces
        traces += 1
        return environment.transition(key, environment.init(key), policy)

    for i, value in enumerate((0.1, 0.2, 0.3)):
        environment, policy = jax.tree.map(lambda leaf, i=i: leaf[i], (environments, policies))
        environment = eqx.tree_at(lambda environment: environment.error, environment, jnp.asarray(value))
        step(key, environment, eqx.tree_at(lambda policy: policy.temperature, policy, jnp.asarray(value)))
    assert traces == 1


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["5-2D-fixed", "8-2D-random", "5-3D-random", "8-3D-fixed"])
def test_the_papers_configurations(name, key):
    size, dimension, kind = int(name[0]), int(name[2]), name.split("-")[2]
    family = gridworld_family(size, dimension, key=key if kind == "fixed" else None)
    keys = jax.random.split(key, 64)
    environments, policies = jax.jit(jax.vmap(family.sample, axis_size=64))(keys)
    assert environments.space.shape == (size,) * dimension
    blocked = np.sum(~np.asarray(environments.space.legal), axis=1)
    count, width = (1, 2) if size == 5 else (2, 3)
    assert np.all(blocked >= width**dimension)
    assert np.all(blocked <= count * width**dimension)
    np.testing.assert_allclose(policies.temperature, np.full(64, 1e-5), **FLOAT)
    np.testing.assert_allclose(environments.error, np.full(64, 0.1), **FLOAT)
    different = len(np.unique(np.asarray(environments.space.legal), axis=0))
    assert (different == 1) == (kind == "fixed")
    assert isinstance(family, One) == (kind == "fixed")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "at least 1"),
        ({"size": -4}, "at least 1"),
        ({"dimension": 0}, "at least 1"),
        ({"size": 3, "width": 4}, "wider than the grid"),
        ({"size": 3, "width": 3}, "no free cell"),
        ({"size": 3, "obstacles": 9, "width": 1}, "no free cell"),
        ({"obstacles": -1}, "0 or more"),
        ({"width": -1}, "0 or more"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"error": math.nan}, "error"),
        ({"error": -0.1}, "error"),
        ({"error": 1.0}, "error"),
    ],
    ids=str,
)
def test_a_family_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        RandomGridworlds(**{"size": 5, "dimension": 2, "obstacles": 1, "width": 2, **arguments})


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_papers_obstacles_do_not_fit_on_the_smallest_grids(size):
    with pytest.raises(InputError):
        gridworld_family(size, 2)


def test_a_grid_of_walls_only_is_refused():
    with pytest.raises(InputError, match="free"):
        Gridworld(Lattice((2, 2), jnp.zeros(4, bool)), jnp.asarray(0.1))


@pytest.mark.parametrize("error", [math.nan, -0.1, 1.0])
def test_a_grid_with_an_error_that_is_no_probability_is_refused(error):
    with pytest.raises(InputError, match="error"):
        Gridworld(Lattice((2, 2)), jnp.asarray(error))


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_policy_with_a_temperature_that_is_none_is_refused(temperature):
    with pytest.raises(InputError, match="temperature"):
        GoalPolicy(jnp.asarray([0, 0]), jnp.asarray(temperature))


@pytest.mark.parametrize(("temperature", "side"), [(1e-30, 8), (1e-12, 8), (1e-5, 64), (1e12, 8), (math.inf, 8)])
def test_extreme_temperatures_and_distances_keep_probabilities(temperature, side):
    """Compiled, where a product and a difference may be rounded as one: rows still sum to one."""
    environment = Gridworld(Lattice((side, side)), jnp.asarray(0.1))
    policy = GoalPolicy(jnp.asarray([0, 0]), jnp.asarray(temperature))
    _, log_probs = jax.jit(jax.vmap(environment.successors, (0, None)))(environment.states(), policy)
    np.testing.assert_allclose(np.exp(np.asarray(log_probs)).sum(axis=1), np.ones(side**2), **FLOAT)


@pytest.mark.parametrize("observation", [-1, 5, 2**31 - 1, 1.0, math.nan, [1], "up", None], ids=str)
def test_an_observation_outside_the_alphabet_is_refused(observation):
    environment = Gridworld(Lattice((4, 4)), jnp.asarray(0.1))
    with pytest.raises(InputError, match=r"alphabet|one integer symbol"):
        environment.check_observation(np.asarray(observation))


@pytest.mark.parametrize("observation", range(5))
def test_the_alphabet_is_accepted(observation):
    Gridworld(Lattice((4, 4)), jnp.asarray(0.1)).check_observation(jnp.asarray(observation))
