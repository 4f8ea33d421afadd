"""Monte-Carlo tree search with a belief as its root, one compiled program: POMCP (Silver and Veness 2010) and POMCPOW
(Sunberg and Kochenderfer, arXiv 1709.06196).

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
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import prng
from nbf.contracts import Belief, Environment, State
from nbf.errors import InputError
from nbf.filters.checks import check_counts, check_numbers
from nbf.planning.task import Action, Task
from nbf.planning.tree import Tree, empty_tree
from nbf.planning.walk import Descent, Walk, finite, rolled_out
from nbf.planning.widening import Widening


class Decision(eqx.Module):
    """What a search found."""

    action: Action
    """The best one: of those that were tried, the one of the largest value."""
    values: Float[Array, " slots"]
    """Q of each action of the root: see `backup`."""
    visits: Int[Array, " slots"]
    """How often each was tried; 0 where the value means nothing. All are 0 if every state of the belief was terminal;
    then `action` is the first, or all zeros."""
    actions: Action
    """Which actions these are."""
    calls: Int[Array, ""]
    """How often the environment was simulated."""
    invalid: Int[Array, ""]
    """How many rewards, values or log-likelihoods were NaN or infinite (of a log-likelihood, +inf). A reward or a value
    counted as 0, a state with such a likelihood as impossible."""


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
    """c of UCB1. Values are scaled to 0..1 by the smallest and the largest one of the search."""
    observation_widening: Widening | None = None
    """For observations that are numbers; None: each different observation is a node of its own."""
    action_widening: Widening | None = None
    """For actions that are drawn; needed there, and refused where actions are listed."""
    backup: str = eqx.field(static=True, default="best")
    """What Q(h, a) is: with `mean`, that of the returns, as in POMCP; with `best`, the mean reward and the mean value
    of the nodes after it, where the value of a node is that of the action tried most often there. So what was lost by
    exploration further down does not count, which it does for long in a mean."""
    kept: int = eqx.field(static=True, default=32)
    """States of a node at most, with `observation_widening`."""
    calls: int | Int[Array, ""] | None = None
    """Steps of all simulations at most: none begins that could go beyond it. None: as many as it takes. An array may
    change without compiling again."""
    rollout: Callable[..., Any] | None = None
    """`rollout(key, state, environment)`, the action of a rollout; None: a random one."""
    value: Callable[..., Any] | None = None
    """`value(state, environment)`, the return from a state on, in place of a rollout: of the node that a simulation
    opened, or where its depth ended. A function, or a module whose arrays may change without compiling again."""

    def __check_init__(self) -> None:
        check_counts("A search", simulations=self.simulations, depth=self.depth, kept=self.kept)
        if self.calls is not None and not isinstance(self.calls, Tracer):
            calls = int(self.calls) if isinstance(self.calls, jax.Array) else self.calls
            check_counts("A search", least=self.depth, calls=calls)
        check_numbers("A search", exploration=self.exploration)
        for name in ("observation_widening", "action_widening"):
            if not isinstance(given := getattr(self, name), Widening | None):
                raise InputError(f"`{name}` is a Widening, such as Widening(4.0, 0.1), or None; got {given!r}.")
        if self.backup not in ("best", "mean"):
            raise InputError(f"`backup` is 'best' or 'mean'; got {self.backup!r}. Choose one of them.")
        if self.value is not None and self.rollout is not None:
            raise InputError("A new node is valued by `value` or by a `rollout`, not by both: leave one out.")
        if self.kept != 32 and self.observation_widening is None:
            raise InputError(f"`kept` does nothing without `observation_widening`; got kept={self.kept}. Leave it out.")

    def plan(self, key: Key[Array, ""], belief: Belief, environment: Environment, task: Task) -> Decision:
        """Search, compiled, and check what was given and found: for Python.

        Returns:
            The decision.
        """
        self.check(task)
        if not isinstance(belief, Belief):
            raise InputError(
                f"A search begins at a belief; got {type(belief).__name__}. Give `filter.belief(state, environment)`."
            )
        root_key, key = jax.random.split(key)
        states = belief.sample(root_key, self.simulations)
        _check_states(states, environment)
        if bool(_all_over(task, states, environment)):
            raise InputError(
                f"All {self.simulations} states that were drawn from the belief are terminal: the episode is over, and "
                "there is nothing to decide. Look at `terminal` of the task, and stop before you plan."
            )
        decision = _decide(self, key, states, environment, task)
        if int(decision.invalid):
            raise InputError(
                f"{int(decision.invalid)} rewards, values or log-likelihoods of a search of {int(decision.calls)} "
                "steps were NaN or infinite. Look at `reward` of the task, at `log_likelihood` of the environment, and "
                "at `value` of the search if there is one."
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
            states: As many as there are simulations: where each of them starts. A state that is terminal is replaced
                by one that is not, since there would be nothing to decide.
            environment: Of the search.
            task: What is to be decided.

        Returns:
            The decision.
        """
        states, over = _live(states, environment, task)
        tree = self._empty(states, environment, task)

        def simulation(number: Int[Array, ""], carried: tuple[Tree, Array, Array]) -> tuple[Tree, Array, Array]:
            tree, calls, invalid = carried
            walk_key, leaf_key, keep_key = prng.split(prng.fold_in(key, number), 3)
            start, new = jax.tree.map(lambda leaf: leaf[number], states), number + 1
            spent = over if self.calls is None else over | (calls + self.depth > self.calls)
            widths = self.observation_widening, self.action_widening
            descent = Descent(tree, new, environment, task, self.depth, self.exploration, *widths)
            walk = descent.walk(walk_key, start, spent)
            leaf, steps, wrong = self._leaf(leaf_key, walk, environment, task)
            assert walk.path is not None
            told = leaf, walk.over, new, walk.observation
            tree = tree.after(keep_key, walk.path, *told, task.discount, self.backup == "mean")
            return tree, calls + walk.depth + steps, invalid + walk.invalid + wrong

        none = jnp.int32(0)
        tree, calls, invalid = jax.lax.fori_loop(0, self.simulations, simulation, (tree, none, none))
        values, tries = tree.values[0], tree.tries[0]
        actions = task.actions if task.sample_action is None else jax.tree.map(lambda leaf: leaf[0], tree.actions)
        best = jnp.argmax(jnp.where(tries > 0, values, -jnp.inf))
        chosen = jax.tree.map(lambda leaf: jnp.asarray(leaf)[best], actions)
        return Decision(chosen, values, tries, actions, calls, invalid)

    def _empty(self, states: State, environment: Environment, task: Task) -> Tree:
        state = jax.tree.map(lambda leaf: leaf[0], states)
        key = jax.random.key(0)
        action = jax.eval_shape(lambda: task.random_action(key, state, environment))
        observation = jax.eval_shape(lambda: environment.observe(key, state, state))
        listed = task.num_actions
        slots = listed if self.action_widening is None else self.action_widening.most(self.simulations)
        wide = self.observation_widening
        action, observation = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (action, observation))
        room = (0, 0) if wide is None else (wide.most(self.simulations), self.kept)
        return empty_tree(self.simulations + 1, slots or 0, None if listed else action, observation, state, *room)

    def _leaf(
        self, key: Key[Array, ""], walk: Walk, environment: Environment, task: Task
    ) -> tuple[Float[Array, ""], Int[Array, ""], Int[Array, ""]]:
        """The value of where a simulation left the tree, the steps that it took, and how many numbers were none."""
        if self.value is None:
            return rolled_out(key, walk, self.depth, self.rollout, environment, task)
        given = jnp.asarray(self.value(walk.state, environment), jnp.float32)
        if given.shape:
            raise InputError(f"`value` gives one number for a state; got an array of shape {given.shape}.")
        value, wrong = finite(given)
        return jnp.where(walk.over, 0.0, value), jnp.int32(0), jnp.where(walk.over, 0, wrong)


def _live(states: State, environment: Environment, task: Task) -> tuple[State, Bool[Array, ""]]:
    """The states with those that are terminal replaced by others in turn, and whether all are terminal."""
    if task.terminal is None:
        return states, jnp.asarray(False)
    over = jax.vmap(lambda state: task.is_over(state, environment))(states)
    order = jnp.argsort(over, stable=True)
    live = order[jnp.arange(over.shape[0]) % jnp.maximum(jnp.sum(~over), 1)]
    return jax.tree.map(lambda leaf: leaf[live], states), jnp.all(over)


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
            f"The belief is over states of another space: {described[0]}; the environment's are {described[1]}. Give "
            "the environment in which the belief arose."
        )
    legal = jax.vmap(environment.space.contains)(states)
    if not bool(jnp.all(legal)):
        raise InputError(
            f"{int(jnp.sum(~legal))} of {legal.shape[0]} states of the belief are none of the environment's space, "
            f"{environment.space.signature}. Give the environment in which the belief arose."
        )
