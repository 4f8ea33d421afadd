"""The tree of a search: histories of actions and observations, as arrays of fixed size.

A node is a history h. Each of its slots is an action a; the nodes whose parent is h and whose slot is a are the
observations that came after it. Nothing is written while a simulation goes down the tree, so that the compiled loop
copies none of it; `Tree.after` enters a whole simulation at once.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf.contracts import Observation, State
from nbf.errors import InputError
from nbf.planning.task import Action


class Widening(eqx.Module):
    """Progressive widening: after N visits there are at most about k · N^α children.

    Arguments of the methods:
        visits: N.
        simulations: Of a search: N at most.
    """

    factor: float = eqx.field(static=True)
    """k."""
    exponent: float = eqx.field(static=True)
    """α."""

    def __check_init__(self) -> None:
        if not self.factor > 0 or not 0 <= self.exponent <= 1:
            raise InputError(
                "Widening has a factor above 0 and an exponent from 0 to 1; "
                f"got factor={self.factor}, exponent={self.exponent}."
            )

    def opens(self, children: Int[Array, ""], visits: Int[Array, ""]) -> Bool[Array, ""]:
        """Tell whether one more child may be opened, beside as many `children`."""
        return children <= self.factor * visits.astype(jnp.float32) ** self.exponent

    def most(self, simulations: int) -> int:
        """Compute how many children there can be."""
        return min(simulations, math.floor(self.factor * simulations**self.exponent) + 1)


class Path(eqx.Module):
    """One step of a simulation; with a leading axis, the depth, a whole one from the root on."""

    node: Int[Array, "*depth"]
    slot: Int[Array, "*depth"]
    in_tree: Bool[Array, "*depth"]
    """Whether the step was taken in the tree, and not in a rollout or not at all."""
    reward: Float[Array, "*depth"]
    opened: Bool[Array, "*depth"]
    """Whether the action is a new one."""
    action: Action
    child: Int[Array, "*depth"]
    own: Bool[Array, "*depth"]
    """Whether the child has the observation that was drawn, and not one of before in its place."""
    arrived: State
    """The state that the simulation came to, for the belief of the child."""
    log_weight: Float[Array, "*depth"]


class Tree(eqx.Module):
    """What a search knows. Arrays have a leading axis, the nodes; the root is the first."""

    visits: Int[Array, " nodes"]
    tries: Int[Array, "nodes slots"]
    values: Float[Array, "nodes slots"]
    """Q(h, a), the mean return."""
    opened: Int[Array, " nodes"]
    """How many slots have an action."""
    actions: Action
    """Of the slots; None where they are listed."""
    parent: Int[Array, " nodes"]
    slot: Int[Array, " nodes"]
    observation: Observation
    drawn: Int[Array, " nodes"]
    """How often the observation was drawn."""
    held: Int[Array, " nodes"]
    """How many states arrived."""
    states: State
    """Of those that arrived some, weighted: the belief of a node. None where each simulation keeps to its own state."""
    log_weights: Float[Array, "nodes kept"] | None
    low: Float[Array, ""]
    """The smallest of the values, and the largest, by which they are scaled."""
    high: Float[Array, ""]

    def scores(self, node: Int[Array, ""], exploration: float, noise: Float[Array, " slots"]) -> Float[Array, " slots"]:
        """Score the actions of a node: UCB1 of values that are scaled to 0..1.

        Args:
            node: The node.
            exploration: c of c · √(log N / n).
            noise: From 0 to 1; decides between actions that were not tried.

        Returns:
            A score for each slot, -inf where there is no action.
        """
        tries = self.tries[node]
        scaled = (self.values[node] - self.low) / jnp.maximum(self.high - self.low, 1e-6)
        bonus = jnp.sqrt(jnp.log(jnp.maximum(self.visits[node], 1)) / jnp.maximum(tries, 1))
        found = jnp.where(tries == 0, 1e9 + 1e6 * noise, scaled + exploration * bonus)
        return jnp.where(jnp.arange(tries.shape[0]) < self.opened[node], found, -jnp.inf)

    def children(self, node: Int[Array, ""], slot: Int[Array, ""]) -> Bool[Array, " nodes"]:
        """Tell which nodes follow an action.

        Args:
            node: Where it was taken.
            slot: The action.

        Returns:
            Whether each node does.
        """
        return (self.parent == node) & (self.slot == slot)

    def same(self, observation: Observation) -> Bool[Array, " nodes"]:
        """Tell which nodes have an observation.

        Args:
            observation: The observation.

        Returns:
            Whether each node has.
        """
        equal = [
            jnp.all((leaf == one).reshape(leaf.shape[0], -1), axis=1)
            for leaf, one in zip(jax.tree.leaves(self.observation), jax.tree.leaves(observation), strict=True)
        ]
        return jnp.all(jnp.stack(equal), axis=0)

    def after(self, key: Key[Array, ""], path: Path, returns: Float[Array, " depth"], new: Int[Array, ""],
              observation: Observation) -> Tree:  # fmt: skip
        """Enter a simulation.

        Args:
            key: Random key.
            path: The simulation.
            returns: From each of its steps on.
            new: Index of the node that it may open.
            observation: Of this node.

        Returns:
            The tree after it.
        """
        nowhere = self.visits.shape[0]  # writes beyond the end are dropped
        node, child = (jnp.where(path.in_tree, index, nowhere) for index in (path.node, path.child))
        tries = self.tries[path.node, path.slot] + 1
        found = self.values[path.node, path.slot]
        values = found + (returns - found) / tries
        opening = jnp.where(path.opened, node, nowhere)
        made = jnp.where(jnp.any(path.in_tree & (path.child == new)), new, nowhere)
        last = jnp.argmax(path.in_tree & (path.child == new))
        put = {"mode": "drop", "unique_indices": False}
        states, log_weights = self._with_states(key, path, child)
        return Tree(
            visits=self.visits.at[node].add(1, **put),
            tries=self.tries.at[node, path.slot].add(1, **put),
            values=self.values.at[node, path.slot].set(values, **put),
            opened=self.opened.at[opening].add(1, **put),
            actions=_set(self.actions, (opening, path.slot), path.action),
            parent=self.parent.at[made].set(path.node[last], **put),
            slot=self.slot.at[made].set(path.slot[last], **put),
            observation=_set(self.observation, (made,), observation),
            drawn=self.drawn.at[jnp.where(path.own, child, nowhere)].add(1, **put),
            held=self.held.at[child].add(1, **put),
            states=states,
            log_weights=log_weights,
            low=jnp.minimum(self.low, jnp.min(jnp.where(path.in_tree, values, jnp.inf))),
            high=jnp.maximum(self.high, jnp.max(jnp.where(path.in_tree, values, -jnp.inf))),
        )

    def _with_states(self, key: Key[Array, ""], path: Path, child: Int[Array, " depth"]) -> tuple[State, Array | None]:
        """Keep the states that arrived: all while there is room, then each with the same probability."""
        if self.log_weights is None:
            return None, None
        room, held = self.log_weights.shape[1], self.held[path.child]
        place = jnp.where(held < room, held, jax.random.randint(key, held.shape, 0, held + 1))
        place = jnp.where(place < room, place, room)  # beyond the end: dropped
        index = child, place
        return _set(self.states, index, path.arrived), self.log_weights.at[index].set(path.log_weight, mode="drop")


def empty_tree(nodes: int, slots: int, opened: int, action: Action, observation: Observation, state: State,
               kept: int) -> Tree:  # fmt: skip
    """Make the tree of a search before its first simulation.

    Args:
        nodes: How many there can be.
        slots: Actions of a node at most.
        opened: How many of them a node has from the start.
        action: One action, if those of the slots are to be kept; else None.
        observation: One observation.
        state: One state.
        kept: States of a node at most; 0 to keep none.

    Returns:
        The tree.
    """

    def room(tree: PyTree, *shape: int) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((nodes, *shape, *jnp.shape(leaf)), jnp.result_type(leaf)), tree)

    none, some = jnp.zeros(nodes, jnp.int32), jnp.zeros((nodes, slots))
    return Tree(
        visits=none, tries=some.astype(jnp.int32), values=some, opened=none + opened, actions=room(action, slots),
        parent=none - 1, slot=none, observation=room(observation), drawn=none, held=none,
        states=room(state, kept) if kept else None, log_weights=jnp.full((nodes, kept), -jnp.inf) if kept else None,
        low=jnp.float32(jnp.inf), high=jnp.float32(-jnp.inf),
    )  # fmt: skip


def _set(tree: PyTree, index: tuple[Int[Array, "..."], ...], values: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value, mode="drop"), tree, values)
