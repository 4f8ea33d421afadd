"""A policy that is none is refused, wherever it is given from Python."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid

import nbf
from nbf.errors import InputError

ACTIONS, STATES = 4, 3


def world() -> nbf.FiniteEnvironment:
    rng = np.random.default_rng(2026)
    moves = rng.dirichlet(np.ones(STATES), size=(ACTIONS, STATES))
    return nbf.from_matrices(moves, rng.dirichlet(np.ones(2), size=STATES), np.ones(STATES) / STATES)


WRONG = {
    "Action 7 is none of the 4 actions": 7,
    "Action -1 is none": jnp.asarray(-1),
    r"actions in state 0 must be 0 or more and sum to 1.*with sum 40": jnp.full((STATES, ACTIONS), 10.0),
    r"4 actions must be .*with sum 0\.5": np.asarray([0.5, 0.0, 0.0, 0.0], np.float32),
    "in state 1 must be": jnp.full((STATES, ACTIONS), 0.25).at[1, 0].set(-0.25).at[1, 1].set(0.75),
    "with sum nan": jnp.asarray([jnp.nan, 0.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_policy_of_tables_is_refused(message, key):
    policy, filter = WRONG[message], nbf.ExactFilter()
    state = filter.init(key, world())
    calls = {
        "step": lambda: filter.step(key, state, 0, world(), policy),
        "rollout": lambda: nbf.rollout(key, world(), policy, 2),
        "run": lambda: nbf.run(filter, key, jnp.zeros(2, int), world(), policy),
        "fit": lambda: nbf.fit((world(), policy), steps=20, progress=False),
    }
    for call in calls.values():
        with pytest.raises(InputError, match=message):
            call()


RIGHT = [3, jnp.asarray(0), jnp.full(ACTIONS, 0.25), jnp.full((STATES, ACTIONS), 0.25).at[1].set(0.0)]


@pytest.mark.parametrize("policy", RIGHT, ids=["number", "array", "probabilities", "a row of zeros"])
def test_a_right_policy_of_tables_is_taken(policy):
    world().check_policy(policy)


def test_inside_a_trace_a_policy_is_not_looked_at(key):
    jax.jit(lambda action: nbf.rollout(key, world(), action, 2))(jnp.asarray(7))


def test_a_goal_of_another_dimension_is_refused(key):
    grid, policy = small_grid()
    wrong = nbf.GoalPolicy(policy.goal[:1], policy.temperature)
    with pytest.raises(InputError, match="2-D Gridworld is 2 numbers"):
        nbf.rollout(key, grid, wrong, 2)
