"""Stochastic volatility with an unknown persistence.

Hidden: the log-variance h of a return and its persistence φ, which never changes, 2-D: h' = φ·h + σ·ε. Seen: a return
y ~ N(0, exp(h)). From Taylor (1982); Kim, Shephard, Chib (1998). Horizon 40. In the zoo because it is econometrics'
standard test of filters with a parameter, and its readings are so weak that a filter must not forget.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key

from nbf.environments.functional import One, environment
from nbf.spaces import Box
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.references.grid import POINTS, Grid, GridFilter

LEAST, MOST, NOISE = 0.5, 0.98, 0.4
"""Ends of the persistence, and σ."""
GRID = Grid((-8.0, LEAST), (8.0, MOST), (160, 32))


def init(key: Key[Array, ""]) -> Float[Array, " 2"]:
    """Draw a persistence, uniform, and a log-variance from its stationary distribution."""
    first_key, second_key = jax.random.split(key)
    persistence = jax.random.uniform(first_key, minval=LEAST, maxval=MOST)
    return jnp.stack([NOISE / jnp.sqrt(1 - persistence**2) * jax.random.normal(second_key), persistence])


def transition(key: Key[Array, ""], state: Float[Array, " 2"], policy: None) -> Float[Array, " 2"]:
    """Draw the next log-variance; the persistence stays."""
    return jnp.stack([state[1] * state[0] + NOISE * jax.random.normal(key), state[1]])


def observe(key: Key[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]) -> Float[Array, ""]:
    """Draw a return."""
    return jnp.exp(next_state[0] / 2) * jax.random.normal(key)


def log_likelihood(
    observation: Float[Array, ""], state: Float[Array, " 2"], next_state: Float[Array, " 2"]
) -> Float[Array, ""]:
    """log density of a return."""
    return norm.logpdf(observation, 0.0, jnp.exp(next_state[0] / 2))


def prior(place: Float[Array, " 2"]) -> Float[Array, ""]:
    """log density of `init`, up to a constant."""
    return norm.logpdf(place[0], 0.0, NOISE / jnp.sqrt(1 - place[1] ** 2))


@functools.cache
def matrices() -> np.ndarray:
    """The transition matrix of h for each cell of φ, averaged over starts within a cell."""
    count, (side, _) = GRID.shape[0], GRID.side
    edges = GRID.low[0] + side * np.arange(count + 1)
    starts = edges[:-1, None] + side * (0.5 + POINTS)
    persistence = LEAST + (np.arange(GRID.shape[1]) + 0.5) * GRID.side[1]
    with jax.ensure_compile_time_eval():
        below = norm.cdf(edges, persistence[:, None, None, None] * starts[..., None], NOISE)
        return np.diff(np.asarray(below), axis=-1).mean(axis=2).astype(np.float32)


def predict(masses: Float[Array, "h p"], policy: None) -> Float[Array, "h p"]:
    """The masses of the reference's cells a step later."""
    return jnp.einsum("hp,phk->kp", masses, matrices())


def problem() -> Problem:
    """The problem, with a grid as reference."""
    space = Box((-3.0, LEAST), (3.0, MOST), bounded=False)
    world = environment(init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space)
    reference = GridFilter(GRID, prior, predict)
    return Problem("volatility", One(world, None), 40, reference, "grid of 160 log-variances x 32 persistences")
