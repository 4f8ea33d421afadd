"""Search for an object that never moves, with a detector that does.

Hidden: the cell of the object, one of 24 x 24. Seen: whether the detector rings; it rings the likelier the nearer the
object is, and sometimes for nothing. The place of the detector is known, and is the parameter of each step's
environment. From Stone, *Theory of Optimal Search* (1975). Horizon 40. In the zoo because nothing moves: a filter has
only its first draw of cells, and must not lose the right one.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Policy
from nbf.environments.listed import ListedEnvironment, listed_environment
from nbf.filters.exact import ExactFilter
from nbf.spaces import Lattice
from nbf_paper.zoo.motion import headings, reflected
from nbf_paper.zoo.problem import Problem

SIDE, REACH, CERTAINTY, FALSE = 24, 4.0, 0.8, 0.08
"""Cells; reach of the detector; probabilities that it rings for an object at its place, and for nothing."""
SPACE = Lattice((SIDE, SIDE))


def ringing(cell: Int[Array, " 2"], place: Float[Array, " 2"]) -> Float[Array, ""]:
    """Probability that the detector rings."""
    near = jnp.exp(-jnp.sum((cell + 0.5 - place) ** 2) / (2 * REACH**2))
    return FALSE + (CERTAINTY - FALSE) * near


def observe(key: Key[Array, ""], state: Array, next_state: Array, place: Float[Array, " 2"]) -> Int[Array, ""]:
    """Draw whether the detector rings."""
    return jax.random.bernoulli(key, ringing(next_state, place)).astype(jnp.int32)


def log_likelihood(
    observation: Int[Array, ""], state: Array, next_state: Array, place: Float[Array, " 2"]
) -> Float[Array, ""]:
    """log probability that it rings, or does not."""
    rings = ringing(next_state, place)
    return jnp.log(jnp.where(observation == 1, rings, 1 - rings))


class Searches(Scheduled):
    """A detector that begins anywhere and flies on a course that turns."""

    environment: ListedEnvironment

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        start_key, course_key = jax.random.split(key)
        start = jax.random.uniform(start_key, (2,), maxval=float(SIDE))

        def fly(place: Float[Array, " 2"], heading: Float[Array, " 2"]) -> tuple[Array, Array]:
            after = reflected(place + 2.0 * heading, float(SIDE))
            return after, after

        places = jax.lax.scan(fly, start, headings(course_key, steps, 0.5))[1]
        return replace(self.environment, parameters=places), None

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def problem() -> Problem:
    """The problem, whose reference is exact."""
    world = listed_environment(
        observe=observe, log_likelihood=log_likelihood, space=SPACE, symbols=2,
        parameters=jnp.asarray(np.full(2, SIDE / 2, np.float32)),
    )  # fmt: skip
    return Problem("search", Searches(world), 40, ExactFilter(), "exact, 576 states")
