"""Partially observable Gridworld (section "Partially-Observable Gridworld" and its appendix).

An agent walks on a grid with obstacles towards a goal. The observer sees the direction of each move, or
a bump when the agent stayed in its cell, wrong with a small probability; it does not see where the
agent is. The start is uniform over the free cells.

Observations are symbols: `2 * axis` for a step down that axis, `2 * axis + 1` for a step up, and
`2 * dimension` for a bump.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.capabilities import Stencil
from nbf.contracts import Family, Observation, Policy
from nbf.environments.functional import One
from nbf.errors import InputError
from nbf.spaces import Lattice


def unit_moves(dimension: int) -> Int[np.ndarray, "actions d"]:
    """List the 2·d moves: down and up each axis, in the order of the observation symbols.

    Args:
        dimension: d.

    Returns:
        The moves, as offsets.
    """
    moves = np.zeros((2 * dimension, dimension), np.int32)
    for axis in range(dimension):
        moves[2 * axis, axis], moves[2 * axis + 1, axis] = -1, 1
    return moves


class GoalPolicy(eqx.Module):
    """Softmax over actions of -(L1 distance to the goal after the move) / temperature."""

    goal: Int[Array, " d"]
    temperature: Float[Array, ""]
    """Above 0; near 0 the policy is greedy."""

    def __check_init__(self) -> None:
        if not isinstance(self.temperature, Tracer) and not np.all(np.asarray(self.temperature) > 0):
            raise InputError(f"The softmax temperature must be above 0; got {self.temperature}.")

    def log_probs(self, destinations: Int[Array, "actions d"]) -> Float[Array, " actions"]:
        """Compute the log probability of each action.

        Args:
            destinations: The cell to which each action leads.

        Returns:
            log π(a | x) of each.
        """
        distance = jnp.sum(jnp.abs(destinations - self.goal), axis=-1)
        # Relative to the least distance, so that no temperature makes all of them -inf.
        return jax.nn.log_softmax(-(distance - jnp.min(distance)) / self.temperature)


class Gridworld(Stencil):
    """One grid. A blocked move (obstacle or border) leaves the agent in its cell."""

    space: Lattice
    error: Float[Array, ""]
    """Probability that the observed symbol is wrong, uniformly among the others."""

    def __check_init__(self) -> None:
        if not isinstance(self.error, Tracer):
            error = np.asarray(self.error)
            if not np.all((error >= 0) & (error < 1)):
                raise InputError(f"The observation error must be in [0, 1); got {error}.")
        legal = self.space.legal
        if legal is not None and not isinstance(legal, Tracer) and not np.all(np.any(np.asarray(legal), axis=-1)):
            raise InputError(f"A grid needs a free cell; all {self.space.size} cells of this one are obstacles.")

    @property
    def num_symbols(self) -> int:
        """2·d directions and the bump."""
        return 2 * self.space.dimension + 1

    @property
    def free(self) -> Bool[Array, " cells"]:
        """Which cells are not obstacles."""
        return jnp.ones(self.space.size, bool) if self.space.legal is None else self.space.legal

    def init(self, key: Key[Array, ""]) -> Int[Array, " d"]:
        return jnp.asarray(self.space.points())[prng.categorical(key, self.free.astype(jnp.float32))]

    def destinations(self, state: Int[Array, " d"]) -> Int[Array, "actions d"]:
        """Find the cell to which each action leads.

        Args:
            state: The cell of the agent.

        Returns:
            The cells.
        """
        targets = state + unit_moves(self.space.dimension)
        return jnp.where(jax.vmap(self.space.contains)(targets)[:, None], targets, state)

    def transition(self, key: Key[Array, ""], state: Int[Array, " d"], policy: GoalPolicy) -> Int[Array, " d"]:
        destinations, log_probs = self.successors(state, policy)
        return destinations[prng.categorical(key, jnp.exp(log_probs))]

    def symbol(self, state: Int[Array, " d"], next_state: Int[Array, " d"]) -> Int[Array, ""]:
        """Find the symbol of a move, as it is observed without error.

        Args:
            state: The cell before the move.
            next_state: The cell after it.

        Returns:
            The symbol.
        """
        moved = jnp.all(unit_moves(self.space.dimension) == next_state - state, axis=-1)
        return jnp.where(jnp.any(moved), jnp.argmax(moved), self.num_symbols - 1).astype(jnp.int32)

    def observe(self, key: Key[Array, ""], state: Int[Array, " d"], next_state: Int[Array, " d"]) -> Int[Array, ""]:
        # One uniform number: up to 1 - error the symbol is right, above that the remainder picks a wrong one.
        uniform = jax.random.uniform(key)
        others = self.num_symbols - 1
        shift = jnp.ceil((uniform - (1.0 - self.error)) / jnp.maximum(self.error, 1e-12) * others)
        wrong = uniform > 1.0 - self.error
        shift = jnp.where(wrong, jnp.clip(shift, 1, others), 0).astype(jnp.int32)
        return (self.symbol(state, next_state) + shift) % self.num_symbols

    def log_likelihood(
        self, observation: Int[Array, ""], state: Int[Array, " d"], next_state: Int[Array, " d"]
    ) -> Float[Array, ""]:
        right = observation == self.symbol(state, next_state)
        return jnp.log(jnp.where(right, 1.0 - self.error, self.error / (self.num_symbols - 1)))

    def check_observation(self, observation: Observation) -> None:
        value = np.asarray(observation)
        if value.shape != () or value.dtype.kind not in "iu":
            raise InputError(
                f"A Gridworld observation is one integer symbol; got shape {value.shape} of type {value.dtype}."
            )
        if not 0 <= int(value) < self.num_symbols:
            raise InputError(
                f"Observation {int(value)} is outside the alphabet 0..{self.num_symbols - 1} of a "
                f"{self.space.dimension}-D Gridworld ({self.num_symbols - 1} directions, then the bump)."
            )

    def check_policy(self, policy: Policy) -> None:
        if isinstance(policy, GoalPolicy) and jnp.shape(policy.goal) != (self.space.dimension,):
            raise InputError(
                f"A goal in a {self.space.dimension}-D Gridworld is {self.space.dimension} numbers; got shape "
                f"{jnp.shape(policy.goal)}."
            )

    def states(self) -> Int[Array, "cells d"]:
        return jnp.asarray(self.space.points())

    def index(self, state: Int[Array, " d"]) -> Int[Array, ""]:
        return self.space.index(state)

    def initial_log_probs(self) -> Float[Array, " cells"]:
        free = self.free
        return jnp.where(free, -jnp.log(jnp.sum(free, dtype=jnp.float32)), -jnp.inf)

    def successors(
        self, state: Int[Array, " d"], policy: GoalPolicy
    ) -> tuple[Int[Array, "actions d"], Float[Array, " actions"]]:
        destinations = self.destinations(state)
        return destinations, policy.log_probs(destinations)

    @property
    def offsets(self) -> tuple[tuple[int, ...], ...]:
        # The moves, then staying.
        moves = unit_moves(self.space.dimension)
        return tuple(tuple(int(step) for step in move) for move in (*moves, 0 * moves[0]))

    def offset_log_probs(self, state: Int[Array, " d"], policy: GoalPolicy) -> Float[Array, " offsets"]:
        destinations, log_probs = self.successors(state, policy)
        stays = jnp.all(destinations == state, axis=-1)
        bump = jax.nn.logsumexp(jnp.where(stays, log_probs, -jnp.inf))
        return jnp.append(jnp.where(stays, -jnp.inf, log_probs), bump)


class RandomGridworlds(Family):
    """Random grids and goals: obstacles are cubes at random places, the goal is a random free cell."""

    size: int = eqx.field(static=True)
    """Cells along each axis."""
    dimension: int = eqx.field(static=True)
    obstacles: int = eqx.field(static=True)
    """How many, which may overlap."""
    width: int = eqx.field(static=True)
    """Cells along each axis of an obstacle."""
    temperature: float = eqx.field(static=True, default=1e-5)
    """Of the policy."""
    error: float = eqx.field(static=True, default=0.1)
    """Probability that an observed symbol is wrong."""

    def __check_init__(self) -> None:
        if self.size < 1 or self.dimension < 1:
            raise InputError(f"A grid needs size and dimension of at least 1; got {self.size} and {self.dimension}.")
        if self.obstacles < 0 or self.width < 0:
            raise InputError(f"Obstacles need a count and width of 0 or more; got {self.obstacles} and {self.width}.")
        if self.obstacles and self.width > self.size:
            raise InputError(f"An obstacle of width {self.width} is wider than the grid of size {self.size}.")
        if self.obstacles * self.width**self.dimension >= self.size**self.dimension:
            raise InputError(
                f"{self.obstacles} obstacle(s) of width {self.width} can cover all {self.size**self.dimension} cells "
                f"of a {self.dimension}-D grid of size {self.size}, which leaves no free cell. "
                "Use fewer or smaller obstacles."
            )
        if not self.temperature > 0:
            raise InputError(f"The softmax temperature must be above 0; got {self.temperature}.")
        if not 0 <= self.error < 1:
            raise InputError(f"The observation error must be in [0, 1); got {self.error}.")

    def sample(self, key: Key[Array, ""]) -> tuple[Gridworld, GoalPolicy]:
        corner_key, goal_key = jax.random.split(key)
        shape = (self.size,) * self.dimension
        points = jnp.asarray(Lattice(shape).points())
        span = (self.obstacles, self.dimension)
        corners = jax.random.randint(corner_key, span, 0, self.size - self.width + 1)
        offset = points[:, None, :] - corners
        blocked = jnp.any(jnp.all((offset >= 0) & (offset < self.width), axis=-1), axis=-1)
        goal = points[prng.categorical(goal_key, (~blocked).astype(jnp.float32))]
        environment = Gridworld(Lattice(shape, ~blocked), jnp.asarray(self.error))
        return environment, GoalPolicy(goal, jnp.asarray(self.temperature))


def gridworld_family(
    size: int, dimension: int, *, key: Key[Array, ""] | None = None, temperature: float = 1e-5, error: float = 0.1
) -> Family:
    """Build the family of the paper's grids: 1 obstacle of width 2 up to size 5, then 2 obstacles of width 3.

    Args:
        size: Cells along each axis.
        dimension: Of the grid.
        key: For the paper's *fixed* condition: draws the one grid and policy. None: a new grid at every draw.
        temperature: Of the policy.
        error: Probability that an observed symbol is wrong.

    Returns:
        The family.
    """
    obstacles, width = (1, 2) if size <= 5 else (2, 3)
    family = RandomGridworlds(size, dimension, obstacles, width, temperature, error)
    return family if key is None else One(*family.sample(key))
