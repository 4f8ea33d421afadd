"""An episode is what its states and actions say, and ends when it is over."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from tolerances import FLOAT

import nbf
from nbf.planning import Task, TreeSearch, play

STEPS, BATCH, DISCOUNT = 6, 16, 0.9


def walk() -> tuple[nbf.Environment, Task]:
    """A walk on 0..8, seen with noise, that ends at either end; the right one is worth more."""
    world = nbf.environment(
        init=lambda key: jax.random.randint(key, (1,), 2, 7),
        transition=lambda key, state, move: jnp.clip(state + move, 0, 8),
        observe=lambda key, _, state: state[0] + jax.random.randint(key, (), 0, 2),
        log_likelihood=lambda seen, _, state: jnp.where((seen == state[0]) | (seen == state[0] + 1), -0.7, -jnp.inf),
        space=nbf.Lattice((9,)),
    )
    task = Task(
        lambda state, move, after, _: jnp.select([after[0] == 8, after[0] == 0], [10.0, 1.0], -0.1),
        actions=jnp.asarray([-1, 1], jnp.int32), terminal=lambda state, _: (state[0] == 0) | (state[0] == 8),
        discount=DISCOUNT,
    )  # fmt: skip
    return world, task


def test_a_return_is_that_of_the_states_and_ends_with_the_episode(key):
    world, task = walk()
    search = TreeSearch(simulations=60, depth=8)

    def one(key):
        look = {"look": lambda belief, state: belief.log_prob(state)}
        return play(key, nbf.ParticleFilter(64), world, task, search, STEPS, **look)

    games = jax.jit(jax.vmap(one))(jax.random.split(key, BATCH))
    states, alive = np.asarray(games.states)[..., 0], np.asarray(games.alive)
    ended = (states == 0) | (states == 8)
    # A step is taken unless the state before it was an end; from there on nothing moves.
    np.testing.assert_array_equal(alive[:, 1:], ~ended[:, :-1])
    np.testing.assert_array_equal(states[:, 1:][~alive[:, 1:]], states[:, :-1][~alive[:, 1:]])
    rewards = np.where(alive, np.select([states == 8, states == 0], [10.0, 1.0], -0.1), 0.0)
    np.testing.assert_allclose(games.rewards, rewards, **FLOAT)
    np.testing.assert_allclose(games.total, rewards @ DISCOUNT ** np.arange(STEPS), **FLOAT)
    assert alive.sum() < alive.size
    assert np.all(np.isfinite(np.asarray(games.looks)[alive]))
    # From 4 or more the right end is within reach and worth walking to.
    assert np.mean(np.asarray(games.total) > 1) > 0.5
    assert not np.any(games.invalid)
    assert not np.any(games.recovered)
