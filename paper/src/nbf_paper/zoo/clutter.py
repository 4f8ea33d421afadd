"""Tracking with clutter: a point in the plane with nearly constant velocity, whose radar often sees something else.

Hidden: position and velocity, 4-D. Seen: one position a step; with probability 0.3 it is a false alarm, anywhere in
the square that is watched, else a sharp reading. From Bar-Shalom, Fortmann, *Tracking and Data Association* (1988),
with one measurement a step. Horizon 30. In the zoo because it is what most users track, and sharp readings in four
dimensions starve a particle filter.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key

from nbf.environments.functional import One, environment
from nbf.spaces import Box
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.gaussian_sum import GaussianSumFilter, Hypotheses, Hypothesis, corrected

FALSE, HALF = 0.3, 12.0
"""Probability of a false alarm, and half the side of the square that is watched."""
READING = 0.15
START = np.array([3.0, 3.0, 0.4, 0.4], np.float32)
NOISE = np.array([0.05, 0.05, 0.1, 0.1], np.float32)
"""Standard deviations of a reading, of p0 and of a step."""
MOVE = np.block([[np.eye(2), np.eye(2)], [np.zeros((2, 2)), np.eye(2)]]).astype(np.float32)
SENSOR = np.eye(2, 4, dtype=np.float32)


def init(key: Key[Array, ""]) -> Float[Array, " 4"]:
    """Draw a first state from a normal distribution."""
    return jnp.asarray(START) * jax.random.normal(key, (4,))


def transition(key: Key[Array, ""], state: Float[Array, " 4"], policy: None) -> Float[Array, " 4"]:
    """Draw the next state: nearly constant velocity."""
    return jnp.asarray(MOVE) @ state + NOISE * jax.random.normal(key, (4,))


def observe(key: Key[Array, ""], state: Float[Array, " 4"], next_state: Float[Array, " 4"]) -> Float[Array, " 2"]:
    """Draw a reading of the position, or a false alarm."""
    which_key, false_key, noise_key = jax.random.split(key, 3)
    false = jax.random.uniform(false_key, (2,), minval=-HALF, maxval=HALF)
    true = next_state[:2] + READING * jax.random.normal(noise_key, (2,))
    return jnp.where(jax.random.uniform(which_key) < FALSE, false, true)


def log_likelihood(
    observation: Float[Array, " 2"], state: Float[Array, " 4"], next_state: Float[Array, " 4"]
) -> Float[Array, ""]:
    """log density of a reading that may be a false alarm."""
    true = np.log(1 - FALSE) + jnp.sum(norm.logpdf(observation, next_state[:2], READING))
    return jnp.logaddexp(true, _false(observation))


def _false(observation: Float[Array, " 2"]) -> Float[Array, ""]:
    """log probability of a false alarm at this place."""
    return jnp.where(jnp.all(jnp.abs(observation) <= HALF), np.log(FALSE / (2 * HALF) ** 2), -jnp.inf)


def prior() -> Hypotheses:
    """The first hypothesis of the reference: the distribution of `init`."""
    one = Hypothesis(jnp.zeros(1, jnp.int32), jnp.zeros((1, 4)), jnp.diag(jnp.asarray(START) ** 2)[None])
    return Hypotheses(one, jnp.zeros(1))


def expand(one: Hypothesis, observation: Float[Array, " 2"] | None, policy: None) -> tuple[Hypothesis, Array]:
    """The hypotheses that follow from one: the reading was of the target, or a false alarm."""
    move = jnp.asarray(MOVE)
    mean, covariance = move @ one.mean, move @ one.covariance @ move.T + np.diag(NOISE**2)
    if observation is None:
        return Hypothesis(one.label[None], mean[None], covariance[None]), jnp.zeros(1)
    noise = READING**2 * jnp.eye(2)
    told, less, log_evidence = corrected(mean, covariance, observation, jnp.asarray(SENSOR), noise)
    both = Hypothesis(jnp.stack([one.label] * 2), jnp.stack([told, mean]), jnp.stack([less, covariance]))
    return both, jnp.stack([np.log(1 - FALSE) + log_evidence, _false(observation)])


def problem() -> Problem:
    """The problem, with a Gaussian sum as reference."""
    space = Box((-12.0, -12.0, -2.0, -2.0), (12.0, 12.0, 2.0, 2.0), bounded=False)
    world = environment(init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space)
    return Problem(
        "clutter", One(world, None), 30, GaussianSumFilter(128, prior, expand),
        "Gaussian sum of 128 hypotheses, exact for 7 steps",
    )  # fmt: skip
