"""Identical rooms: where a vehicle is in a hall of six bays that all look the same but for their lights.

Hidden: position in a hall of 12 m by 8 m, 2-D. Seen: the distances to the two posts of the bay it is in, which stand
alike in every bay, and how bright it is. Which bays are lit is the map: it differs between environments, and is their
parameter. The displacement of a step is the policy; wheels slip; walls reflect. After Thrun, Burgard, Fox,
*Probabilistic Robotics* (2005), chapter 8 (global localisation). Horizon 25. In the zoo because the posterior has up to
six modes of equal shape, and the map is an input.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key

from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Observation, Policy
from nbf.environments.functional import FunctionalEnvironment, environment
from nbf.spaces import Box
from nbf_paper.zoo.motion import headings, reflected
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.grid import Grid, GridFilter, reflecting

BAY, BAYS = 4.0, (3, 2)
HALL = np.array([12.0, 8.0], np.float32)
POSTS = np.array([[1.0, 1.0], [3.0, 2.0]], np.float32)
STEP, SLIP, RANGE, LIGHT = 0.6, 0.15, 0.3, 0.7
"""Metres of a step; standard deviations of slip, of a range and of brightness."""
CELLS = (96, 64)


def seen(position: Float[Array, " 2"], lights: Float[Array, "3 2"]) -> Float[Array, " 3"]:
    """The readings without noise."""
    bay = jnp.clip((position // BAY).astype(jnp.int32), 0, np.array(BAYS) - 1)
    ranges = jnp.sqrt(jnp.sum((position - BAY * bay - POSTS) ** 2, axis=1) + 1e-6)
    return jnp.append(ranges, lights[bay[0], bay[1]])


def init(key: Key[Array, ""], lights: Float[Array, "3 2"]) -> Float[Array, " 2"]:
    """Draw a first place, uniform in the hall."""
    return jnp.asarray(HALL) * jax.random.uniform(key, (2,))


def transition(
    key: Key[Array, ""], state: Float[Array, " 2"], move: Float[Array, " 2"], lights: Float[Array, "3 2"]
) -> Float[Array, " 2"]:
    """Draw the next place: the known move, and slip; walls reflect."""
    return reflected(state + move + SLIP * jax.random.normal(key, (2,)), HALL)


NOISE = np.array([RANGE, RANGE, LIGHT], np.float32)


def observe(
    key: Key[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"], lights: Float[Array, "3 2"]
) -> Observation:
    """Draw two ranges and the brightness."""
    return seen(next_state, lights) + NOISE * jax.random.normal(key, (3,))


def log_likelihood(
    observation: Float[Array, " 3"], state: Float[Array, " 2"], next_state: Float[Array, " 2"], lights: Array
) -> Float[Array, ""]:
    """log density of two ranges and a brightness."""
    return jnp.sum(norm.logpdf(observation, seen(next_state, lights), NOISE))


def predict(masses: Float[Array, "r c"], move: Float[Array, " 2"]) -> Float[Array, "r c"]:
    """The masses of the reference's cells a step later."""
    units = np.array(CELLS) / HALL
    rows, columns = (reflecting(CELLS[axis], move[axis] * units[axis], SLIP * units[axis]) for axis in (0, 1))
    return rows.T @ masses @ columns


class Halls(Scheduled):
    """Random lights, and a course that turns."""

    environment: FunctionalEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        light_key, course_key = jax.random.split(key)
        lights = jax.random.bernoulli(light_key, 0.5, BAYS).astype(jnp.float32)
        every = jnp.broadcast_to(lights, (steps, *BAYS))
        return replace(self.environment, parameters=every), STEP * headings(course_key, steps, 0.4)

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def problem() -> Problem:
    """The problem, with a grid as reference."""
    world = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood,
        space=Box((0.0, 0.0), tuple(HALL.tolist())), parameters=jnp.zeros(BAYS),
    )  # fmt: skip
    reference = GridFilter(Grid((0.0, 0.0), tuple(HALL.tolist()), CELLS), lambda place: jnp.zeros(()), predict)
    return Problem("rooms", Halls(world), 25, reference, "grid of 96 x 64 cells of 12.5 cm")
