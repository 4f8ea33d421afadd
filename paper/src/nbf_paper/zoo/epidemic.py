"""An epidemic with unknown rates.

Hidden: logarithms of the susceptible and of the infected share, of the rate of infection and of the rate of recovery,
4-D; the rates never change. Seen: how many of 300 random tests are positive, a Poisson count with a background. From
Kermack, McKendrick (1927), in discrete time; as a test of filters with parameters, Ionides, Bretó, King (2006).
Horizon 25. In the zoo because two of four coordinates are constants, on which a particle filter starves.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import poisson
from jaxtyping import Array, Float, Int, Key

from nbf.environments.functional import One, environment
from nbf.spaces import Box
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.many_particles import ManyParticles

MIDDLE = np.log([0.9, 0.01, 0.3, 0.15]).astype(np.float32)
START = np.array([0.05, 0.5, 0.25, 0.25], np.float32)
NOISE = (0.03, 0.1, 0.0, 0.0)
TESTS, BACKGROUND = 300.0, 0.5


def init(key: Key[Array, ""]) -> Float[Array, " 4"]:
    """Draw a first state: shares and rates are log-normal."""
    return jnp.asarray(MIDDLE) + jnp.asarray(START) * jax.random.normal(key, (4,))


def mean(state: Float[Array, " 4"], policy: None) -> Float[Array, " 4"]:
    """The next state without noise; both shares stay positive, and the noise is theirs in logarithms."""
    susceptible, infected, infecting, recovering = jnp.exp(state)
    spared = jnp.exp(-infecting * jnp.minimum(infected, 1.0))
    after = infected * jnp.exp(-recovering) + susceptible * (1 - spared)
    return jnp.stack([state[0] + jnp.log(spared), jnp.log(after), state[2], state[3]])


def transition(key: Key[Array, ""], state: Float[Array, " 4"], policy: None) -> Float[Array, " 4"]:
    """Draw the next state; the rates stay."""
    return mean(state, policy) + jnp.asarray(NOISE) * jax.random.normal(key, (4,))


def expected(state: Float[Array, " 4"]) -> Float[Array, ""]:
    """Positive tests."""
    return TESTS * jnp.minimum(jnp.exp(state[1]), 1.0) + BACKGROUND


def observe(key: Key[Array, ""], state: Float[Array, " 4"], next_state: Float[Array, " 4"]) -> Int[Array, ""]:
    """Draw the number of positive tests."""
    return jax.random.poisson(key, expected(next_state), dtype=jnp.int32)


def log_likelihood(
    observation: Int[Array, ""], state: Float[Array, " 4"], next_state: Float[Array, " 4"]
) -> Float[Array, ""]:
    """log probability of a number of positive tests."""
    return poisson.logpmf(observation, expected(next_state))


def problem() -> Problem:
    """The problem, with a large particle filter as reference."""
    below, above = np.array([1.5, 2.5, 0.7, 0.7]), np.array([0.3, 3.5, 0.7, 0.7])
    ends = tuple((MIDDLE - below).tolist()), tuple((MIDDLE + above).tolist())
    world = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood,
        space=Box(*ends, bounded=False),
    )  # fmt: skip
    reference = ManyParticles(32_768, mean, NOISE, bandwidth=0.3)
    return Problem("epidemic", One(world, None), 25, reference, "32768 particles, Liu-West kernel for the rates")
