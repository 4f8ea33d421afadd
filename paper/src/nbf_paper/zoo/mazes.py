"""Mazes as inputs: where a walker is in a maze that is known, and differs between environments.

Hidden: the cell, one of 8 x 8. Seen: which of its four sides have walls, each misread with probability 0.15. The walker
is told a direction, the policy, and obeys with probability 0.7, else goes in another one; a wall stops it. The maze is
the parameter: a random spanning tree of the cells, with a few more openings. After Kaelbling, Littman, Cassandra (1998)
and Karkus, Hsu, Lee, *QMDP-net* (2017), whose mazes are inputs too. Horizon 25. In the zoo because many corners look
alike, and what is possible depends on the input.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Policy
from nbf.environments.listed import ListedEnvironment, listed_environment
from nbf.filters.exact import ExactFilter
from nbf.spaces import Lattice
from nbf_paper.zoo.problem import Problem

SIDE, OBEYS, MISREAD, OPENED, KEPT = 8, 0.7, 0.15, 0.12, 0.7
"""Cells along a side; probabilities to obey, to misread a wall, of an opening beyond the tree, to be told the same
direction again."""
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)], np.int32)
SPACE = Lattice((SIDE, SIDE))
_CELLS = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
EDGES = np.concatenate(
    [
        np.stack([_CELLS[:-1].ravel(), _CELLS[1:].ravel()], 1),
        np.stack([_CELLS[:, :-1].ravel(), _CELLS[:, 1:].ravel()], 1),
    ]
)
"""Pairs of neighbours: the first half one above the other, the second side by side."""


def random_maze(key: Key[Array, ""]) -> Bool[Array, "cells 4"]:
    """Whether each side of each cell is open. Kruskal's algorithm on the edges in random order."""
    order_key, open_key = jax.random.split(key)
    order = jax.random.permutation(order_key, len(EDGES))

    def join(parts: Int[Array, " cells"], edge: Int[Array, ""]) -> tuple[Int[Array, " cells"], Bool[Array, ""]]:
        one, other = parts[jnp.asarray(EDGES)[edge]]
        return jnp.where(parts == other, one, parts), one != other

    joined = jax.lax.scan(join, jnp.arange(SIDE * SIDE), order)[1]
    opened = jnp.zeros(len(EDGES), bool).at[order].set(joined)
    opened = opened | jax.random.bernoulli(open_key, OPENED, opened.shape)
    first, half = jnp.zeros((SIDE * SIDE, 4), bool), len(EDGES) // 2
    for places, forward, back in ((slice(None, half), 1, 0), (slice(half, None), 3, 2)):
        first = first.at[EDGES[places, 0], forward].set(opened[places])
        first = first.at[EDGES[places, 1], back].set(opened[places])
    return first


def branches(state: Int[Array, " 2"], told: Int[Array, ""], maze: Bool[Array, "cells 4"]) -> tuple[Array, Array]:
    """The cells to which the four moves lead, and their log probabilities given the direction that was told."""
    ends = jnp.where(maze[SPACE.index(state)][:, None], state + MOVES, state)
    return ends, jnp.log(jnp.where(jnp.arange(4) == told, OBEYS, (1 - OBEYS) / 3))


def observe(key: Key[Array, ""], state: Array, next_state: Array, maze: Bool[Array, "cells 4"]) -> Int[Array, ""]:
    """Draw which sides seem to have openings, as a number of four bits."""
    seen = maze[SPACE.index(next_state)] ^ jax.random.bernoulli(key, MISREAD, (4,))
    return jnp.sum(seen * 2 ** jnp.arange(4)).astype(jnp.int32)


def log_likelihood(
    observation: Int[Array, ""], state: Array, next_state: Array, maze: Bool[Array, "cells 4"]
) -> Float[Array, ""]:
    """log probability of what was seen of the four sides."""
    seen = (observation >> jnp.arange(4)) & 1
    return jnp.sum(jnp.log(jnp.where(seen == maze[SPACE.index(next_state)], 1 - MISREAD, MISREAD)))


class Walks(Scheduled):
    """A random maze, and directions that are mostly those of the step before."""

    environment: ListedEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        maze_key, keep_key, new_key = jax.random.split(key, 3)
        maze = random_maze(maze_key)
        keep = jax.random.bernoulli(keep_key, KEPT, (steps,)).at[0].set(False)
        new = jax.random.randint(new_key, (steps,), 0, 4)
        told = new[jax.lax.cummax(jnp.where(keep, 0, jnp.arange(steps)))]
        return replace(self.environment, parameters=jnp.broadcast_to(maze, (steps, *maze.shape))), told

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def problem() -> Problem:
    """The problem, whose reference is exact."""
    world = listed_environment(
        branches=branches, observe=observe, log_likelihood=log_likelihood,
        space=SPACE, parameters=jnp.ones((SIDE * SIDE, 4), bool), num_branches=4, symbols=16,
    )  # fmt: skip
    return Problem("mazes", Walks(world), 25, ExactFilter(), "exact, 64 states")
