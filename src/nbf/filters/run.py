"""A whole episode at once: the filter's loop as one compiled scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Key

from nbf.contracts import Environment, Filter, FilterInfo, FilterState, Observation, Policy


def run(
    filter: Filter,
    key: Key[Array, ""],
    observations: Observation,
    environment: Environment,
    policy: Policy,
    *,
    look: Callable[[FilterState], Any] = lambda state: state,
) -> tuple[Any, FilterInfo]:
    """Filter the observations y_1..y_T of one environment and policy.

    Gives `look` of the state after every step, by default the state itself, and the infos, both
    with a leading axis T. To be traced, so batches of episodes are a `vmap`.
    """
    start_key, step_key = jax.random.split(key)
    steps = jax.tree.leaves(observations)[0].shape[0]

    def step(state: FilterState, inputs: tuple[Key[Array, ""], Observation]):
        key, observation = inputs
        state, info = filter.update(key, state, observation, environment, policy)
        return state, (look(state), info)

    start = filter.init(start_key, environment)
    _, (looks, infos) = jax.lax.scan(step, start, (jax.random.split(step_key, steps), observations))
    return looks, infos
