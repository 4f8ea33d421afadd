"""Episodes: the states and observations that an environment and a policy make."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from nbf.calls import check_policy, missing_policy_explained
from nbf.capabilities import Episodic, Scheduled
from nbf.capability import capability
from nbf.contracts import Environment, Family, Observation, Policy, State
from nbf.errors import InputError


def draw_instance(family: Family, key: Key[Array, ""], steps: int) -> tuple[Any, Policy, bool]:
    """Draw the environment and the policy of a random episode.

    Args:
        family: Where they are drawn from.
        key: Random key.
        steps: Length of the episode, at least 1 where they change within it.

    Returns:
        The environment, the policy, and whether both have a leading axis: those of each step (`Scheduled`).
    """
    if capability(family, Episodic) is not None:
        raise InputError(
            f"The environments of a {type(family).__name__} follow from earlier observations, so an episode cannot be "
            "drawn ahead of its hidden states: use its `episode`, or EpisodePosteriors as the source of beliefs."
        )
    scheduled = capability(family, Scheduled)
    if scheduled is not None:
        return *scheduled.schedule(key, steps), True
    return *family.sample(key), False


def rollout(
    key: Key[Array, ""], environment: Environment, policy: Policy, steps: int, *, changing: bool = False
) -> tuple[State, Observation]:
    """Simulate one episode.

    Args:
        key: Random key.
        environment: Of the episode.
        policy: π.
        steps: How many.
        changing: Whether environment and policy have a leading axis: those of each step.

    Returns:
        The states x_0..x_steps and the observations y_1..y_steps, each with a leading axis.
    """
    if not changing:
        check_policy(environment, policy)
    start_key, walk_key = jax.random.split(key)
    start = at_step(environment, 0, changing=changing).init(start_key)

    def step(state: State, inputs: tuple[Key[Array, ""], PyTree]) -> tuple[State, tuple[State, Observation]]:
        key, changed = inputs
        now, control = changed if changing else (environment, policy)
        move_key, observe_key = jax.random.split(key)
        with missing_policy_explained(now, control):
            next_state = now.transition(move_key, state, control)
        return next_state, (next_state, now.observe(observe_key, state, next_state))

    inputs = jax.random.split(walk_key, steps), (environment, policy) if changing else None
    _, (states, observations) = jax.lax.scan(step, start, inputs)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states), observations


def at_step(tree: PyTree, step: int | Int[Array, ""], *, changing: bool) -> Any:
    """Take what an environment or a policy is at one step.

    Args:
        tree: An environment, a policy, or a tuple of them.
        step: Which one.
        changing: Whether its leaves have a leading axis of steps.

    Returns:
        The tree at that step; itself, unless it is changing.
    """
    return jax.tree.map(lambda leaf: leaf[step], tree) if changing else tree
