"""A robot in a corridor that runs in a ring.

Hidden: position in the plane, 2-D, always within a ring of radius 1 and width 0.2. Seen: how far to the east it is,
with noise, so that a place and its mirror image look alike until the known drive, the policy, tells them apart. After
the circular corridor of Thrun, Burgard, Fox, *Probabilistic Robotics* (2005), section 1.2, in the plane. Horizon 25.
In the zoo because beliefs lie along a curve: kernels and Gaussians put most of their mass into the walls.
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
from nbf_paper.zoo.references.grid import Grid, GridFilter, circular, reflecting

INNER, WIDTH = 0.9, 0.2
SLIP, WEAVE, READING = 0.12, 0.05, 0.25
"""Standard deviations of a step along and across the corridor (radians, metres), and of a reading."""
ALONG, ACROSS = 256, 12


def from_polar(place: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Angle and radius to a point."""
    return place[1] * jnp.stack([jnp.cos(place[0]), jnp.sin(place[0])])


def to_polar(point: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """The inverse; the angle is in [-π, π]."""
    return jnp.stack([jnp.arctan2(point[1], point[0]), jnp.sqrt(jnp.sum(point**2))])


def init(key: Key[Array, ""]) -> Float[Array, " 2"]:
    """Draw a first place, uniform in angle and radius."""
    angle, across = jax.random.uniform(key, (2,))
    return from_polar(jnp.stack([2 * np.pi * angle - np.pi, INNER + WIDTH * across]))


def transition(key: Key[Array, ""], state: Float[Array, " 2"], drive: Float[Array, ""]) -> Float[Array, " 2"]:
    """Draw the next place: the drive and slip along the corridor, and weaving across it between reflecting walls."""
    angle, radius = to_polar(state)
    slip, weave = jax.random.normal(key, (2,))
    across = reflected(jnp.clip(radius - INNER, 0.0, WIDTH) + WEAVE * weave, WIDTH)
    return from_polar(jnp.stack([angle + drive + SLIP * slip, INNER + jnp.clip(across, 0.0, WIDTH)]))


def observe(key: Key[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]) -> Float[Array, ""]:
    """Draw a reading of how far to the east it is."""
    return next_state[0] + READING * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]
) -> Float[Array, ""]:
    """log density of a reading."""
    return norm.logpdf(observation, next_state[0], READING)


def predict(masses: Float[Array, "a r"], drive: Float[Array, ""]) -> Float[Array, "a r"]:
    """The masses of the reference's cells a step later."""
    cell = 2 * np.pi / ALONG
    along = circular(ALONG, drive / cell, SLIP / cell)
    return along.T @ masses @ reflecting(ACROSS, 0.0, WEAVE * ACROSS / WIDTH)


class Drives(Family):
    """A random drive that is kept."""

    environment: Environment

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return self.environment, jax.random.uniform(key, minval=-0.4, maxval=0.4)


def problem() -> Problem:
    """The problem, with a grid of angles and radii as reference."""
    world = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood,
        space=Box((-1.15, -1.15), (1.15, 1.15)),
    )  # fmt: skip
    grid = Grid(
        (-np.pi, INNER), (np.pi, INNER + WIDTH), (ALONG, ACROSS), from_polar, to_polar, lambda place: jnp.log(place[1])
    )
    reference = GridFilter(grid, lambda place: jnp.zeros(()), predict)
    return Problem("ring", Drives(world), 25, reference, "grid of 256 angles x 12 radii")
