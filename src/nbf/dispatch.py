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


_TOKENS: dict[Any, int] = {}
_COUNTER = itertools.count()
_FLAT: OrderedDict[int, _Flat] = OrderedDict()
_COMPILED: dict[tuple, Callable] = {}


def _flat(module: PyTree) -> _Flat:
    if not isinstance(module, eqx.Module):  # whatever else it is, its owner may change it in place
        return _Flat(module)
    found = _FLAT.get(id(module))
    if found is not None:
        _FLAT.move_to_end(id(module))
        return found
    found = _FLAT[id(module)] = _Flat(module)
    if len(_FLAT) > REMEMBERED:
        _FLAT.popitem(last=False)
    return found


def call(method: Callable, fixed: tuple[PyTree, ...], moving: PyTree) -> PyTree:
    """`method(*fixed, *moving)`, compiled. `fixed` are modules that tend to come again, `moving` is
    new at every call. Inside another trace the method is simply called."""
    moving_leaves, moving_structure = jax.tree.flatten(moving)
    if any(isinstance(leaf, Tracer) for leaf in moving_leaves):
        return method(*fixed, *moving)
    flats = [_flat(module) for module in fixed]
    leaves = [leaf for flat in flats for leaf in flat.leaves]
    key = (method, moving_structure, *(flat.token for flat in flats))
    compiled = _COMPILED.get(key)
    if compiled is None:
        compiled = _COMPILED[key] = _compile(method, [flat.structure for flat in flats], moving_structure)
    return compiled(*leaves, *moving_leaves)


def _compile(method: Callable, structures: list, moving_structure: Any) -> Callable:
    sizes = [structure.num_leaves for structure in structures]

    def flat_method(*leaves: Any) -> PyTree:
        arguments, start = [], 0
        for structure, size in zip(structures, sizes, strict=True):
            arguments.append(structure.unflatten(leaves[start : start + size]))
            start += size
        return method(*arguments, *moving_structure.unflatten(leaves[start:]))

    return jax.jit(flat_method)
