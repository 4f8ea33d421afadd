"""The tree of a search: histories of actions and observations, as arrays of fixed size.

A node is a history h. Each of its slots is an action a; the nodes that were opened by way of a slot are the
observations that came after it. Nothing is written while a simulation goes down the tree, so that the compiled loop
copies none of it; `Tree.after` enters a whole simulation at once, in few writes: in a batch of trees (`vmap`) on a CPU
each row that is written costs as much as hundreds of numbers that are read in order.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from nbf import prng
from nbf.contracts import Observation, State
from nbf.planning.task import Action


class Path(eqx.Module):
    """One step of a simulation in the tree; with a leading axis, the depth, all of them from the root on."""

    node: Int[Array, "*depth"]
    slot: Int[Array, "*depth"]
    reward: Float[Array, "*depth"]
    taken: Bool[Array, "*depth"]
    """False of padding."""
    action: Action
    """None where actions are listed."""
    child: Int[Array, "*depth"]
    own: Bool[Array, "*depth"]
    """Whether the child has the observation that was drawn, and not one of before in its place."""
    arrived: State
    """The state that the simulation came to, for the belief of the child. None where nodes have none."""
    log_weight: Float[Array, "*depth"]


class Tree(eqx.Module):
    """What a search knows. Arrays have a leading axis, the nodes; the root is the first."""

    known: Float[Array, "nodes slots 2"]
    """N(h, a), how often an action was tried, and Q(h, a), its value: see `backed_up`."""
    actions: Action
    """Of the slots; None where they are listed."""
    edge: Int[Array, " nodes"]
    """Number of the node and slot by way of which it was opened; -1 if it was not."""
    digest: UInt32[Array, " nodes"]
    """Of the observation."""
    first: Float[Array, " nodes"]
    """The value of the rollout, or of the value function, when it was opened."""
    own: Float[Array, " nodes"]
    """1 if the simulation that opened it could have gone on; 0 if its episode was over there."""
    observation: Observation
    beliefs: Beliefs | None
    """None where each simulation keeps to its own state."""
    low: Float[Array, ""]
    """The smallest Q(h, a) so far, and the largest, by which they are scaled."""
    high: Float[Array, ""]

    @property
    def tries(self) -> Int[Array, "nodes slots"]:
        """N(h, a)."""
        return self.known[..., 0].astype(jnp.int32)

    @property
    def values(self) -> Float[Array, "nodes slots"]:
        """Q(h, a)."""
        return self.known[..., 1]

    def scores(self, node: Int[Array, ""], exploration: float, noise: Float[Array, " slots"]) -> Float[Array, " slots"]:
        """Score the actions of a node: UCB1 of values that are scaled to 0..1.

        Args:
            node: The node.
            exploration: c of c · √(log N / n).
            noise: From 0 to 1; decides between actions that were not tried.

        Returns:
            A score for each slot.
        """
        tries, values = self.known[node, :, 0], self.known[node, :, 1]
        scaled = (values - self.low) / jnp.maximum(self.high - self.low, 1e-6)
        bonus = jnp.sqrt(jnp.log(jnp.maximum(jnp.sum(tries), 1.0)) / jnp.maximum(tries, 1.0))
        return jnp.where(tries == 0, 1e9 + 1e6 * noise, scaled + exploration * bonus)

    def child(
        self, node: Int[Array, ""], slot: Int[Array, ""], observation: Observation
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """Find the node after an observation.

        Args:
            node: Where the action was taken.
            slot: The action.
            observation: What was seen after it.

        Returns:
            The node, and whether there is one; if not, the number means nothing.
        """
        edge = node * self.known.shape[1] + slot
        like = (self.edge == edge) & (self.digest == digest_of(observation))
        found = jnp.max(jnp.where(like, jnp.arange(like.shape[0]), -1))
        # Different observations may have the same digest.
        return jnp.maximum(found, 0), (found >= 0) & _same(self.observation, found, observation)

    def after(
        self, key: Key[Array, ""], path: Path, leaf: Float[Array, ""], over: Bool[Array, ""], new: Int[Array, ""],
        observation: Observation, discount: float, mean: bool,
    ) -> Tree:  # fmt: skip
        """Enter a simulation.

        Args:
            key: Random key.
            path: The simulation.
            leaf: The value of where it ends.
            over: Whether the episode is over there.
            new: Index of the node that it may open.
            observation: Of this node.
            discount: γ.
            mean: Whether values are means of returns, or of the values of what comes next.

        Returns:
            The tree after it.
        """
        nowhere = self.edge.shape[0]  # writes beyond the end are dropped
        node, rows = jnp.where(path.taken, path.node, nowhere), self.known[path.node]
        after, values = backed_up(path, rows, self.first[path.node], self.own[path.node], leaf, discount, mean)
        makes = path.taken & (path.child == new)
        edge = jnp.max(jnp.where(makes, path.node * self.known.shape[1] + path.slot, -1))
        opening = jnp.where(jnp.take_along_axis(rows[..., 0], path.slot[:, None], 1)[:, 0] == 0, node, nowhere)
        return Tree(
            known=self.known.at[node].set(after, mode="drop"),
            actions=put(self.actions, (opening, path.slot), path.action),
            edge=self.edge.at[new].set(edge),
            digest=self.digest.at[new].set(digest_of(observation)),
            first=self.first.at[new].set(leaf),
            own=self.own.at[new].set(jnp.where(over, 0.0, 1.0)),
            observation=put(self.observation, (new,), observation),
            beliefs=None if self.beliefs is None else self.beliefs.after(key, path, edge, new),
            low=jnp.minimum(self.low, jnp.min(jnp.where(path.taken, values, jnp.inf))),
            high=jnp.maximum(self.high, jnp.max(jnp.where(path.taken, values, -jnp.inf))),
        )


def backed_up(
    path: Path, rows: Float[Array, "depth slots 2"], first: Float[Array, " depth"], own: Float[Array, " depth"],
    leaf: Float[Array, ""], discount: float, mean: bool,
) -> tuple[Float[Array, "depth slots 2"], Float[Array, " depth"]]:  # fmt: skip
    """Compute what a simulation changes, from its end to the root.

    With `mean`, Q(h, a) is the mean of the returns, as in POMCP. Else it is the mean reward, and the mean over the
    simulations of V(hao), with V(h) = Q(h, a) of the action that was tried most often there; then what was lost by
    exploration further down does not count. It is kept by differences: of what comes after a, one node alone changes.
    A simulation whose episode was over at a node is worth nothing there, whatever the node's value becomes.

    Args:
        path: The simulation.
        rows: N and Q of its nodes.
        first: The value of each of them when it was opened.
        own: 1 if the simulation that opened it could have gone on, else 0.
        leaf: The value of where the simulation ends.
        discount: γ.
        mean: Which of the two.

    Returns:
        The rows after it, and the changed entry of each.
    """

    def share(row: Float[Array, "slots 2"], first: Float[Array, ""], own: Float[Array, ""]) -> Float[Array, ""]:
        """How many simulations came here and could go on, times the value."""
        tries = row[:, 0]
        value = jnp.where(jnp.max(tries) > 0, row[jnp.argmax(tries), 1], first)
        return (own + jnp.sum(tries)) * value

    def back(later: Float[Array, ""], entry: tuple) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        slot, reward, taken, row, first, own = entry
        tries, value = row[slot, 0], row[slot, 1]
        counted = reward + discount * later
        found = (tries * value + counted) / (tries + 1)
        after = row.at[slot].set(jnp.stack([tries + 1, found]))
        told = counted if mean else share(after, first, own) - share(row, first, own)
        return jnp.where(taken, told, later), (jnp.where(taken, after, row), found)

    entries = path.slot, path.reward, path.taken, rows, first, own
    return jax.lax.scan(back, leaf, entries, reverse=True)[1]


class Beliefs(eqx.Module):
    """The children of each action, and a belief for each of them: what POMCPOW needs."""

    children: Int[Array, "nodes slots most"]
    """-1 where there is none."""
    counts: Int[Array, "nodes 2"]
    """How often the node's observation was drawn, and how many states arrived at it."""
    states: State
    """Of those that arrived some, weighted."""
    log_weights: Float[Array, "nodes kept"]

    def drawn_child(
        self, key: Key[Array, ""], node: Int[Array, ""], slot: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """Draw one of the nodes after an action, as often as its observation was drawn.

        Args:
            key: Random key.
            node: Where the action was taken.
            slot: The action.

        Returns:
            The node, and how many there are; if none, it means nothing.
        """
        children = self.children[node, slot]
        there = children >= 0
        shares = jnp.where(there, self.counts[jnp.maximum(children, 0), 0], 0).astype(jnp.float32)
        return jnp.maximum(children[prng.categorical(key, shares)], 0), jnp.sum(there)

    def drawn_state(
        self, key: Key[Array, ""], node: Int[Array, ""], log_weight: Float[Array, ""], state: State
    ) -> State:
        """Draw from the belief of a node.

        Args:
            key: Random key.
            node: The node.
            log_weight: Of the state.
            state: One that arrived and that the belief does not have yet.

        Returns:
            One of the states of the belief or this one, by their weights; this one if none has any.
        """
        log_weights = jnp.append(self.log_weights[node], log_weight)
        largest = jnp.max(log_weights)
        # If no state has weight, all shares are zero, and the last is drawn.
        shares = jnp.where(log_weights > -jnp.inf, jnp.exp(log_weights - largest), 0.0)
        place, last = prng.categorical(key, shares), log_weights.shape[0] - 1
        kept = jnp.minimum(place, last - 1)
        return jax.tree.map(lambda leaf, one: jnp.where(place == last, one, leaf[node, kept]), self.states, state)

    def after(self, key: Key[Array, ""], path: Path, edge: Int[Array, ""], new: Int[Array, ""]) -> Beliefs:
        """Enter a simulation. States are kept while there is room, then each of all with the same probability.

        Args:
            key: Random key.
            path: The simulation.
            edge: By way of which it opened a node; -1 if it did not.
            new: The node.

        Returns:
            The beliefs after it.
        """
        nodes, slots, most = self.children.shape
        room = self.log_weights.shape[1]
        child, held = jnp.where(path.taken, path.child, nodes), self.counts[path.child, 1]
        chance = prng.uniform(key, held.shape)
        place = jnp.where(held < room, held, jnp.floor(chance * (held + 1)).astype(jnp.int32))
        at = child, jnp.where(place < room, place, room)  # beyond the end: dropped
        node, slot = jnp.where(edge < 0, nodes, edge // slots), edge % slots
        free = jnp.minimum(jnp.sum(self.children[node % nodes, slot] >= 0), most)
        return Beliefs(
            children=self.children.at[node, slot, free].set(new, mode="drop"),
            counts=self.counts.at[child].add(jnp.stack([path.own.astype(jnp.int32), path.taken], -1), mode="drop"),
            states=put(self.states, at, path.arrived),
            log_weights=self.log_weights.at[at].set(path.log_weight, mode="drop"),
        )


def empty_tree(
    nodes: int, slots: int, action: Action, observation: Observation, state: State, most: int, kept: int
) -> Tree:
    """Make the tree of a search before its first simulation.

    Args:
        nodes: How many there can be.
        slots: Actions of a node at most.
        action: One action, if those of the slots are to be kept; else None.
        observation: One observation.
        state: One state.
        most: Observations after an action at most, if nodes have beliefs.
        kept: States of a node at most; 0 if nodes have no beliefs.

    Returns:
        The tree.
    """

    def room(tree: PyTree, *shape: int) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((nodes, *shape, *jnp.shape(leaf)), jnp.result_type(leaf)), tree)

    beliefs = Beliefs(
        jnp.full((nodes, slots, most), -1), jnp.zeros((nodes, 2), jnp.int32), room(state, kept),
        jnp.full((nodes, kept), -jnp.inf),
    )  # fmt: skip
    return Tree(
        known=jnp.zeros((nodes, slots, 2)), actions=room(action, slots), edge=jnp.full(nodes, -1),
        digest=jnp.zeros(nodes, jnp.uint32), first=jnp.zeros(nodes), own=jnp.ones(nodes), observation=room(observation),
        beliefs=beliefs if kept else None, low=jnp.float32(jnp.inf), high=jnp.float32(-jnp.inf),
    )  # fmt: skip


def digest_of(observation: Observation) -> UInt32[Array, ""]:
    """Make one number of an observation, by which nodes are looked for.

    Args:
        observation: The observation.

    Returns:
        A sum with random odd factors, modulo 2^32.
    """
    words = []
    for leaf in map(jnp.asarray, jax.tree.leaves(observation)):
        if jnp.issubdtype(leaf.dtype, jnp.floating):  # 0.0 is equal to -0.0, and has other bits
            whole = jnp.where(leaf == 0, 0.0, leaf).astype(jnp.float32)
        else:
            whole = leaf.astype(jnp.int32)
        words.append(jax.lax.bitcast_convert_type(whole, jnp.uint32).reshape(-1))
    found = jnp.concatenate(words)
    factors = np.random.default_rng(0).integers(0, 2**31, found.shape[0], np.uint32) * 2 + 1
    return jnp.sum(found * factors, dtype=jnp.uint32)


def put(tree: PyTree, index: tuple[Int[Array, "..."], ...], values: PyTree) -> PyTree:
    """Write rows of each leaf; those beyond its end are dropped.

    Args:
        tree: Of arrays.
        index: Where.
        values: The rows, a tree like it.

    Returns:
        The tree after it.
    """
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value, mode="drop"), tree, values)


def _same(observations: Observation, index: Int[Array, ""], observation: Observation) -> Bool[Array, ""]:
    equal = jax.tree.map(lambda leaf, one: jnp.all(leaf[index] == one), observations, observation)
    return jnp.all(jnp.stack(jax.tree.leaves(equal)))
