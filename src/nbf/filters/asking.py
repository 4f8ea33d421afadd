"""Ask for the states to simulate, move them anywhere, tell what came out: a filter around a simulator that is not JAX.

    asked = filter.ask(key, state, environment)               # n states, as NumPy arrays
    children, log_likelihoods = my_simulator(asked.states)     # threads, processes, a cluster, a queue
    state, info = filter.tell(state, asked, children, log_likelihoods)

Both are `update`. In `ask` its environment notes which states it is to move, and the compiler drops whatever comes
after. In `tell` the environment returns what was told. So the two give what `step` gives, if states are moved with the
keys that `step` would use (`Asked.keys`).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import dispatch
from nbf.calls import check_state
from nbf.contracts import Environment, Filter, FilterInfo, FilterState, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.elsewhere import Noting, Told


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a filter wants to have simulated."""

    states: State
    """n states to move, as NumPy arrays with a leading axis. Where the hidden state never moves (`StaticState`), n
    states whose likelihood is wanted."""
    keys: Key[Array, " n"] | None
    """The random keys with which `step` would move them; None where nothing is moved."""
    key: Key[Array, ""]
    environment: Environment
    policy: Policy
    observation: Observation
    """Of the call of `ask`."""

    @property
    def num_states(self) -> int:
        """n."""
        return jax.tree.leaves(self.states)[0].shape[0]

    def rng(self) -> np.random.Generator:
        """Make NumPy's random generator for this simulation: the same at each call, another for another key.

        Returns:
            The generator.
        """
        return np.random.default_rng(np.asarray(jax.random.key_data(self.key)))


class ToldInfo(FilterInfo):
    """What a told step tells: as that of `step`, and how much was not simulated."""

    missing: int = 0
    """States that were not simulated."""


def _once(filter: Filter) -> Filter:
    """A filter that simulates a step once, whatever comes out."""
    if getattr(filter, "max_attempts", 1) == 1:
        return filter
    once = copy.copy(filter)  # not `replace`, which would build its parts anew
    object.__setattr__(once, "max_attempts", 1)
    return once


def _ask(
    filter: Filter, environment: Environment, policy: Policy, state: FilterState, key: Key[Array, ""], observation: Any
) -> tuple[State, Any]:
    check_state(filter, key, state, environment)
    noting = Noting(environment.space, environment, [], [])
    _once(filter).update(key, state, observation, noting, policy)
    if len(noting.moved) == 1:
        keys, states = noting.moved[0]
        return states, keys
    if not noting.moved and noting.weighed:
        return noting.weighed[0], None
    name, space = type(filter).__name__, environment.space.signature
    if observation is None and not noting.moved:
        raise InputError(
            f"{name} neither moves nor weighs a state over {space} without an observation. If it weighs states that "
            "never move, give `ask` the observation; a filter that lists its states simulates none."
        )
    raise InputError(
        f"{name} calls the simulator {len(noting.moved)} times in a step, so it cannot be asked for states."
    )


def ask(
    filter: Filter,
    key: Key[Array, ""],
    state: FilterState,
    environment: Environment,
    policy: Policy = None,
    observation: Observation = None,
) -> Asked:
    """Ask a filter for the states that a step simulates.

    Args:
        filter: The filter.
        key: Random key of the step.
        state: Of the filter.
        environment: Of this step. Its `transition` is not called; with told likelihoods neither is its
            `log_likelihood`.
        policy: π, for filters that look ahead; your own simulator knows it already.
        observation: y, for filters that choose by it what to simulate (`LookAheadProposal`) or to weigh
            (`InterpolatingProposal`). Others can be asked before it is there.

    Returns:
        The states, and what `tell` needs to know of the call.
    """
    if observation is not None:
        environment.check_observation(observation)
        observation = dispatch.arrays(observation)
    states, keys = dispatch.call(_ask, (filter, environment, policy), state, (key, observation))
    return Asked(jax.tree.map(np.asarray, states), keys, key, environment, policy, observation)


def _tell(
    filter: Filter,
    environment: Environment,
    policy: Policy,
    state: FilterState,
    key: Key[Array, ""],
    observation: Any,
    children: State,
    log_likelihoods: Float[Array, " n"] | None,
    missing: Any,
) -> tuple[FilterState, FilterInfo]:
    check_state(filter, key, state, environment)
    count = jax.tree.leaves(children)[0].shape[0]
    if missing is not None:
        children = jax.tree.map(lambda leaf: _without(leaf, missing), children)
        log_likelihoods = None if log_likelihoods is None else jnp.where(missing, -jnp.inf, log_likelihoods)
    told = Told(environment.space, environment, children, log_likelihoods, count)
    return _once(filter).update(key, state, observation, told, policy)


def _without(leaf: Array, missing: Array) -> Array:
    """NaN for the missing ones, where a number can be that: such states have weight zero in every filter."""
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return jnp.where(missing.reshape(-1, *(1,) * (leaf.ndim - 1)), jnp.nan, leaf)


def tell(
    filter: Filter,
    state: FilterState,
    asked: Asked,
    children: State = None,
    log_likelihoods: Any = None,
    observation: Observation = None,
    missing: Any = None,
) -> tuple[FilterState, ToldInfo]:
    """Finish the step that `ask` began. It is simulated once, whatever comes out: if every weight is zero, the
    prediction is kept, and `info.recovered` says so.

    Args:
        filter: The filter.
        state: Of the filter: the one that was given to `ask`.
        asked: What `ask` returned.
        children: Where each state was moved to, in the same order and layout. None where nothing moves
            (`StaticState`).
        log_likelihoods: Of the observation after each move; -inf is impossible. None: the environment's own
            `log_likelihood` is used.
        observation: y, if the environment weighs it and `ask` was not given it. If there is neither an observation
            nor a likelihood, the step predicts.
        missing: n booleans: states that were not simulated. They have weight zero.

    Returns:
        The state of the filter after the step, and what it tells.
    """
    children = _moved(asked, children)
    count = asked.num_states
    if log_likelihoods is not None:
        log_likelihoods = _vector("log_likelihoods", log_likelihoods, count, np.float32)
    absent = 0
    if missing is not None:
        missing = _vector("missing", missing, count, np.bool_)
        absent = int(missing.sum())
        if absent and log_likelihoods is None and not _floating(children):
            raise InputError(
                "Missing states of whole numbers need told likelihoods: pass `log_likelihoods`, with any number for a "
                "missing state."
            )
    seen = _seen(asked, observation, likelihoods=log_likelihoods is not None)
    moving = asked.key, seen, children, log_likelihoods, missing
    state, info = dispatch.call(_tell, (filter, asked.environment, asked.policy), state, moving)
    return state, ToldInfo(info.ess, info.log_evidence, info.attempts, info.recovered, info.invalid, absent)


_SOME = np.zeros((), np.float32)
"""Stands for an observation that the environment never sees."""


def _seen(asked: Asked, observation: Observation, *, likelihoods: bool) -> Observation:
    """The observation of a step; None if it has none."""
    if observation is not None:
        asked.environment.check_observation(observation)
        return dispatch.arrays(observation)
    if asked.observation is not None:
        return asked.observation
    return _SOME if likelihoods else None


def _floating(states: State) -> bool:
    return all(np.issubdtype(leaf.dtype, np.floating) for leaf in jax.tree.leaves(states))


def _moved(asked: Asked, children: State) -> State:
    """The children as arrays of the same kinds as the states that were asked for."""
    if children is None and asked.keys is None:
        return asked.states
    if children is None:
        raise InputError("`tell` needs to know where the states were moved to: pass them as `children`.")
    leaves, structure = jax.tree.flatten(children)
    wanted, expected = jax.tree.flatten(asked.states)
    if structure != expected:
        raise InputError(f"The states that were asked for are built as {expected}; `children` as {structure}.")
    return structure.unflatten([_cast(leaf, like) for leaf, like in zip(leaves, wanted, strict=True)])


def _cast(leaf: Any, like: np.ndarray) -> np.ndarray:
    found = np.asarray(leaf)
    if found.shape != like.shape:
        raise InputError(
            f"`children` has an array of shape {found.shape}, where {like.shape} was asked for: a child for each "
            "state, in the same order. If some could not be simulated, fill their places and say so with `missing`."
        )
    if found.dtype == like.dtype:
        return found
    if not np.can_cast(found.dtype, like.dtype, "same_kind"):
        raise InputError(f"`children` has numbers of type {found.dtype}, where {like.dtype} was asked for.")
    return found.astype(like.dtype)


def _vector(name: str, numbers: Any, count: int, dtype: Any) -> np.ndarray:
    found = np.asarray(numbers)
    if found.shape != (count,) or not np.can_cast(found.dtype, dtype, "same_kind"):
        raise InputError(
            f"`{name}` is one {np.dtype(dtype).name} for each of the {count} states; got {found.dtype} of shape "
            f"{found.shape}."
        )
    return found.astype(dtype)


class AskTell(Filter):
    """A filter that moves n states by the simulator at each step, and so can have it done elsewhere."""

    @property
    def ask(self) -> Callable[..., Asked]:
        """`ask(key, state, environment, policy=None, observation=None) -> Asked`: the states that a step simulates. See
        `nbf.filters.asking.ask`."""
        return functools.partial(ask, self)  # as `step`: a method costs more to look up

    @property
    def tell(self) -> Callable[..., tuple[FilterState, ToldInfo]]:
        """`tell(state, asked, children, log_likelihoods=None, observation=None, missing=None) -> (state, info)`: the
        rest of that step. See `nbf.filters.asking.tell`."""
        return functools.partial(tell, self)
