"""Redraw while every weight is zero: the paper's remark after ε-positivity (section "Proof of Theorem").

"One could repeat lines 2-6 of Algorithm 1 until some w > 0." Now and then no particle explains the
observation; a filter that divides by the total weight of zero is NaN from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import prng


def some_weight(log_weights: Float[Array, " n"]) -> Bool[Array, ""]:
    """Tell whether any entry has weight; NaN and +inf, which no likelihood should be, count as none.

    Args:
        log_weights: n of them.

    Returns:
        A boolean scalar.
    """
    return jnp.any((log_weights > -jnp.inf) & (log_weights < jnp.inf))


def diverged(states: PyTree) -> Bool[Array, " n"] | None:
    """Find the states of a set that a simulator has left NaN or infinite.

    Args:
        states: n states.

    Returns:
        A boolean for each; None if no leaf is a floating-point number.
    """
    leaves = [leaf for leaf in jax.tree.leaves(states) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    bad = [jnp.any(~jnp.isfinite(leaf).reshape(leaf.shape[0], -1), axis=1) for leaf in leaves]
    return jnp.any(jnp.stack(bad), axis=0) if bad else None


def padded(states: PyTree, log_weights: Float[Array, " n"]) -> PyTree:
    """Replace states without weight by the heaviest one, since zero times NaN would be NaN.

    Args:
        states: n states.
        log_weights: Of the states.

    Returns:
        n states, all finite where the heaviest is.
    """
    if diverged(states) is None:
        return states
    heaviest = jnp.argmax(log_weights)

    def leaf(values: Array) -> Array:
        none = jnp.reshape(log_weights == -jnp.inf, (-1,) + (1,) * (values.ndim - 1))
        return jnp.where(none, values[heaviest], values)

    return jax.tree.map(leaf, states)


def until_some_weight(
    key: Key[Array, ""],
    max_attempts: int,
    propose: Callable[[Key[Array, ""], Int[Array, ""]], tuple[PyTree, Float[Array, " n"]]],
) -> tuple[PyTree, Float[Array, " n"], Int[Array, ""]]:
    """Call `propose(key, attempt)`, attempt = 0, 1, ..., until some log weight is above -inf.

    One loop that is left after its first round, instead of a first attempt in front of a loop: the
    simulator is compiled once. The derivative is that of the attempt which counted.

    Args:
        key: Random key.
        max_attempts: At most so many.
        propose: Gives a proposal and its log weights.

    Returns:
        The last proposal, its log weights and how many attempts it took.
    """
    if max_attempts == 1:
        return *propose(prng.fold_in(key, jnp.int32(0)), jnp.int32(0)), jnp.int32(1)
    # Whatever `propose` closes over becomes an argument, since a loop cannot be differentiated backwards, and a
    # derivative of one's own is one by arguments.
    traced, shapes = jax.make_jaxpr(propose, return_shape=True)(key, jnp.int32(0))

    def attempt(number: Int[Array, ""], key: Key[Array, ""], *constants: Any) -> tuple[PyTree, Float[Array, " n"]]:
        leaves = eval_jaxpr(traced.jaxpr, constants, prng.fold_in(key, number), number)
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return _looped(max_attempts, attempt, shapes)(key, *traced.consts)


def _looped(max_attempts: int, attempt: Callable, shapes: PyTree) -> Callable:
    """`attempt(number, *inputs)` as a function of the inputs, repeated until some log weight is above -inf."""

    @jax.custom_jvp
    def last(*inputs: Any) -> tuple[PyTree, Float[Array, " n"], Int[Array, ""]]:
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        number, (proposal, log_weights) = jax.lax.while_loop(
            lambda carry: (carry[0] < max_attempts) & ~some_weight(carry[1][1]),
            lambda carry: (carry[0] + 1, attempt(carry[0], *inputs)),
            (jnp.int32(0), (nothing[0], jnp.full_like(nothing[1], -jnp.inf))),
        )
        return proposal, log_weights, number

    @last.defjvp
    def derivative(inputs: tuple[Any, ...], changes: tuple[Any, ...]) -> tuple[Any, Any]:
        found = last(*inputs)
        _, change = jax.jvp(lambda *inputs: attempt(found[2] - 1, *inputs), inputs, changes)
        return found, (*change, np.zeros((), jax.dtypes.float0))

    return last
