"""Calls of NumPy functions from a compiled program: n states are one call, however they are batched.

A call has arguments of each state (keys, states) and shared ones (the policy, the parameters, the observation). Under
`vmap` all of them arrive at once. States that share the others are given to the user's function together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from nbf.environments.host_primitive import call_numpy
from nbf.errors import HostError
from nbf.executors import Executor


class Simulator:
    """The functions of a user, and how they are called. Compared by identity, so that environments that share one share
    compiled programs.

    Args:
        functions: By name: init, transition, observe, log_likelihood.
        batched: Whether they take n states at once; else one.
        chunk: States of one call at most; None: all of them.
        executor: Where the calls are made; None: here.
    """

    def __init__(
        self, functions: dict[str, Callable], *, batched: bool, chunk: int | None, executor: Executor | None
    ) -> None:
        self.functions, self.batched, self.chunk, self.executor = functions, batched, chunk, executor

    def __call__(
        self, name: str, keys: np.ndarray | None, states: tuple[PyTree, ...], shared: tuple[Any, ...], count: int
    ) -> Any:
        """Call a function for n states that share the other arguments.

        Args:
            name: Of the function.
            keys: Data of n random keys; None for a function that needs none.
            states: Sets of n states.
            shared: What they share.
            count: n.

        Returns:
            What the function gives for them, with a leading axis.
        """
        size = count if self.chunk is None else min(self.chunk, count)
        calls = []
        for first in range(0, count, size):
            part = slice(first, min(first + size, count))
            few = jax.tree.map(lambda leaf: leaf[part], states)  # noqa: B023
            calls.append((
                self.functions[name], name, None if keys is None else keys[part], few, shared,
                part.stop - part.start, self.batched,
            ))  # fmt: skip
        made = [_made(*call) for call in calls] if self.executor is None else self.executor.map(_made, calls)
        return made[0] if len(made) == 1 else jax.tree.map(lambda *parts: np.concatenate(parts), *made)


def _made(
    function: Callable, name: str, keys: np.ndarray | None, states: tuple, shared: tuple, count: int, batched: bool
) -> Any:
    """Call a function for a set of states: at once, or one by one. Where it runs makes no difference: its random
    numbers follow from the keys."""
    if batched:
        start = () if keys is None else (generator(keys),)
        return function(*start, *(() if name != "init" else (count,)), *_ordered(name, states, shared))
    each = []
    for place in range(count):
        one = jax.tree.map(lambda leaf: leaf[place], states)  # noqa: B023
        start = () if keys is None else (generator(keys[place]),)
        each.append(function(*start, *_ordered(name, one, shared)))
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)


def _ordered(name: str, states: tuple, shared: tuple) -> tuple:
    """The arguments in the order of the contract: an observation comes before the states."""
    return (shared[0], *states, *shared[1:]) if name == "log_likelihood" else (*states, *shared)


def generator(keys: np.ndarray) -> np.random.Generator:
    """Make NumPy's random generator from the data of JAX's keys.

    Args:
        keys: Their data.

    Returns:
        The generator: the same for the same keys, wherever and whenever it is made.
    """
    digest = hashlib.blake2b(np.ascontiguousarray(keys).tobytes(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def host_call(
    simulator: Simulator,
    name: str,
    like: PyTree,
    key: Key[Array, ""] | None,
    states: tuple[PyTree, ...],
    shared: tuple[PyTree, ...],
) -> PyTree:
    """Call a NumPy function from a trace, for one state; under `vmap`, for all at once.

    Args:
        simulator: Whose function.
        name: Of the function.
        like: Shapes and types of what it gives for one state.
        key: Random key; None for a function that needs none.
        states: One state of each set.
        shared: The other arguments.

    Returns:
        What the function gives.
    """
    data = None if key is None else jax.random.key_data(key)
    own, own_structure = jax.tree.flatten((data, states))
    others, others_structure = jax.tree.flatten(shared)
    dimensions = [jnp.ndim(leaf) for leaf in own + others]

    def together(mine: Sequence[np.ndarray], theirs: Sequence[np.ndarray], count: int) -> PyTree:
        return _checked(simulator, name, like, own_structure.unflatten(mine), others_structure.unflatten(theirs), count)

    def called(*arrays: np.ndarray) -> list[np.ndarray]:
        try:
            return jax.tree.leaves(_in_groups(together, like, arrays, dimensions, len(own)))
        except HostError as error:
            HostError.latest = error
            raise

    expected, structure = jax.tree.flatten(like)
    kinds = tuple((leaf.shape, leaf.dtype) for leaf in expected)
    return structure.unflatten(call_numpy(called, kinds, *own, *others))


def _in_groups(
    together: Callable, like: PyTree, arrays: Sequence[np.ndarray], dimensions: Sequence[int], split: int
) -> PyTree:
    """Call a function once for all states that share the other arguments. Each array has the same leading axes in front
    of its own `dimensions`, some of size 1; the first `split` belong to states."""
    axes = [leaf.shape[: leaf.ndim - base] for leaf, base in zip(arrays, dimensions, strict=True)]
    batch, groups = np.broadcast_shapes(*axes), np.broadcast_shapes((), *axes[split:])
    count, number_of_groups = int(np.prod(batch)), int(np.prod(groups))

    def flat(leaf: np.ndarray, base: int) -> np.ndarray:
        rest = leaf.shape[leaf.ndim - base :]
        return np.broadcast_to(leaf, (*batch, *rest)).reshape(count, *rest)

    pairs = list(zip(arrays, dimensions, strict=True))
    mine = [flat(leaf, base) for leaf, base in pairs[:split]]
    if number_of_groups == 1:
        made = together(mine, [leaf.reshape(leaf.shape[leaf.ndim - base :]) for leaf, base in pairs[split:]], count)
    else:
        theirs = [flat(leaf, base) for leaf, base in pairs[split:]]
        numbers = np.broadcast_to(np.arange(number_of_groups).reshape(groups), batch).reshape(count)
        made = jax.tree.map(lambda leaf: np.empty((count, *leaf.shape), leaf.dtype), like)
        order = np.argsort(numbers, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            few, one = [leaf[places] for leaf in mine], [np.asarray(leaf[places[0]]) for leaf in theirs]
            found = together(few, one, len(places))
            jax.tree.map(lambda into, values: into.__setitem__(places, values), made, found)  # noqa: B023
    return jax.tree.map(lambda leaf: leaf.reshape((*batch, *leaf.shape[1:])), made)


def _checked(simulator: Simulator, name: str, like: PyTree, own: tuple, shared: tuple, count: int) -> PyTree:
    """What a function gives for n states, as arrays of the expected kinds; a `HostError` if it is anything else."""
    keys, states = own
    try:
        made = simulator(name, keys, states, shared, count)
    except Exception as error:
        raise HostError(f"`{name}` failed for {count} states: {type(error).__name__}: {error}") from error
    expected, structure = jax.tree.flatten(like)
    try:
        leaves = structure.flatten_up_to(made)
    except ValueError as error:
        raise HostError(
            f"`{name}` gave {jax.tree.structure(made)}, where {structure} is expected, as at first."
        ) from error
    return structure.unflatten([_cast(name, leaf, one, count) for leaf, one in zip(leaves, expected, strict=True)])


def _cast(name: str, leaf: Any, like: Any, count: int) -> np.ndarray:
    found, wanted = np.asarray(leaf), (count, *like.shape)
    if found.shape != wanted:
        raise HostError(
            f"`{name}` gave an array of shape {found.shape} for {count} states; {wanted} is expected: one entry for "
            "each state, along the first axis."
        )
    if found.dtype == like.dtype:
        return found
    if not np.can_cast(found.dtype, like.dtype, "same_kind"):
        raise HostError(f"`{name}` gave numbers of type {found.dtype}; {like.dtype} is expected, as at first.")
    return found.astype(like.dtype)
