"""Small decision problems whose optimal values are known."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nbf
from nbf.planning import Task

LISTEN, LEFT, RIGHT = range(3)


class Tables(eqx.Module):
    """A POMDP by its tables, with s states, a actions and o observations."""

    start: Any
    moves: Any
    """[a, s, s']."""
    looks: Any
    """[a, s', o]."""
    rewards: Any
    """[s, a]."""


def _init(key: Any, tables: Tables) -> Any:
    return jnp.stack([jax.random.categorical(key, jnp.log(tables.start)), 0]).astype(jnp.int32)


def _transition(key: Any, state: Any, action: Any, tables: Tables) -> Any:
    moved = jax.random.categorical(key, jnp.log(tables.moves[action, state[0]]))
    return jnp.stack([moved, action]).astype(jnp.int32)


def _observe(key: Any, _: Any, state: Any, tables: Tables) -> Any:
    return jax.random.categorical(key, jnp.log(tables.looks[state[1], state[0]]))


def _log_likelihood(seen: Any, _: Any, state: Any, tables: Tables) -> Any:
    return jnp.log(tables.looks[state[1], state[0], seen])


def _reward(state: Any, action: Any, _: Any, environment: Any) -> Any:
    return environment.parameters.rewards[state[0], action]


def environment_of(tables: Tables) -> nbf.Environment:
    """As the library has it: a state is the table's and the last action, on which the observation depends. Those of one
    shape share compiled programs."""
    actions, states = tables.moves.shape[:2]
    return nbf.environment(
        init=_init, transition=_transition, observe=_observe, log_likelihood=_log_likelihood,
        space=nbf.Lattice((states, actions)), parameters=tables,
    )  # fmt: skip


def task_of(tables: Tables, discount: float) -> Task:
    return Task(_reward, actions=jnp.arange(tables.moves.shape[0]), discount=discount)


def optimal_values(tables: Tables, belief: np.ndarray, depth: int, discount: float) -> np.ndarray:
    """Q of each action of a belief, by enumeration of all that can be done and seen."""
    actions, _, observations = tables.looks.shape
    moves, looks, rewards = (np.asarray(table, np.float64) for table in (tables.moves, tables.looks, tables.rewards))
    values = belief @ rewards
    if depth == 1:
        return values
    for action in range(actions):
        for seen in range(observations):
            joint = (belief @ moves[action]) * looks[action, :, seen]
            if joint.sum() > 0:
                later = optimal_values(tables, joint / joint.sum(), depth - 1, discount)
                values[action] += discount * joint.sum() * later.max()
    return values


def tiger(chance: float = 0.85) -> Tables:
    """A tiger behind one of two doors (Kaelbling, Littman and Cassandra 1998)."""
    even = np.full((2, 2), 0.5)
    return Tables(
        start=jnp.full(2, 0.5),
        moves=jnp.asarray(np.stack([np.eye(2), even, even])),
        looks=jnp.asarray(np.stack([[[chance, 1 - chance], [1 - chance, chance]], even, even])),
        rewards=jnp.asarray([[-1.0, -100.0, 10.0], [-1.0, 10.0, -100.0]]),
    )


def random_tables(seed: int, states: int = 3, actions: int = 2, observations: int = 2) -> Tables:
    rng = np.random.default_rng(seed)
    return Tables(
        start=jnp.asarray(rng.dirichlet(np.ones(states))),
        moves=jnp.asarray(rng.dirichlet(np.full(states, 0.5), (actions, states))),
        looks=jnp.asarray(rng.dirichlet(np.full(observations, 0.3), (actions, states))),
        rewards=jnp.asarray(rng.normal(size=(states, actions))),
    )
