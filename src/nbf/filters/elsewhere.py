"""Environments whose simulation happens elsewhere: they note what a filter wants, or return what it was told.

See `nbf.filters.asking`. Both must be called inside a `vmap` over all states of a set, as filters do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.capabilities import LookAhead, StateEmission, StaticState
from nbf.capability import Capability
from nbf.contracts import Environment, Observation, Policy, State, StateSpace
from nbf.errors import InputError


class _Shell(LookAhead, StateEmission, StaticState):
    """Another environment, whose simulation happens elsewhere."""

    space: StateSpace
    inner: Environment

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        return self.inner.capabilities

    def __getattr__(self, name: str) -> Any:
        """What other capabilities offer."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def init(self, key: Key[Array, ""]) -> State:
        return self.inner.init(key)

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self.inner.observe(key, state, next_state)

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        return self.inner.log_likelihood(observation, state, next_state)

    def look_ahead(self, observation: Observation, state: State, policy: Policy) -> Float[Array, ""]:
        return self.inner.look_ahead(observation, state, policy)  # pyright: ignore[reportAttributeAccessIssue]

    def state_log_likelihood(self, observation: Observation, next_state: State) -> Float[Array, ""]:
        return self.inner.state_log_likelihood(observation, next_state)  # pyright: ignore[reportAttributeAccessIssue]

    def relevant(self, state: State) -> Float[Array, " k"]:
        return self.inner.relevant(state)  # pyright: ignore[reportAttributeAccessIssue]

    def check_observation(self, observation: Observation) -> None:
        self.inner.check_observation(observation)


class Noting(_Shell):
    """Notes which states are to be moved, and which are to be weighed."""

    moved: list[Any] = eqx.field(static=True)
    """Keys and states of each call."""
    weighed: list[Any] = eqx.field(static=True)
    """States of each call."""

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        def noted(size: int, keys: Key[Array, " n"], states: State) -> State:
            self.moved.append((keys, states))
            return states

        return _for_all(noted, state, key, state)

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        def noted(size: int, states: State) -> Float[Array, " n"]:
            self.weighed.append(states)
            return jnp.zeros(size)

        return _for_all(noted, jnp.zeros(()), next_state)


class Told(_Shell):
    """Moves states to where they were told to go, and has the likelihoods that were told."""

    children: State
    log_likelihoods: Float[Array, " n"] | None
    """None: those of the environment."""
    count: int = eqx.field(static=True)
    """n."""

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        return self._in_order(self.children, state)

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        if self.log_likelihoods is None:
            return self.inner.log_likelihood(observation, state, next_state)
        return self._in_order(self.log_likelihoods, next_state)

    def state_log_likelihood(self, observation: Observation, next_state: State) -> Float[Array, ""]:
        if self.log_likelihoods is not None:
            raise _not_enough("states that were not simulated")
        return super().state_log_likelihood(observation, next_state)

    def _in_order(self, told: Any, state: State) -> Any:
        def all_of_them(size: int, states: State) -> Any:
            if size != self.count:
                raise _not_enough(f"{size} states with {self.count} simulated ones")
            return told

        return _for_all(all_of_them, jax.tree.map(lambda leaf: leaf[0], told), state)


def _for_all(function: Callable[..., Any], like: Any, *arguments: Any) -> Any:
    """Call `function(n, *arguments)` once for a whole set, inside a `vmap` over its n states. `like` has the structure
    of what it gives for one of them."""

    @jax.custom_batching.custom_vmap
    def one(like: Any, *arguments: Any) -> Any:
        return like

    @one.def_vmap
    def all_of_them(size: int, batched: Any, like: Any, *arguments: Any) -> Any:
        def whole(leaf: Array, has: bool) -> Array:
            return leaf if has else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf)))

        made = function(size, *jax.tree.map(whole, arguments, tuple(batched[1:])))
        return made, jax.tree.map(lambda leaf: True, made)

    return one(like, *arguments)


def _not_enough(what: str) -> InputError:
    return InputError(
        f"This filter weighs {what}, so told likelihoods are not enough. Give `tell` the observation instead, in an "
        "environment whose log_likelihood can weigh any state; or take a filter that weighs what it simulates: "
        "ParticleFilter, or NeuralBayesianFilter with proposal=EvenProposal()."
    )
