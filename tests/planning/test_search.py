"""The search finds what enumeration of all actions and observations finds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pomdps import LISTEN, RIGHT, environment_of, optimal_values, random_tables, task_of, tiger
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.planning import Task, TreeSearch, Widening
from nbf.planning.tree import digest_of

GAMMA = 0.95


class Listed(nbf.Belief):
    """Any belief over a few states."""

    states: jax.Array
    probs: jax.Array

    def sample(self, key, n):
        return self.states[jax.random.choice(key, self.probs.shape[0], (n,), p=self.probs)]

    def log_prob(self, state):
        return jnp.log(jnp.sum(jnp.where(jnp.all(self.states == state, axis=1), self.probs, 0.0)))

    def expectation(self, function):
        return jnp.tensordot(self.probs, jax.vmap(function)(self.states), axes=1)


def listed(belief):
    states = jnp.stack([jnp.arange(len(belief)), jnp.zeros(len(belief), int)], axis=1).astype(jnp.int32)
    return Listed(states, jnp.asarray(belief, jnp.float32))


@pytest.mark.parametrize("chance", [0.5, 0.85, 0.97])
def test_the_first_action_of_tiger_is_the_optimal_one(chance: float, key):
    tables, belief = tiger(), np.array([chance, 1 - chance])
    optimal = optimal_values(tables, belief, 4, GAMMA)
    search = TreeSearch(simulations=4000, depth=4)
    decision = search.plan(key, listed(belief), environment_of(tables), task_of(tables, GAMMA))
    assert int(decision.action) == np.argmax(optimal) == (RIGHT if chance > 0.9 else LISTEN)
    assert int(jnp.sum(decision.visits)) == 4000


@pytest.mark.parametrize("number", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_small_problems_are_solved(number: int, key):
    """Random ones, in one compiled batch; where two actions are nearly as good, either will do."""
    tables = [random_tables(seed) for seed in range(number)]
    optimal = np.stack([optimal_values(each, np.asarray(each.start), 3, GAMMA) for each in tables])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tables)
    search = TreeSearch(simulations=2000, depth=3)

    def found(key, tables):
        return search.decide(key, listed_of(tables.start), environment_of(tables), task_of(tables, GAMMA))

    decisions = jax.jit(jax.vmap(found))(jax.random.split(key, number), stacked)
    lost = optimal.max(axis=1) - optimal[np.arange(number), np.asarray(decisions.action)]
    sure = np.ptp(optimal, axis=1) > 0.1
    assert sure.sum() > 0.6 * number
    np.testing.assert_array_equal(lost[sure], 0.0)


def ends_or_goes_on():
    """A state is (kind, time). Kind 0 is over after a step; kind 1 gets 1 for the second. All is seen alike."""
    world = nbf.environment(
        init=lambda key: jnp.zeros(2, jnp.int32),
        transition=lambda key, state, action: state + jnp.array([0, 1]),
        observe=lambda key, before, state: jnp.int32(0),
        log_likelihood=lambda seen, before, state: jnp.float32(0.0),
        space=nbf.Lattice((2, 9)),
    )
    task = Task(
        lambda state, action, after, world: (state[1] == 1) * 1.0,
        actions=jnp.arange(1),
        terminal=lambda state, world: (state[0] == 0) & (state[1] == 1),
        discount=1.0,
    )
    return world, task


def after_one(state, world):
    """The value of a state that goes on, after the first step."""
    return (state[1] == 1) * 1.0


@pytest.mark.parametrize("backup", ["best", "mean"])
@pytest.mark.parametrize("kinds", [[0, 1], [1, 0], [0, 0, 0, 1], [0, 1, 1, 1], [1, 0, 0, 1]])
def test_an_end_is_worth_nothing_whoever_comes_first(kinds: list[int], backup: str, key):
    """Simulations that end at a node and others that go on from it: by enumeration, the share of the others."""
    world, task = ends_or_goes_on()
    states = jnp.array([[kind, 0] for kind in kinds], jnp.int32)
    found = TreeSearch(len(kinds), 2, backup=backup, value=after_one).search(key, states, world, task)
    np.testing.assert_allclose(found.values[0], np.mean(kinds), **FLOAT)


def test_minus_zero_is_seen_as_zero():
    digest = jax.jit(digest_of)
    assert int(digest(jnp.float32(-0.0))) == int(digest(jnp.float32(0.0)))
    assert int(digest(jnp.float32(1.0))) != int(digest(jnp.float32(0.0)))


def listed_of(start):
    states = jnp.stack([jnp.arange(3), jnp.zeros(3, int)], axis=1).astype(jnp.int32)
    return Listed(states, start)


def test_of_one_step_the_values_are_mean_rewards(key):
    tables = random_tables(0)
    search, start = TreeSearch(simulations=2000, depth=1), np.asarray(tables.start)
    decision = search.plan(key, listed(start), environment_of(tables), task_of(tables, GAMMA))
    rewards = np.asarray(tables.rewards)
    means = start @ rewards
    deviations = np.sqrt(start @ rewards**2 - means**2)
    for value, visits, mean, deviation in zip(decision.values, decision.visits, means, deviations, strict=True):
        assert abs(float(value) - mean) <= monte_carlo(deviation, int(visits))
    assert int(decision.calls) == 2000


def guessing(noise: float) -> tuple[nbf.Environment, Task]:
    """A sign is hidden. Look (and see it with noise), say -1, say +1, or leave; all but looking ends it."""
    world = nbf.environment(
        init=lambda key: jnp.stack([jnp.where(jax.random.bernoulli(key), 1.0, -1.0), 0.0]),
        transition=lambda key, state, action: jnp.stack([state[0], (action > 0).astype(jnp.float32)]),
        observe=lambda key, _, state: state[0] + noise * jax.random.normal(key),
        log_likelihood=lambda seen, _, state: -0.5 * ((seen - state[0]) / noise) ** 2,
        space=nbf.Box((-1.0, 0.0), (1.0, 1.0)),
    )

    def reward(state, action, next_state, environment):
        said = jnp.where(jnp.where(action == 1, -1.0, 1.0) == state[0], 1.0, -10.0)
        return jnp.select([action == 0, action == 3], [-0.01, 0.2], said)

    return world, Task(reward, jnp.arange(4), terminal=lambda state, environment: state[1] > 0, discount=1.0)


def value_of_looking(noise: float) -> float:
    """-0.01 and the best that can be done after one look, by quadrature."""
    seen = np.linspace(-1 - 10 * noise, 1 + 10 * noise, 20001)
    density = [np.exp(-0.5 * ((seen - sign) / noise) ** 2) / (noise * np.sqrt(2 * np.pi)) for sign in (-1, 1)]
    right = [0.5 * one - 10 * 0.5 * other for one, other in (density, density[::-1])]
    best = np.maximum(np.maximum(*right), 0.2 * 0.5 * (density[0] + density[1]))
    return float(np.trapezoid(best, seen)) - 0.01


def first_belief(key, environment: nbf.Environment) -> nbf.Belief:
    filter = nbf.ParticleFilter(1000)
    return filter.belief(filter.init(key, environment), environment)


@pytest.mark.parametrize(("noise", "best"), [(0.2, 0), pytest.param(3.0, 3, marks=pytest.mark.slow)])
def test_observations_that_are_numbers_need_widening(noise: float, best: int, key):
    """Without it no observation is seen twice, so that a look is never of use."""
    environment, task = guessing(noise)
    assert (value_of_looking(noise) > 0.2) == (best == 0)
    belief = first_belief(key, environment)
    wide = TreeSearch(1000, 2, observation_widening=Widening(4.0, 0.1))
    assert int(wide.plan(key, belief, environment, task).action) == best
    assert int(TreeSearch(1000, 2).plan(key, belief, environment, task).action) == 3


def test_actions_that_are_numbers_are_drawn(key):
    """The best place on a line, of which only a noisy sign is known, is where it is."""
    world = nbf.environment(
        init=lambda key: jax.random.uniform(key, (1,)),
        transition=lambda key, state, action: state,
        observe=lambda key, _, state: state[0],
        log_likelihood=lambda seen, _, state: 0.0 * seen,
        space=nbf.Box((0.0,), (1.0,)),
    )
    task = Task(
        lambda state, action, next_state, environment: -((action - 0.3) ** 2),
        sample_action=lambda key, state, environment: jax.random.uniform(key),
    )
    belief = first_belief(key, world)
    search = TreeSearch(2000, 1, action_widening=Widening(5.0, 0.3))
    decision = search.plan(key, belief, world, task)
    tried = np.asarray(decision.actions)[np.asarray(decision.visits) > 0]
    assert tried.size == Widening(5.0, 0.3).most(2000)
    np.testing.assert_allclose(abs(float(decision.action) - 0.3), np.min(np.abs(tried - 0.3)), **FLOAT)


def test_a_value_function_takes_the_place_of_rollouts(key):
    """With the optimal value of what is left, two steps are as good as five."""
    tables = tiger(1.0)
    search = TreeSearch(500, 2, value=lambda state, environment: jnp.float32(100.0))
    decision = search.plan(key, listed([0.5, 0.5]), environment_of(tables), task_of(tables, 1.0))
    assert float(jnp.max(decision.values)) > 90
    assert int(decision.calls) < 1000


def test_calls_are_a_limit(key):
    """Of a number or of an array, which changes nothing else."""
    tables = tiger()
    given = key, listed([0.5, 0.5]), environment_of(tables), task_of(tables, GAMMA)
    whole = TreeSearch(100, 4).plan(*given)
    assert int(whole.calls) == 400
    decisions = [TreeSearch(100, 4, calls=limit).plan(*given) for limit in (101, jnp.int32(101))]
    assert [int(decision.calls) for decision in decisions] == [100, 100]
    assert [int(jnp.sum(decision.visits)) for decision in decisions] == [25, 25]
    np.testing.assert_array_equal(decisions[0].values, decisions[1].values)


def test_no_simulation_is_lost_on_states_that_are_over(key):
    """It is known that the episode goes on."""
    tables = random_tables(3)
    over = Task(_first_is_bad, actions=jnp.arange(2), terminal=lambda state, _: state[0] == 0, discount=GAMMA)
    decision = TreeSearch(64, 1).plan(key, listed([0.9, 0.05, 0.05]), environment_of(tables), over)
    assert int(jnp.sum(decision.visits)) == 64
    np.testing.assert_allclose(decision.values, 1.0, **FLOAT)


def _first_is_bad(state, action, next_state, environment):
    return jnp.where(state[0] == 0, -100.0, 1.0)


def test_a_likelihood_that_is_no_number_is_an_error(key):
    world = nbf.environment(
        init=lambda key: jnp.zeros(1), transition=lambda key, state, action: state,
        observe=lambda key, _, state: jax.random.normal(key),
        log_likelihood=lambda seen, _, state: jnp.log(-1.0) * seen,
        space=nbf.Box((-1.0,), (1.0,)),
    )  # fmt: skip
    search = TreeSearch(30, 3, observation_widening=Widening(1.0, 0.1))
    with pytest.raises(nbf.InputError, match=r"log-likelihoods[^.]*were NaN"):
        search.plan(key, Listed(jnp.zeros((1, 1)), jnp.ones(1)), world, Task(lambda *_: 1.0, jnp.arange(2)))


WRONG = {
    "no actions": lambda: Task(lambda *_: 0.0, actions=jnp.zeros((0, 2))),
    "neither": lambda: Task(lambda *_: 0.0),
    "discount": lambda: Task(lambda *_: 0.0, actions=jnp.arange(2), discount=1.5),
    "simulations": lambda: TreeSearch(simulations=0),
    "both": lambda: TreeSearch(rollout=lambda *_: 0, value=lambda *_: 0.0),
    "backup": lambda: TreeSearch(backup="max"),
    "kept": lambda: TreeSearch(kept=8),
    "calls": lambda: TreeSearch(depth=10, calls=9),
    "exploration": lambda: TreeSearch(exploration=-1.0),
    "calls of an array": lambda: TreeSearch(depth=10, calls=jnp.int32(9)),
    "calls of NumPy": lambda: TreeSearch(depth=10, calls=np.int64(9)),  # pyright: ignore[reportArgumentType]
    "widening": lambda: Widening(0.0, 0.5),
    "no end of widening": lambda: Widening(np.inf, 0.5),
    "no widening": lambda: TreeSearch(observation_widening=4.0),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_what_makes_no_search_is_refused(make, unchecked):
    with pytest.raises(nbf.InputError):
        make()


def test_a_reward_that_is_no_number_is_an_error(key):
    tables = tiger()
    task = Task(lambda *_: jnp.nan, actions=jnp.arange(3))
    with pytest.raises(nbf.InputError, match=r"were NaN or infinite.*`reward`"):
        TreeSearch(50, 3).plan(key, listed([0.5, 0.5]), environment_of(tables), task)


def test_a_reward_that_is_not_there_is_an_error(key, unchecked):
    tables, task = tiger(), Task(lambda *_: None, actions=jnp.arange(3))
    with pytest.raises(nbf.InputError, match="one number; got None"):
        TreeSearch(50, 3).plan(key, listed([0.5, 0.5]), environment_of(tables), task)


def test_what_is_no_belief_is_an_error(key, unchecked):
    tables = tiger()
    with pytest.raises(nbf.InputError, match=r"Give `filter.belief\(state, environment\)`"):
        TreeSearch(50, 3).plan(key, None, environment_of(tables), task_of(tables, GAMMA))  # pyright: ignore[reportArgumentType]


def test_a_belief_that_is_over_is_an_error(key):
    tables = tiger()
    task = Task(lambda *_: 0.0, actions=jnp.arange(3), terminal=lambda state, environment: state[0] >= 0)
    with pytest.raises(nbf.InputError, match="terminal: the episode is over"):
        TreeSearch(50, 3).plan(key, listed([0.5, 0.5]), environment_of(tables), task)


def test_a_belief_of_another_space_is_an_error(key):
    tables, other = tiger(), Listed(jnp.asarray([[7, 0]], jnp.int32), jnp.ones(1))
    with pytest.raises(nbf.InputError, match="none of the environment's space"):
        TreeSearch(50, 3).plan(key, other, environment_of(tables), task_of(tables, GAMMA))
    numbers = Listed(jnp.zeros((1, 3), jnp.int32), jnp.ones(1))
    with pytest.raises(nbf.InputError, match="another space"):
        TreeSearch(50, 3).plan(key, numbers, environment_of(tables), task_of(tables, GAMMA))


def test_widening_of_actions_fits_the_task(key):
    tables, search = tiger(), TreeSearch(50, 3, action_widening=Widening(2.0, 0.5))
    with pytest.raises(nbf.InputError, match="does nothing where the actions are listed"):
        search.plan(key, listed([0.5, 0.5]), environment_of(tables), task_of(tables, GAMMA))
