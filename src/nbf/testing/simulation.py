"""Compiled rollouts and draws of an environment under test, and conversion of trees to rows of numbers."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from nbf.capabilities import ContinuousSpace, Enumerable, KnownTransitions, Stencil
from nbf.capability import capability
from nbf.contracts import Environment, Policy, StateSpace

EPISODES, STEPS = 8, 6
"""Episodes that are rolled out, and steps of each."""
CASES = 6
"""Pairs of a state and its next one at which draws are compared with probabilities."""
DRAWS = 8192
"""Draws for each such pair."""
TOLERANCE = 1e-4
"""For float32 arithmetic: sums of probabilities, round trips."""


def once(environment: Environment, policy: Policy, key: Key[Array, ""]) -> dict[str, PyTree]:
    """Call every function of the contract once.

    Args:
        environment: The environment.
        policy: A policy for it.
        key: The randomness of all draws.

    Returns:
        The results by name.
    """
    keys = jax.random.split(key, 3)
    state = environment.init(keys[0])
    next_state = environment.transition(keys[1], state, policy)
    return look(environment, keys[2], state, next_state)


def look(environment: Environment, key: Key[Array, ""], state: PyTree, next_state: PyTree) -> dict[str, PyTree]:
    """Call every function of the contract that applies to a transition.

    Args:
        environment: The environment.
        key: The randomness of the observation.
        state: The state before the transition.
        next_state: The state after it.

    Returns:
        The results by name.
    """
    observation = environment.observe(key, state, next_state)
    encoded = environment.space.encode(next_state)
    return {
        "state": state,
        "next_state": next_state,
        "observation": observation,
        "log_likelihood": environment.log_likelihood(observation, state, next_state),
        "legal": environment.space.contains(state),
        "contains": environment.space.contains(next_state),
        "encoded": encoded,
        "decoded": _decoded(environment.space, encoded, next_state),
    }


def _decoded(space: StateSpace, encoded: Array, state: PyTree) -> PyTree:
    """The decoded state; circular coordinates as many times round as in the one that was encoded."""
    decoded = space.decode(encoded)
    continuous = capability(space, ContinuousSpace)
    if continuous is None or not continuous.circular:
        return decoded
    return state + continuous.difference(decoded, state)


@eqx.filter_jit
def scheduled_rollouts(environment: Environment, policy: Policy, key: Key[Array, ""]) -> dict[str, PyTree]:
    """Roll out a few episodes in which environment and policy change at every step.

    Args:
        environment: The environment of each step, along a leading axis.
        policy: The policy of each step, along a leading axis.
        key: The randomness of all draws.

    Returns:
        What `look` finds at each transition, with an axis of steps and one of episodes.
    """

    def step(state: PyTree, inputs: tuple[Key[Array, ""], Any, Any]) -> tuple[PyTree, dict[str, PyTree]]:
        key, now, control = inputs
        move_key, look_key = jax.random.split(key)
        next_state = now.transition(move_key, state, control)
        return next_state, look(now, look_key, state, next_state)

    def episode(key: Key[Array, ""]) -> dict[str, PyTree]:
        start = jax.tree.map(lambda leaf: leaf[0], environment).init(key)
        steps = jax.tree.leaves((environment, policy))[0].shape[0]
        return jax.lax.scan(step, start, (jax.random.split(key, steps), environment, policy))[1]

    return jax.vmap(episode, out_axes=1)(jax.random.split(key, EPISODES))


@eqx.filter_jit
def rollouts(environment: Environment, policy: Policy, key: Key[Array, ""]) -> dict[str, PyTree]:
    """Roll out a few episodes.

    Args:
        environment: The environment.
        policy: A policy for it.
        key: The randomness of all draws.

    Returns:
        What `look` finds at each transition, along one axis, earliest steps first; and another observation for each
        (`other`), with its likelihood.
    """

    def step(state: PyTree, key: Key[Array, ""]) -> tuple[PyTree, dict[str, PyTree]]:
        move_key, look_key = jax.random.split(key)
        next_state = environment.transition(move_key, state, policy)
        return next_state, look(environment, look_key, state, next_state)

    def episode(key: Key[Array, ""]) -> dict[str, PyTree]:
        return jax.lax.scan(step, environment.init(key), jax.random.split(key, STEPS))[1]

    episodes = jax.vmap(episode, out_axes=1)(jax.random.split(key, EPISODES))
    seen = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), episodes)
    seen["other"] = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=0), seen["observation"])
    likelihood = jax.vmap(environment.log_likelihood)
    return seen | {"other_log_likelihood": likelihood(seen["other"], seen["state"], seen["next_state"])}


@eqx.filter_jit
def observations(environment: Environment, key: Key[Array, ""], states: PyTree, next_states: PyTree) -> PyTree:
    """Draw many observations of each case.

    Args:
        environment: The environment.
        key: The randomness of the draws.
        states: The states before the transitions.
        next_states: The states after them.

    Returns:
        `CASES` x `DRAWS` observations.
    """
    keys = jax.random.split(key, (CASES, DRAWS))
    return jax.vmap(jax.vmap(environment.observe, (0, None, None)))(keys, states, next_states)


@eqx.filter_jit
def likelihoods(environment: Environment, observations: PyTree, states: PyTree, next_states: PyTree) -> Array:
    """Compute the log likelihood of many observations of each case.

    Args:
        environment: The environment.
        observations: The observations, with an axis of cases and one of draws.
        states: The states before the transitions.
        next_states: The states after them.

    Returns:
        One number for each observation.
    """
    return jax.vmap(jax.vmap(environment.log_likelihood, (0, None, None)))(observations, states, next_states)


@eqx.filter_jit
def lists(environment: Enumerable, key: Key[Array, ""]) -> tuple[PyTree, Array, Array, Array]:
    """List the states of an environment, and draw initial ones.

    Args:
        environment: The environment.
        key: The randomness of the draws.

    Returns:
        All states, the index of each, log p0 of each, and the indices of `DRAWS` initial states.
    """
    drawn = jax.vmap(lambda key: environment.index(environment.init(key)))(jax.random.split(key, DRAWS))
    states = environment.states()
    return states, jax.vmap(environment.index)(states), environment.initial_log_probs(), drawn


@eqx.filter_jit
def branches(
    environment: Enumerable, policy: Policy, key: Key[Array, ""], states: PyTree
) -> tuple[PyTree, Array, Array, Array, Array]:
    """List the successors of each state, and draw next states.

    Args:
        environment: The environment.
        policy: A policy for it.
        key: The randomness of the draws.
        states: `CASES` states.

    Returns:
        The successors, log T, index and legality of each, and for each state the indices of `DRAWS` next states.
    """

    def move(key: Key[Array, ""], state: PyTree) -> Array:
        return environment.index(environment.transition(key, state, policy))

    ends, log_probs = jax.vmap(environment.successors, (0, None))(states, policy)
    drawn = jax.vmap(jax.vmap(move, (0, None)))(jax.random.split(key, (CASES, DRAWS)), states)
    each = lambda function: jax.vmap(jax.vmap(function))(ends)  # noqa: E731
    return ends, log_probs, each(environment.index), each(environment.space.contains), drawn


@eqx.filter_jit
def offsets(environment: Stencil, policy: Policy, states: PyTree) -> tuple[Array, Array]:
    """Follow every offset from each state.

    Args:
        environment: The environment.
        policy: A policy for it.
        states: Some states.

    Returns:
        The index of the state that each offset leads to, and its probability.
    """
    ends = states[:, None] + jnp.asarray(environment.offsets, jnp.int32)
    log_probs = jax.vmap(environment.offset_log_probs, (0, None))(states, policy)
    return jax.vmap(jax.vmap(environment.index))(ends), jnp.exp(log_probs)


@eqx.filter_jit
def known_transitions(environment: KnownTransitions, policy: Policy, states: PyTree) -> tuple[Array, Array]:
    """Follow every branch from each state.

    Args:
        environment: The environment.
        policy: A policy for it.
        states: Some states.

    Returns:
        The index of the state that each branch leads to, and its probability.
    """
    numbers = jnp.arange(environment.num_branches)

    def each(state: PyTree) -> tuple[Array, Array]:
        ends = jax.vmap(environment.follow, (None, None, 0))(state, policy, numbers)
        # An impossible branch may lead anywhere.
        probs = jnp.exp(jnp.asarray(environment.transition_log_probs(state, policy)))
        return jnp.where(probs > 0, jax.vmap(environment.index)(ends), 0), probs

    return jax.vmap(each)(states)


def leaves(tree: PyTree) -> list[np.ndarray]:
    """Convert the leaves of a tree to NumPy arrays.

    Args:
        tree: The tree.

    Returns:
        Its leaves.
    """
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def width(leaf: np.ndarray, axes: int = 2) -> int:
    """Count the numbers in one entry of a leaf.

    Args:
        leaf: The leaf.
        axes: Number of leading axes that count entries.

    Returns:
        The product of the other axes.
    """
    return int(np.prod(leaf.shape[axes:]))


def rows(tree: PyTree, axes: int = 2) -> tuple[np.ndarray, Any]:
    """Convert a set of trees to rows of numbers.

    Args:
        tree: The set.
        axes: Number of leading axes that count entries.

    Returns:
        The rows, and a function that makes trees of rows again.
    """
    parts, structure = leaves(tree), jax.tree.structure(tree)
    flat = np.concatenate([leaf.reshape(*leaf.shape[:axes], -1).astype(np.float64) for leaf in parts], axis=-1)
    ends = np.cumsum([width(leaf, axes) for leaf in parts])[:-1]

    def rebuild(numbers: np.ndarray) -> PyTree:
        cut = zip(np.split(numbers, ends, axis=-1), parts, strict=True)
        shaped = [part.reshape(*numbers.shape[:-1], *leaf.shape[axes:]).astype(leaf.dtype) for part, leaf in cut]
        return structure.unflatten(shaped)

    return flat, rebuild


def same(one: Any, other: Any) -> bool:
    """Compare two arrays exactly, with NaN equal to NaN.

    Args:
        one: An array.
        other: Another one.

    Returns:
        Whether they are equal.
    """
    return bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f"))


def close(found: PyTree, expected: PyTree) -> np.ndarray:
    """Compare two sets entry by entry, floats up to rounding.

    Args:
        found: A set of trees.
        expected: Another one.

    Returns:
        For each entry, whether the two agree.
    """
    agree = []
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        # Relative to the largest: an encoding of order one loses precision for numbers near zero.
        allowed = TOLERANCE * max(1.0, float(np.abs(other).max())) if other.dtype.kind == "f" else 0.0
        agree.append((np.abs(one - other) <= allowed).reshape(len(one), -1).all(axis=1))
    return np.all(agree, axis=0)
