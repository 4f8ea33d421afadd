"""The two problems over real vectors: Van der Pol tag, and the walk of the experiment `values`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tolerances import FLOAT, monte_carlo

from nbf.planning.process import check_process
from nbf_paper.experiments.planning_continuous import (
    BACK,
    DIRECTIONS,
    LEFT_OUT,
    NOISE,
    SCAN_COST,
    STRIDE,
    Tagging,
    beams,
    cheap_looks,
    flow,
    futures,
    interception,
    stopped,
    target_environment,
)
from nbf_paper.experiments.planning_decisions import DISCOUNT, Came, ProcessWorld, of_regrets
from nbf_paper.experiments.planning_problems import PROBLEMS
from nbf_paper.experiments.value_tasks import SCAN, STOP, Walking, walk_to_origin

TAG = PROBLEMS["vdp-tag"]()
WALK = PROBLEMS["walk"]()


def process_of(asked) -> ProcessWorld:
    assert isinstance(asked.world, ProcessWorld)
    return asked.world


def exact_flow(target: np.ndarray) -> np.ndarray:
    """The Van der Pol equations in the plane of Liénard, mu = 2, for half a unit of time."""
    found = solve_ivp(
        lambda _, point: (2 * (point[0] - point[0] ** 3 / 3 - point[1]), point[0] / 2),
        (0.0, 0.5), target, rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    return found.y[:, -1]


def test_the_target_follows_the_van_der_pol_equations():
    """The error of five Runge-Kutta steps is of fifth order in 0.1: some thousandths where the flow is fast."""
    starts = np.stack(np.meshgrid([-2.0, -0.5, 0.3, 2.0], [-1.0, 0.2, 1.0]), axis=-1).reshape(-1, 2)
    truth = np.array([exact_flow(start) for start in starts])
    found = np.asarray(jax.vmap(flow)(jnp.asarray(starts)))
    np.testing.assert_allclose(found, truth, atol=5e-3)
    world, count = target_environment(), 4000
    drawn = jax.vmap(lambda key: world.transition(key, jnp.asarray(starts[0]), 0))(
        jax.random.split(jax.random.key(1), count)
    )
    np.testing.assert_allclose(np.mean(drawn, axis=0), found[0], atol=monte_carlo(NOISE, count))
    np.testing.assert_allclose(np.std(drawn, axis=0), NOISE, atol=monte_carlo(NOISE / np.sqrt(2), count))


def test_the_table_of_futures_is_the_flow_iterated():
    table = futures()
    middle = lambda cell: ((np.asarray(cell) + 0.5) / table.shape[0] * 2 - 1) * 4.5  # noqa: E731
    target = jnp.asarray(middle((30, 41)))
    for step in range(3):
        target = flow(target)
        np.testing.assert_allclose(table[30, 41, step], target, **FLOAT)


@pytest.mark.parametrize(
    ("place", "move", "end"),
    [
        ((0.5, 0.25), (0.0, -0.5), (0.5, 0.0)),
        ((-0.25, -1.0), (0.5, 0.1), (0.0, -0.95)),
        ((0.1, 0.25), (0.0, -0.5), (0.1, -0.25)),
        ((2.1, 0.25), (0.0, -0.5), (2.1, -0.25)),
        ((0.5, 0.25), (0.0, 0.5), (0.5, 0.75)),
    ],
    ids=["right", "down", "the gap at the origin", "beyond the end", "away"],
)
def test_barriers_stop_the_agent(place, move, end):
    """And it stays on its side, so that the next move away from the barrier is free."""
    found = stopped(jnp.asarray(place), jnp.asarray(move))
    np.testing.assert_allclose(found, end, atol=2 * BACK * STRIDE)
    if np.linalg.norm(np.subtract(end, place)) < 0.49:
        side = int(np.argmin(np.abs(end)))
        assert np.sign(found[side]) == np.sign(place[side])
        back = stopped(found, -jnp.asarray(move))
        np.testing.assert_allclose(back, found - jnp.asarray(move), **FLOAT)
        again = stopped(found, jnp.asarray(move))
        assert np.sign(again[side]) == np.sign(place[side])


def test_only_the_beam_towards_the_target_feels_it():
    """Beam i covers the angles from 45 i to 45 (i + 1) degrees; only a look makes it accurate."""
    for beam in range(8):
        angle = (beam + 0.3) * np.pi / 4
        target = jnp.asarray([1.0, -0.5]) + 2.5 * jnp.asarray([np.cos(angle), np.sin(angle)])
        for looks, narrow in ((True, 0.1), (False, 5.0)):
            mean, deviation = beams(target, (jnp.asarray([1.0, -0.5]), jnp.asarray(looks)))
            np.testing.assert_allclose(mean, np.where(np.arange(8) == beam, 2.5, 1.0), **FLOAT)
            np.testing.assert_allclose(deviation, np.where(np.arange(8) == beam, narrow, 5.0), **FLOAT)


@pytest.mark.parametrize("looks", [False, True], ids=["moves", "looks"])
def test_a_tag_is_worth_100_and_a_look_costs_5(looks):
    world, action = process_of(TAG), jnp.int32(DIRECTIONS if looks else 0)
    angle = np.pi / DIRECTIONS
    ends = 0.5 * np.array([np.cos(angle), np.sin(angle)])
    before = (jnp.asarray([2.0, 0.5]), Came(Tagging(jnp.zeros(2)), jnp.int32(0)))
    place = world.process.after(before[1].public, action)
    np.testing.assert_allclose(place.place, ends, **FLOAT)
    for off, tagged in ((0.09, True), (0.11, False)):
        after = (jnp.asarray(ends + np.array([off, 0.0]), jnp.float32), Came(place, action))
        assert bool(TAG.task.is_over(after, world)) == tagged
        reward = float(TAG.task.reward_of(before, action, after, world))
        assert reward == (100.0 if tagged else -1.0) - 5.0 * looks
        assert bool(TAG.right(jnp.float32(reward), after[0])) == tagged


def test_the_value_of_a_known_target_is_that_of_the_next_tag():
    """A target of a table cell, and the agent where one, two or no moves lead to where that comes to."""
    table = futures()
    target = jnp.asarray(((np.array([20, 50]) + 0.5) / 72 * 2 - 1) * 4.5)
    for steps, distance in ((1, 0.5), (2, 0.9)):
        away = jnp.asarray(table[20, 50, steps - 1]) + jnp.asarray([0.0, distance])
        first = int(np.argmax([
            (far <= 0.5 * step + 0.1) and (far >= (0.4 if step == 1 else 0.0))
            for step, far in enumerate(np.linalg.norm(table[20, 50] - np.asarray(away), axis=-1), 1)
        ])) + 1  # fmt: skip
        assert first <= steps
        expected = 100 * DISCOUNT ** (first - 1) - sum(DISCOUNT**step for step in range(first - 1))
        state = (target, Came(Tagging(away), jnp.int32(0)))
        np.testing.assert_allclose(interception(table)(state, TAG.world), expected, **FLOAT)


@pytest.mark.parametrize("asked", [TAG, WALK], ids=["vdp-tag", "walk"])
def test_a_world_of_a_process_is_its_process(asked, key):
    """States, observations and rewards of the pair are those of the process, step by step."""
    world = process_of(asked)
    process = world.process
    check_process(process)
    state = world.init(key)
    for number in range(4):
        move_key, look_key = jax.random.split(jax.random.fold_in(key, number))
        action = jnp.int32((7 * number + 3) % process.num_actions)
        public = state[1].public
        environment, policy = process.step(public, action)
        hidden = environment.transition(move_key, state[0], policy)
        after = world.transition(move_key, state, action)
        np.testing.assert_array_equal(after[0], hidden)
        assert jax.tree.all(jax.tree.map(jnp.array_equal, after[1].public, process.after(public, action)))
        seen = world.observe(look_key, state, after)
        np.testing.assert_array_equal(seen, environment.observe(look_key, state[0], hidden))
        np.testing.assert_allclose(
            world.log_likelihood(seen, state, after), environment.log_likelihood(seen, state[0], hidden), **FLOAT
        )
        reward = process.reward(public, state[0], action, process.after(public, action), hidden)
        np.testing.assert_allclose(asked.task.reward_of(state, action, after, world), reward, **FLOAT)
        state = after


def test_the_walk_is_that_of_values():
    """The same process; its return is the way that was made, and a stop ends it."""
    world, same = process_of(WALK), walk_to_origin()
    assert jax.tree.structure(world.process) == jax.tree.structure(same)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, world.process, same))
    assert (WALK.horizon, WALK.task.discount) == (same.horizon, same.discount)
    state = world.init(jax.random.key(3))
    for action, over in ((SCAN, False), (STOP, True)):
        after = world.transition(jax.random.key(4), state, jnp.int32(action))
        assert bool(WALK.task.is_over(after, world)) == over
        np.testing.assert_array_equal(after[0], state[0])
    assert bool(WALK.right(jnp.float32(0), jnp.asarray([0.3, -0.3])))
    assert not bool(WALK.right(jnp.float32(0), jnp.asarray([0.4, -0.4])))


def test_regrets_add_up_to_the_return_and_the_values(key):
    """Of any value: the sum of regrets is the return, the value of the end, less that of the start."""
    world, task = process_of(TAG), cheap_looks(TAG.task)
    regrets = of_regrets(task, value := interception(futures()))
    states = [world.init(key)]
    actions = jnp.asarray([3, DIRECTIONS + 5, 9], jnp.int32)
    for number, action in enumerate(actions):
        states.append(world.transition(jax.random.fold_in(key, number), states[-1], action))
    pairs = list(zip(states[:-1], actions, states[1:], strict=True))
    told, lost = (
        sum(DISCOUNT**step * each.reward_of(*pair, world) for step, pair in enumerate(pairs))
        for each in (task, regrets)
    )
    ends = DISCOUNT ** len(pairs) * value(states[-1], world) - value(states[0], world)
    np.testing.assert_allclose(lost, told + ends, **FLOAT)


def test_a_search_of_the_walk_counts_moves():
    """A known place is one move nearer for each, which costs 1: the right ones lose nothing, wrong ones two moves, a
    stop at the origin nothing. Time is cheap: a scan costs little."""
    goal = WALK.goal
    assert goal is not None
    origin = (jnp.zeros(2), Came(Walking(jnp.int32(0), jnp.asarray(False)), jnp.int32(0)))

    def lost(place: tuple[float, float], action: int, ends: tuple[float, float]) -> float:
        came = Came(Walking(jnp.int32(1), jnp.asarray(action == STOP)), jnp.int32(action))
        before, after = (jnp.asarray(place), origin[1]), (jnp.asarray(ends), came)
        return float(goal.reward_of(before, jnp.int32(action), after, WALK.world))

    assert lost((1.0, -2.0), 0, (0.5, -2.0)) == 0.0
    assert lost((1.0, -2.0), 1, (1.5, -2.0)) == -2.0
    assert lost((1.0, -2.0), SCAN, (1.0, -2.0)) == pytest.approx(-SCAN_COST)
    assert lost((0.0, 0.0), STOP, (0.0, 0.0)) == 0.0
    assert lost((1.0, -2.0), STOP, (1.0, -2.0)) == 6 - 6 * LEFT_OUT
