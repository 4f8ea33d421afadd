"""Problems in which a belief is for decisions: what is hidden, what is public, and what is to be gained.

A filter tracks the hidden part alone. The public part, such as the place of one's own, is a parameter of each step's
environment. A search needs both: its states are pairs, and those of its root are a belief's, each with the one public
part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf.capabilities import Scheduled
from nbf.contracts import Environment, Filter, Observation, Policy, State
from nbf.environments.listed import ListedEnvironment
from nbf.filters.exact import ExactFilter
from nbf.planning import Task, Widening
from nbf.planning.process import DecisionProcess, RandomActions

DISCOUNT = 0.95
EXACT = ExactFilter()


def reached(distance: Array, prize: float) -> Float[Array, ""]:
    """The return of so many steps, each of which costs 1, and a prize after them."""
    later = DISCOUNT ** distance.astype(jnp.float32)
    return prize * later - (1 - later) / (1 - DISCOUNT)


class World(Environment):
    """Pairs of a hidden and a public state, as a search needs them.

    Arguments of the methods:
        public: The public part before a step.
        action: Of the step.
    """

    space: eqx.AbstractVar[Any]
    """Of the hidden part."""

    @abstractmethod
    def still(self, public: PyTree) -> Environment:
        """The environment of the hidden part between two steps."""

    @abstractmethod
    def step(self, public: PyTree, action: PyTree) -> tuple[Environment, Policy]:
        """The environment of the hidden part in a step, and its policy: what a filter is told."""


class ListedWorld(World):
    """One whose hidden states are listed."""

    space: Any
    hidden: Any
    """A `ListedEnvironment`: of the hidden part."""
    given: PyTree
    """What is known and does not change in an episode."""
    advance: Callable[..., Any] = eqx.field(static=True)
    """`advance(public, action, given)`, the next public part."""
    begin: Callable[..., Any] = eqx.field(static=True)
    """`begin(key)`, the first public part."""

    def at(self, public: PyTree, after: PyTree) -> ListedEnvironment:
        """The environment of the hidden part in a step between two public ones."""
        return replace(self.hidden, parameters=(public, after, self.given))

    def still(self, public: PyTree) -> ListedEnvironment:
        return self.at(public, public)

    def step(self, public: PyTree, action: PyTree) -> tuple[ListedEnvironment, Policy]:
        return self.at(public, self.advance(public, action, self.given)), action

    def init(self, key: Key[Array, ""]) -> State:
        hidden_key, public_key = jax.random.split(key)
        return self.hidden.init(hidden_key), self.begin(public_key)

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        hidden, public = state
        after = self.advance(public, policy, self.given)
        return self.at(public, after).transition(key, hidden, policy), after

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self.at(state[1], next_state[1]).observe(key, state[0], next_state[0])

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        return self.at(state[1], next_state[1]).log_likelihood(observation, state[0], next_state[0])

    def check_observation(self, observation: Observation) -> None:
        self.hidden.check_observation(observation)


class Came(NamedTuple):
    """The public part of a process, and the action that led there: it says what was looked for on the way."""

    public: PyTree
    action: Int[Array, ""]


class ProcessWorld(World):
    """That of a `DecisionProcess`."""

    space: Any
    process: DecisionProcess

    def still(self, public: Came) -> Environment:
        return self.process.environment(public.public)

    def step(self, public: Came, action: Int[Array, ""]) -> tuple[Environment, Policy]:
        return self.process.step(public.public, action)

    def init(self, key: Key[Array, ""]) -> State:
        hidden_key, public_key = jax.random.split(key)
        public = self.process.start(public_key)
        return self.process.environment(public).init(hidden_key), Came(public, jnp.int32(0))

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        hidden, came = state
        environment, told = self.step(came, policy)
        after = Came(self.process.after(came.public, policy), jnp.asarray(policy, jnp.int32))
        return environment.transition(key, hidden, told), after

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self.step(state[1], next_state[1].action)[0].observe(key, state[0], next_state[0])

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        now = self.step(state[1], next_state[1].action)[0]
        return now.log_likelihood(observation, state[0], next_state[0])

    def check_observation(self, observation: Observation) -> None:
        self.process.environment(self.process.start(jax.random.key(0))).check_observation(observation)

    def task(self) -> Task:
        """The actions, rewards and end of the process. An end is told by the state after a step alone."""

        def reward(state: State, action: Array, after: State, _: Environment) -> Float[Array, ""]:
            return self.process.reward(state[1].public, state[0], action, after[1].public, after[0])

        def terminal(state: State, _: Environment) -> Bool[Array, ""]:
            return self.process.is_over(state[0], state[1].public, state[0])

        actions = jnp.arange(self.process.num_actions, dtype=jnp.int32)
        return Task(reward, actions, terminal=terminal, discount=self.process.discount)


def of_regrets(task: Task, value: Callable[..., Any]) -> Task:
    """A task whose reward is what a step loses of a value: r + γ V(x') - V(x), where V(x') is 0 at the end.

    The sum of these over a simulation is its return with V at its leaf, less V of its start. The start does not depend
    on the actions, so the best ones are the same; but it differs from state to state of a belief, and would be most of
    the noise of a search.
    """

    def reward(state: State, action: Array, after: State, world: Environment) -> Float[Array, ""]:
        later = jnp.where(task.is_over(after, world), 0.0, value(after, world))
        return task.reward_of(state, action, after, world) + task.discount * later - value(state, world)

    return replace(task, reward=reward)


def nothing(state: State, world: Environment) -> Float[Array, ""]:
    """The leaf value of regrets."""
    return jnp.float32(0)


def gained(reward: Float[Array, ""], _: State) -> Bool[Array, ""]:
    """Whether the last reward was a gain."""
    return reward > 0


@dataclass(frozen=True, eq=False)
class Decisions:
    """A problem."""

    name: str
    world: World
    task: Task
    """Of the returns that are recorded."""
    value: Callable[..., Any]
    """`value(state, world)`: what could be had if nothing were hidden. The leaf value of every search."""
    given: Callable[..., Any] | None
    """`given(key)`: what is known, of a random episode; None: nothing changes from one to the next."""
    horizon: int
    stops: bool = False
    """Whether the last action ends the episode. Training does not draw it."""
    observation_widening: Widening | None = None
    reference: Filter = EXACT
    """The ceiling: exact where states are listed."""
    goal: Task | None = None
    """What a search adds up, where that is not the task."""
    right: Callable[..., Any] = gained
    """`right(reward, hidden)` of the last step: whether the episode ended with what was sought."""
    training: tuple[tuple[str, Any], ...] = ()
    """Options of `nbf.fit` that are not its defaults."""

    def drawn(self, key: Key[Array, ""]) -> World:
        """The world of a random episode."""
        if self.given is None or not isinstance(self.world, ListedWorld):
            return self.world
        return replace(self.world, given=self.given(key))

    @property
    def family(self) -> Scheduled:
        """Random walks of a player who does not decide: what a model is trained on."""
        if isinstance(self.world, ProcessWorld):
            return RandomActions(self.world.process)
        assert isinstance(self.world, ListedWorld)
        assert self.given is not None
        return Walks(self.world, self.task, self.given, (self.task.num_actions or 0) - self.stops)


class Walks(Scheduled):
    """Episodes of random actions; one is often repeated."""

    world: ListedWorld
    task: Task
    given: Callable[..., Any] = eqx.field(static=True)
    moves: int = eqx.field(static=True)

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        given_key, start_key, keep_key, new_key = jax.random.split(key, 4)
        world = replace(self.world, given=self.given(given_key))
        keep = jax.random.bernoulli(keep_key, 0.4, (steps,)).at[0].set(False)
        new = jax.random.randint(new_key, (steps,), 0, self.moves)
        actions = jax.vmap(self.task.action)(new[jax.lax.cummax(jnp.where(keep, 0, jnp.arange(steps)))])

        def step(public: PyTree, action: PyTree) -> tuple[PyTree, ListedEnvironment]:
            after = world.advance(public, action, world.given)
            return after, world.at(public, after)

        return jax.lax.scan(step, world.begin(start_key), actions)[1], actions

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))
