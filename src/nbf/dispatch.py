"""Fast calls from a Python loop: of a compiled step, and of the compiled methods of a belief.

Flattening an environment or a model at every call costs more than a filter's mathematics. Modules are immutable, so
each is flattened once and cached by its identity, and the compiled function takes a flat list of arrays. Environments
and policies of the same tree structure share one compilation, whatever their values.

A tree that holds a dictionary, a list, a NumPy array or an object of a class unknown here may be changed in place by
its owner. It is flattened anew at every call, so that the change is seen.

Compiled programs take megabytes each. The least recently used ones are dropped, and their memory with them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from nbf.errors import told_by_host

CACHED_MODULES = 64
"""Flattened modules that are kept; the least recently used one is dropped first."""
COMPILED_STEPS = 32
"""Compiled steps and methods that are kept; the least recently used one is dropped first."""
IMMUTABLE = (eqx.Module, tuple, str, type(None))
"""Nodes of a tree that nobody can change in place."""


class _Token:
    """Stands for one tree structure: hashed by its identity, since hashing a structure takes long."""

    __slots__ = ("__weakref__", "is_fixed")

    def __init__(self, structure: Any):
        self.is_fixed = _is_fixed(structure)


class _Flat:
    """A module, its leaves, its tree structure, and the token of the structure."""

    __slots__ = ("is_kept", "leaves", "module", "structure", "token")

    def __init__(self, module: PyTree):
        self.is_kept = False
        self.module = module  # kept alive, because its id is the key of the cache
        self.leaves, self.structure = jax.tree.flatten(module)
        token = _TOKENS.get(self.structure)
        if token is None:
            token = _TOKENS[self.structure] = _Token(self.structure)
        self.token = token


PLAIN = (bool, int, float, np.generic, np.ndarray)
"""Numbers that are not JAX arrays."""
NUMBERS = (jax.Array, complex, *PLAIN)
"""What a compiled function takes."""

_TOKENS: WeakValueDictionary[Any, _Token] = WeakValueDictionary()
"""The token of each structure, for as long as a flattened module or a compiled step has it."""
_FLAT: OrderedDict[int, _Flat] = OrderedDict()
_COMPILED: dict[tuple, Any] = {}
_CLOCK = itertools.count()
_same: tuple[tuple[int, ...], list[_Flat], list[Any]] = ((), [], [])
"""The modules of the last call by their ids, flattened, with all of their leaves: most often those of the next one."""
_latest: tuple[PyTree, list[Any], Any] = (object(), [], None)
"""The state returned last, if it is immutable, with its leaves and structure: most often the next one to come in."""


def _is_fixed(structure: Any) -> bool:
    """Whether every node of a tree is immutable; its leaves may still be NumPy arrays."""
    node = structure.node_data()
    return node is None or (issubclass(node[0], IMMUTABLE) and all(map(_is_fixed, structure.children())))


def _is_constant(leaf: Any) -> bool:
    """Whether a leaf is a number or a JAX array that exists, so that it will never change."""
    return not isinstance(leaf, np.ndarray | Tracer) and isinstance(leaf, NUMBERS)


def _flat(module: PyTree) -> _Flat:
    found = _FLAT.get(id(module))
    if found is not None:
        _FLAT.move_to_end(id(module))
        return found
    found = _Flat(module)
    if isinstance(module, IMMUTABLE) and found.token.is_fixed and all(map(_is_constant, found.leaves)):
        _FLAT[id(module)], found.is_kept = found, True
        if len(_FLAT) > CACHED_MODULES:
            _FLAT.popitem(last=False)
    return found


def _flattened(fixed: tuple[PyTree, ...]) -> tuple[list[_Flat], list[Any]]:
    """Modules, flattened, and all of their leaves."""
    global _same
    ids = tuple(map(id, fixed))
    known, flats, leaves = _same
    if known == ids:
        return flats, leaves
    flats = [_flat(module) for module in fixed]
    leaves = [leaf for flat in flats for leaf in flat.leaves]
    if all(flat.is_kept for flat in flats):  # `flats` keep the modules alive, and so their ids
        _same = (ids, flats, leaves)
    return flats, leaves


def _entered(key: tuple, compiled: Any) -> Any:
    """Make room, then enter a program that is compiled when it is called."""
    while len(_COMPILED) >= COMPILED_STEPS:
        del _COMPILED[min(_COMPILED, key=lambda known: _COMPILED[known].used)]
    _COMPILED[key] = compiled
    return compiled


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
    flats, leaves = _flattened(fixed)
    key = (method, state_structure, moving_structure, *[flat.token for flat in flats])
    compiled = _COMPILED.get(key)
    if compiled is None:
        structures = [flat.structure for flat in flats]
        compiled = _entered(key, _Compiled(method, *structures, state_structure, moving_structure))
    compiled.used = next(_CLOCK)
    try:
        given = compiled.function(*leaves, *state_leaves, *moving_leaves)
    except (ValueError, RuntimeError) as error:
        raise told_by_host(error) from None
    result = compiled.result
    after, more = result.structure.unflatten(given)
    if result.is_fixed:
        _latest = (after, given[: result.size], result.state_structure)
    return after, more


def from_python(method: Callable, *static: str) -> Callable:
    """Compile a method for calls from Python, once for each tree structure and each value of its static arguments.

    Inside a trace it is called as it is; so is it where an argument holds something that is no number.

    Args:
        method: A pure method of a module.
        static: Names of the arguments that are part of the program, such as the size of a result.

    Returns:
        A method that gives the same.
    """
    signature = inspect.signature(method)
    names = tuple(signature.parameters)
    places = tuple(names.index(name) for name in static)

    @functools.wraps(method)
    def dispatched(*arguments: Any, **named: Any) -> Any:
        if named:
            arguments = signature.bind(*arguments, **named).args
        if len(arguments) != len(names):
            return method(*arguments)
        settings = tuple(arguments[place] for place in places)
        return _evaluate(method, places, settings, [each for i, each in enumerate(arguments) if i not in places])

    return dispatched


def compile_methods(kind: type, **methods: tuple[str, ...]) -> None:
    """Compile methods that a class defines, see `from_python`.

    Args:
        kind: The class.
        **methods: The static arguments of each method, by its name; one that the class inherits is left as it is.
    """
    for name, static in methods.items():
        method = vars(kind).get(name)
        if inspect.isfunction(method) and not getattr(method, "__isabstractmethod__", False):
            setattr(kind, name, from_python(method, *static))


def _evaluate(method: Callable, places: tuple[int, ...], settings: tuple[Any, ...], arguments: list[Any]) -> Any:
    """`method` of its arguments, in which the settings stand at their places."""

    def plain(*arguments: Any) -> Any:
        whole = list(arguments)
        for place, setting in zip(places, settings, strict=True):
            whole.insert(place, setting)
        return method(*whole)

    # Not the cache of modules: that would keep 64 beliefs alive, however large.
    leaves, structure = jax.tree.flatten(tuple(arguments))
    if not all(isinstance(leaf, NUMBERS) and not isinstance(leaf, Tracer) for leaf in leaves):
        return plain(*arguments)
    # By shape too: what a method returns may have a static field that is taken from one.
    key = (method, settings, structure, *[getattr(leaf, "shape", ()) for leaf in leaves])
    try:
        compiled = _COMPILED.get(key)
    except TypeError:  # a setting or a static field that has no hash
        return plain(*arguments)
    if compiled is None:
        compiled = _entered(key, _CompiledMethod(plain, structure))
    compiled.used = next(_CLOCK)
    made = iter(compiled.function(*leaves))
    result = compiled.result
    return result.structure.unflatten(next(made) if place is None else leaves[place] for place in result.passed)


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


class _Result:
    """The structure of what a method returns, which tracing finds out."""

    structure: Any
    state_structure: Any
    size: int
    """Number of leaves of the state, which come first."""
    is_fixed: bool
    """Whether the state is immutable."""

    def note(self, after: PyTree, more: PyTree) -> list[Any]:
        """Remember the structure of a result, and flatten it."""
        self.state_structure = jax.tree.structure(after)
        self.is_fixed = isinstance(after, IMMUTABLE) and _is_fixed(self.state_structure)
        self.size = self.state_structure.num_leaves
        given, self.structure = jax.tree.flatten((after, more))
        return given


class _Compiled:
    """A method as a compiled function of flat arrays. Nothing in it refers back to it, so that its program is freed as
    soon as it is dropped."""

    __slots__ = ("function", "result", "used")

    def __init__(self, method: Callable, *structures: Any):
        self.used = next(_CLOCK)
        self.result = result = _Result()

        def flat_method(*leaves: Any) -> list[Any]:
            arguments, start = [], 0
            for structure in structures:
                arguments.append(structure.unflatten(leaves[start : start + structure.num_leaves]))
                start += structure.num_leaves
            *first, moving = arguments
            return result.note(*method(*first, *moving))

        self.function = jax.jit(flat_method)


class _Value:
    """What tracing finds out of the value of a method."""

    structure: Any
    passed: list[int | None]
    """For each leaf the place of the argument that it is: a belief shares the parameters of its filter's model. None
    for a leaf that was computed."""


class _CompiledMethod:
    """A method as a compiled function of flat arrays. As above, nothing in it refers back to it."""

    __slots__ = ("function", "result", "used")

    def __init__(self, method: Callable, structure: Any):
        self.used = next(_CLOCK)
        self.result = result = _Value()

        def flat_method(*leaves: Any) -> list[Any]:
            given, result.structure = jax.tree.flatten(method(*structure.unflatten(leaves)))
            places = {id(leaf): place for place, leaf in enumerate(leaves)}
            result.passed = [places.get(id(leaf)) for leaf in given]
            return [leaf for leaf, place in zip(given, result.passed, strict=True) if place is None]

        self.function = jax.jit(flat_method)
