"""Episodes: the states and observations that an environment and a policy make."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from nbf.contracts import Environment, Observation, Policy, State


@runtime_checkable
class Scheduled(Protocol):
    """A family whose environments or policies change within an episode, in a way that does not depend on the
    hidden states."""

    def schedule(self, key: Key[Array, ""], steps: int, /) -> tuple[Environment, Policy]:
        """The environment and the policy of each step of one random episode, with a leading axis."""
        ...


def rollout(
    key: Key[Array, ""], environment: Environment, policy: Policy, steps: int, *, changing: bool = False
) -> tuple[State, Observation]:
    """One episode: the states x_0..x_steps and the observations y_1..y_steps.

    With `changing`, environment and policy have a leading axis: those of each step.
    """
    start_key, walk_key = jax.random.split(key)
    start = at_step(environment, 0, changing=changing).init(start_key)

    def step(state: State, inputs: tuple[Key[Array, ""], PyTree]) -> tuple[State, tuple[State, Observation]]:
        key, changed = inputs
        now, control = changed if changing else (environment, policy)
        move_key, observe_key = jax.random.split(key)
        next_state = now.transition(move_key, state, control)
        return next_state, (next_state, now.observe(observe_key, state, next_state))

    inputs = jax.random.split(walk_key, steps), (environment, policy) if changing else None
    _, (states, observations) = jax.lax.scan(step, start, inputs)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states), observations


def at_step(tree: PyTree, step: int | Int[Array, ""], *, changing: bool) -> Any:
    """What an environment or a policy is at one step: itself, unless it is `changing` along a leading axis."""
    return jax.tree.map(lambda leaf: leaf[step], tree) if changing else tree
