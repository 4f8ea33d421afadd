"""Fast calls of a compiled step from a Python loop.

Flattening an environment or a model at every call costs more than a filter's mathematics. Modules are immutable, so
each is flattened once and cached by its identity, and the compiled function takes a flat list of arrays. Environments
and policies of the same tree structure share one compilation, whatever their values.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

CACHED_MODULES = 64
"""Flattened modules that are kept; the least recently used one is dropped first."""


class _Flat:
    """A module, its leaves, its tree structure, and a number that identifies the structure."""

    __slots__ = ("leaves", "module", "structure", "token")

    def __init__(self, module: PyTree):
        self.module = module  # kept alive, because its id is the key of the cache
        self.leaves, self.structure = jax.tree.flatten(module)
        self.token = _TOKENS.setdefault(self.structure, next(_COUNTER))


PLAIN = (bool, int, float, np.generic, np.ndarray)
"""Numbers that are not JAX arrays."""

_TOKENS: dict[Any, int] = {}
_COUNTER = itertools.count()
_FLAT: OrderedDict[int, _Flat] = OrderedDict()
_COMPILED: dict[tuple, _Compiled] = {}
_latest: tuple[PyTree, list[Any], Any] = (object(), [], None)
"""The state returned last, if it is immutable, with its leaves and structure: most often the next one to come in."""


def _flat(module: PyTree) -> _Flat:
    found = _FLAT.get(id(module))
    if found is not None:
        _FLAT.move_to_end(id(module))
        return found
    if not (module is None or isinstance(module, eqx.Module)):  # anything else may be changed in place by its owner
        return _Flat(module)
    found = _FLAT[id(module)] = _Flat(module)
    if len(_FLAT) > CACHED_MODULES:
        _FLAT.popitem(last=False)
    return found


def call(method: Callable, fixed: tuple[PyTree, ...], state: PyTree, moving: PyTree) -> tuple[PyTree, PyTree]:
    """Call `method(*fixed, state, *moving)`, compiled; inside another trace, call it as it is.

    Args:
        method: A pure function that returns the next state and one more tree. Compiled once for each tree structure.
        fixed: Modules that often come again, such as filter, environment and policy.
        state: What is carried from call to call.
        moving: Arguments that are new at every call, such as key and observation.

    Returns:
        What `method` returns.
    """
    global _latest
    moving_leaves, moving_structure = jax.tree.flatten(moving)
    known, state_leaves, state_structure = _latest
    new = moving_leaves
    if known is not state:
        state_leaves, state_structure = jax.tree.flatten(state)
        new = state_leaves + moving_leaves
    for leaf in new:
        if isinstance(leaf, Tracer):
            return method(*fixed, state, *moving)
    flats = [_flat(module) for module in fixed]
    leaves = [leaf for flat in flats for leaf in flat.leaves]
    key = (method, state_structure, moving_structure, *[flat.token for flat in flats])
    compiled = _COMPILED.get(key)
    if compiled is None:
        compiled = _COMPILED[key] = _Compiled(
            method, *[flat.structure for flat in flats], state_structure, moving_structure
        )
    given = compiled.function(*leaves, *state_leaves, *moving_leaves)
    after, more = compiled.structure.unflatten(given)
    if compiled.is_fixed:
        _latest = (after, given[: compiled.size], compiled.state_structure)
    return after, more


def arrays(numbers: PyTree) -> PyTree:
    """Convert Python and NumPy numbers to arrays of JAX's types.

    So 3, np.int64(3) and an int32 on the device share one compilation.

    Args:
        numbers: A tree of numbers and arrays.

    Returns:
        The same tree of arrays.
    """
    return _array(numbers) if isinstance(numbers, PLAIN) else jax.tree.map(_array, numbers)


def _array(number: Any) -> Any:
    if not isinstance(number, PLAIN):
        return number
    kind = getattr(number, "dtype", None)
    return np.asarray(number, jax.dtypes.canonicalize_dtype(np.dtype(type(number)) if kind is None else kind))


class _Compiled:
    """A method as a compiled function of flat arrays, with the structure of its result, which tracing finds out."""

    structure: Any
    state_structure: Any
    size: int
    """Number of leaves of the state, which come first."""
    is_fixed: bool
    """Whether the state is a module or a tuple, and so immutable."""

    def __init__(self, method: Callable, *structures: Any):
        def flat_method(*leaves: Any) -> list[Any]:
            arguments, start = [], 0
            for structure in structures:
                arguments.append(structure.unflatten(leaves[start : start + structure.num_leaves]))
                start += structure.num_leaves
            *first, moving = arguments
            after, more = method(*first, *moving)
            self.state_structure, self.is_fixed = jax.tree.structure(after), isinstance(after, eqx.Module | tuple)
            self.size = self.state_structure.num_leaves
            given, self.structure = jax.tree.flatten((after, more))
            return given

        self.function = jax.jit(flat_method)
