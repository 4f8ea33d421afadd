"""Problems for a search on beliefs: what is public moves as it should, and leaf values are those of a known state."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from tolerances import FLOAT

import nbf
from nbf_paper.experiments.planning import PlanningJob, Rows
from nbf_paper.experiments.planning_play import Game, Searching, played
from nbf_paper.experiments.planning_worlds import DISCOUNT, PROBLEMS, mazes
from nbf_paper.zoo.mazes import MOVES, SPACE


def test_distances_in_a_maze_are_those_of_scipy(key):
    sides, far = (np.asarray(part) for part in mazes(key))
    graph = np.zeros((64, 64))
    for cell in range(64):
        for side, move in enumerate(MOVES):
            row, column = np.array(divmod(cell, 8)) + move
            if sides[cell, side]:
                graph[cell, 8 * row + column] = 1
    np.testing.assert_array_equal(far, shortest_path(graph, unweighted=True))
    assert int(SPACE.index(jnp.asarray([2, 5]))) == 21


def optimal(steps: np.ndarray, prize: float, size: int, goal: int) -> np.ndarray:
    """Values of a walk on a line that is seen, by iteration of Bellman's equation."""
    values = np.zeros(size)
    for _ in range(200):
        moved = [-1 + DISCOUNT * values[np.clip(np.arange(size) + step, 0, size - 1)] for step in steps]
        values = np.maximum(np.max(moved, axis=0), np.where(np.arange(size) == goal, prize, -prize))
    return values


def test_the_leaf_value_of_light_dark_is_that_of_a_known_state():
    asked = PROBLEMS["light-dark"]()
    states = jnp.arange(61, dtype=jnp.int32)[:, None]
    public = asked.world.begin(jax.random.key(0))
    found = jax.vmap(lambda hidden: asked.value((hidden, public), asked.world))(states)
    np.testing.assert_allclose(found, optimal(np.array([-10, -1, 1, 10]), 100.0, 61, 30), **FLOAT)


@pytest.mark.parametrize("name", PROBLEMS)
def test_only_the_last_action_ends_an_episode_and_it_pays_for_the_truth(name: str, key):
    asked = PROBLEMS[name]()
    world = replace(asked.world, given=asked.given(key))
    state = world.init(key)
    count = asked.task.num_actions
    assert count == asked.moves + 1
    for index in range(count):
        action = asked.task.action(jnp.int32(index))
        after = world.transition(key, state, action)
        assert bool(asked.task.is_over(after, world)) == (index == asked.moves)
        assert bool(world.space.contains(after[0]))
    last = asked.task.action(jnp.int32(asked.moves))
    at_goal = jnp.asarray([30], jnp.int32) if name == "light-dark" else state[1][0]
    prize = asked.task.reward_of((at_goal, state[1]), last, state, world)
    assert float(prize) > 0
    np.testing.assert_allclose(asked.value((at_goal, state[1]), world), prize, **FLOAT)


def test_a_game_is_played_within_its_calls(key):
    """And the exact belief finds more than the prior does."""
    game = Game(PROBLEMS["light-dark"](), Searching(simulations=60, depth=8))
    exact, prior = (
        played(game, filter, 200, key, 12) for filter in (nbf.ExactFilter(), nbf.PredictionFilter(nbf.ExactFilter()))
    )
    assert exact.calls.max() <= 200
    assert exact.log_score.mean() > prior.log_score.mean()
    assert exact.returns.mean() > prior.returns.mean()


def test_a_filter_that_takes_all_calls_is_refused():
    with pytest.raises(nbf.InputError, match="leaves nothing to a search"):
        PlanningJob("source", calls=1000, rows=Rows(particle_filters=(1024,)))
    with pytest.raises(nbf.InputError, match="choose one of light-dark"):
        PlanningJob("tiger")
