"""V(θ') at the leaves of a tree search: the filter's update is a part of each simulated step.

`TreeSearch` values a new node by `value(state, environment)`. The value of a belief needs the belief, so here a
simulated state is the hidden state with everything that an episode carries: the public part, and the filter's state,
which each simulated step updates with its simulated observation. With a depth of 1 this is one step of look-ahead in
belief space: for each action the mean of r + γ V(θ') over simulated observations. A deeper search goes on where an
observation comes again. A simulated step costs a call of the simulator, and those of one update of the filter.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import Environment, Observation, StateSpace
from nbf.errors import InputError
from nbf.planning.acting import Choice, Chooser, Moment, advanced, seen
from nbf.planning.actor import Actor
from nbf.planning.process import DecisionProcess
from nbf.planning.search import Decision, TreeSearch
from nbf.planning.task import Task
from nbf.planning.views import FilterView, StateView, View


class Simulated(eqx.Module):
    """A state of a search."""

    moment: Moment
    time: Int[Array, ""]
    reward: Float[Array, ""]
    """Of the step to it."""
    observation: Observation
    """Of the step to it."""


class Imagined(Environment):
    """A decision process as the environment of a search."""

    space: StateSpace
    """Of the hidden states."""
    process: DecisionProcess
    view: View
    actor: Actor | None
    first: Simulated
    """Where the search begins."""

    def init(self, key: Key[Array, ""]) -> Simulated:
        return self.first

    def transition(self, key: Key[Array, ""], state: Simulated, policy: Int[Array, ""]) -> Simulated:
        moment = state.moment
        if self.actor is not None and self.actor.memory is not None:
            recalled = self._decided(state)[0]
            moment = eqx.tree_at(lambda moment: moment.recalled, moment, recalled)
        after, reward, observation = advanced(key, self.process, self.view, moment, policy)
        made = Simulated(after, state.time + 1, reward, observation)
        return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), made, state)

    def observe(self, key: Key[Array, ""], state: Simulated, next_state: Simulated) -> Observation:
        return next_state.observation

    def log_likelihood(self, observation: Observation, state: Simulated, next_state: Simulated) -> Float[Array, ""]:
        raise InputError("A search with values of beliefs has a node for each observation: no `observation_widening`.")

    def check_observation(self, observation: Observation) -> None:
        raise InputError("Observations of a search are simulated, not given.")

    def value(self, state: Simulated) -> Float[Array, ""]:
        """Look V up.

        Args:
            state: Of the search.

        Returns:
            V of its belief.
        """
        return self._decided(state)[2]

    def _decided(self, state: Simulated) -> tuple[Array, Array, Array]:
        assert self.actor is not None
        numbers = seen(self.process, self.view, state.moment, state.time)
        return self.actor(state.moment.recalled, numbers, self.process.allowed(state.moment.public))


class SearchChooser(Chooser):
    """Chooses by a tree search from the filter's belief."""

    search: TreeSearch
    """Without a `value` and a `rollout` of its own."""
    actor: Actor | None = None
    """Whose V is the value of a new node; None: that of a random rollout, for which no belief is simulated."""

    def __check_init__(self) -> None:
        if self.search.value is not None or (self.actor is not None and self.search.rollout is not None):
            raise InputError("The value of a new node is the actor's: leave `value` and `rollout` of the search out.")
        if self.search.observation_widening is not None or self.search.action_widening is not None:
            raise InputError("A search with values of beliefs has no widening: leave it out.")

    def choose(
        self, key: Key[Array, ""], process: DecisionProcess, view: View, moment: Moment, time: Int[Array, ""]
    ) -> Choice:
        decision = self.decide(key, process, view, moment, time)
        return Choice(decision.action.astype(jnp.int32), decision.invalid, decision.calls)

    def decide(
        self, key: Key[Array, ""], process: DecisionProcess, view: View, moment: Moment, time: Int[Array, ""]
    ) -> Decision:
        """Search. To be traced.

        Args:
            key: Random key.
            process: What is decided.
            view: What is seen: a filter's belief.
            moment: When; its true state is not looked at.
            time: Steps done.

        Returns:
            The decision.
        """
        if not isinstance(view, FilterView):
            raise InputError(f"A search needs the belief of a filter, which a {type(view).__name__} does not have.")
        if type(process).allowed is not DecisionProcess.allowed:
            raise InputError(
                f"A search tries all actions at any time, but {type(process).__name__} forbids some (`allowed`). Give "
                "them an effect in the process instead, such as none at all."
            )
        root_key, search_key = jax.random.split(key)
        belief = view.filter.belief(moment.memory, moment.environment)
        hidden = belief.sample(root_key, self.search.simulations)
        world = self._world(process, view, moment, time)
        states = jax.vmap(lambda state: eqx.tree_at(lambda at: at.moment.state, world.first, state))(hidden)
        task = Task(
            lambda state, action, after, world: after.reward,
            actions=jnp.arange(process.num_actions),
            terminal=lambda state, world: state.moment.over | (state.time >= world.process.horizon),
            discount=process.discount,
        )
        search = self.search
        if self.actor is not None:
            search = dataclasses.replace(search, value=lambda state, world: world.value(state))
        return search.search(search_key, states, world, task)

    def _world(self, process: DecisionProcess, view: View, moment: Moment, time: Int[Array, ""]) -> Imagined:
        if self.actor is None:
            view, moment = StateView(), dataclasses.replace(moment, memory=None, recalled=None)
        space = moment.environment.space
        key, action = jax.random.key(0), jnp.int32(0)
        shapes = jax.eval_shape(lambda: advanced(key, process, view, moment, action))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes[2])
        after = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), moment, shapes[0])
        first = Simulated(after, jnp.asarray(time, jnp.int32), jnp.float32(0), nothing)
        return Imagined(space, process, view, self.actor, first)
