"""The task of Triangulation: an agent walks to the origin and stops, given only the belief of a filter.

The agent is greedy. It scans while the belief is wider than `unsure`. Otherwise it moves along the axis on which the
mean is farther from the origin, and stops where no move would bring the mean nearer. It does not plan, so two agents
differ only in their filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.model import ModelBelief
from nbf.contracts import Filter, FilterState
from nbf.environments.triangulation import ScanPolicy, Triangulation
from nbf.errors import InputError

SCAN, STOP = 4, 5
"""The actions after the four directions."""
SAMPLES = 256
"""Samples that estimate the moments of a model's belief."""


@dataclass(frozen=True)
class WalkConfig:
    """How the agent decides."""

    steps: int = 60
    """The walk ends after this many steps."""
    unsure: float = 0.75
    """It scans while the belief's root mean square distance from its mean is larger."""

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.unsure > 0:
            raise InputError(f"A walk needs steps of at least 1 and unsure above 0; got {self.steps}, {self.unsure}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {"steps": self.steps, "unsure": self.unsure}


class Walk(eqx.Module):
    """How a walk ended."""

    distance: Float[Array, ""]
    """From the origin."""
    stopped: Bool[Array, ""]
    """Whether the agent stopped by itself, before the last step."""
    actions: Int[Array, " steps"]
    """0..3 a direction, `SCAN`, `STOP`."""


def choose(mean: Float[Array, " 2"], width: Float[Array, ""], world: Triangulation, unsure: float) -> Int[Array, ""]:
    """The greedy action for a belief's mean and width."""
    axis = jnp.argmax(jnp.abs(mean))
    away = mean[axis]
    direction = 2 * axis + (away < 0)  # down an axis, or up
    move = jnp.where(jnp.abs(away) > world.step / 2.0, direction, STOP)
    return jnp.where(width > unsure, SCAN, move).astype(jnp.int32)


def moments(
    filter: Filter, key: Key[Array, ""], state: FilterState, world: Triangulation
) -> tuple[Float[Array, " 2"], Float[Array, ""]]:
    """The mean of a belief, and the root mean square distance from it. Those of a model's belief are estimated from
    `SAMPLES` samples, which need no simulator calls."""

    def parts(position: Float[Array, " 2"]) -> tuple[Array, Array]:
        return position, jnp.sum(position**2)

    belief = filter.belief(state, world)
    if isinstance(belief, ModelBelief):
        drawn = belief.sample(key, SAMPLES)
        mean, square = jax.tree.map(lambda values: jnp.mean(values, axis=0), jax.vmap(parts)(drawn))
    else:
        mean, square = belief.expectation(parts)
    return mean, jnp.sqrt(jnp.maximum(square - jnp.sum(mean**2), 0.0))


def walk(filter: Filter, settings: WalkConfig, world: Triangulation, key: Key[Array, ""]) -> Walk:
    """One walk from a random place, for use inside `jit`."""
    start_key, filter_key, step_key = jax.random.split(key, 3)

    def step(carry: tuple[Array, FilterState, Array], inputs: tuple[Array, Array]) -> tuple[Any, Array]:
        position, state, stopped = carry
        time, key = inputs
        look_key, move_key, observe_key, update_key = jax.random.split(key, 4)
        action = jnp.where(stopped, STOP, choose(*moments(filter, look_key, state, world), world, settings.unsure))
        stopped = action == STOP
        now = world.at(time, action == SCAN)
        policy = ScanPolicy(jnp.minimum(action, 3), (action < SCAN).astype(jnp.float32))
        moved = now.transition(move_key, position, policy)
        reading = now.observe(observe_key, position, moved)
        after, _ = filter.update(update_key, state, reading, now, policy)
        kept = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), (position, state), (moved, after))
        return (*kept, stopped), action

    start = world.init(start_key), filter.init(filter_key, world), jnp.bool_(False)
    inputs = jnp.arange(settings.steps, dtype=jnp.int32), jax.random.split(step_key, settings.steps)
    (position, _, stopped), actions = jax.lax.scan(step, start, inputs)
    return Walk(jnp.sqrt(jnp.sum(position**2)), stopped, actions)
