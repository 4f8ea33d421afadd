"""Calling a compiled step from a plain Python loop, at little more than the cost of the step itself.

Flattening an environment or a model anew at every call costs more than a filter's mathematics.
Modules are immutable, so each is flattened once and remembered by its identity; the compiled
function takes a flat list of arrays. Environments and policies of the same structure share one
compilation, whatever their values.
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

REMEMBERED = 64
"""How many modules are remembered; the least recently used one is forgotten first."""


class _Flat:
    """A module, its leaves, and a number that stands for its structure."""

    __slots__ = ("leaves", "module", "structure", "token")

    def __init__(self, module: PyTree):
        self.module = module  # kept alive: its id is the key it is found by
        self.leaves, self.structure = jax.tree.flatten(module)
        self.token = _TOKENS.setdefault(self.structure, next(_COUNTER))


PLAIN = (bool, int, float, np.generic, np.ndarray)
"""Numbers that are not on the device yet."""

_TOKENS: dict[Any, int] = {}
_COUNTER = itertools.count()
_FLAT: OrderedDict[int, _Flat] = OrderedDict()
_COMPILED: dict[tuple, _Compiled] = {}
_latest: tuple[PyTree, list[Any], Any] = (object(), [], None)
"""The state that was given last, if it is immutable, with its leaves and structure: most often the next one to come."""


def _flat(module: PyTree) -> _Flat:
    found = _FLAT.get(id(module))
    if found is not None:
        _FLAT.move_to_end(id(module))
        return found
    if not (module is None or isinstance(module, eqx.Module)):  # whatever else it is, its owner may change it in place
        return _Flat(module)
    found = _FLAT[id(module)] = _Flat(module)
    if len(_FLAT) > REMEMBERED:
        _FLAT.popitem(last=False)
    return found


def call(method: Callable, fixed: tuple[PyTree, ...], state: PyTree, moving: PyTree) -> tuple[PyTree, PyTree]:
    """`method(*fixed, state, *moving)`, compiled, which gives the next state and something more. `fixed` are modules
    that tend to come again, `moving` is new at every call. Inside another trace the method is simply called."""
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
    """Numbers of Python's or NumPy's as arrays of the types that JAX gives them, so that 3, np.int64(3) and an int32
    on the device share one compilation."""
    return _array(numbers) if isinstance(numbers, PLAIN) else jax.tree.map(_array, numbers)


def _array(number: Any) -> Any:
    if not isinstance(number, PLAIN):
        return number
    kind = getattr(number, "dtype", None)
    return np.asarray(number, jax.dtypes.canonicalize_dtype(np.dtype(type(number)) if kind is None else kind))


class _Compiled:
    """A method as a compiled function of flat arrays, in and out, and the structure of what it gives, which is known
    once it was traced."""

    structure: Any
    state_structure: Any
    size: int
    """Leaves of the state, which come first."""
    is_fixed: bool
    """Whether the state is a module or a tuple, hence immutable."""

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
