"""What a call of a filter must fit: found when it is traced, so that a step that runs pays nothing.

Two mistakes end in an error from deep inside JAX, or in none at all: a policy that is missing, and a state of another
filter or of an environment with other states.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
            f"The policy is None, and `transition` of {name} fails ({reason}). It is called as transition(key, state, "
            "policy), and must not branch on a value in Python, nor use NumPy: jnp.where and jax.numpy do. If it needs "
            f"a policy, pass that of this step as the last argument: {STEP}. A family gives one with each "
            "environment: `environment, policy = family.sample(key)`."
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
        return told(error)
    return None


def told(error: Exception) -> str:
    """Tell an error of the user's code in one line.

    Args:
        error: The error.

    Returns:
        Its class, the first line of its message, and the line of the code that raised it.
    """
    first = (str(error).strip() or "no message").splitlines()[0]
    own = Path(__file__).parent
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
        and "<" not in frame.filename
        and own not in Path(frame.filename).parents
    ]
    place = f" (in {frames[-1].name}, {frames[-1].filename} line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first}{place}"


STEP = "step(key, state, observation, environment, policy)"
"""How a step is called."""


def check_is_environment(environment: Any, kind: type) -> None:
    """Raise unless a step is given an environment.

    Args:
        environment: Of this step.
        kind: The class of environments.
    """
    if not isinstance(environment, kind):
        raise InputError(f"A step is told its environment; got {type(environment).__name__}. It is called as {STEP}.")


def check_key(key: Any) -> None:
    """Raise unless a step is given a random key.

    Args:
        key: Random key.
    """
    dtype = jnp.result_type(key) if jax.tree_util.all_leaves([key]) else None
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        found = type(key).__name__ if dtype is None else f"{dtype}{list(jnp.shape(key))}"
        raise InputError(
            f"The first argument of a step is a random key, such as jax.random.key(0); got {found}. It is called as "
            f"{STEP}."
        )


def check_state_fits(environment: Any) -> None:
    """Raise unless a state that an environment draws fits its space, as far as shapes tell.

    Args:
        environment: The environment.
    """
    space = environment.space
    try:
        state = jax.eval_shape(environment.init, jax.random.key(0))
    except Exception:
        return  # something else is wrong
    try:
        numbers = jax.eval_shape(space.encode, state)
        back = jax.eval_shape(space.decode, numbers)
        wrong = "" if numbers.shape == (space.num_features,) else f"it is encoded in shape {numbers.shape}"
        if not wrong and [leaf.shape for leaf in jax.tree.leaves(back)] != [
            leaf.shape for leaf in jax.tree.leaves(state)
        ]:
            wrong = f"encoded and decoded it is {_shown(back)}"
    except Exception as error:
        wrong = told(error)
    if wrong:
        raise InputError(
            f"The state that `init` of {type(environment).__name__} draws ({_shown(state)}) does not fit "
            f"{space.signature} of num_features={space.num_features} ({wrong}). Let `init` give one array of so many "
            "numbers, or `space` have as many axes as the state has numbers."
        )


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


def _shown(tree: PyTree) -> str:
    """The kinds and shapes of its leaves."""
    return ", ".join(f"{_kind(leaf)}{list(jnp.shape(leaf))}" for leaf in jax.tree.leaves(tree))


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
