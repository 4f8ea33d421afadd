"""Problems for a search on beliefs: what is public moves as it should, and leaf values are those of a known state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from tolerances import FLOAT

import nbf
from nbf_paper.experiments.planning import PlanningJob, Rows
from nbf_paper.experiments.planning_decisions import DISCOUNT
from nbf_paper.experiments.planning_play import Game, Searching, played
from nbf_paper.experiments.planning_problems import PROBLEMS
from nbf_paper.experiments.planning_worlds import LISTED, mazes
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
    states = jnp.arange(121, dtype=jnp.int32)[:, None]
    over = asked.world.init(jax.random.key(0))[1]
    found = jax.vmap(lambda hidden: asked.value((hidden, over), asked.world))(states)
    np.testing.assert_allclose(found, optimal(np.array([-10, -1, 1, 10]), 100.0, 121, 60), **FLOAT)


@pytest.mark.parametrize("name", LISTED)
def test_a_step_that_ends_an_episode_is_worth_its_prize(name: str, key):
    """And until the end it is known that what is hidden is not where one stands."""
    asked = PROBLEMS[name]()
    world = asked.drawn(key)
    for number in range(20):
        move_key, start_key, look_key = jax.random.split(jax.random.fold_in(key, number), 3)
        state = world.init(start_key)
        action = asked.task.action(jnp.int32(number % (asked.task.num_actions or 1)))
        after = world.transition(move_key, state, action)
        over, reward = bool(asked.task.is_over(after, world)), float(asked.task.reward_of(state, action, after, world))
        seen = world.observe(look_key, state, after)
        assert bool(world.space.contains(after[0]))
        assert over == (number % 5 == 4 if asked.stops else reward > 0)
        assert float(world.log_likelihood(seen, state, after)) > -np.inf
        if not asked.stops and not over:
            assert float(world.log_likelihood(seen, state, (after[1][0], after[1]))) == -np.inf


@pytest.mark.slow
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
