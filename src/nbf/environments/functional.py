"""An environment from plain functions: the shortest way to bring a simulator of your own.

    world = nbf.environment(
        init=lambda key: ...,                                # x0 ~ p0
        transition=lambda key, state, policy: ...,           # x' ~ T(x, π)
        observe=lambda key, state, next_state: ...,          # y ~ H(x, x')
        log_likelihood=lambda observation, state, next_state: ...,  # log H(x, x')[y]
        space=nbf.Box((-5.0,), (5.0,), bounded=False),
    )

The functions are written in JAX, for one state. Constants in them are compiled in. What should change without
compiling again is a pytree `parameters`, which every function then takes as its last argument;
`dataclasses.replace(world, parameters=...)` exchanges it, and a `vmap` over it is a family of environments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from nbf.calls import told
from nbf.capabilities import LookAhead, StateEmission
from nbf.capability import Capability
from nbf.contracts import Environment, Family, Observation, Policy, State, StateSpace
from nbf.environments.dependence import reads
from nbf.errors import InputError, check_likelihood

Emission = Literal["state", "transition"]
"""What an observation depends on: the new state alone, or the state before it too."""


class FunctionalEnvironment(LookAhead, StateEmission):
    """What `environment` builds. Environments with the same functions share compiled filters."""

    space: StateSpace
    parameters: PyTree
    """The last argument of every function; None if there are none."""
    functions: tuple[Callable, ...] = eqx.field(static=True)
    """init, transition, observe, log_likelihood and, if there is one, look_ahead."""
    structure: Any = eqx.field(static=True)
    """The tree structure of an observation."""
    leaves: tuple[tuple[tuple[int, ...], str], ...] = eqx.field(static=True)
    """Shape and type of each of its leaves."""
    symbols: int | None = eqx.field(static=True, default=None)
    """Integer observations lie in 0..symbols - 1; None if that is not known."""
    emission: Emission = eqx.field(static=True, default="transition")
    """What `log_likelihood` reads: `state`, the new state alone, or `transition`, the state before it too."""

    def init(self, key: Key[Array, ""]) -> State:
        return _arrays(self.functions[0](key, *self._more))

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        moved = _arrays(self.functions[1](key, state, policy, *self._more))
        if (before := _shapes(state)) != (after := _shapes(moved)):
            raise InputError(
                f"`transition` gave a state of {after}; the state before it has {before}. Both are one state."
            )
        return moved

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return _arrays(self.functions[2](key, state, next_state, *self._more))

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        value = jnp.asarray(
            self.functions[3](decimals(observation, self.structure, self.leaves), state, next_state, *self._more)
        )
        check_likelihood(value.shape, self)
        return value

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        offers = {LookAhead: len(self.functions) > 4, StateEmission: self.emission == "state"}
        return frozenset(kind for kind, offered in offers.items() if offered)

    def look_ahead(self, observation: Observation, state: State, policy: Policy) -> Float[Array, ""]:
        return jnp.asarray(
            self.functions[4](decimals(observation, self.structure, self.leaves), state, policy, *self._more)
        )

    def check_observation(self, observation: Observation) -> None:
        check_leaves(observation, self.structure, self.leaves, self.symbols)

    @property
    def _more(self) -> tuple[PyTree, ...]:
        return () if self.parameters is None else (self.parameters,)


def environment(
    *,
    init: Callable,
    transition: Callable,
    observe: Callable,
    log_likelihood: Callable,
    space: StateSpace,
    look_ahead: Callable | None = None,
    parameters: PyTree = None,
    observation: Observation | None = None,
    symbols: int | None = None,
    emission: Emission | None = None,
) -> FunctionalEnvironment:
    """Build an environment from functions. Check the result with `nbf.testing.check_environment`.

    Args:
        init: `init(key)` draws x0 ~ p0. This and each other function takes `parameters` last, if there are any.
        transition: `transition(key, state, policy)` draws x' ~ T(x, π).
        observe: `observe(key, state, next_state)` draws y ~ H(x, x').
        log_likelihood: `log_likelihood(observation, state, next_state)` is log H(x, x')[y].
        space: Of the states.
        look_ahead: `look_ahead(observation, state, policy)` is a guess at log p(y | x) without simulation, by which a
            neural filter selects the states that it simulates (paper/docs/beyond.md). None if there is none.
        parameters: A pytree that may change without compiling again; None if there is none.
        observation: An example, whose structure, shapes and types observations must have; by default those that
            `observe` gives.
        symbols: Where observations are integers 0..symbols - 1, their number: JAX would clip any other to the nearest
            one.
        emission: What an observation depends on: `state`, the new state alone, or `transition`, the state before it
            too. None finds out, by tracing `log_likelihood` once.

    Returns:
        The environment.
    """
    if emission not in (None, "state", "transition"):
        raise InputError(f"`emission` is 'state', 'transition' or None, which finds out; got {emission!r}.")
    if symbols is not None and symbols < 1:
        raise InputError(f"An alphabet needs at least 1 symbol; got symbols={symbols}.")
    example = _example(init, observe, parameters) if observation is None else observation
    leaves, structure = jax.tree.flatten(example)
    shapes = tuple((tuple(jnp.shape(leaf)), str(jnp.result_type(leaf))) for leaf in leaves)
    functions = (init, transition, observe, log_likelihood, *(() if look_ahead is None else (look_ahead,)))
    found = _emission(emission, init, log_likelihood, example, parameters)
    return FunctionalEnvironment(space, parameters, functions, structure, shapes, symbols, found)


def _example(init: Callable, observe: Callable, parameters: PyTree) -> Observation:
    """Shapes and types of what `observe` gives, by tracing."""
    more = () if parameters is None else (parameters,)
    also = ", parameters" if more else ""

    def first_observation(key: Key[Array, ""]) -> Observation:
        state = _arrays(init(key, *more))
        return _arrays(observe(key, state, state, *more))

    try:
        return jax.eval_shape(first_observation, jax.random.key(0))
    except Exception as error:
        raise InputError(
            f"`init` followed by `observe` cannot be traced by JAX ({told(error)}). "
            f"They are called as init(key{also}) and observe(key, state, next_state{also}), and "
            "must not branch on a value in Python."
        ) from error


def _emission(
    said: Emission | None, init: Callable, log_likelihood: Callable, example: Observation, parameters: PyTree
) -> Emission:
    """What the likelihood reads, by its trace; raises if that contradicts what is said."""
    if said == "transition":
        return said
    more = () if parameters is None else (parameters,)
    try:
        state = jax.eval_shape(lambda: _arrays(init(jax.random.key(0), *more)))
        found = reads(lambda *given: log_likelihood(*given, *more), (example, state, state), 1)
    except Exception:  # what cannot be traced yet is refused with its reason where it is used
        found = True
    if said == "state" and found:
        raise InputError(
            "emission='state' says that `log_likelihood` depends on the new state alone, but it reads the state before "
            "the step as well. Leave `emission` out, or let log_likelihood(observation, state, next_state) use "
            "next_state only."
        )
    return "transition" if found else "state"


def check_leaves(
    observation: Observation, expected: Any, kinds: tuple[tuple[tuple[int, ...], str], ...], symbols: int | None
) -> None:
    """Raise unless an observation is built of finite numbers of the expected kinds.

    Args:
        observation: y.
        expected: Its tree structure.
        kinds: Shape and type of each of its leaves.
        symbols: Where they are integers 0..symbols - 1, their number.
    """
    leaves, structure = jax.tree.flatten(observation)
    if structure != expected:
        hint = " A list or tuple is a tree: give jnp.array(...)." if isinstance(observation, list | tuple) else ""
        raise InputError(f"An observation of this environment is built as {expected}; got {structure}.{hint}")
    for value, (shape, dtype) in zip(leaves, kinds, strict=True):
        _check_leaf(np.asarray(value), shape, np.dtype(dtype), symbols)


def decimals(observation: Observation, expected: Any, kinds: tuple[tuple[tuple[int, ...], str], ...]) -> Observation:
    """Convert integers to numbers with decimals where these are expected: a sensor may give 1 for 1.0.

    Args:
        observation: y.
        expected: The tree structure of observations.
        kinds: Shape and type of each leaf.

    Returns:
        The observation; it is left alone if it is built in another way.
    """
    leaves, structure = jax.tree.flatten(observation)
    if structure != expected:
        return observation
    return structure.unflatten(
        jnp.asarray(leaf, dtype) if _kind(np.dtype(dtype)) == "float" else leaf
        for leaf, (_, dtype) in zip(leaves, kinds, strict=True)
    )


def _check_leaf(value: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, symbols: int | None) -> None:
    # Not a method: looking one up on a module costs more than the check.
    kind = _kind(dtype)
    given = _kind(value.dtype)
    if value.shape != shape or (given != kind and (given, kind) != ("integer", "float")):
        raise InputError(
            f"An observation of this environment is {dtype} of shape {shape}; got {value.dtype} of shape "
            f"{value.shape}. Give what `observe` gives, such as jnp.zeros({shape}, {str(dtype)!r})."
        )
    if kind == "float" and not (np.abs(value) <= _largest(dtype)).all():
        raise InputError(
            f"An observation must be finite; got {value.tolist()}. For a missing one pass None: the step predicts."
        )
    if kind == "integer" and value.size:
        last = np.iinfo(dtype).max if symbols is None else symbols - 1
        first = np.iinfo(dtype).min if symbols is None else 0
        if not (first <= int(value.min()) and int(value.max()) <= last):
            raise InputError(f"Observation {value.tolist()} is outside {first}..{last}.")


def _arrays(tree: PyTree) -> PyTree:
    """The tree with arrays in place of Python and NumPy numbers."""
    return jax.tree.map(jnp.asarray, tree)


def _shapes(state: State) -> str:
    leaves, structure = jax.tree.flatten(state)
    shapes = ", ".join(str(jnp.shape(leaf)) for leaf in leaves)
    return f"shape {shapes}" if len(leaves) == 1 else f"{structure} with shapes {shapes}"


@functools.cache
def _kind(dtype: np.dtype) -> str:
    kinds = {"boolean": np.bool_, "integer": np.integer, "float": np.floating}
    return next((name for name, kind in kinds.items() if np.issubdtype(dtype, kind)), str(dtype))


@functools.cache
def _largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max)


class One(Family):
    """The family of one environment and one policy."""

    environment: Environment
    policy: Policy

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return self.environment, self.policy


def as_family(given: Family | Environment | tuple[Environment, Policy]) -> Family:
    """See an environment as the family of it alone.

    Args:
        given: A family, one environment with its policy, or one environment whose policy is None.

    Returns:
        The family.
    """
    if isinstance(given, Environment):
        return One(given, None)
    family = One(*given) if isinstance(given, tuple) and len(given) == 2 else given
    if not isinstance(family, Family):
        raise InputError(
            f"Expected a family of environments, an environment, or (environment, policy); got {type(given).__name__}."
        )
    return family
