"""Problems for a search on beliefs whose hidden states can be listed.

| problem | hidden | seen | known failure |
|---|---|---|---|
| `light-dark` | an integer position; moves are exact | itself, with noise that is the distance to a light | particles of an exact motion stay where they were drawn |
| `source` | the cell of a source, which never moves | whether a detector at one's place rings | the same, with 576 cells |
| `maze-tag` | the cell of one who flees in a maze | in which of nine directions, often wrongly | the maze is another one in each episode |

The first ends with an action that says "I am at 0", the others when what is hidden is reached; until then it is known
not to be where one stands. `light-dark` is that of Sunberg and Kochenderfer (arXiv 1709.06196).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import State
from nbf.environments.listed import listed_environment
from nbf.planning import Task, Widening
from nbf.spaces import Lattice
from nbf_paper.experiments.planning_decisions import DISCOUNT, Decisions, ListedWorld, reached
from nbf_paper.zoo.mazes import MOVES, random_maze
from nbf_paper.zoo.mazes import SPACE as MAZE

# --- light-dark ----------------------------------------------------------------------------------

RADIUS, START, LIGHT = 60, 30, 10
"""The line ends so far from 0; one starts within so much of it; the place of the light."""
STEPS = np.array([-10, -1, 1, 10, 0], np.int32)
"""The last one says: I am at 0."""


def light_dark() -> Decisions:
    """Find to 0 in the dark: go to the light at 10 first."""

    def branches(cell: Int[Array, " 1"], action: Int[Array, ""], _: Any) -> tuple[Array, Array]:
        return jnp.clip(cell + action, 0, 2 * RADIUS)[None], jnp.zeros(1)

    def deviation(cell: Int[Array, " 1"]) -> Float[Array, ""]:
        return jnp.abs(cell[0] - RADIUS - LIGHT) + 1e-3

    def log_likelihood(seen: Array, _: Array, cell: Array, __: Any) -> Float[Array, ""]:
        wide = deviation(cell)
        return -0.5 * ((seen - cell[0] + RADIUS) / wide) ** 2 - jnp.log(wide)

    cells = np.arange(2 * RADIUS + 1)
    distances = np.where(cells == RADIUS, 0, len(cells))
    for _ in cells:
        further = np.min(distances[np.clip(cells[:, None] + STEPS[:-1], 0, 2 * RADIUS)], axis=1)
        distances = np.minimum(distances, 1 + further)
    none, no = jnp.int32(0), jnp.asarray(False)
    hidden = listed_environment(
        observe=lambda key, _, cell, __: cell[0] - RADIUS + deviation(cell) * jax.random.normal(key),
        log_likelihood=log_likelihood, space=Lattice((2 * RADIUS + 1,)), branches=branches, num_branches=1,
        parameters=(no, no, none),
        initial=jnp.where(np.abs(cells - RADIUS) <= START, -np.log(2.0 * START + 1), -jnp.inf),
    )  # fmt: skip
    world = ListedWorld(hidden.space, hidden, none, lambda over, action, _: over | (action == 0), lambda key: no)

    def reward(state: State, action: Array, _: State, __: ListedWorld) -> Float[Array, ""]:
        return jnp.where(action == 0, jnp.where(state[0][0] == RADIUS, 100.0, -100.0), -1.0)

    def value(state: State, _: ListedWorld) -> Float[Array, ""]:
        return reached(jnp.asarray(distances)[state[0][0]], 100.0)

    task = Task(reward, jnp.asarray(STEPS), terminal=lambda state, _: state[1], discount=DISCOUNT)
    return Decisions("light-dark", world, task, value, lambda key: none, 25, True, Widening(5.0, 1 / 15))


# --- source --------------------------------------------------------------------------------------

SIDE, TILE, REACH, CERTAINTY, FALSE, PRIZE = 24, 3, 5.0, 0.9, 0.05, 50.0
"""Cells; cells of a step; reach of the detector; probabilities that it rings at the source, and for nothing; reward of
what is found."""


def source() -> Decisions:
    """Find a source with a detector. It is found in the square of 3 x 3 cells in which one stands."""

    def found(cell: Array, public: Any) -> Array:
        return jnp.all(cell // TILE == public[0] // TILE)

    def ringing(cell: Array, public: Any) -> Float[Array, ""]:
        near = jnp.exp(-jnp.sum((cell - public[0]) ** 2) / (2 * REACH**2))
        return FALSE + (CERTAINTY - FALSE) * near

    def observe(key: Key[Array, ""], _: Array, cell: Array, step: Any) -> Array:
        rings = jax.random.bernoulli(key, ringing(cell, step[1])).astype(jnp.int32)
        return jnp.where(found(cell, step[1]), 2, rings)

    def log_likelihood(seen: Array, _: Array, cell: Array, step: Any) -> Float[Array, ""]:
        rings = ringing(cell, step[1])
        missed = jnp.where(seen == 2, -jnp.inf, jnp.log(jnp.where(seen == 1, rings, 1 - rings)))
        return jnp.where(found(cell, step[1]), jnp.where(seen == 2, 0.0, -jnp.inf), missed)

    start = (jnp.asarray([13, 13], jnp.int32),)
    hidden = listed_environment(
        observe=observe, log_likelihood=log_likelihood, space=Lattice((SIDE, SIDE)), symbols=3,
        parameters=(start, start, jnp.int32(0)),
    )  # fmt: skip

    def advance(public: Any, action: Array, _: Any) -> Any:
        return (jnp.clip(public[0] + TILE * jnp.asarray(MOVES)[action], 1, SIDE - 2),)

    def value(state: State, _: ListedWorld) -> Float[Array, ""]:
        return _walked(jnp.sum(jnp.abs(state[0] // TILE - state[1][0] // TILE)))

    world = ListedWorld(hidden.space, hidden, jnp.int32(0), advance, lambda key: start)
    task = _chase(lambda state: found(*state), 4)
    return Decisions("source", world, task, value, lambda key: jnp.int32(0), 25)


def _chase(found: Callable[..., Any], moves: int) -> Task:
    """Every step costs 1, but the last one, which finds."""

    def reward(_: State, __: Array, after: State, ___: ListedWorld) -> Float[Array, ""]:
        return jnp.where(found(after), PRIZE, -1.0)

    actions = jnp.arange(moves, dtype=jnp.int32)
    return Task(reward, actions, terminal=lambda state, _: found(state), discount=DISCOUNT)


def _walked(distance: Array) -> Float[Array, ""]:
    """The value of what is so many steps away, in a chase, if it stays."""
    return reached(distance - 1, PRIZE)


# --- maze-tag ------------------------------------------------------------------------------------

HEARD, FLEES = 0.5, 0.7
"""Probability to hear the right direction; how much the one who flees minds the distance."""


def maze_tag() -> Decisions:
    """Catch one who flees, in a maze that is known and another one in each episode."""
    size = MAZE.size
    given = jnp.ones((size, 4), bool), jnp.zeros((size, size), jnp.int32)

    def found(cell: Array, public: Any) -> Array:
        return jnp.all(cell == public[0])

    def branches(cell: Array, _: Array, step: Any) -> tuple[Array, Array]:
        (place,), _, (sides, far) = step
        ends = jnp.where(sides[MAZE.index(cell)][:, None], cell + MOVES, cell)
        away = far[jax.vmap(MAZE.index)(ends), MAZE.index(place)]
        return ends, jax.nn.log_softmax(FLEES * away.astype(jnp.float32))

    def direction(cell: Array, public: Any) -> Array:
        down, right = jnp.sign(cell - public[0]) + 1
        return jnp.where(found(cell, public), 9, 3 * down + right).astype(jnp.int32)

    def log_likelihood(seen: Array, _: Array, cell: Array, step: Any) -> Float[Array, ""]:
        true = direction(cell, step[1])
        heard = jnp.log(jnp.where(seen == true, HEARD + (1 - HEARD) / 9, (1 - HEARD) / 9))
        return jnp.where((seen == 9) | (true == 9), jnp.where(seen == true, 0.0, -jnp.inf), heard)

    def observe(key: Key[Array, ""], _: Array, cell: Array, step: Any) -> Array:
        hears_key, other_key = jax.random.split(key)
        true, other = direction(cell, step[1]), jax.random.randint(other_key, (), 0, 9)
        return jnp.where((true == 9) | jax.random.bernoulli(hears_key, HEARD), true, other).astype(jnp.int32)

    def advance(public: Any, action: Array, given: Any) -> Any:
        (place,), (sides, _) = public, given
        return (jnp.where(sides[MAZE.index(place), action], place + jnp.asarray(MOVES)[action], place),)

    start = (jnp.asarray([4, 4], jnp.int32),)
    hidden = listed_environment(
        observe=observe, log_likelihood=log_likelihood, space=MAZE, branches=branches, num_branches=4, symbols=10,
        parameters=(start, start, given),
    )  # fmt: skip

    def value(state: State, world: ListedWorld) -> Float[Array, ""]:
        return _walked(world.given[1][MAZE.index(state[0]), MAZE.index(state[1][0])])

    world = ListedWorld(hidden.space, hidden, given, advance, lambda key: start)
    return Decisions("maze-tag", world, _chase(lambda state: found(*state), 4), value, mazes, 25)


def mazes(key: Key[Array, ""]) -> tuple[Array, Array]:
    """A random maze, and how many steps each cell is from each other."""
    sides = random_maze(key)
    ends = jnp.clip(jnp.asarray(MAZE.points())[:, None] + MOVES, 0, np.asarray(MAZE.shape) - 1)
    neighbours = jnp.where(sides, jax.vmap(jax.vmap(MAZE.index))(ends), jnp.arange(MAZE.size)[:, None])
    start = jnp.where(jnp.eye(MAZE.size, dtype=bool), 0, MAZE.size)

    def nearer(_: Any, far: Array) -> Array:
        return jnp.minimum(far, 1 + jnp.min(far[neighbours], axis=1))

    return sides, jax.lax.fori_loop(0, MAZE.size, nearer, start).astype(jnp.int32)


LISTED: dict[str, Callable[[], Decisions]] = {"light-dark": light_dark, "source": source, "maze-tag": maze_tag}
"""By name."""
