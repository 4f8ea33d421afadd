"""What a call of a filter must fit: found when it is traced, so that a step that runs pays nothing.

Two mistakes end in an error from deep inside JAX, or in none at all: a policy that is missing, and a state of another
filter or of an environment with other states.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Key, PyTree

from nbf.errors import InputError


class SpaceOf(str):
    """The signature of the space that a filter's state is over. In a tree it is a node without leaves: it is part of
    the structure, costs nothing in a compiled program, and is not saved to disk."""

    __slots__ = ()


jax.tree_util.register_pytree_node(SpaceOf, lambda name: ((), name), lambda name, _: name)


def space_of(space: Any) -> SpaceOf:
    """Name a space, for the state of a filter.

    Args:
        space: A state space.

    Returns:
        What its states share with those of every space that they could be in.
    """
    return SpaceOf(space.state_signature)


_checked: tuple[Any, Any] = (None, object())
"""The environment and the policy that were checked last."""


def check_policy(environment: Any, policy: PyTree) -> None:
    """Raise if an environment refuses a policy. Inside a trace, where its numbers are not known, nothing is checked.

    Args:
        environment: Of this step.
        policy: π.
    """
    global _checked
    if environment is _checked[0] and policy is _checked[1]:  # in a loop of steps, nearly always
        return
    plain = policy is None or isinstance(policy, int | jax.Array)
    leaves = (policy,) if plain else jax.tree.leaves(policy)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return
    type(environment).check_policy(environment, policy)
    # What may change in place is looked at anew.
    if not isinstance(policy, dict | list) and not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        _checked = environment, policy


@contextmanager
def missing_policy_explained(environment: Any, policy: PyTree) -> Iterator[None]:
    """Turn the error of a transition that misses its policy into an `InputError`.

    Args:
        environment: Of this step.
        policy: π; nothing is changed unless it is None.

    Yields:
        Nothing; what is traced goes inside the `with` block.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = why_not_without_policy(environment) if policy is None else None
        if reason is None:
            raise
        name = type(environment).__name__
        raise InputError(
            f"The policy is None, and `transition` of {name} fails with it ({reason}). If it needs a policy, pass that "
            "of this step as the last argument: step(key, state, observation, environment, policy). A family gives "
            "one with each environment: `environment, policy = family.sample(key)`."
        ) from error


def why_not_without_policy(environment: Any) -> str | None:
    """Find out whether an environment needs a policy.

    Args:
        environment: The environment.

    Returns:
        Why a state cannot be moved without one; None if it can.
    """
    key = jax.random.key(0)
    try:
        state = jax.eval_shape(lambda: environment.init(key))
    except Exception:
        return None  # something else is wrong
    try:
        jax.eval_shape(lambda state: environment.transition(key, state, None), state)
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
    return None


def check_state(filter: Any, key: Key[Array, ""], state: PyTree, environment: Any) -> None:
    """Raise unless a state is like the one that a filter starts with in an environment: its leaves, their shapes and
    kinds of numbers, and the space that it is over, if it says so.

    Args:
        filter: The filter.
        key: Random key.
        state: What it is given.
        environment: Of this step.
    """
    try:
        start = jax.eval_shape(lambda: filter.init(key, environment))
    except Exception:
        return  # the update itself says what is wrong
    wanted, given = _leaves(start), _leaves(state)
    names = f"{type(filter).__name__} in {type(environment).__name__}"
    todo = "Start with filter.init(key, environment), and pass on the state that the same filter returned."
    for path in [*wanted, *given]:
        if wanted.get(path) != given.get(path):
            expected, found = (tree.get(path, "nothing") for tree in (wanted, given))
            raise InputError(
                f"This is not a state of {names}: at state{path} it has {found}, where {expected} is expected. {todo}"
            )
    for expected, found in zip(_spaces(start), _spaces(state), strict=False):
        if expected != found:
            raise InputError(
                f"This state is over {found}, the environment has states of {expected}: its particles mean nothing "
                f"there. {todo}"
            )


def _leaves(tree: PyTree) -> dict[str, str]:
    """What each leaf is, by its path."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{_kind(leaf)}{list(jnp.shape(leaf))}" for path, leaf in found}


def _kind(leaf: Any) -> str:
    """The kind of its numbers; their precision may differ."""
    dtype = jnp.result_type(leaf)
    kinds = {"bool": jnp.bool_, "int": jnp.integer, "float": jnp.floating}
    return next((name for name, kind in kinds.items() if jnp.issubdtype(dtype, kind)), str(dtype))


def _spaces(tree: PyTree) -> list[SpaceOf]:
    """The spaces that a state says it is over."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, SpaceOf))
    return [node for node in nodes if isinstance(node, SpaceOf)]
