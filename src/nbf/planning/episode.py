"""Episodes that are played with a filter and a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.contracts import Belief, Environment, Filter, FilterState, State
from nbf.filters.checks import check_counts
from nbf.planning.search import TreeSearch
from nbf.planning.task import Action, Task


class Played(eqx.Module):
    """One episode. Arrays have a leading axis, the steps; those after its end are padding."""

    total: Float[Array, ""]
    """The discounted return."""
    rewards: Float[Array, " steps"]
    """0 after the end."""
    alive: Bool[Array, " steps"]
    """Whether the step was taken."""
    actions: Action
    states: State
    """After each step; after the end, that at the end."""
    looks: Any
    """What `look` said after each step."""
    calls: Int[Array, ""]
    """How often the searches simulated the environment; what the filter does comes on top of it."""
    recovered: Int[Array, ""]
    """Steps at which the filter could not explain the observation."""
    invalid: Int[Array, ""]
    """Rewards, values and log-likelihoods that were no numbers, in searches or in the world."""


def play(
    key: Key[Array, ""],
    filter: Filter,
    environment: Environment,
    task: Task,
    search: TreeSearch,
    steps: int,
    *,
    look: Callable[[Belief, State], Any] = lambda belief, state: None,
) -> Played:
    """Play one episode: search, act, observe, filter. To be traced: batches of episodes are a `vmap`.

    Args:
        key: Random key.
        filter: Any filter.
        environment: The world, and the one that filter and search know.
        task: What is to be decided.
        search: How.
        steps: Of the episode at most.
        look: `look(belief, state)`, what to note after each step of the filter's belief and the true state.

    Returns:
        What happened.
    """
    check_counts("An episode", steps=steps)
    world_key, filter_key, step_key = jax.random.split(key, 3)
    start = environment.init(world_key)

    def step(carried: tuple[State, FilterState, Array], key: Key[Array, ""]) -> tuple[tuple, tuple]:
        state, belief, over = carried
        search_key, move_key, look_key, filter_key = jax.random.split(key, 4)
        decision = search.decide(search_key, filter.belief(belief, environment), environment, task)
        moved = environment.transition(move_key, state, decision.action)
        arrived = jax.tree.map(lambda old, new: jnp.where(over, old, new), state, moved)
        seen = environment.observe(look_key, state, arrived)
        reward = task.reward_of(state, decision.action, arrived, environment)
        sound = jnp.isfinite(reward)
        after, info = filter.update(filter_key, belief, seen, environment, decision.action)
        told = (
            jnp.where(over | ~sound, 0.0, reward), ~over, decision.action, arrived,
            look(filter.belief(after, environment), arrived),
            jnp.where(over, 0, decision.calls), info.recovered & ~over, jnp.where(over, 0, decision.invalid + ~sound),
        )  # fmt: skip
        return (arrived, after, over | task.is_over(arrived, environment)), told

    first = start, filter.init(filter_key, environment), task.is_over(start, environment)
    told = jax.lax.scan(step, first, jax.random.split(step_key, steps))[1]
    total = jnp.sum(told[0] * task.discount ** jnp.arange(steps))
    return Played(total, *told[:5], *map(jnp.sum, told[5:]))
