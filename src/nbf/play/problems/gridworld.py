"""Gridworld: an agent whose moves are heard, in a map that is redrawn while it walks.

The filters are told a policy: where the agent wants to go, and how directly. A user who steers it elsewhere does what
the filters think unlikely, and the surprise shows.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.capabilities import Enumerable
from nbf.capability import require
from nbf.contracts import Belief, BeliefModel, Environment, Filter, Policy
from nbf.environments.gridworld import GoalPolicy, Gridworld, unit_moves
from nbf.errors import InputError
from nbf.evaluation.divergence import state_probabilities
from nbf.files.shipped import shipped_model
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.play.problems import checks
from nbf.play.problems.problem import EXACT, NEURAL_COUNTS, PARTICLE, PARTICLE_COUNTS, Problem, Settings, Told, World
from nbf.spaces import Lattice

SIDE = 8
FREE, WALL = ".", "#"
MOVES = ("up", "down", "left", "right")
"""In the order of the observation symbols."""
HEARD = ("up", "down", "left", "right", "a bump")
TEMPERATURES = {"straight": 1e-5, "roughly": 1.0, "anywhere": 1e3}
"""How directly the agent walks to its goal, as the filters are told; the first is the paper's."""
WALLS = ("........", ".###....", ".###....", ".###....", "....###.", "....###.", "....###.", "........")


class GridworldProblem(Problem):
    """Gridworld of 8 x 8 cells, the shipped model's."""

    name = "gridworld"
    title = "Gridworld"
    actions = (*MOVES, "auto")
    shape = (SIDE, SIDE)
    reference = "Exact"

    def defaults(self) -> dict[str, Any]:
        return {
            "walls": list(WALLS), "goal": [0, 7], "walks": "straight", "error": 0.1, "particle": 32, "neural": 32,
        }  # fmt: skip

    def checked(self, settings: Any) -> dict[str, Any]:
        found = checks.known(settings, self.defaults())
        walls = found["walls"]
        rows = isinstance(walls, list) and len(walls) == SIDE and all(isinstance(row, str) for row in walls)
        if not rows or any(len(row) != SIDE or set(row) - {FREE, WALL} for row in walls):
            raise InputError(f"walls are {SIDE} rows of {SIDE} characters, {FREE!r} for free and {WALL!r} for a wall.")
        goal = found["goal"]
        if not isinstance(goal, list) or len(goal) != 2 or not all(type(n) is int and 0 <= n < SIDE for n in goal):
            raise InputError(f"goal is the row and the column of a cell, from 0 to {SIDE - 1}; got {goal!r:.60}.")
        if not any(FREE in row for row in walls):
            raise InputError("A grid needs a free cell: take a wall away.")
        if walls[goal[0]][goal[1]] == WALL:
            raise InputError("The goal is in a wall: move the goal first, or take the wall away.")
        checks.choice("walks", found["walks"], tuple(TEMPERATURES))
        # With no error at all an observation may be impossible for what a user steers.
        found["error"] = checks.number("error", found["error"], 0.01, 0.6)
        checks.choice("particle", found["particle"], PARTICLE_COUNTS)
        checks.choice("neural", found["neural"], NEURAL_COUNTS)
        return found

    def start(self, key: Key[Array, ""], settings: Settings) -> World:
        environment, _ = self.at(settings, None)
        return World(np.asarray(environment.init(key)))

    def told(self, key: Key[Array, ""], settings: Settings, world: World, action: str, time: int) -> Told:
        return None

    def at(self, settings: Settings, told: Told) -> tuple[Gridworld, GoalPolicy]:
        legal = np.array([cell == FREE for row in settings["walls"] for cell in row])
        environment = Gridworld(Lattice((SIDE, SIDE), jnp.asarray(legal)), jnp.float32(settings["error"]))
        temperature = jnp.float32(TEMPERATURES[settings["walks"]])
        return environment, GoalPolicy(jnp.asarray(settings["goal"], jnp.int32), temperature)

    def moved(
        self, key: Key[Array, ""], world: World, action: str, told: Told, environment: Environment, policy: Policy
    ) -> tuple[World, int]:
        assert isinstance(environment, Gridworld)
        move_key, observe_key = prng.split(key)
        state = jnp.asarray(world.hidden)
        if action == "auto":
            after = _transition(environment, move_key, state, policy)
        else:
            after = _destinations(environment, state)[MOVES.index(action)]
        return World(np.asarray(after)), int(_observe(environment, observe_key, state, after))

    def observation(self, observed: int | float) -> Array:
        return jnp.int32(observed)

    def filter(self, role: str, count: int) -> Filter:
        if role == EXACT:
            return ExactFilter()
        return ParticleFilter(count) if role == PARTICLE else NeuralBayesianFilter(_model(), count)

    def cells(self, belief: Belief, environment: Environment) -> Float[Array, " cells"]:
        return state_probabilities(belief, require(environment, Enumerable, "The playground", ""))

    def places(self, states: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
        return states + 0.5

    def marks(self, settings: Settings, world: World, time: int) -> dict[str, Any]:
        return {
            "agent": [float(place) + 0.5 for place in world.hidden],
            "goal": [place + 0.5 for place in settings["goal"]],
            "walls": settings["walls"],
        }

    def said(self, settings: Settings, action: str, told: Told, observed: int | float) -> str:
        return f"heard {HEARD[int(observed)]}"

    def stands(self, settings: Settings, world: World) -> None:
        row, column = (int(place) for place in world.hidden)
        if settings["walls"][row][column] == WALL:
            raise InputError("The agent stands there: draw the wall in another cell.")


@functools.cache
def _model() -> BeliefModel:
    return shipped_model("8-2D-random")


@jax.jit
def _transition(environment: Gridworld, key: Key[Array, ""], state: Array, policy: GoalPolicy) -> Array:
    return environment.transition(key, state, policy)


@jax.jit
def _destinations(environment: Gridworld, state: Array) -> Array:
    return environment.destinations(state)


@jax.jit
def _observe(environment: Gridworld, key: Key[Array, ""], state: Array, after: Array) -> Array:
    return environment.observe(key, state, after)


assert len(unit_moves(2)) == len(MOVES)
