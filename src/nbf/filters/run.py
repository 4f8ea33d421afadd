"""A whole episode at once: the filter's loop as one compiled scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Key, PyTree

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
    """Filter the observations y_1..y_T of one environment and policy.

    Gives `look` of the state after every step, by default the state itself, and the infos, both
    with a leading axis T. To be traced, so batches of episodes are a `vmap`. With `changing`, environment
    and policy have a leading axis T too: those of each step.
    """
    start_key, step_key = jax.random.split(key)
    steps = jax.tree.leaves(observations)[0].shape[0]

    def step(state: FilterState, inputs: tuple[Key[Array, ""], Observation, PyTree]):
        key, observation, changed = inputs
        state, info = filter.update(key, state, observation, *(changed if changing else (environment, policy)))
        return state, (look(state), info)

    start = filter.init(start_key, at_step(environment, 0, changing=changing))
    inputs = jax.random.split(step_key, steps), observations, (environment, policy) if changing else None
    _, (looks, infos) = jax.lax.scan(step, start, inputs)
    return looks, infos
