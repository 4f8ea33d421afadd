"""Episodes, and a filter that is run on one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from nbf.calls import missing_policy_explained
from nbf.contracts import Environment, Filter, FilterInfo, FilterState, Observation, Policy, State
from nbf.environments.rollout import at_step


class Episodes(eqx.Module):
    """Episodes with a leading axis."""

    environment: Environment
    policy: Policy
    observations: Observation
    states: State
    """The true states x_0..x_T; None where they are not known."""
    changing: bool = eqx.field(static=True)
    """Whether environment and policy have a second axis: those of each step."""


Look = Callable[[Key[Array, ""], FilterState, Environment, State, Any], Any]
"""`look(key, state, environment, true_state, extra)`, after a step."""


def by_step(episode: Episodes) -> tuple[Any, Callable[[Any], tuple[Environment, Policy]]]:
    """Split environment and policy of one episode for a scan over its steps.

    Args:
        episode: One episode.

    Returns:
        What the scan takes, and the pair of a step from it.
    """
    pair = episode.environment, episode.policy
    if not episode.changing:
        return None, lambda _: pair
    arrays, static = eqx.partition(pair, eqx.is_array)
    return arrays, lambda changed: eqx.combine(changed, static)


def first_environment(episode: Episodes) -> Environment:
    """Take the environment in which a filter begins.

    Args:
        episode: One episode.

    Returns:
        The environment of the first step.
    """
    changed, at = by_step(episode)
    return at(at_step(changed, 0, changing=episode.changing))[0]


def filtered(
    filter: Filter, key: Key[Array, ""], episode: Episodes, extra: PyTree, look: Look
) -> tuple[Any, FilterInfo]:
    """Filter one episode. To be traced.

    Args:
        filter: Any filter.
        key: Random key.
        episode: One episode; its states may be None.
        extra: What `look` is given beside the true state, with a leading axis of steps.
        look: What to keep of each step.

    Returns:
        `look` and the info of each step.
    """
    start_key, step_key = jax.random.split(key)
    states = jax.tree.map(lambda leaf: leaf[1:], episode.states)
    steps = jax.tree.leaves(episode.observations)[0].shape[0]
    changing, at = by_step(episode)

    def step(state: FilterState, inputs: tuple[Any, ...]) -> tuple[FilterState, tuple[Any, Any]]:
        key, observation, true_state, extra, changed = inputs
        update_key, look_key = jax.random.split(key)
        now, control = at(changed)
        with missing_policy_explained(now, control):
            state, info = filter.update(update_key, state, observation, now, control)
        return state, (look(look_key, state, now, true_state, extra), info)

    start = filter.init(start_key, first_environment(episode))
    inputs = jax.random.split(step_key, steps), episode.observations, states, extra, changing
    return jax.lax.scan(step, start, inputs)[1]
