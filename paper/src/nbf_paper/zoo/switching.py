"""Regime switching: a vehicle that coasts, speeds up or brakes, and does not say which.

Hidden: the regime m, position and velocity, 3-D. Regimes change at random, and seldom; each pulls the velocity to a
speed of its own. The first coordinate is m + u with u uniform on (-1/2, 1/2) and drawn anew at every step, so that the
mixed state has a density. Seen: the position, with noise. From Blom, Bar-Shalom (1988), jump Markov linear systems.
Horizon 30. In the zoo because a discrete and a continuous part of one state depend on each other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from nbf.environments.functional import One, environment
from nbf.spaces import Box
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.gaussian_sum import GaussianSumFilter, Hypotheses, Hypothesis, corrected

REGIMES, KEPT = 3, 0.9
"""How many, and the probability that one stays."""
SPEEDS = np.array([-2.0, 0.0, 2.0], np.float32)
READING = 1.5
START = np.array([3.0, 1.0], np.float32)
NOISE = np.array([0.1, 0.15], np.float32)
MOVE = np.array([[1.0, 0.5], [0.0, 0.6]], np.float32)
PULL = np.array([0.2, 0.4], np.float32)
CHANGES = np.where(np.eye(REGIMES, dtype=bool), KEPT, (1 - KEPT) / (REGIMES - 1)).astype(np.float32)
SENSOR = np.array([[1.0, 0.0]], np.float32)


def regime(state: Float[Array, " 3"]) -> Int[Array, ""]:
    """The discrete part of a state."""
    return jnp.clip(jnp.round(state[0]), 0, REGIMES - 1).astype(jnp.int32)


def _state(key: Key[Array, ""], label: Int[Array, ""], place: Float[Array, " 2"]) -> Float[Array, " 3"]:
    # A little inside of the cell, so that rounding never moves it to the next.
    return jnp.concatenate([(label + 0.9999 * (jax.random.uniform(key) - 0.5))[None], place])


def init(key: Key[Array, ""]) -> Float[Array, " 3"]:
    """Draw a first state: any regime, and a normal place and velocity."""
    label_key, place_key, inside_key = jax.random.split(key, 3)
    label = jax.random.randint(label_key, (), 0, REGIMES)
    return _state(inside_key, label, jnp.asarray(START) * jax.random.normal(place_key, (2,)))


def transition(key: Key[Array, ""], state: Float[Array, " 3"], policy: None) -> Float[Array, " 3"]:
    """Draw the next state: the regime stays or changes, and pulls the velocity to its speed."""
    label_key, place_key, inside_key = jax.random.split(key, 3)
    label = jax.random.categorical(label_key, jnp.log(CHANGES)[regime(state)])
    noise = jnp.asarray(NOISE) * jax.random.normal(place_key, (2,))
    return _state(inside_key, label, jnp.asarray(MOVE) @ state[1:] + PULL * jnp.asarray(SPEEDS)[label] + noise)


def observe(key: Key[Array, ""], state: Float[Array, " 3"], next_state: Float[Array, " 3"]) -> Float[Array, ""]:
    """Draw a reading of the position."""
    return next_state[1] + READING * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Float[Array, " 3"], next_state: Float[Array, " 3"]
) -> Float[Array, ""]:
    """log density of a reading."""
    return norm.logpdf(observation, next_state[1], READING)


def prior() -> Hypotheses:
    """The first hypotheses of the reference: one for each regime."""
    covariances = jnp.broadcast_to(jnp.diag(jnp.asarray(START) ** 2), (REGIMES, 2, 2))
    each = Hypothesis(jnp.arange(REGIMES), jnp.zeros((REGIMES, 2)), covariances)
    return Hypotheses(each, jnp.full(REGIMES, -jnp.log(REGIMES)))


def expand(one: Hypothesis, observation: Float[Array, ""] | None, policy: None) -> tuple[Hypothesis, Array]:
    """The hypotheses that follow from one: each regime may come next."""
    labels, log_probs = jnp.arange(REGIMES), jnp.log(CHANGES)[one.label]
    move = jnp.asarray(MOVE)
    means = move @ one.mean + jnp.asarray(SPEEDS)[:, None] * PULL
    covariance = move @ one.covariance @ move.T + np.diag(NOISE**2)
    if observation is None:
        return Hypothesis(labels, means, jnp.stack([covariance] * REGIMES)), log_probs
    noise = jnp.full((1, 1), READING**2)
    update = jax.vmap(corrected, (0, None, None, None, None))
    told, less, log_evidence = update(means, covariance, observation[None], jnp.asarray(SENSOR), noise)
    return Hypothesis(labels, told, less), log_probs + log_evidence


def problem() -> Problem:
    """The problem, with a Gaussian sum as reference."""
    space = Box((-0.5, -30.0, -3.0), (REGIMES - 0.5, 30.0, 3.0), bounded=False)
    world = environment(init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space)
    reference = GaussianSumFilter(1024, prior, expand, labelled=True)
    return Problem("switching", One(world, None), 30, reference, "Gaussian sum of 1024 hypotheses, exact for 5 steps")
