"""The search of docs/your-own-environment.md: a transponder in a lake, and a boat that a user steers.

The transponder never moves. The receiver of the boat rings, the likelier the nearer the transponder is, and sometimes
for nothing. Where the boat is, the filters are told at each step, like how far the receiver reaches.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from importlib import resources
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import Enumerable, Scheduled
from nbf.capability import require
from nbf.contracts import Belief, Environment, Filter, Policy
from nbf.environments.listed import ListedEnvironment, listed_environment
from nbf.evaluation.divergence import state_probabilities
from nbf.files.shipped import SHIPPED
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.fitting.fitted import FittedModel
from nbf.play.problems import checks
from nbf.play.problems.problem import EXACT, NEURAL_COUNTS, PARTICLE, PARTICLE_COUNTS, Problem, Settings, Told, World
from nbf.spaces import Lattice

SIDE = 24
"""Cells along each axis."""
CERTAIN = 0.8
"""Probability of a ring right above the transponder."""
STRIDE = 2.0
"""Cells that the boat sails in a step."""
HEADINGS = {"up": -90.0, "down": 90.0, "left": 180.0, "right": 0.0}
"""In degrees, clockwise from the right."""

Waters = tuple[Float[Array, " 2"], Float[Array, ""], Float[Array, ""]]
"""Where the boat is, how far its receiver reaches, and how often it rings for nothing."""


def ring_probability(cell: Int[Array, " 2"], waters: Waters) -> Float[Array, ""]:
    """Compute the probability of a ring.

    Args:
        cell: Of the transponder.
        waters: The boat and its receiver.

    Returns:
        The probability.
    """
    boat, reach, false = waters
    square = jnp.sum((cell + 0.5 - boat) ** 2)
    return false + (CERTAIN - false) * jnp.exp(-square / (2.0 * reach**2))


def _observe(key: Key[Array, ""], state: Array, next_state: Array, waters: Waters) -> Int[Array, ""]:
    return jax.random.bernoulli(key, ring_probability(next_state, waters)).astype(jnp.int32)


def _log_likelihood(observation: Array, state: Array, next_state: Array, waters: Waters) -> Float[Array, ""]:
    rings = ring_probability(next_state, waters)
    return jnp.log(jnp.where(observation == 1, rings, 1.0 - rings))


@functools.cache
def lake() -> ListedEnvironment:
    """Build the lake of the tutorial, with the boat in the middle.

    Returns:
        The environment.
    """
    waters = jnp.full(2, SIDE / 2), jnp.float32(4.0), jnp.float32(0.08)
    return listed_environment(
        observe=_observe, log_likelihood=_log_likelihood, space=Lattice((SIDE, SIDE)), symbols=2, parameters=waters
    )


class Crossings(Scheduled):
    """What the model is trained for: boats that turn as they like, and receivers of many kinds."""

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[ListedEnvironment, None]:
        start_key, first_key, turn_key, kind_key = jax.random.split(key, 4)
        start = jax.random.uniform(start_key, (2,), maxval=float(SIDE))
        first = jax.random.uniform(first_key, maxval=2 * jnp.pi)
        heading = first + jnp.cumsum(0.6 * jax.random.normal(turn_key, (steps,)))
        way = start + jnp.cumsum(STRIDE * jnp.stack([jnp.cos(heading), jnp.sin(heading)], axis=1), axis=0)
        boats = SIDE - jnp.abs(way % (2 * SIDE) - SIDE)  # turned back at the shore
        far, false = jax.random.uniform(kind_key, (2,))
        reach, wrong = jnp.full(steps, 2.0 * 3.0**far), jnp.full(steps, 0.02 + 0.23 * false)
        return replace(lake(), parameters=(boats, reach, wrong)), None

    def sample(self, key: Key[Array, ""]) -> tuple[ListedEnvironment, None]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


class LakeProblem(Problem):
    """The tutorial's search, with a boat to steer."""

    name = "lake"
    title = "Lake"
    actions = (*HEADINGS, "stay", "auto")
    shape = (SIDE, SIDE)
    reference = "Exact"

    def defaults(self) -> dict[str, Any]:
        return {"reach": 4.0, "error": 0.08, "particle": 128, "neural": 32}

    def checked(self, settings: Any) -> dict[str, Any]:
        found = checks.known(settings, self.defaults())
        found["reach"] = checks.number("reach", found["reach"], 2.0, 6.0)
        found["error"] = checks.number("error", found["error"], 0.02, 0.25)
        checks.choice("particle", found["particle"], PARTICLE_COUNTS)
        checks.choice("neural", found["neural"], NEURAL_COUNTS)
        return found

    def start(self, key: Key[Array, ""], settings: Settings) -> World:
        place_key, boat_key = jax.random.split(key)
        row, column = jax.random.uniform(boat_key, (2,), minval=2.0, maxval=SIDE - 2.0).tolist()
        return World(np.asarray(lake().init(place_key)), (row, column, 45.0))

    def told(self, key: Key[Array, ""], settings: Settings, world: World, action: str, time: int) -> Told:
        row, column, heading = world.public
        if action == "auto":
            heading += 34.0 * float(jax.random.normal(jax.random.fold_in(key, 1)))
        elif action != "stay":
            heading = HEADINGS[action]
        if action != "stay":
            row += STRIDE * math.sin(math.radians(heading))
            column += STRIDE * math.cos(math.radians(heading))
            if not (0 <= row <= SIDE and 0 <= column <= SIDE):  # back from the shore
                heading += 180.0 if action != "auto" else 120.0
        row, column = min(max(row, 0.0), float(SIDE)), min(max(column, 0.0), float(SIDE))
        return [round(row, 3), round(column, 3), round(heading % 360.0, 3)]

    def at(self, settings: Settings, told: Told) -> tuple[ListedEnvironment, None]:
        boat = jnp.asarray(told[:2], jnp.float32)
        waters = boat, jnp.float32(settings["reach"]), jnp.float32(settings["error"])
        return replace(lake(), parameters=waters), None

    def moved(
        self, key: Key[Array, ""], world: World, action: str, told: Told, environment: Environment, policy: Policy
    ) -> tuple[World, int]:
        assert isinstance(environment, ListedEnvironment)
        place = jnp.asarray(world.hidden)
        rung = _observe(key, place, place, environment.parameters)
        return World(world.hidden, tuple(told)), int(rung)

    def observation(self, observed: int | float) -> Array:
        return jnp.int32(observed)

    def filter(self, role: str, count: int) -> Filter:
        if role == EXACT:
            return ExactFilter()
        return ParticleFilter(count) if role == PARTICLE else _fitted().filter(count)

    def cells(self, belief: Belief, environment: Environment) -> Float[Array, " cells"]:
        return state_probabilities(belief, require(environment, Enumerable, "The playground", ""))

    def places(self, states: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
        return states + 0.5

    def marks(self, settings: Settings, world: World, time: int) -> dict[str, Any]:
        row, column, heading = world.public
        return {
            "agent": [float(place) + 0.5 for place in world.hidden],
            "boat": [row, column],
            "heading": heading,
            "reach": settings["reach"],
        }

    def said(self, settings: Settings, action: str, told: Told, observed: int | float) -> str:
        return "the receiver rang" if observed else "no ring"


@functools.cache
def _fitted() -> FittedModel:
    assert "lake" in SHIPPED
    with resources.as_file(resources.files("nbf.files") / "lake.safetensors") as path:
        return FittedModel.load(path)
