"""An environment from NumPy functions: a simulator that is not written in JAX.

    world = nbf.host_environment(
        init=lambda rng, n: ...,                                     # n states ~ p0
        transition=lambda rng, states, policy: ...,                  # n states x' ~ T(x, π)
        observe=lambda rng, states, next_states: ...,                # n observations y ~ H(x, x')
        log_likelihood=lambda observation, states, next_states: ..., # n numbers log H(x, x')[y]
        space=nbf.Box((-5.0,), (5.0,), bounded=False),
    )

Arrays have a leading axis of n states; `rng` is a `numpy.random.Generator`, which follows from the key of the step, so
that the same key gives the same numbers. n states are one call, however they are batched. Where there is only a
function of one state, say `batched=False`, and name an executor that maps it over workers (`nbf.executors`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from nbf.capabilities import StateEmission
from nbf.capability import Capability
from nbf.contracts import Observation, Policy, State, StateSpace
from nbf.environments.functional import Emission, check_leaves, decimals
from nbf.environments.host_calls import Simulator, host_call
from nbf.errors import HostError, InputError
from nbf.executors import Executor

ONE_BY_ONE = 16
"""Functions of one state that make one call of an executor."""


class Like(NamedTuple):
    """Shapes and types of a tree of arrays; it can be compared, and so be part of a program."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and type of each array."""

    @classmethod
    def of(cls, tree: PyTree) -> Like:
        """Describe one entry of a set.

        Args:
            tree: Arrays with a leading axis.

        Returns:
            Shapes and types without that axis.
        """
        leaves, structure = jax.tree.flatten(tree)
        kinds = [(np.shape(leaf)[1:], str(jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype))) for leaf in leaves]
        return cls(structure, tuple(kinds))

    def shapes(self) -> PyTree:
        """The tree, as JAX describes shapes."""
        return self.structure.unflatten([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.leaves])


ONE_NUMBER = Like(jax.tree.structure(0), (((), "float32"),))


class HostEnvironment(StateEmission):
    """What `host_environment` builds. Environments with the same simulator share compiled filters."""

    space: StateSpace
    parameters: PyTree
    """The last argument of every function; None if there are none."""
    simulator: Simulator = eqx.field(static=True)
    """The functions, and how they are called."""
    state_like: Like = eqx.field(static=True)
    """What a state is built of."""
    observation_like: Like = eqx.field(static=True)
    """What an observation is built of."""
    symbols: int | None = eqx.field(static=True, default=None)
    """Integer observations lie in 0..symbols - 1; None if that is not known."""
    emission: Emission = eqx.field(static=True, default="transition")
    """What `log_likelihood` reads: `state`, the new state alone, or `transition`, the state before it too."""

    def init(self, key: Key[Array, ""]) -> State:
        return self._call("init", self.state_like, key, (), ())

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        return self._call("transition", self.state_like, key, (state,), (policy,))

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self._call("observe", self.observation_like, key, (state, next_state), ())

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        told = decimals(observation, *self.observation_like)
        return self._call("log_likelihood", ONE_NUMBER, None, (state, next_state), (told,))

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        return frozenset({StateEmission} if self.emission == "state" else ())

    def check_observation(self, observation: Observation) -> None:
        check_leaves(observation, *self.observation_like, self.symbols)

    def _call(
        self, name: str, like: Like, key: Key[Array, ""] | None, states: tuple[PyTree, ...], shared: tuple[PyTree, ...]
    ) -> Any:
        more = () if self.parameters is None else (self.parameters,)
        return host_call(self.simulator, name, like.shapes(), key, states, (*shared, *more))


def host_environment(
    *,
    init: Callable,
    transition: Callable,
    observe: Callable,
    log_likelihood: Callable,
    space: StateSpace,
    parameters: PyTree = None,
    symbols: int | None = None,
    emission: Emission = "transition",
    batched: bool = True,
    chunk: int | None = None,
    executor: Executor | None = None,
) -> HostEnvironment:
    """Build an environment from NumPy functions. `init` and `observe` are called once, to see what they give. Check the
    result with `nbf.testing.check_environment`.

    Args:
        init: `init(rng, n)` draws n states x0 ~ p0. This and each other function takes `parameters` last, if there are
            any, as NumPy arrays. What they are given must not be changed.
        transition: `transition(rng, states, policy)` draws x' ~ T(x, π) for each of n states.
        observe: `observe(rng, states, next_states)` draws y ~ H(x, x') for each of n pairs.
        log_likelihood: `log_likelihood(observation, states, next_states)` gives log H(x, x')[y] for one observation and
            each of n pairs.
        space: Of the states.
        parameters: A pytree of numbers that may change without compiling again; None if there is none.
        symbols: Where observations are integers 0..symbols - 1, their number.
        emission: What an observation depends on: `state`, the new state alone, or `transition`, the state before it
            too. `state` buys the better filters, where it is true.
        batched: False: the functions take one state each (`init(rng)`, `transition(rng, state, policy)`, ...), and each
            state has a generator of its own.
        chunk: States of one call at most, so that an executor has several calls to share out; None: all, or, of
            functions of one state, 16. It is part of what the numbers follow from, the executor is not.
        executor: Where calls are made (`nbf.executors`); None: here.

    Returns:
        The environment.
    """
    _check_options(emission, symbols, chunk)
    functions = {"init": init, "transition": transition, "observe": observe, "log_likelihood": log_likelihood}
    chunk = ONE_BY_ONE if chunk is None and not batched else chunk
    simulator = Simulator(functions, batched=batched, chunk=chunk, executor=executor)
    more = () if parameters is None else (jax.tree.map(np.asarray, parameters),)
    states = _first(simulator, "init", (), more)
    observations = _first(simulator, "observe", (states, states), more)
    likes = Like.of(states), Like.of(observations)
    return HostEnvironment(space, jax.tree.map(jnp.asarray, parameters), simulator, *likes, symbols, emission)


def _check_options(emission: str, symbols: int | None, chunk: int | None) -> None:
    if emission not in ("state", "transition"):
        raise InputError(f"`emission` is 'state' or 'transition'; got {emission!r}.")
    if symbols is not None and symbols < 1:
        raise InputError(f"An alphabet needs at least 1 symbol; got symbols={symbols}.")
    if chunk is not None and chunk < 1:
        raise InputError(f"A call has at least 1 state; got chunk={chunk}.")


def _first(simulator: Simulator, name: str, states: tuple[PyTree, ...], more: tuple[PyTree, ...]) -> PyTree:
    """What a function gives for one state."""
    keys = np.zeros((1, 2), np.uint32)
    try:
        made = simulator(name, keys, states, more, 1)
    except Exception as error:
        sets = {"init": "init(rng, n)", "observe": "observe(rng, states, next_states)"}
        ones = {"init": "init(rng)", "observe": "observe(rng, state, next_state)"}
        example = (sets if simulator.batched else ones)[name]
        also = ", `parameters` last" if more else ""
        raise HostError(
            f"`{name}` failed at its first call, as {example}{also}: {type(error).__name__}: {error}"
        ) from error
    made = jax.tree.map(np.asarray, made)
    for leaf in jax.tree.leaves(made):
        if leaf.dtype.kind not in "biuf" or leaf.ndim == 0 or leaf.shape[0] != 1:
            raise HostError(
                f"`{name}` gave {leaf.dtype} of shape {leaf.shape} for 1 state; numbers with a leading axis of 1 are "
                "expected."
            )
    return made
