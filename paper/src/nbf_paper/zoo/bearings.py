"""Bearings-only tracking: a ship that is heard, but not ranged.

Hidden: position and velocity of the target, 4-D. Seen: the direction in which it is, with noise. The observer's place
is known, and is the parameter of each step's environment: it sails to and fro, since range cannot be seen from a
straight course. Bearings are not wrapped: the target is far to the north of an observer that stays near the origin.
From Aidala (1979); Gordon, Salmond, Smith (1993), the first test of particle filters. Horizon 30. In the zoo because
the posterior is a thin crescent, along which range and speed depend on each other.
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
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.many_particles import ManyParticles

READING = 0.05
MIDDLE = np.array([0.0, 12.0, 0.0, 0.0], np.float32)
START = np.array([4.0, 3.0, 0.2, 0.2], np.float32)
NOISE = (0.06, 0.06, 0.04, 0.04)


def init(key: Key[Array, ""], observer: Float[Array, " 2"]) -> Float[Array, " 4"]:
    """Draw a first state, far to the north, from a normal distribution."""
    return jnp.asarray(MIDDLE) + jnp.asarray(START) * jax.random.normal(key, (4,))


def mean(state: Float[Array, " 4"], policy: None) -> Float[Array, " 4"]:
    """The next state without noise."""
    return jnp.concatenate([state[:2] + state[2:], state[2:]])


def transition(
    key: Key[Array, ""], state: Float[Array, " 4"], policy: None, observer: Float[Array, " 2"]
) -> Float[Array, " 4"]:
    """Draw the next state: nearly constant velocity."""
    return mean(state, policy) + jnp.asarray(NOISE) * jax.random.normal(key, (4,))


def bearing(state: Float[Array, " 4"], observer: Float[Array, " 2"]) -> Float[Array, ""]:
    """From north, to the east."""
    apart = state[:2] - observer
    return jnp.arctan2(apart[0], apart[1])


def observe(
    key: Key[Array, ""], state: Array, next_state: Float[Array, " 4"], observer: Float[Array, " 2"]
) -> Float[Array, ""]:
    """Draw a bearing, with normal noise."""
    return bearing(next_state, observer) + READING * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Array, next_state: Float[Array, " 4"], observer: Float[Array, " 2"]
) -> Float[Array, ""]:
    """log density of a bearing."""
    return norm.logpdf(observation, bearing(next_state, observer), READING)


class Patrols(Scheduled):
    """The observer sails on one course, and turns round every six steps."""

    environment: FunctionalEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        course_key, phase_key = jax.random.split(key)
        course = jax.random.uniform(course_key, maxval=2 * np.pi)
        times = jnp.arange(1, steps + 1) + jax.random.randint(phase_key, (), 0, 12)
        along = 3.0 - jnp.abs(times % 12 - 6.0)
        places = along[:, None] * jnp.stack([jnp.sin(course), jnp.cos(course)])
        return replace(self.environment, parameters=places), None

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def problem() -> Problem:
    """The problem, with a random course of the observer and a large particle filter as reference."""
    space = Box((-12.0, 0.0, -0.8, -0.8), (12.0, 24.0, 0.8, 0.8), bounded=False)
    world = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space,
        parameters=jnp.zeros(2),
    )  # fmt: skip
    reference = ManyParticles(32_768, mean, NOISE)
    return Problem("bearings", Patrols(world), 30, reference, "32768 particles")
