"""Terrain-aided navigation: where an aircraft is, from the height of the ground below it and a known map.

Hidden: position in a square of 10 km, 2-D. Seen: the height of the ground, with noise. The velocity is known up to
drift, and is the policy; the aircraft turns back at the borders. From Bergman, Ljung, Gustafsson, *Terrain navigation
using Bayesian statistics* (1999). Horizon 30. In the zoo because heights recur: many modes, which merge and die.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key

from nbf.contracts import Environment, Family, Policy
from nbf.environments.functional import environment
from nbf.spaces import Box
from nbf_paper.zoo.motion import reflected
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.grid import Grid, GridFilter, reflecting

SIDE, SPEED, DRIFT, READING = 10.0, 0.4, 0.15, 0.3
"""km; km a step; standard deviations of a step and of a reading (in units of 100 m)."""
CELLS = 100

_RANDOM = np.random.default_rng(1999)
WAVES = (_RANDOM.normal(size=(24, 2)) * 1.3).astype(np.float32)
PHASES = _RANDOM.uniform(0, 2 * np.pi, 24).astype(np.float32)
"""The map: a sum of waves, of variance one."""


def height(position: Float[Array, " 2"]) -> Float[Array, ""]:
    """Of the ground."""
    return float(np.sqrt(2 / 24)) * jnp.sum(jnp.cos(WAVES @ position + PHASES))


def init(key: Key[Array, ""]) -> Float[Array, " 2"]:
    """Draw a first place, uniform in the square."""
    return jax.random.uniform(key, (2,), maxval=SIDE)


def transition(key: Key[Array, ""], state: Float[Array, " 2"], velocity: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Draw the next place: the known velocity, and drift; borders reflect."""
    return reflected(state + velocity + DRIFT * jax.random.normal(key, (2,)), SIDE)


def observe(key: Key[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]) -> Float[Array, ""]:
    """Draw a reading of the height of the ground."""
    return height(next_state) + READING * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]
) -> Float[Array, ""]:
    """log density of a reading."""
    return norm.logpdf(observation, height(next_state), READING)


def predict(masses: Float[Array, "c c"], velocity: Float[Array, " 2"]) -> Float[Array, "c c"]:
    """The masses of the reference's cells a step later."""
    rows, columns = (reflecting(CELLS, velocity[axis] * CELLS / SIDE, DRIFT * CELLS / SIDE) for axis in (0, 1))
    return rows.T @ masses @ columns


class Flights(Family):
    """One map, and a random course that is kept."""

    environment: Environment

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        course = jax.random.uniform(key, maxval=2 * np.pi)
        return self.environment, SPEED * jnp.stack([jnp.cos(course), jnp.sin(course)])


def problem() -> Problem:
    """The problem, with a grid as reference."""
    world = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood,
        space=Box((0.0, 0.0), (SIDE, SIDE)),
    )  # fmt: skip
    grid = Grid((0.0, 0.0), (SIDE, SIDE), (CELLS, CELLS))
    reference = GridFilter(grid, lambda place: jnp.zeros(()), predict)
    return Problem("terrain", Flights(world), 30, reference, "grid of 100 x 100 cells of 100 m")
