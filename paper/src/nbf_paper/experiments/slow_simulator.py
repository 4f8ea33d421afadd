"""A simulator that costs: the same environment, kept busy for so long at every call."""

from __future__ import annotations

import math
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import Enumerable, KnownTransitions, LookAhead
from nbf.capability import Capability, capability
from nbf.contracts import Environment, Observation, Policy, State, StateSpace


def busy(microseconds: float) -> None:
    """Keep the processor busy that long."""
    end = time.perf_counter() + 1e-6 * microseconds
    while time.perf_counter() < end:
        pass


def waited(state: State, microseconds: float, calls: int = 1) -> State:
    """The same state, after each of its calls of the simulator has kept the processor busy that long."""
    leaves, structure = jax.tree.flatten(state)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    size = max(1, math.prod(leaves[0].shape))

    def spin(*arrays: Any) -> tuple[np.ndarray, ...]:
        for _ in range(calls * (np.size(arrays[0]) // size)):
            busy(microseconds)
        return tuple(np.asarray(array) for array in arrays)

    return structure.unflatten(jax.pure_callback(spin, tuple(shapes), *leaves, vmap_method="broadcast_all"))


class _Slow(LookAhead):
    """Another environment whose every call of the simulator costs more."""

    inner: eqx.AbstractVar[Environment]
    microseconds: eqx.AbstractVar[float]

    def init(self, key: Key[Array, ""]) -> State:
        return self.inner.init(key)

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        return waited(self.inner.transition(key, state, policy), self.microseconds)

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self.inner.observe(key, state, next_state)

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        return self.inner.log_likelihood(observation, state, next_state)

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        """Those of the inner environment that this wrapper passes on."""
        return self.inner.capabilities & super().capabilities

    def look_ahead(self, observation: Observation, state: State, policy: Policy) -> Float[Array, ""]:
        assert isinstance(self.inner, LookAhead)
        return self.inner.look_ahead(observation, state, policy)

    def check_observation(self, observation: Observation) -> None:
        self.inner.check_observation(observation)


class SlowEnvironment(_Slow):
    """Of an environment that is simulated."""

    inner: Environment
    microseconds: float = eqx.field(static=True)
    space: StateSpace


class SlowEnumerable(_Slow, KnownTransitions):
    """Of an environment whose states are listed: each branch that is followed is a call."""

    inner: Enumerable
    microseconds: float = eqx.field(static=True)
    space: StateSpace

    def states(self) -> State:
        return self.inner.states()

    def index(self, state: State) -> Int[Array, ""]:
        return self.inner.index(state)

    def initial_log_probs(self) -> Float[Array, " states"]:
        return self.inner.initial_log_probs()

    def successors(self, state: State, policy: Policy) -> tuple[State, Float[Array, " b"]]:
        ends, log_probs = self.inner.successors(state, policy)
        return waited(ends, self.microseconds, calls=log_probs.shape[0]), log_probs

    @property
    def num_branches(self) -> int:
        assert isinstance(self.inner, KnownTransitions)
        return self.inner.num_branches

    def transition_log_probs(self, state: State, policy: Policy) -> Float[Array, " b"]:
        assert isinstance(self.inner, KnownTransitions)
        return self.inner.transition_log_probs(state, policy)

    def follow(self, state: State, policy: Policy, branch: Int[Array, ""]) -> State:
        assert isinstance(self.inner, KnownTransitions)
        return waited(self.inner.follow(state, policy, branch), self.microseconds)


def slow(environment: Environment, microseconds: float) -> SlowEnvironment | SlowEnumerable:
    """The same environment, with a simulator that costs so much more at every call."""
    listed = capability(environment, Enumerable)
    if listed is not None:
        return SlowEnumerable(inner=listed, microseconds=microseconds, space=environment.space)
    return SlowEnvironment(inner=environment, microseconds=microseconds, space=environment.space)
