"""Which arguments a function reads, found from its trace: once, when an environment is made, never in an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal
from jaxtyping import PyTree

CALLS = ("jit", "pjit", "closed_call")
"""Primitives that call a traced function, with one input for each of their own."""


def reads(function: Callable, arguments: Sequence[PyTree], position: int) -> bool:
    """Tell whether the value of a function may depend on one of its arguments.

    Args:
        function: Written in JAX.
        arguments: Examples, or their shapes and types.
        position: Of the argument in question.

    Returns:
        False if no path leads from the argument to the result; True otherwise, even if its effect is always zero.
    """
    traced = jax.make_jaxpr(function)(*arguments).jaxpr
    sizes = [len(jax.tree.leaves(argument)) for argument in arguments]
    first = sum(sizes[:position])
    used = _used_inputs(traced, [True] * len(traced.outvars))
    return any(used[first : first + sizes[position]])


def _used_inputs(jaxpr: Jaxpr, needed: Sequence[bool]) -> list[bool]:
    """Which inputs of a traced function some needed output depends on."""
    live = {variable for variable, wanted in zip(jaxpr.outvars, needed, strict=True) if wanted and _named(variable)}
    for equation in reversed(jaxpr.eqns):
        wanted = [variable in live for variable in equation.outvars]
        if not any(wanted):
            continue
        used = [True] * len(equation.invars)
        if equation.primitive.name in CALLS:
            used = _used_inputs(equation.params["jaxpr"].jaxpr, wanted)
        live |= {variable for variable, read in zip(equation.invars, used, strict=True) if read and _named(variable)}
    return [variable in live for variable in jaxpr.invars]


def _named(variable: Any) -> bool:
    return not isinstance(variable, Literal)
