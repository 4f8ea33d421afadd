"""Decisions in an environment of which a part is public: what a policy that is trained on beliefs acts in.

The hidden state is the environment's; a filter tracks it. Everything else is public: the map, one's own place, the
time. An action changes the public part, and says which environment and which policy the step has: in Triangulation
whether it is a scan, in a chase where the hunter stands from whom the other one runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Family, Policy, State
from nbf.environments.functional import as_family
from nbf.errors import InputError
from nbf.planning.task import Task

Public = PyTree
"""What everybody sees."""


class DecisionProcess(eqx.Module):
    """What is decided, beside the environment. An episode ends at the horizon, or before. For one example; callers
    batch.

    Arguments of the methods:
        key: Random key.
        public: The public part before a step.
        action: 0..num_actions - 1.
        state: x, the hidden state before the step.
        next_public: The public part after it.
        next_state: x', the hidden state after it.
    """

    horizon: eqx.AbstractVar[int]
    """Steps of an episode at most."""
    discount: eqx.AbstractVar[float]
    """γ, by which a reward counts less for each step that it is away."""

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """How many actions there are."""

    @abstractmethod
    def start(self, key: Key[Array, ""]) -> Public:
        """The public part at the beginning."""

    @abstractmethod
    def environment(self, public: Public) -> Environment:
        """The environment in which the episode begins: its p0 is that of the hidden state."""

    @abstractmethod
    def step(self, public: Public, action: Int[Array, ""]) -> tuple[Environment, Policy]:
        """The environment and the policy of the step that an action makes; a filter is told both."""

    @abstractmethod
    def after(self, public: Public, action: Int[Array, ""]) -> Public:
        """The public part after an action."""

    @abstractmethod
    def reward(
        self, public: Public, state: State, action: Int[Array, ""], next_public: Public, next_state: State
    ) -> Float[Array, ""]:
        """The reward of a step."""

    def is_over(self, state: State, next_public: Public, next_state: State) -> Bool[Array, ""]:
        """Whether the episode is over after a step, before the horizon; unless overridden, it never is."""
        return jnp.asarray(False)

    def is_over_at_start(self, public: Public, state: State) -> Bool[Array, ""]:
        """Whether the episode is over before the first step; unless overridden, it never is."""
        return jnp.asarray(False)

    def context(self, public: Public) -> Float[Array, " c"]:
        """The public part as numbers of order one, for a network; unless overridden, none."""
        return jnp.zeros(0)

    def allowed(self, public: Public) -> Bool[Array, " actions"]:
        """Which actions may be taken; unless overridden, all."""
        return jnp.ones(self.num_actions, bool)


class TaskProcess(DecisionProcess):
    """A `Task` in environments that are drawn anew for each episode: the public part is the environment."""

    horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    source: Any
    task: Task
    describe: Callable[..., Any] | None = eqx.field(static=True)

    def __init__(
        self,
        source: Environment | Family,
        task: Task,
        horizon: int,
        *,
        describe: Callable[[Any], Any] | None = None,
    ):
        """Build a process.

        Args:
            source: An environment, or a family of them.
            task: What is to be decided; its actions are listed.
            horizon: Steps of an episode at most.
            describe: `describe(environment)` is what a network is told of the environment, as numbers; None: nothing.
        """
        if task.num_actions is None:
            raise InputError(
                "A policy chooses among `actions` that are listed; this task draws them (`sample_action`). List some "
                "of them in Task(reward, actions=...)."
            )
        self.source, self.task, self.horizon, self.describe = source, task, horizon, describe
        self.discount = task.discount

    @property
    def num_actions(self) -> int:
        return int(self.task.num_actions or 0)

    def start(self, key: Key[Array, ""]) -> Environment:
        return as_family(self.source).sample(key)[0]

    def environment(self, public: Environment) -> Environment:
        return public

    def step(self, public: Environment, action: Int[Array, ""]) -> tuple[Environment, Policy]:
        return public, self.task.action(action)

    def after(self, public: Environment, action: Int[Array, ""]) -> Environment:
        return public

    def reward(
        self, public: Environment, state: State, action: Int[Array, ""], next_public: Environment, next_state: State
    ) -> Float[Array, ""]:
        return self.task.reward_of(state, self.task.action(action), next_state, public)

    def is_over(self, state: State, next_public: Environment, next_state: State) -> Bool[Array, ""]:
        return self.task.is_over(next_state, next_public)

    def is_over_at_start(self, public: Environment, state: State) -> Bool[Array, ""]:
        return self.task.is_over(state, public)

    def context(self, public: Environment) -> Float[Array, " c"]:
        if self.describe is None:
            return jnp.zeros(0)
        return jnp.ravel(jnp.asarray(self.describe(public), jnp.float32))


class RandomActions(Scheduled):
    """The episodes of a process whose actions are random: a family to train a belief model on (`nbf.fit`).

    An action is taken again with probability `kept`, else a new one is drawn of those that are allowed.
    """

    process: DecisionProcess
    kept: float = eqx.field(static=True, default=0.7)

    def __check_init__(self) -> None:
        if not 0.0 <= self.kept < 1.0:
            raise InputError(f"`kept`, the probability of the same action again, lies in [0, 1); got {self.kept}.")

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        start_key, walk_key = jax.random.split(key)
        start = self.process.start(start_key)

        def step(carried: tuple[Public, Array], key: Key[Array, ""]) -> tuple[tuple[Public, Array], tuple]:
            public, before = carried
            keep_key, draw_key = jax.random.split(key)
            allowed = self.process.allowed(public)
            drawn = jax.random.categorical(draw_key, jnp.where(allowed, 0.0, -jnp.inf))
            keeps = jax.random.bernoulli(keep_key, self.kept) & (before >= 0) & allowed[before]
            action = jnp.where(keeps, before, drawn).astype(jnp.int32)
            return (self.process.after(public, action), action), self.process.step(public, action)

        _, told = jax.lax.scan(step, (start, jnp.int32(-1)), jax.random.split(walk_key, steps))
        return told

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


def check_process(process: DecisionProcess) -> None:
    """Raise `InputError` unless a process has actions, a horizon and a discount, and its parts fit each other.

    Args:
        process: The process.
    """
    if process.num_actions < 1:
        raise InputError(f"A decision needs at least one action; this process has {process.num_actions}.")
    if process.horizon < 1:
        raise InputError(f"The horizon is at least 1 step; got {process.horizon}.")
    if not 0.0 < process.discount <= 1.0:
        raise InputError(f"The discount lies above 0 and is at most 1; got {process.discount}.")
    public = jax.eval_shape(process.start, jax.random.key(0))
    after = jax.eval_shape(process.after, public, jax.ShapeDtypeStruct((), jnp.int32))
    if _described(public) != _described(after):
        raise InputError(
            f"`after` gives another public part than `start`: {_described(after)} instead of {_described(public)}. "
            "Both must have the same structure, shapes and types."
        )
    begins = jax.eval_shape(process.environment, public)
    goes_on = jax.eval_shape(process.step, public, jax.ShapeDtypeStruct((), jnp.int32))[0]
    if jax.tree.structure(begins) != jax.tree.structure(goes_on):
        raise InputError(
            f"The environment of a step is built otherwise than that of the beginning: both are "
            f"{type(goes_on).__name__}, but not of the same functions and options. A function that is written where "
            "the environment is built is another one each time: build it once, and change its arrays."
            if type(begins) is type(goes_on)
            else f"The environment of a step is a {type(goes_on).__name__}, that of the beginning a "
            f"{type(begins).__name__}. Both must be the same kind."
        )
    allowed = jax.eval_shape(process.allowed, public)
    if allowed.shape != (process.num_actions,) or allowed.dtype != jnp.bool_:
        raise InputError(
            f"`allowed` tells of each of the {process.num_actions} actions whether it may be taken; got shape "
            f"{allowed.shape} of {allowed.dtype}."
        )
    _check_numbers(process, public, begins)


def _check_numbers(process: DecisionProcess, public: PyTree, environment: PyTree) -> None:
    """Raise `InputError` unless rewards and ends are single numbers, and the context is a row of them."""
    action = jax.ShapeDtypeStruct((), jnp.int32)
    state = jax.eval_shape(lambda environment: environment.init(jax.random.key(0)), environment)
    shapes = {
        "reward": jax.eval_shape(process.reward, public, state, action, public, state),
        "is_over": jax.eval_shape(process.is_over, state, public, state),
        "is_over_at_start": jax.eval_shape(process.is_over_at_start, public, state),
    }
    for name, found in shapes.items():
        if jnp.shape(found) != ():
            raise InputError(f"`{name}` gives one number for a step; got an array of shape {jnp.shape(found)}.")
    context = jax.eval_shape(process.context, public)
    if len(jnp.shape(context)) != 1:
        raise InputError(f"`context` gives a row of numbers; got an array of shape {jnp.shape(context)}.")


def _described(tree: PyTree) -> str:
    leaves = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)]
    return f"{jax.tree.structure(tree)} with {', '.join(leaves) or 'no arrays'}"
