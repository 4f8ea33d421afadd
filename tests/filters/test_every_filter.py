"""Laws of every filter: a batch is its single steps, nothing compiles twice, and no more calls than it says."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import FILTERS, MODELS, small_grid
from tolerances import FLOAT
from worlds import three_rooms

from nbf.environments.gridworld import Gridworld, RandomGridworlds
from nbf.errors import InputError
from nbf.evaluation.divergence import state_probabilities
from nbf.filters.branching import BranchingFilter
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.run import run


@pytest.fixture(params=FILTERS)
def filter(request):
    return FILTERS[request.param]()


class Counted(Gridworld):
    """Counts how often it is traced: Python runs this method only while something is compiled."""

    traces = [0]  # noqa: RUF012

    def log_likelihood(self, observation, state, next_state):
        self.traces[0] += 1
        return super().log_likelihood(observation, state, next_state)


@functools.cache
def grids():
    """Three environments and policies of one structure."""
    family = RandomGridworlds(3, 2, 1, 1, temperature=0.5, error=0.2)
    grids, policies = jax.jit(jax.vmap(family.sample))(jax.random.split(jax.random.key(4), 3))
    batch = Counted(grids.space, grids.error), policies
    return [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(3)]


@jax.jit
@jax.vmap
def keys_of(key):
    """As `run` has them: of the start, and of three steps."""
    start_key, run_key = jax.random.split(key)
    return start_key, jax.random.split(run_key, 3)


@pytest.mark.sampled
def test_a_batch_of_runs_is_the_same_as_single_steps_from_python(filter, key):
    """Three episodes under one `vmap`, each in its own grid, against a plain loop that goes from one episode
    to the next at every step: no step after the second compiles anything, and none mixes up its inputs."""
    keys, observations = jax.random.split(key, 3), jnp.asarray([[0, 4, 3], [1, 1, 2], [4, 0, 4]])
    environments, policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *grids())

    @jax.jit
    @jax.vmap
    def together(key, observations, environment, policy):
        def look(state):
            return state, state_probabilities(filter.belief(state, environment), environment)

        return run(filter, key, observations, environment, policy, look=look)

    (states, probs), infos = together(keys, observations, environments, policies)
    np.testing.assert_allclose(np.sum(probs, axis=-1), np.ones((3, 3)), rtol=0, atol=1e-3)
    states, infos = jax.tree.map(np.asarray, (states, infos))
    start_keys, step_keys = keys_of(keys)
    begin = jax.jit(lambda key, environment: filter.init(key, environment))
    alone = [begin(start_key, environment) for start_key, (environment, _) in zip(start_keys, grids(), strict=True)]
    compiled = -1
    for t in range(3):
        for lane, (environment, policy) in enumerate(grids()):
            if (t, lane) == (1, 1):
                compiled = Counted.traces[0]
            alone[lane], info = filter.step(step_keys[lane, t], alone[lane], observations[lane, t], environment, policy)
            expected = jax.tree.map(lambda leaf, lane=lane, t=t: leaf[lane, t], (states, infos))
            for one, other in zip(jax.tree.leaves((alone[lane], info)), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(one, other, **FLOAT)
    assert Counted.traces[0] == compiled
    with pytest.raises(InputError, match="alphabet"):
        filter.step(key, alone[0], jnp.asarray(5), *grids()[0])


def test_the_first_step_compiles_for_all_others(filter, key):
    """A state has the same shapes and types before and after a step, so the second one compiles nothing."""
    environment, policy = grids()[0]
    start = jax.eval_shape(filter.init, key, environment)
    after, _ = jax.eval_shape(filter.update, key, start, jnp.asarray(0), environment, policy)

    def kinds(tree):
        return [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]

    assert kinds(start) == kinds(after)


class Metered(Gridworld):
    """Keeps how many transitions and branches each batch of calls asks for, and how many states are asked for the
    probabilities of their branches, while it is traced."""

    calls = []  # noqa: RUF012
    looks = []  # noqa: RUF012

    def _metered(self, function, each, *inputs, kept=calls):
        function = jax.custom_batching.custom_vmap(function)

        @function.def_vmap
        def count(size, batched, *inputs):
            kept.append(size * each)
            axes = tuple(jax.tree.map(lambda is_batched: 0 if is_batched else None, part) for part in batched)
            results = jax.vmap(function.fun, axes)(*inputs)
            return results, jax.tree.map(lambda _: True, results)

        return function(*inputs)

    def transition(self, key, state, policy):
        # Of a plain grid, whose transition looks at its own successors.
        plain = Gridworld(self.space, self.error)
        return self._metered(lambda key, state: plain.transition(key, state, policy), 1, key, state)

    def successors(self, state, policy):
        branches = 2 * self.space.dimension
        return self._metered(lambda state: Gridworld.successors(self, state, policy), branches, state)

    def transition_log_probs(self, state, policy):
        plain = Gridworld(self.space, self.error)
        return self._metered(lambda state: plain.transition_log_probs(state, policy), 1, state, kept=self.looks)

    def follow(self, state, policy, branch):
        return self._metered(lambda *inputs: Gridworld.follow(self, inputs[0], policy, inputs[1]), 1, state, branch)


@pytest.mark.sampled
@pytest.mark.parametrize("n", [3, 4, 7, 8, 30, 100])
@pytest.mark.parametrize("kind", ["tabular", "dequantized flow", "branching", "all branches"])
def test_no_step_calls_the_simulator_more_often_than_it_says(kind, n, key):
    """Transitions or branches, whichever way a step goes; and no more states are asked for these probabilities, which a
    transition does as well."""
    grid, policy = small_grid()
    environment = Metered(grid.space, grid.error)
    if kind == "branching" or kind == "all branches":
        filter = BranchingFilter(max(n, 4), choose=kind == "branching")
    else:
        filter = NeuralBayesianFilter(MODELS[kind](key, (3, 3)), n)
    start = jax.eval_shape(filter.init, key, environment)
    Metered.calls.clear()
    Metered.looks.clear()
    jax.eval_shape(lambda key, state: filter.update(key, state, jnp.asarray(1), environment, policy), key, start)
    most = max(Metered.calls)
    assert n - 4 < most <= max(n, 4) if kind == "all branches" else most == filter_calls(filter)
    assert max(Metered.looks, default=0) <= filter_calls(filter)


def filter_calls(filter):
    return filter.num_calls if isinstance(filter, BranchingFilter) else filter.num_particles


@pytest.mark.sampled
def test_a_missing_observation_from_python(filter, key):
    environment, policy = grids()[0]
    state, info = filter.step(key, eqx.filter_jit(filter.init)(key, environment), None, environment, policy)
    np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)
    assert not bool(info.recovered)
    for leaf in jax.tree.leaves(state):
        assert not np.any(np.isnan(leaf))


def test_a_changed_policy_is_never_mistaken_for_the_old_one(key):
    """A policy is any pytree: a dictionary that its owner changes in place is another policy."""
    world = three_rooms()

    class Dictionary(type(world)):
        def successors(self, state, policy):
            return super().successors(state, policy["stay"])

    world = Dictionary(*(getattr(world, field) for field in ("space", "start", "moves", "symbols")))
    policy = {"stay": jnp.asarray(1.0)}
    start = ExactFilter().init(key, world)
    stayed, _ = ExactFilter().step(key, start, None, world, policy)
    np.testing.assert_allclose(stayed, world.start, **FLOAT)
    policy["stay"] = jnp.asarray(0.0)
    moved, _ = ExactFilter().step(key, start, None, world, policy)
    np.testing.assert_allclose(moved, np.asarray(world.start) @ np.asarray(world.moves), **FLOAT)
