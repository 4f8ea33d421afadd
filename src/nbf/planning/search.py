"""Monte-Carlo tree search with a belief as its root, one compiled program: POMCP (Silver and Veness 2010) and POMCPOW
(Sunberg and Kochenderfer 2018).

    search = nbf.planning.TreeSearch(simulations=1000, depth=20)
    decision = search.plan(key, filter.belief(state, environment), environment, task)
    decision.action

A simulation starts at a state of the belief and goes down the tree by UCB1. Where it sees an observation that is new
after this history, a node is opened, and its value is that of a rollout, or of a value function. Without
`observation_widening` each simulation keeps to its own state and observation, as in POMCP. With it there are few
observations after each action; a simulation that comes to one of them leaves its state there, weighted by the
likelihood, and goes on from one of those that are there, as in POMCPOW.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import prng
from nbf.contracts import Belief, Environment, Observation, State
from nbf.errors import InputError
from nbf.planning.task import Action, Task
from nbf.planning.tree import Path, Tree, Widening, empty_tree


class Decision(eqx.Module):
    """What a search found."""

    action: Action
    """The best one: of those that were tried, the one of the largest value."""
    values: Float[Array, " slots"]
    """The mean return of each action of the root."""
    visits: Int[Array, " slots"]
    """How often each was tried; 0 where the value means nothing."""
    actions: Action
    """Which actions these are."""
    calls: Int[Array, ""]
    """How often the environment was simulated."""
    invalid: Int[Array, ""]
    """How many rewards or values were NaN or infinite; they counted as 0."""


class _Walk(eqx.Module):
    """A simulation under way."""

    depth: Int[Array, ""]
    state: State
    node: Int[Array, ""]
    in_tree: Bool[Array, ""]
    over: Bool[Array, ""]
    path: Path | None
    """None to look for the shapes of a step."""
    observation: Observation
    """Of the node that it opened."""
    leaf: Float[Array, ""]
    invalid: Int[Array, ""]


class TreeSearch(eqx.Module):
    """Searches for the best action of a belief.

    Arguments of the methods:
        key: Random key.
        belief: Of any filter.
        environment: Of the search.
        task: What is to be decided.
    """

    simulations: int = eqx.field(static=True, default=1000)
    depth: int = eqx.field(static=True, default=20)
    """Steps of a simulation at most, rollout included."""
    exploration: float = eqx.field(static=True, default=1.0)
    """c of UCB1. Values are scaled to 0..1 by the smallest and the largest of the search."""
    observation_widening: Widening | None = None
    """For observations that are numbers; None: each different observation is a node of its own."""
    action_widening: Widening | None = None
    """For actions that are drawn; needed there, and refused where actions are listed."""
    kept: int = eqx.field(static=True, default=32)
    """States of a node at most, with `observation_widening`."""
    rollout: Callable[..., Any] | None = eqx.field(static=True, default=None)
    """`rollout(key, state, environment)`, the action of a rollout; None: a random one."""
    value: Callable[..., Any] | None = eqx.field(static=True, default=None)
    """`value(state, environment)`, the return from a state on, in place of a rollout."""

    def __check_init__(self) -> None:
        for name in ("simulations", "depth", "kept"):
            if getattr(self, name) < 1:
                raise InputError(f"`{name}` is at least 1; got {getattr(self, name)}.")
        if self.exploration < 0:
            raise InputError(f"`exploration` is at least 0; got {self.exploration}.")
        if self.value is not None and self.rollout is not None:
            raise InputError("A new node is valued by `value` or by a `rollout`, not by both.")

    def plan(self, key: Key[Array, ""], belief: Belief, environment: Environment, task: Task) -> Decision:
        """Search, compiled, and check what was given and found: for Python.

        Returns:
            The decision.
        """
        self.check(task)
        root_key, key = jax.random.split(key)
        states = belief.sample(root_key, self.simulations)
        _check_states(states, environment)
        if bool(_all_over(task, states, environment)):
            raise InputError("Every state of the belief is terminal: the episode is over, and there is no decision.")
        decision = _decide(self, key, states, environment, task)
        if int(decision.invalid):
            raise InputError(
                f"{int(decision.invalid)} rewards or values of a search of {int(decision.calls)} steps were NaN or "
                "infinite. Look at `reward` of the task, and at `value` of the search if there is one."
            )
        return decision

    def decide(self, key: Key[Array, ""], belief: Belief, environment: Environment, task: Task) -> Decision:
        """Search as pure mathematics, to be traced: inside `jit`, `vmap` and `scan`.

        Returns:
            The decision.
        """
        self.check(task)
        root_key, key = jax.random.split(key)
        return self.search(key, belief.sample(root_key, self.simulations), environment, task)

    def check(self, task: Task) -> None:
        """Raise `InputError` unless the widening of actions fits the task."""
        if (self.action_widening is None) != (task.sample_action is None):
            raise InputError(
                "Actions that are drawn need `action_widening`, such as Widening(20, 0.05)."
                if self.action_widening is None
                else "`action_widening` does nothing where the actions are listed: leave it out."
            )

    def search(self, key: Key[Array, ""], states: State, environment: Environment, task: Task) -> Decision:
        """Search from states, to be traced.

        Args:
            key: Random key.
            states: As many as there are simulations: where each of them starts.
            environment: Of the search.
            task: What is to be decided.

        Returns:
            The decision.
        """
        key = jax.random.fold_in(key, 0)
        tree = self._empty(states, environment, task)

        def simulation(number: Int[Array, ""], carried: tuple[Tree, Array, Array]) -> tuple[Tree, Array, Array]:
            tree, calls, invalid = carried
            walk_key, keep_key = prng.split(prng.fold_in(key, number))
            start = jax.tree.map(lambda leaf: leaf[number], states)
            walk = self._walked(walk_key, tree, number + 1, start, environment, task)
            returns = _returns(walk, task.discount)
            tree = tree.after(keep_key, walk.path, returns, number + 1, walk.observation)
            return tree, calls + walk.depth, invalid + walk.invalid

        start = tree, jnp.int32(0), jnp.int32(0)
        tree, calls, invalid = jax.lax.fori_loop(0, self.simulations, simulation, start)
        actions = task.actions if task.sample_action is None else jax.tree.map(lambda leaf: leaf[0], tree.actions)
        best = jnp.argmax(jnp.where(tree.tries[0] > 0, tree.values[0], -jnp.inf))
        chosen = jax.tree.map(lambda leaf: jnp.asarray(leaf)[best], actions)
        return Decision(chosen, tree.values[0], tree.tries[0], actions, calls, invalid)

    def _empty(self, states: State, environment: Environment, task: Task) -> Tree:
        state = jax.tree.map(lambda leaf: leaf[0], states)
        key = jax.random.key(0)
        action = jax.eval_shape(lambda: task.random_action(key, state, environment))
        observation = jax.eval_shape(lambda: environment.observe(key, state, state))
        listed = task.num_actions
        slots = listed if self.action_widening is None else self.action_widening.most(self.simulations)
        kept = 0 if self.observation_widening is None else self.kept
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (action, observation))
        return empty_tree(self.simulations + 1, slots, listed or 0, None if listed else zeros[0], zeros[1], state, kept)

    def _walked(
        self, key: Key[Array, ""], tree: Tree, new: Int[Array, ""], state: State, environment: Environment, task: Task
    ) -> _Walk:
        """One simulation, from the root on."""
        step = jax.eval_shape(lambda: self._taken(key, tree, new, self._start(tree, state, None), environment, task))
        path = jax.tree.map(lambda leaf: jnp.zeros((self.depth, *leaf.shape), leaf.dtype), step[1])
        start = self._start(tree, state, path)
        start = eqx.tree_at(lambda walk: walk.over, start, task.is_over(state, environment))

        def goes_on(walk: _Walk) -> Bool[Array, ""]:
            return ~walk.over & (walk.depth < self.depth)

        def step_on(walk: _Walk) -> _Walk:
            after, entry = self._taken(prng.fold_in(key, walk.depth), tree, new, walk, environment, task)
            path = jax.tree.map(lambda leaf, one: leaf.at[walk.depth].set(one), walk.path, entry)
            return eqx.tree_at(lambda walk: (walk.depth, walk.path), after, (walk.depth + 1, path))

        return jax.lax.while_loop(goes_on, step_on, start)

    def _start(self, tree: Tree, state: State, path: Path | None) -> _Walk:
        observation = jax.tree.map(lambda leaf: leaf[0], tree.observation)
        no = jnp.asarray(False)
        return _Walk(jnp.int32(0), state, jnp.int32(0), ~no, no, path, observation, jnp.float32(0), jnp.int32(0))

    def _taken(
        self, key: Key[Array, ""], tree: Tree, new: Int[Array, ""], walk: _Walk, environment: Environment, task: Task
    ) -> tuple[_Walk, Path]:
        """One step, in the tree or in a rollout. The entry of the path has no leading axis."""
        choice_key, move_key, look_key, child_key, state_key = prng.split(key, 5)
        slot, action, opened = self._chosen(choice_key, tree, walk, environment, task)
        arrived = environment.transition(move_key, walk.state, action)
        observation = environment.observe(look_key, walk.state, arrived)
        child, own = self._child(child_key, tree, new, walk.node, slot, observation)
        log_weight, state = self._redrawn(state_key, tree, child, own, observation, walk, arrived, environment)
        state = jax.tree.map(lambda one, two: jnp.where(walk.in_tree & (child != new), one, two), state, arrived)
        reward, wrong = _finite(task.reward_of(walk.state, action, state, environment))
        created, over = walk.in_tree & (child == new), task.is_over(state, environment)
        last = walk.in_tree & (walk.depth + 1 >= self.depth)
        leaf, wrong_leaf, stops = self._leaf(created | last, over, state, environment)
        entry = Path(
            walk.node, slot, walk.in_tree, reward, opened & walk.in_tree, action if tree.actions is not None else None,
            child, own, arrived if tree.states is not None else None, log_weight,
        )  # fmt: skip
        seen = jax.tree.map(lambda one, two: jnp.where(created, one, two), observation, walk.observation)
        after = _Walk(
            walk.depth, state, child, walk.in_tree & ~created, over | stops, walk.path, seen, walk.leaf + leaf,
            walk.invalid + wrong + wrong_leaf,
        )  # fmt: skip
        return after, entry

    def _chosen(
        self, key: Key[Array, ""], tree: Tree, walk: _Walk, environment: Environment, task: Task
    ) -> tuple[Int[Array, ""], Action, Bool[Array, ""]]:
        """The slot and the action, and whether it is a new one."""
        noise_key, action_key = prng.split(key)
        drawn = task.random_action(action_key, walk.state, environment)
        noise = prng.uniform(noise_key, (tree.tries.shape[1],))
        slot = jnp.argmax(tree.scores(walk.node, self.exploration, noise)).astype(jnp.int32)
        if self.action_widening is None:
            known, opened = task.action(slot), jnp.asarray(False)
        else:
            number = tree.opened[walk.node]
            opened = self.action_widening.opens(number, tree.visits[walk.node]) & (number < noise.shape[0])
            opened |= number == 0
            known = jax.tree.map(lambda leaf, one: jnp.where(opened, one, leaf[walk.node, slot]), tree.actions, drawn)
            slot = jnp.where(opened, jnp.minimum(number, noise.shape[0] - 1), slot)
        free = drawn if self.rollout is None else self.rollout(action_key, walk.state, environment)
        return slot, jax.tree.map(lambda one, two: jnp.where(walk.in_tree, one, two), known, free), opened

    def _child(
        self, key: Key[Array, ""], tree: Tree, new: Int[Array, ""], node: Int[Array, ""], slot: Int[Array, ""],
        observation: Observation,
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:  # fmt: skip
        """The node after an observation, and whether it has this one and not another in its place."""
        children = tree.children(node, slot)
        same = children & tree.same(observation)
        found = jnp.where(jnp.any(same), jnp.argmax(same), new).astype(jnp.int32)
        if self.observation_widening is None:
            return found, jnp.asarray(True)
        own = self.observation_widening.opens(jnp.sum(children), tree.tries[node, slot]) | ~jnp.any(children)
        shares = jnp.where(children, tree.drawn, 0).astype(jnp.float32)
        other = prng.categorical(key, shares / jnp.maximum(jnp.sum(shares), 1.0))
        return jnp.where(own, found, other).astype(jnp.int32), own

    def _redrawn(
        self, key: Key[Array, ""], tree: Tree, child: Int[Array, ""], own: Bool[Array, ""], observation: Observation,
        walk: _Walk, arrived: State, environment: Environment,
    ) -> tuple[Float[Array, ""], State]:  # fmt: skip
        """The log weight of the state that arrived, and one of those of the node, this one among them."""
        if tree.log_weights is None:
            return jnp.float32(0), arrived
        seen = jax.tree.map(lambda leaf, one: jnp.where(own, one, leaf[child]), tree.observation, observation)
        log_weight = environment.log_likelihood(seen, walk.state, arrived).astype(jnp.float32)
        log_weight = jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)
        log_weights = jnp.append(tree.log_weights[child], log_weight)
        place = jax.random.categorical(key, jnp.where(jnp.max(log_weights) > -jnp.inf, log_weights, 0.0))
        last = log_weights.shape[0] - 1
        place = jnp.where(jnp.max(log_weights) > -jnp.inf, place, last)
        state = jax.tree.map(
            lambda leaf, one: jnp.where(place == last, one, leaf[child, jnp.minimum(place, last - 1)]),
            tree.states,
            arrived,
        )
        return log_weight, state

    def _leaf(
        self, leaves: Bool[Array, ""], over: Bool[Array, ""], state: State, environment: Environment
    ) -> tuple[Float[Array, ""], Int[Array, ""], Bool[Array, ""]]:
        """The value of a new node, or of the last one at the search's depth, whether it was no number, and whether the
        simulation ends there."""
        if self.value is None:
            return jnp.float32(0), jnp.int32(0), jnp.asarray(False)
        value, wrong = _finite(jnp.asarray(self.value(state, environment), jnp.float32))
        counts = leaves & ~over
        return jnp.where(counts, value, 0.0), jnp.where(counts, wrong, 0), leaves


def _finite(number: Float[Array, ""]) -> tuple[Float[Array, ""], Int[Array, ""]]:
    sound = jnp.isfinite(number)
    return jnp.where(sound, number, 0.0), (~sound).astype(jnp.int32)


def _returns(walk: _Walk, discount: float) -> Float[Array, " depth"]:
    """The discounted return from each step on; the value of the leaf comes after the last of them."""
    taken = jnp.arange(walk.path.reward.shape[0]) < walk.depth

    def back(later: Float[Array, ""], entry: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, counts = entry
        now = jnp.where(counts, reward + discount * later, later)
        return now, now

    return jax.lax.scan(back, walk.leaf, (walk.path.reward, taken), reverse=True)[1]


@eqx.filter_jit
def _decide(search: TreeSearch, key: Key[Array, ""], states: State, environment: Environment, task: Task) -> Decision:
    return search.search(key, states, environment, task)


@eqx.filter_jit
def _all_over(task: Task, states: State, environment: Environment) -> Bool[Array, ""]:
    return jnp.all(jax.vmap(lambda state: task.is_over(state, environment))(states))


def _check_states(states: PyTree, environment: Environment) -> None:
    """Raise `InputError` unless these are states of the environment."""
    expected = jax.eval_shape(lambda: environment.init(jax.random.key(0)))
    given = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states)
    described = [
        f"{jax.tree.structure(tree)} of shapes {[leaf.shape for leaf in jax.tree.leaves(tree)]}"
        for tree in (given, expected)
    ]
    if described[0] != described[1]:
        raise InputError(
            f"The belief is over states of another space: {described[0]}; the environment's are {described[1]}."
        )
    legal = jax.vmap(environment.space.contains)(states)
    if not bool(jnp.all(legal)):
        raise InputError(
            f"{int(jnp.sum(~legal))} of {legal.shape[0]} states of the belief are none of the environment's space, "
            f"{environment.space.signature}. Give the environment in which the belief arose."
        )
