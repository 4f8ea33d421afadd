"""One simulation: down the tree to a new node, and what that node is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.contracts import Environment, Observation, State
from nbf.planning.task import Action, Task
from nbf.planning.tree import Path, Tree
from nbf.planning.widening import Widening


class Walk(eqx.Module):
    """Where a simulation has come to."""

    depth: Int[Array, ""]
    """Steps so far."""
    state: State
    node: Int[Array, ""]
    done: Bool[Array, ""]
    """Whether it has left the tree: the episode is over, a node was opened, or there are no steps left."""
    over: Bool[Array, ""]
    """Whether the episode is."""
    path: Path | None
    """None to look for the shapes of a step."""
    observation: Observation
    """Of the node that it opened."""
    invalid: Int[Array, ""]


class Descent(eqx.Module):
    """The way down a tree: what `TreeSearch` says, for one simulation.

    Arguments of the methods:
        key: Random key.
        state: Where the simulation starts.
        over: Whether there is nothing to do.
    """

    tree: Tree
    new: Int[Array, ""]
    """Index of the node that may be opened."""
    environment: Environment
    task: Task
    depth: int = eqx.field(static=True)
    exploration: float = eqx.field(static=True)
    observation_widening: Widening | None
    action_widening: Widening | None

    def walk(self, key: Key[Array, ""], state: State, over: Bool[Array, ""]) -> Walk:
        """Go down, until a node is opened.

        Returns:
            Where that ends.
        """
        entry = jax.eval_shape(lambda: self._step(key, self._start(state, over, None)))[1]
        padding = jax.tree.map(lambda leaf: jnp.zeros((self.depth, *leaf.shape), leaf.dtype), entry)

        def step(walk: Walk) -> Walk:
            after, entry = self._step(prng.fold_in(key, walk.depth), walk)
            path = jax.tree.map(lambda leaf, one: leaf.at[walk.depth].set(one), walk.path, entry)
            depth = walk.depth + 1
            done = after.done | (depth >= self.depth)
            return eqx.tree_at(lambda walk: (walk.depth, walk.done, walk.path), after, (depth, done, path))

        return jax.lax.while_loop(lambda walk: ~walk.done, step, self._start(state, over, padding))

    def _start(self, state: State, over: Bool[Array, ""], path: Path | None) -> Walk:
        observation = jax.tree.map(lambda leaf: leaf[0], self.tree.observation)
        return Walk(jnp.int32(0), state, jnp.int32(0), over, over, path, observation, jnp.int32(0))

    def _step(self, key: Key[Array, ""], walk: Walk) -> tuple[Walk, Path]:
        """One step. The entry of the path has no leading axis."""
        choice_key, move_key, look_key, child_key = prng.split(key, 4)
        slot, action = self._chosen(choice_key, walk)
        arrived = self.environment.transition(move_key, walk.state, action)
        seen = self.environment.observe(look_key, walk.state, arrived)
        child, own, state, log_weight, wrong = self._child(child_key, walk, slot, arrived, seen)
        reward, wrong_reward = finite(self.task.reward_of(walk.state, action, state, self.environment))
        over, beliefs = self.task.is_over(state, self.environment), self.tree.beliefs
        entry = Path(
            walk.node, slot, reward, jnp.asarray(True), None if self.tree.actions is None else action,
            child, own, None if beliefs is None else arrived, log_weight,
        )  # fmt: skip
        invalid = walk.invalid + wrong + wrong_reward
        return Walk(walk.depth, state, child, over | (child == self.new), over, walk.path, seen, invalid), entry

    def _chosen(self, key: Key[Array, ""], walk: Walk) -> tuple[Int[Array, ""], Action]:
        """The slot and the action: UCB1 among those that are open, or a new one."""
        slots = self.tree.known.shape[1]
        noise_key, action_key = prng.split(key)
        scores = self.tree.scores(walk.node, self.exploration, prng.uniform(noise_key, (slots,)))
        if self.action_widening is None:
            slot = jnp.argmax(scores).astype(jnp.int32)
            return slot, self.task.action(slot)
        tries = self.tree.tries[walk.node]
        number = jnp.sum(tries > 0)
        opens = self.action_widening.opens(number, jnp.sum(tries)) & (number < slots)
        best = jnp.argmax(jnp.where(jnp.arange(slots) < number, scores, -jnp.inf))
        slot = jnp.where(opens, number, best).astype(jnp.int32)
        drawn = self.task.random_action(action_key, walk.state, self.environment)
        known = jax.tree.map(lambda leaf: leaf[walk.node, slot], self.tree.actions)
        return slot, jax.tree.map(lambda one, other: jnp.where(opens, one, other), drawn, known)

    def _child(
        self, key: Key[Array, ""], walk: Walk, slot: Int[Array, ""], arrived: State, seen: Observation
    ) -> tuple[Int[Array, ""], Bool[Array, ""], State, Float[Array, ""], Int[Array, ""]]:
        """The node after an observation, whether it has this one and not another in its place, the state to go on from,
        the log weight of the state that arrived, and whether that is no number."""
        found, there = self.tree.child(walk.node, slot, seen)
        opened = jnp.where(there, found, self.new)
        beliefs = self.tree.beliefs
        if beliefs is None or self.observation_widening is None:
            return opened, jnp.asarray(True), arrived, jnp.float32(0), jnp.int32(0)
        child_key, state_key = prng.split(key)
        other, number = beliefs.drawn_child(child_key, walk.node, slot)
        own = self.observation_widening.opens(number, self.tree.tries[walk.node, slot])
        child = jnp.where(own, opened, other)
        kept = jax.tree.map(lambda leaf, one: jnp.where(own, one, leaf[child]), self.tree.observation, seen)
        log_weight = self.environment.log_likelihood(kept, walk.state, arrived).astype(jnp.float32)
        wrong = jnp.isnan(log_weight) | (log_weight == jnp.inf)
        log_weight = jnp.where(wrong, -jnp.inf, log_weight)
        drawn = beliefs.drawn_state(state_key, child, log_weight, arrived)
        state = jax.tree.map(lambda one, other: jnp.where(child == self.new, one, other), arrived, drawn)
        return child, own, state, log_weight, wrong.astype(jnp.int32)


def rolled_out(
    key: Key[Array, ""],
    walk: Walk,
    depth: int,
    rollout: Callable[..., Any] | None,
    environment: Environment,
    task: Task,
) -> tuple[Float[Array, ""], Int[Array, ""], Int[Array, ""]]:
    """Go on from where a simulation left the tree, without looking at observations.

    Args:
        key: Random key.
        walk: The simulation.
        depth: Steps of it at most.
        rollout: Chooses the actions; None: at random.
        environment: Of the search.
        task: What is to be decided.

    Returns:
        The discounted return of these steps, how many they are, and how many rewards were no numbers.
    """
    choose = task.random_action if rollout is None else rollout

    def goes_on(carried: tuple) -> Bool[Array, ""]:
        _, over, steps, *_ = carried
        return ~over & (walk.depth + steps < depth)

    def step(carried: tuple) -> tuple:
        state, _, steps, total, factor, invalid = carried
        action_key, move_key = prng.split(prng.fold_in(key, steps))
        action = choose(action_key, state, environment)
        arrived = environment.transition(move_key, state, action)
        reward, wrong = finite(task.reward_of(state, action, arrived, environment))
        after = total + factor * reward, factor * task.discount, invalid + wrong
        return arrived, task.is_over(arrived, environment), steps + 1, *after

    start = walk.state, walk.over, jnp.int32(0), jnp.float32(0), jnp.float32(1), jnp.int32(0)
    _, _, steps, total, _, invalid = jax.lax.while_loop(goes_on, step, start)
    return total, steps, invalid


def finite(number: Float[Array, ""]) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """Replace what is no finite number by 0.

    Args:
        number: A reward or a value.

    Returns:
        The number, and 1 if it was replaced, else 0.
    """
    sound = jnp.isfinite(number)
    return jnp.where(sound, number, 0.0), (~sound).astype(jnp.int32)
