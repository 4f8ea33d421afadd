"""A call of a Python function from a compiled program, with NumPy arrays in and out.

`jax.pure_callback` gives its function arrays of JAX. To read them the function must wait for a copy, which on a machine
with one free core may wait for the function: a deadlock (jax-ml/jax issue 24255). Here nothing of JAX is touched inside
the call. Under `vmap` each argument gets a leading axis, of size 1 if it has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array

Kinds = tuple[tuple[tuple[int, ...], Any], ...]
"""Shape and type of each array."""

numpy_call = Primitive("nbf_numpy_call")
numpy_call.multiple_results = True


def call_numpy(function: Callable[..., Sequence[np.ndarray]], kinds: Kinds, *arrays: Array) -> list[Array]:
    """Call a function of NumPy arrays.

    Args:
        function: Takes the arrays, and gives a sequence of arrays. It must be pure.
        kinds: Of what it gives for these arrays. With leading axes it gives the same with the same axes in front.
        *arrays: Its arguments.

    Returns:
        What it gives.
    """
    return numpy_call.bind(*map(jnp.asarray, arrays), function=function, kinds=kinds)


@numpy_call.def_abstract_eval
def _shapes(*arrays: Any, function: Callable, kinds: Kinds) -> list[ShapedArray]:
    return [ShapedArray(shape, np.dtype(dtype)) for shape, dtype in kinds]


@numpy_call.def_impl
def _called(*arrays: Any, function: Callable, kinds: Kinds) -> list[Array]:
    return [jnp.asarray(array) for array in function(*map(np.asarray, arrays))]


def _batched(
    arrays: Sequence[Any], axes: Sequence[Any], *, function: Callable, kinds: Kinds
) -> tuple[list[Array], list[int]]:
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    moved = [
        array[None] if axis is None else jnp.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes, strict=True)
    ]
    more = tuple(((size, *shape), dtype) for shape, dtype in kinds)
    return numpy_call.bind(*moved, function=function, kinds=more), [0] * len(kinds)


def _lowered(context: Any, *arrays: Any, function: Callable, kinds: Kinds) -> Any:
    result, _, _ = mlir.emit_python_callback(
        context, lambda *given: tuple(function(*given)), None, list(arrays), context.avals_in, context.avals_out,
        has_side_effect=False, returns_token=False,
    )  # fmt: skip
    return result


batching.primitive_batchers[numpy_call] = _batched
mlir.register_lowering(numpy_call, _lowered)
