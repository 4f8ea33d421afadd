"""Environments from plain functions whose states are listed: `nbf.environment`, with the branches of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf import prng
from nbf.capabilities import KnownTransitions
from nbf.contracts import Observation, Policy, State, StateSpace
from nbf.environments.functional import FunctionalEnvironment, environment


class ListedEnvironment(KnownTransitions):
    """What `listed` builds."""

    space: StateSpace
    plain: FunctionalEnvironment
    functions: tuple[Callable, ...] = eqx.field(static=True)
    """states, index and branches."""
    count: int = eqx.field(static=True)
    """How many branches leave a state."""

    def init(self, key: Key[Array, ""]) -> State:
        return self.plain.init(key)

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        return self.plain.transition(key, state, policy)

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self.plain.observe(key, state, next_state)

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        return self.plain.log_likelihood(observation, state, next_state)

    def check_observation(self, observation: Observation) -> None:
        self.plain.check_observation(observation)

    def states(self) -> State:
        return self.functions[0]()

    def index(self, state: State) -> Int[Array, ""]:
        return self.functions[1](state)

    def initial_log_probs(self) -> Float[Array, " states"]:
        count = self.states().shape[0]
        return jnp.full(count, -jnp.log(count))

    def successors(self, state: State, policy: Policy) -> tuple[State, Float[Array, " b"]]:
        return self.functions[2](state, policy, self.plain.parameters)

    @property
    def num_branches(self) -> int:
        return self.count

    def transition_log_probs(self, state: State, policy: Policy) -> Float[Array, " b"]:
        return self.successors(state, policy)[1]


def listed(
    *,
    states: Callable[[], Any],
    index: Callable[[Any], Any],
    branches: Callable[[Any, Any, Any], tuple[Any, Any]],
    observe: Callable,
    log_likelihood: Callable,
    space: StateSpace,
    parameters: PyTree,
    num_branches: int = 1,
    symbols: int | None = None,
) -> ListedEnvironment:
    """An environment that starts in any of `states()` with the same probability, and moves by one of
    `branches(state, policy, parameters)`, which gives states and log probabilities."""

    def init(key: Key[Array, ""], parameters: PyTree) -> State:
        every = states()
        return every[jax.random.randint(key, (), 0, every.shape[0])]

    def transition(key: Key[Array, ""], state: State, policy: Policy, parameters: PyTree) -> State:
        ends, log_probs = branches(state, policy, parameters)
        return ends[prng.categorical(key, jnp.exp(log_probs))] if num_branches > 1 else ends[0]

    plain = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space,
        parameters=parameters, symbols=symbols,
    )  # fmt: skip
    return ListedEnvironment(space, plain, (states, index, branches), num_branches)


def unmoved(state: State, policy: Policy, parameters: PyTree) -> tuple[State, Float[Array, " 1"]]:
    """The branches of a state that never moves."""
    return state[None], jnp.zeros(1)


def with_parameters(given: ListedEnvironment, parameters: PyTree) -> ListedEnvironment:
    """The same environment with other parameters."""
    return replace(given, plain=replace(given.plain, parameters=parameters))
