"""The two tasks of the experiment `values`: the walk to the origin (appendix, "Triangulation"), and a chase.

**walk** The agent of Triangulation moves in one of four directions, scans, or stops, which ends the episode. The paper
scores the distance to the origin at the end. The reward of a step is by how much the step brought it nearer, so the
return, which is not discounted, is the distance at the start less that at the end.

**chase** On a random 8 x 8 grid with the paper's obstacles somebody runs away, whom the hunter does not see, but hears:
the direction of each of his moves, or a bump, wrong with probability 0.1. Hunter and runner move one cell a step. The
runner's moves are a softmax of the distance to the hunter. He is caught who is in the hunter's cell before or after his
own move; that he was not caught is heard too. The hunter gets 1 for catching him, and for each step by how much it
brought them nearer, as a difference of potentials (Ng, Harada and Russell 1999). The potential of the last step is not
taken back, so that it is worth a little to end an episode near him, also without a catch.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.capabilities import KnownTransitions
from nbf.contracts import Observation
from nbf.environments.gridworld import Gridworld, RandomGridworlds, unit_moves
from nbf.environments.triangulation import ScanPolicy, Triangulation, TriangulationFamily
from nbf.errors import InputError
from nbf.planning.process import DecisionProcess
from nbf.spaces import Lattice

NEARER = 0.1
"""Potential of the chase that a cell of distance (L1) takes away."""
SCAN, STOP = 4, 5
"""Actions of the walk, after the four directions."""


class Walking(eqx.Module):
    """What is public on a walk."""

    time: Int[Array, ""]
    stopped: Bool[Array, ""]


class WalkToOrigin(DecisionProcess):
    """Triangulation's task."""

    world: Triangulation
    """Its first step."""
    horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    @property
    def num_actions(self) -> int:
        return STOP + 1

    def start(self, key: Key[Array, ""]) -> Walking:
        return Walking(jnp.int32(0), jnp.asarray(False))

    def environment(self, public: Walking) -> Triangulation:
        return self.world

    def step(self, public: Walking, action: Int[Array, ""]) -> tuple[Triangulation, ScanPolicy]:
        moves = action < SCAN
        policy = ScanPolicy(jnp.minimum(action, SCAN - 1), moves.astype(jnp.float32))
        return self.world.at(public.time, ~moves), policy

    def after(self, public: Walking, action: Int[Array, ""]) -> Walking:
        return Walking(public.time + 1, public.stopped | (action == STOP))

    def reward(
        self, public: Walking, state: Array, action: Int[Array, ""], next_public: Walking, next_state: Array
    ) -> Float[Array, ""]:
        return jnp.linalg.norm(state) - jnp.linalg.norm(next_state)

    def is_over(self, state: Array, next_public: Walking, next_state: Array) -> Bool[Array, ""]:
        return next_public.stopped

    def context(self, public: Walking) -> Float[Array, " beacons"]:
        beacons = self.world.beacons.shape[0]
        return jax.nn.one_hot(public.time % beacons, beacons)


class RunnerPolicy(eqx.Module):
    """Softmax over moves of `weight` · (L1 distance to a point after the move)."""

    point: Int[Array, " 2"]
    weight: Float[Array, ""]
    """Above 0 the runner keeps away from the point, below 0 it goes there."""

    def log_probs(self, destinations: Int[Array, "actions 2"]) -> Float[Array, " actions"]:
        """log probability of each move, given the cells to which they lead."""
        return jax.nn.log_softmax(self.weight * jnp.sum(jnp.abs(destinations - self.point), axis=-1))


class Chase(KnownTransitions):
    """One step of a chase, in which the hunter has moved already."""

    space: Lattice
    """That of the grid."""
    grid: Gridworld
    hunter: Int[Array, " 2"]
    turned: Int[Array, ""]
    """By how many quarter turns what is heard is turned; 0 where directions are what they are."""

    @property
    def caught(self) -> int:
        """The symbol of the end, after the four directions and the bump."""
        return self.grid.num_symbols

    def init(self, key: Key[Array, ""]) -> Int[Array, " 2"]:
        return self.grid.init(key)

    def transition(self, key: Key[Array, ""], state: Array, policy: RunnerPolicy) -> Int[Array, " 2"]:
        ends, log_probs = self.successors(state, policy)
        return ends[prng.categorical(key, jnp.exp(log_probs))]

    def is_caught(self, state: Array, next_state: Array) -> Bool[Array, ""]:
        """Whether the runner was in the hunter's cell, before or after his move."""
        return jnp.all(state == self.hunter) | jnp.all(next_state == self.hunter)

    def _heard(self, symbol: Int[Array, ""], turns: Int[Array, ""]) -> Int[Array, ""]:
        """A direction after some quarter turns; a bump is a bump."""
        return jnp.where(symbol < 4, jnp.asarray(AROUND)[(jnp.asarray(PLACE)[symbol % 4] + turns) % 4], symbol)

    def observe(self, key: Key[Array, ""], state: Array, next_state: Array) -> Int[Array, ""]:
        symbol = self._heard(self.grid.observe(key, state, next_state), self.turned)
        return jnp.where(self.is_caught(state, next_state), self.caught, symbol).astype(jnp.int32)

    def log_likelihood(self, observation: Int[Array, ""], state: Array, next_state: Array) -> Float[Array, ""]:
        caught, told = self.is_caught(state, next_state), observation == self.caught
        heard = self.grid.log_likelihood(self._heard(observation, -self.turned), state, next_state)
        return jnp.where(caught | told, jnp.where(caught & told, 0.0, -jnp.inf), heard)

    def check_observation(self, observation: Observation) -> None:
        value = np.asarray(observation)
        if value.shape != () or value.dtype.kind not in "iu" or not 0 <= int(value) <= self.caught:
            raise InputError(f"What is heard in a chase is a symbol 0..{self.caught}; got {observation!r}.")

    def states(self) -> Int[Array, "cells 2"]:
        return self.grid.states()

    def index(self, state: Array) -> Int[Array, ""]:
        return self.grid.index(state)

    def initial_log_probs(self) -> Float[Array, " cells"]:
        return self.grid.initial_log_probs()

    def successors(self, state: Array, policy: RunnerPolicy) -> tuple[Array, Float[Array, " 4"]]:
        ends = self.grid.destinations(state)
        return ends, policy.log_probs(ends)

    @property
    def num_branches(self) -> int:
        return 4

    def transition_log_probs(self, state: Array, policy: RunnerPolicy) -> Float[Array, " 4"]:
        return self.successors(state, policy)[1]


AROUND, PLACE = (0, 2, 1, 3), (0, 2, 1, 3)
"""The four directions in the order of quarter turns, and the place of each direction in that order."""


class Hunting(eqx.Module):
    """What is public in a chase."""

    grid: Gridworld
    hunter: Int[Array, " 2"]
    goal: Int[Array, " 2"]
    """A free cell: where the runner goes if he goes to a goal."""


class Hunt(DecisionProcess):
    """The chase. An action is one of the four moves; the hunter stays where an obstacle or the border is."""

    family: RandomGridworlds
    weight: Float[Array, ""]
    """Of the runner's policy; negative: he comes."""
    flees: Bool[Array, ""]
    """Whether the point of his policy is the hunter; else it is the goal."""
    turned: Int[Array, ""]
    horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    @property
    def num_actions(self) -> int:
        return 4

    def start(self, key: Key[Array, ""]) -> Hunting:
        family_key, hunter_key = jax.random.split(key)
        grid, policy = self.family.sample(family_key)
        assert isinstance(grid, Gridworld)
        return Hunting(grid, grid.init(hunter_key), policy.goal)

    def environment(self, public: Hunting) -> Chase:
        return Chase(public.grid.space, public.grid, public.hunter, self.turned)

    def step(self, public: Hunting, action: Int[Array, ""]) -> tuple[Chase, RunnerPolicy]:
        moved = self.after(public, action)
        point = jnp.where(self.flees, moved.hunter, public.goal)
        return self.environment(moved), RunnerPolicy(point, self.weight)

    def after(self, public: Hunting, action: Int[Array, ""]) -> Hunting:
        return Hunting(public.grid, public.grid.destinations(public.hunter)[action], public.goal)

    def reward(
        self, public: Hunting, state: Array, action: Int[Array, ""], next_public: Hunting, next_state: Array
    ) -> Float[Array, ""]:
        caught = self.is_over(state, next_public, next_state)
        before, after = (
            -NEARER * jnp.sum(jnp.abs(cell - place.hunter))
            for cell, place in ((state, public), (next_state, next_public))
        )
        return caught + self.discount * jnp.where(caught, 0.0, after) - before

    def is_over(self, state: Array, next_public: Hunting, next_state: Array) -> Bool[Array, ""]:
        return self.environment(next_public).is_caught(state, next_state)

    def context(self, public: Hunting) -> Float[Array, " c"]:
        ends = public.grid.destinations(public.hunter)
        open_sides = jnp.any(ends != public.hunter, axis=1).astype(jnp.float32)
        place = public.grid.space.encode(public.hunter)
        return jnp.concatenate([place, open_sides])


def hunt(
    *, weight: float = 0.5, flees: bool = True, turned: int = 0, error: float = 0.1, obstacles: int = 2, width: int = 3
) -> Hunt:
    """The chase, on random grids of 8 x 8."""
    family = RandomGridworlds(8, 2, obstacles, width, error=error)
    how = {"weight": jnp.float32(weight), "flees": jnp.asarray(flees), "turned": jnp.int32(turned)}
    return Hunt(family=family, horizon=24, discount=0.97, **how)


def walk_to_origin(*, turned: bool = False, motion_noise: float = 0.1, range_noise: float = 0.5) -> WalkToOrigin:
    """The walk, with the paper's beacons or those opposite to them, and other noises."""
    world = TriangulationFamily(motion_noise=motion_noise, range_noise=range_noise).environment()
    if turned:
        world = eqx.tree_at(lambda world: world.beacons, world, -world.beacons)
    return WalkToOrigin(world=world, horizon=40, discount=1.0)


CHANGES: dict[str, dict[str, Callable[[], DecisionProcess]]] = {
    "walk": {
        "beacons": lambda: walk_to_origin(turned=True),
        "readings": lambda: walk_to_origin(range_noise=1.0),
        "motion": lambda: walk_to_origin(motion_noise=0.3),
    },
    "chase": {
        "random": lambda: hunt(weight=0.0),
        "goal": lambda: hunt(flees=False, weight=-1.0),
        "comes": lambda: hunt(weight=-0.5),
        "noise": lambda: hunt(error=0.4),
        "turned": lambda: hunt(turned=1),
        "grids": lambda: hunt(obstacles=4, width=2),
    },
}
"""The tasks as they are changed after training: the beacons are mirrored, readings twice as noisy, moves three times;
the runner walks at random, to a goal, or comes; more of what is heard is wrong, its directions are turned by a quarter,
the grids have four small obstacles."""


def task(name: str, change: str | None = None) -> DecisionProcess:
    """A task as it is trained, or with a change."""
    if change is not None:
        return CHANGES[name][change]()
    return walk_to_origin() if name == "walk" else hunt()


assert unit_moves(2).tolist() == [[-1, 0], [1, 0], [0, -1], [0, 1]]  # the order that AROUND turns
