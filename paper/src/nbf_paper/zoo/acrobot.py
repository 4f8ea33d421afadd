"""Gymnasium's acrobot of which only the elbow is seen: Acrobot-v1, a call of which is a Runge-Kutta step in Python.

Hidden: the angles of both links and their speeds, 4-D, angles circular. Seen: cosine and sine of the elbow's angle,
with noise. The policy is a known torque at the elbow, which changes every few steps. Horizon 20. The angle of the
shoulder is never seen: only the way in which the elbow swings tells of it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from nbf.adapters.gymnasium import from_gymnasium
from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Policy
from nbf.environments.host import HostEnvironment
from nbf.filters.particle import ParticleFilter
from nbf.spaces import Box
from nbf_paper.names import ACROBOT
from nbf_paper.zoo.problem import Problem

START = np.array([1.5, 1.5, 1.0, 1.0])
"""First states are uniform within so much of hanging still."""
NOISE = np.array([0.02, 0.02, 0.1, 0.1])
"""Standard deviations of each step."""
READING = 0.3
"""Standard deviation of what is seen."""
HORIZON, HELD = 20, 4
"""Steps of an episode, and for how many a torque is kept."""
TORQUES = 3
"""Gymnasium's actions: to one side, none, to the other."""
PARTICLES = 8192
"""Of the reference."""


def init(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw n first states."""
    return rng.uniform(-START, START, (n, 4)).astype(np.float32)


def shake(rng: np.random.Generator, states: np.ndarray) -> np.ndarray:
    """Add noise to n states; angles are given between -pi and pi."""
    after = states + NOISE * rng.standard_normal(states.shape)
    after[:, :2] = (after[:, :2] + np.pi) % (2 * np.pi) - np.pi
    return after


def world() -> HostEnvironment:
    """The environment."""
    low = (-np.pi, -np.pi, -5.0, -7.0)
    return from_gymnasium(
        "Acrobot-v1", space=Box(low, tuple(-end for end in low), bounded=False, circular=(0, 1)), entries=(2, 3),
        noise=READING, process=shake, init=init,
    )  # fmt: skip


class Torques(Scheduled):
    """Random torques, each of which is kept for some steps."""

    environment: HostEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[HostEnvironment, Policy]:
        torques = jax.random.randint(key, (-(-steps // HELD),), 0, TORQUES)
        same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *jnp.shape(leaf))), self.environment)
        return same, jnp.repeat(torques, HELD)[:steps]

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def problem(particles: int = PARTICLES) -> Problem:
    """The problem, with a large particle filter as reference."""
    return Problem(ACROBOT, Torques(world()), HORIZON, ParticleFilter(particles), f"{particles} particles")
