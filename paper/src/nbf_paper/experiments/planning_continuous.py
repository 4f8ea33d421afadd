"""Problems for a search on beliefs whose hidden states are real vectors: processes of decisions.

| problem | hidden | seen | known failure |
|---|---|---|---|
| `vdp-tag` | a target that follows the Van der Pol equations | eight beams, of which one feels it, badly unless one looks | a look leaves few particles that fit |
| `walk` | one's own place in Triangulation | a range to a beacon, if one scans | none: the particle filter's own field |

`vdp-tag` is Van der Pol tag of Sunberg and Kochenderfer (arXiv 1709.06196), by the code of the authors
(`zsunberg/VDPTag2.jl`; barriers as in `icaps_2018/vdpbarrier_table.jl` of their experiments). Here, but not there,
directions are listed, and episodes end after 40 steps. `walk` is the task of the experiment `values`.
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.contracts import State
from nbf.environments.functional import FunctionalEnvironment, environment
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.planning import Task, Widening
from nbf.planning.process import DecisionProcess
from nbf.spaces import Box
from nbf_paper.experiments.planning_decisions import DISCOUNT, Decisions, ProcessWorld, nothing, of_regrets, reached
from nbf_paper.experiments.value_tasks import SCAN, STOP
from nbf_paper.experiments.value_tasks import task as value_task
from nbf_paper.experiments.values import BELIEF_TRAINING

# --- vdp-tag -------------------------------------------------------------------------------------

MU, SMALL_STEP, SMALL_STEPS, NOISE = 2.0, 0.1, 5, 0.05
"""Of the Van der Pol equations; time of one step of their integration, and how many there are in a step of the game;
standard deviation of the noise after it, along each axis."""
HALF, STRIDE, RADIUS, TAGGED, LOOK_COST = 4.0, 0.5, 0.1, 100.0, 5.0
"""The target starts in the square [-4, 4]²; length of a move; within so much it is tagged; rewards."""
BEAMS, MISSED, NEAR, FAR = 8, 1.0, 0.1, 5.0
"""Beams; what those read that do not feel the target, on average; deviations of the one that does after a look, and of
all others."""
SEARCH_LOOK = 1.0
"""What a look costs in a search: it is worth something for longer than the two or three steps that a search sees."""
DIRECTIONS = 16
"""Of a move, each with a look and without. None is parallel to a barrier."""
HORIZON = 40
BARRIERS = (0.2, 2.0)
"""From where to where there is a barrier on each half of both axes."""
BACK = 1e-3
"""Part of a move by which it ends before a barrier; theirs is two units of the last place."""
AHEAD, CELLS = 20, 72
"""Of the table of where a target comes to: steps, and cells along each axis of a square that is a little larger."""
TABLE = 4.5
"""Half the side of that square."""


def flow(target: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Where the target is after one step without noise: Runge-Kutta of fourth order."""

    def slope(point: Array) -> Array:
        x, y = point
        return jnp.stack([MU * (x - x**3 / 3 - y), x / MU])

    for _ in range(SMALL_STEPS):
        first = slope(target)
        second = slope(target + SMALL_STEP / 2 * first)
        third = slope(target + SMALL_STEP / 2 * second)
        fourth = slope(target + SMALL_STEP * third)
        target = target + SMALL_STEP / 6 * (first + 2 * second + 2 * third + fourth)
    return target


def stopped(place: Float[Array, " 2"], move: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Where a move of the agent ends: at the first barrier that it meets."""
    rays = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    near, far = BARRIERS

    def until(ray: Float[Array, " 2"]) -> Float[Array, ""]:
        """The part of the move before this barrier; 1 if it does not meet it."""
        across = jnp.stack([-ray[1], ray[0]])
        height, rise = across @ place, across @ move
        part = -height / jnp.where(rise == 0, 1.0, rise)
        along = ray @ (place + part * move)
        meets = (rise != 0) & (part >= 0) & (part <= 1) & (along >= near) & (along <= far)
        return jnp.where(meets, jnp.maximum(part - BACK, 0.0), 1.0)

    return place + jnp.min(jax.vmap(until)(rays)) * move


class Tagging(eqx.Module):
    """What is public in a game of tag."""

    place: Float[Array, " 2"]
    """Of the agent."""


def beams(target: Float[Array, " 2"], step: tuple[Array, Array]) -> tuple[Float[Array, " 8"], Float[Array, " 8"]]:
    """Means and deviations of what the beams read."""
    place, looks = step
    x, y = target - place
    angle = jnp.arctan2(y, x)
    angle = jnp.where(angle <= 0, angle + 2 * math.pi, angle)
    feels = jnp.arange(BEAMS) == jnp.clip(jnp.ceil(BEAMS * angle / (2 * math.pi)) - 1, 0, BEAMS - 1)
    mean = jnp.where(feels, jnp.sqrt(x**2 + y**2), MISSED)
    return mean, jnp.where(feels & looks, NEAR, FAR)


def _init(key: Key[Array, ""], _: Any) -> Float[Array, " 2"]:
    return jax.random.uniform(key, (2,), minval=-HALF, maxval=HALF)


def _transition(key: Key[Array, ""], target: Array, _: Any, __: Any) -> Float[Array, " 2"]:
    return flow(target) + NOISE * jax.random.normal(key, (2,))


def _observe(key: Key[Array, ""], _: Array, target: Array, step: Any) -> Float[Array, " 8"]:
    mean, deviation = beams(target, step)
    return mean + deviation * jax.random.normal(key, (BEAMS,))


def _log_likelihood(seen: Array, _: Array, target: Array, step: Any) -> Float[Array, ""]:
    return jnp.sum(norm.logpdf(seen, *beams(target, step)))


def target_environment() -> FunctionalEnvironment:
    """The target, and what is seen of it. Parameters: the agent's place after the step, and whether it looks."""
    return environment(
        init=_init, transition=_transition, observe=_observe, log_likelihood=_log_likelihood,
        space=Box((-HALF, -HALF), (HALF, HALF), bounded=False), parameters=(jnp.zeros(2), jnp.asarray(False)),
        emission="state",
    )  # fmt: skip


class Tag(DecisionProcess):
    """Van der Pol tag. The first half of the actions are moves without a look."""

    world: FunctionalEnvironment
    horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    @property
    def num_actions(self) -> int:
        return 2 * DIRECTIONS

    def start(self, key: Key[Array, ""]) -> Tagging:
        return Tagging(jnp.zeros(2))

    def environment(self, public: Tagging) -> FunctionalEnvironment:
        return self._at(public, jnp.asarray(False))

    def step(self, public: Tagging, action: Int[Array, ""]) -> tuple[FunctionalEnvironment, Int[Array, ""]]:
        return self._at(self.after(public, action), action >= DIRECTIONS), action

    def _at(self, public: Tagging, looks: Bool[Array, ""]) -> FunctionalEnvironment:
        return eqx.tree_at(lambda world: world.parameters, self.world, (public.place, looks))

    def after(self, public: Tagging, action: Int[Array, ""]) -> Tagging:
        angle = (action % DIRECTIONS + 0.5) * (2 * math.pi / DIRECTIONS)
        return Tagging(stopped(public.place, STRIDE * jnp.stack([jnp.cos(angle), jnp.sin(angle)])))

    def reward(
        self, public: Tagging, state: Array, action: Int[Array, ""], next_public: Tagging, next_state: Array
    ) -> Float[Array, ""]:
        tagged = jnp.where(self.is_over(state, next_public, next_state), TAGGED, -1.0)
        return tagged - jnp.where(action >= DIRECTIONS, LOOK_COST, 0.0)

    def is_over(self, state: Array, next_public: Tagging, next_state: Array) -> Bool[Array, ""]:
        return jnp.sum((next_state - next_public.place) ** 2) < RADIUS**2


def vdp_tag() -> Decisions:
    """Tag a target that one hardly sees without a look, which is dear."""
    process = Tag(world=target_environment(), horizon=HORIZON, discount=DISCOUNT)
    world = ProcessWorld(process.world.space, process)
    goal = of_regrets(cheap_looks(world.task()), interception(futures()))
    return Decisions(
        "vdp-tag", world, world.task(), nothing, None, process.horizon,
        observation_widening=Widening(5.0, 1 / 15), reference=ParticleFilter(16384), goal=goal,
    )  # fmt: skip


def cheap_looks(task: Task) -> Task:
    """Tag as a search sees it."""

    def reward(state: State, action: Array, after: State, world: Any) -> Float[Array, ""]:
        spared = jnp.where(action >= DIRECTIONS, LOOK_COST - SEARCH_LOOK, 0.0)
        return task.reward_of(state, action, after, world) + spared

    return replace(task, reward=reward)


def futures() -> Float[np.ndarray, "cells cells ahead 2"]:
    """Where a target that starts in the middle of a cell is after each step, without noise."""
    middles = jnp.asarray(((np.arange(CELLS) + 0.5) / CELLS * 2 - 1) * TABLE)
    starts = jnp.stack(jnp.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)

    def step(targets: Array, _: None) -> tuple[Array, Array]:
        after = jax.vmap(flow)(targets)
        return after, after

    found = jax.jit(lambda starts: jax.lax.scan(step, starts, None, AHEAD)[1])(starts)
    return np.asarray(jnp.moveaxis(found, 0, 1).reshape(CELLS, CELLS, AHEAD, 2))


def interception(table: Float[np.ndarray, "cells cells ahead 2"]) -> Callable[..., Any]:
    """The value of a target that is known and moves without noise: how soon the agent can be where it is, if there are
    no barriers. One move has the length that it has, two and more reach all that is nearer."""
    steps = np.arange(1, AHEAD + 1, dtype=np.float32)
    least = np.where(steps == 1, STRIDE - RADIUS, 0.0)

    def value(state: State, _: Any) -> Float[Array, ""]:
        target, public = state[0], state[1].public
        row, column = jnp.clip((target / TABLE + 1) / 2 * CELLS, 0, CELLS - 1).astype(jnp.int32)
        far = jnp.linalg.norm(jnp.asarray(table)[row, column] - public.place, axis=-1)
        there = (far <= STRIDE * steps + RADIUS) & (far >= least)
        late = AHEAD + far[-1] / STRIDE
        return reached(jnp.where(jnp.any(there), jnp.argmax(there) + 1.0, late) - 1, TAGGED)

    return value


# --- walk ----------------------------------------------------------------------------------------

AT_ORIGIN = 0.5
"""Within so much of the origin a walk has ended where it should: a step."""
SCAN_COST = 0.1
LEFT_OUT = 2.0
"""What a scan costs in a search, where a move costs 1; and each move that a stop leaves out."""
RESOLUTION = 100


def walk() -> Decisions:
    """Triangulation's walk to the origin: the process of the experiment `values`.

    The return is the way that was made, and time costs nothing. A search looks two or three steps ahead, where that
    says little, so it has a goal of its own: few moves.
    """
    process = value_task("walk")
    space = process.environment(process.start(jax.random.key(0))).space
    world = ProcessWorld(space, process)
    return Decisions(
        "walk", world, world.task(), nothing, None, process.horizon,
        observation_widening=Widening(5.0, 1 / 15), reference=PointMassFilter(RESOLUTION),
        goal=of_regrets(few_moves(world.task()), lambda state, _: -moves_left(state[0])),
        right=lambda _, place: jnp.linalg.norm(place) < AT_ORIGIN, training=BELIEF_TRAINING["walk"],
    )  # fmt: skip


def moves_left(place: Float[Array, " 2"]) -> Float[Array, ""]:
    """How many moves lead from a place to the origin, if they are exact; not rounded."""
    return jnp.sum(jnp.abs(place)) / STRIDE


def few_moves(task: Task) -> Task:
    """The walk as a search sees it: a move costs 1, a scan less, a stop more for each move that it leaves out."""

    def reward(_: State, action: Array, after: State, __: Any) -> Float[Array, ""]:
        still = jnp.where(action == STOP, LEFT_OUT * moves_left(after[0]), SCAN_COST)
        return -jnp.where(action < SCAN, 1.0, still)

    return replace(task, reward=reward)
