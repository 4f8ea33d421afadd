"""Where a robot is, from its distances to known beacons: the recordings of Plaza, and a simulator to train on.

Hidden: position and heading, 3-D. Seen, once a second: the distance to one beacon, longer than it is by a constant and
with noise. Which beacon, and where it stands, is the parameter of each step's environment; how far the robot drove and
how much it turned is the policy. The robot begins anywhere in a square, with any heading. Horizon 25. Beliefs are
rings, then crossings of rings, with a heading for each place.

The recordings are those of Djugash, Hamner, Roth, *Navigating with ranging radios: five data sets with ground truth*
(2009): a robot that mowed two lawns among four beacons each. The `gtsam` package has them. A model is trained on random
beacons and random drives in the simulator, and then used on both sites. The noise of the ranging radios was read off
the first site; that of the wheels is wider than either site's.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key

from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Policy
from nbf.environments.functional import FunctionalEnvironment, environment
from nbf.spaces import Box
from nbf_paper.zoo.motion import reflected
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.grid import Grid, GridFilter, circular, reflecting

HALF = 48.0
"""Half the side of the square, in metres, around the middle of the beacons."""
LONGER, READING = 2.8, 1.5
"""How much longer a reading is than the distance, and its standard deviation (site 1: 2.8, 1.2; site 2: 3.0, 1.6)."""
SLIP, TURN = 0.4, 0.06
"""Standard deviations of a step: metres along each axis, radians."""
BEACONS, HORIZON = 4, 25
CELLS, HEADINGS = 120, 48
"""Of the reference's grid, along each axis."""


def init(key: Key[Array, ""], beacon: Float[Array, " 2"]) -> Float[Array, " 3"]:
    """Draw a first place in the square and a heading, both uniform."""
    return jnp.asarray([HALF, HALF, np.pi]) * jax.random.uniform(key, (3,), minval=-1.0)


def transition(
    key: Key[Array, ""], state: Float[Array, " 3"], drive: Float[Array, " 2"], beacon: Float[Array, " 2"]
) -> Float[Array, " 3"]:
    """Draw the next state: turn, drive on along the heading, slip; walls reflect."""
    noise = jax.random.normal(key, (3,))
    heading = state[2] + drive[1] + TURN * noise[2]
    place = state[:2] + drive[0] * jnp.stack([jnp.cos(heading), jnp.sin(heading)]) + SLIP * noise[:2]
    wrapped = (heading + np.pi) % (2 * np.pi) - np.pi
    return jnp.append(reflected(place + HALF, 2 * HALF) - HALF, wrapped)


def observe(
    key: Key[Array, ""], state: Array, next_state: Float[Array, " 3"], beacon: Float[Array, " 2"]
) -> Float[Array, ""]:
    """Draw a reading of the distance to the beacon."""
    return _reading(next_state, beacon) + READING * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Array, next_state: Float[Array, " 3"], beacon: Float[Array, " 2"]
) -> Float[Array, ""]:
    """log density of a reading."""
    return norm.logpdf(observation, _reading(next_state, beacon), READING)


def _reading(state: Float[Array, " 3"], beacon: Float[Array, " 2"]) -> Float[Array, ""]:
    """Without noise."""
    return jnp.sqrt(jnp.sum((state[:2] - beacon) ** 2) + 1e-6) + LONGER


def predict(masses: Float[Array, "x y h"], drive: Float[Array, " 2"]) -> Float[Array, "x y h"]:
    """First the heading turns, then the place moves along it, as in `transition`. A move from cell to cell adds 1/6 to
    the variance, in units of a cell: 1/12 for where in a cell it begins, and 1/12 for where it ends. That is taken off
    the noise, of which more is left with these cells."""
    cell, side = 2 * np.pi / HEADINGS, 2 * HALF / CELLS
    turn, slip = (float(np.sqrt((noise / width) ** 2 - 1 / 6)) for noise, width in ((TURN, cell), (SLIP, side)))
    turned = jnp.einsum("xyh,hg->gxy", masses, circular(HEADINGS, drive[1] / cell, turn))
    headings = (jnp.arange(HEADINGS) + 0.5) * cell - np.pi
    steps = drive[0] / side * jnp.stack([jnp.cos(headings), jnp.sin(headings)])

    def moved(pair: tuple[Array, Array]) -> Array:
        masses, step = pair
        rows, columns = (reflecting(CELLS, step[axis], slip) for axis in (0, 1))
        return rows.T @ masses @ columns

    return jnp.moveaxis(jax.lax.map(moved, (turned, steps.T)), 0, 2)


class Drives(Scheduled):
    """Four beacons anywhere in the square, and a robot that drives straight on and sometimes turns."""

    environment: FunctionalEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[FunctionalEnvironment, Policy]:
        place_key, order_key, speed_key, pace_key, turn_key, swerve_key = jax.random.split(key, 6)
        beacons = jax.random.uniform(place_key, (BEACONS, 2), minval=-HALF, maxval=HALF)
        beacons = beacons - jnp.mean(beacons, axis=0)
        heard = jax.random.randint(order_key, (steps,), 0, BEACONS)
        pace = jax.random.uniform(speed_key, minval=0.3, maxval=5.0)
        distance = pace * jax.random.uniform(pace_key, (steps,), minval=0.5, maxval=1.2)
        turns = jnp.where(jax.random.bernoulli(turn_key, 0.25, (steps,)), 0.8, 0.05)
        turn = turns * jax.random.normal(swerve_key, (steps,))
        return replace(self.environment, parameters=beacons[heard]), jnp.stack([distance, turn], axis=1)

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def world() -> FunctionalEnvironment:
    """The environment, with a beacon in the middle."""
    ends = (HALF, HALF, np.pi)
    return environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood,
        space=Box(tuple(-end for end in ends), ends, circular=(2,)), parameters=jnp.zeros(2),
    )  # fmt: skip


def reference() -> GridFilter:
    """Bayes' rule on a grid, from anywhere with any heading."""
    grid = Grid((-HALF, -HALF, -np.pi), (HALF, HALF, np.pi), (CELLS, CELLS, HEADINGS))
    return GridFilter(grid, lambda place: jnp.zeros(()), predict)


def problem() -> Problem:
    """The problem in the simulator, with a grid as reference."""
    accuracy = "grid of 120 x 120 cells of 0.8 m x 48 headings"
    return Problem("plaza", Drives(world()), HORIZON, reference(), accuracy)
