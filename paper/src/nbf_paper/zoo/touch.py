"""Find an object by touch: MuJoCo, one finger, and whether it feels something.

Hidden: where an object lies on a table (x, y, angle) and the logarithm of its friction with the finger, 4-D. Which
object it is, one of six shapes, is an input of the episode; so is the plan, by which a finger crosses the table twice.
Seen after each push of 6 cm: nothing, or a touch in one of four directions, now and then a wrong one. An object that is
touched is pushed on, and turns. Horizon 14. Beliefs are first the table without what the finger swept, then thin bands
of poses that touch the finger: nearly a manifold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from nbf.adapters.mujoco import from_mujoco
from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Policy
from nbf.environments.host import HostEnvironment
from nbf.filters.particle import ParticleFilter
from nbf.spaces import Box
from nbf_paper.zoo.problem import Problem
from nbf_paper.zoo.touch_scene import SHAPES, gap, scene

START, RIM = 0.12, 0.35
"""Half the side of the square in which the object lies at first, and of the table, in metres."""
FRICTION = (float(np.log(0.05)), 0.0)
"""Ends of the logarithm of the friction."""
NOISE = np.array([0.001, 0.001, 0.02, 0.03])
"""Standard deviations of each push."""
REACH, WIDTH, WRONG, SHARP = 0.002, 0.001, 0.01, 4.0
"""A touch is felt from so near, within so much, is wrong so often; and how sharp its direction is."""
PUSH, AWAY, AIM = 0.06, 0.30, 0.08
"""Metres of a push; from where the finger comes; and half the square at which it aims."""
HORIZON, FIRST = 14, 8
"""Pushes, and those of the first crossing."""
SYMBOLS = 5
PARTICLES = 20_000
"""Of the reference."""


def init(rng: np.random.Generator, n: int, parameters: Any) -> np.ndarray:
    """Draw poses and frictions, all uniform."""
    low, high = (-START, -START, -np.pi, FRICTION[0]), (START, START, np.pi, FRICTION[1])
    return rng.uniform(low, high, (n, 4)).astype(np.float32)


def slip(rng: np.random.Generator, states: np.ndarray, parameters: Any) -> np.ndarray:
    """Add noise to a push; the rim of the table, and the ends of the friction, reflect."""
    after = states + NOISE * rng.standard_normal(states.shape)
    after[:, 2] = (after[:, 2] + np.pi) % (2 * np.pi) - np.pi
    for entry, (low, high) in ((0, (-RIM, RIM)), (1, (-RIM, RIM)), (3, FRICTION)):
        side = high - low
        after[:, entry] = low + np.clip(side - np.abs(side - np.abs(after[:, entry] - low)), 0.0, side)
    return after


def probabilities(states: np.ndarray, parameters: Any) -> np.ndarray:
    """Probabilities of feeling nothing, and a touch in each of four directions, in each of n states."""
    distance, direction = gap(np.asarray(states, np.float64), parameters["inputs"], int(parameters["model"]))
    felt = WRONG + (1 - 2 * WRONG) / (1 + np.exp(np.clip((distance - REACH) / WIDTH, -50, 50)))
    sides = np.exp(SHARP * np.cos(direction[:, None] - np.arange(4) * np.pi / 2))
    return np.concatenate([1 - felt[:, None], felt[:, None] * sides / sides.sum(axis=1, keepdims=True)], axis=1)


def observe(rng: np.random.Generator, states: np.ndarray, next_states: np.ndarray, parameters: Any) -> np.ndarray:
    """Draw what is felt: 0 is nothing, 1..4 a touch."""
    chances = probabilities(next_states, parameters).cumsum(axis=1)
    return np.minimum((rng.random((len(chances), 1)) > chances).sum(axis=1), SYMBOLS - 1).astype(np.int32)


def log_likelihood(observation: Any, states: Any, next_states: np.ndarray, parameters: Any) -> np.ndarray:
    """log probability of what is felt; -inf in a state that is not a number."""
    sound: Any = np.isfinite(next_states).all(axis=1)
    chances = probabilities(np.where(sound[:, None], next_states, 0.0), parameters)[:, int(observation)]
    return np.where(sound, np.log(chances), -np.inf).astype(np.float32)


def world() -> HostEnvironment:
    """The environment: the first shape, the finger in the middle."""
    low, high = (-RIM, -RIM, -np.pi, FRICTION[0]), (RIM, RIM, np.pi, FRICTION[1])
    return from_mujoco(
        scene(), space=Box(low, high, circular=(2,)), init=init, process=slip, observe=observe,
        log_likelihood=log_likelihood, inputs=np.zeros(2, np.float32), emission="state", symbols=SYMBOLS,
    )  # fmt: skip


class Plans(Scheduled):
    """A shape, and a path of the finger: across one random place from a random side, and on across another."""

    environment: HostEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[HostEnvironment, Policy]:
        shape_key, side_key, aim_key = jax.random.split(key, 3)
        shape = jax.random.randint(shape_key, (), 0, len(SHAPES))
        aims = jax.random.uniform(aim_key, (2, 2), minval=-AIM, maxval=AIM)
        side = jax.random.uniform(side_key, maxval=2 * np.pi)
        first = jnp.stack([jnp.cos(side), jnp.sin(side)])
        start = aims[0] - AWAY * first
        turned = aims[1] - (start + FIRST * PUSH * first)
        second = turned / (jnp.linalg.norm(turned) + 1e-6)
        moves = PUSH * jnp.where((jnp.arange(steps) < FIRST)[:, None], first, second)
        ends = start + jnp.cumsum(moves, axis=0)
        parameters = {"model": jnp.full((steps,), shape, jnp.int32), "inputs": ends}
        return replace(self.environment, parameters=parameters), jnp.concatenate([ends - moves, moves], axis=1)

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def problem(particles: int = PARTICLES) -> Problem:
    """The problem, with a large particle filter as reference."""
    return Problem("touch", Plans(world()), HORIZON, ParticleFilter(particles), f"{particles} particles")
