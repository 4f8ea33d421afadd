"""A pendulum of unknown length.

Hidden: angle (0 hangs down; not wrapped), angular velocity and the logarithm of the length, which never changes, 3-D.
Seen: how far the bob is to the side as a share of the length, with noise, so that an angle and its mirror image above
the pivot look alike. A known torque is the policy. After Särkkä, *Bayesian Filtering and Smoothing* (2013), example
3.7, with a parameter. Horizon 40. In the zoo because control engineers estimate parameters and state together.
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
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.many_particles import ManyParticles

INTERVAL, DAMPING, READING = 0.3, 0.05, 0.15
START = np.array([1.0, 0.7, 0.3], np.float32)
NOISE = (0.03, 0.08, 0.0)


def init(key: Key[Array, ""]) -> Float[Array, " 3"]:
    """Draw a first state from a normal distribution."""
    return jnp.asarray(START) * jax.random.normal(key, (3,))


def mean(state: Float[Array, " 3"], torque: Float[Array, ""]) -> Float[Array, " 3"]:
    """The next state without noise, by a semi-implicit step."""
    angle, velocity, log_length = state
    pull = -jnp.exp(-log_length) * jnp.sin(angle) - DAMPING * velocity + torque
    after = velocity + INTERVAL * pull
    return jnp.stack([angle + INTERVAL * after, after, log_length])


def transition(key: Key[Array, ""], state: Float[Array, " 3"], torque: Float[Array, ""]) -> Float[Array, " 3"]:
    """Draw the next state; the length stays."""
    return mean(state, torque) + jnp.asarray(NOISE) * jax.random.normal(key, (3,))


def observe(key: Key[Array, ""], state: Float[Array, " 3"], next_state: Float[Array, " 3"]) -> Float[Array, ""]:
    """Draw a reading of the sine of the angle."""
    return jnp.sin(next_state[0]) + READING * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Float[Array, " 3"], next_state: Float[Array, " 3"]
) -> Float[Array, ""]:
    """log density of a reading."""
    return norm.logpdf(observation, jnp.sin(next_state[0]), READING)


class Torques(Family):
    """A random torque that is kept."""

    environment: Environment

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return self.environment, jax.random.uniform(key, minval=-0.3, maxval=0.3)


def problem() -> Problem:
    """The problem, with a large particle filter as reference."""
    space = Box((-np.pi, -3.0, -0.9), (np.pi, 3.0, 0.9), bounded=False)
    world = environment(init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space)
    reference = ManyParticles(32_768, mean, NOISE)
    return Problem("pendulum", Torques(world), 40, reference, "32768 particles, Liu-West kernel for the length")
