"""Filter a whole episode in one scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Key, PyTree

from nbf.calls import check_policy, missing_policy_explained
from nbf.contracts import Environment, Filter, FilterInfo, FilterState, Observation, Policy
from nbf.environments.rollout import at_step


def run(
    filter: Filter,
    key: Key[Array, ""],
    observations: Observation,
    environment: Environment,
    policy: Policy,
    *,
    look: Callable[[FilterState], Any] = lambda state: state,
    changing: bool = False,
) -> tuple[Any, FilterInfo]:
    """Filter the observations of one episode. To be traced: batches of episodes are a `vmap`.

    Args:
        filter: Any filter.
        key: Random key.
        observations: y_1..y_T, with a leading axis.
        environment: Of the episode.
        policy: π.
        look: What to return of the filter's state after each step; by default the state itself.
        changing: Whether environment and policy have a leading axis: those of each step.

    Returns:
        `look` of the state after each step, and the infos, both with a leading axis T.
    """
    if not changing:
        check_policy(environment, policy)
    start_key, step_key = jax.random.split(key)
    steps = jax.tree.leaves(observations)[0].shape[0]

    def step(state: FilterState, inputs: tuple[Key[Array, ""], Observation, PyTree]):
        key, observation, changed = inputs
        now, control = changed if changing else (environment, policy)
        with missing_policy_explained(now, control):
            state, info = filter.update(key, state, observation, now, control)
        return state, (look(state), info)

    start = filter.init(start_key, at_step(environment, 0, changing=changing))
    inputs = jax.random.split(step_key, steps), observations, (environment, policy) if changing else None
    _, (looks, infos) = jax.lax.scan(step, start, inputs)
    return looks, infos
