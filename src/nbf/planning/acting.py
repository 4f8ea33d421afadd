"""Episodes that are acted by a policy on what it sees; the filter's update is a part of the step."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.contracts import Environment, Observation, State
from nbf.planning.actor import Actor
from nbf.planning.process import DecisionProcess, Public
from nbf.planning.views import Told, View


class Acted(eqx.Module):
    """One episode. Arrays have a leading axis, the steps; those after its end are padding."""

    inputs: Float[Array, "steps inputs"]
    """What the network saw."""
    allowed: Bool[Array, "steps actions"]
    actions: Int[Array, " steps"]
    log_probs: Float[Array, " steps"]
    """log π of the actions."""
    values: Float[Array, " steps"]
    """V before each step; 0 after the end."""
    rewards: Float[Array, " steps"]
    """0 after the end."""
    alive: Bool[Array, " steps"]
    """Whether the step was taken."""
    states: State
    """The hidden state after each step."""
    publics: Public
    """The public part after each step."""
    invalid: Int[Array, ""]
    """Rewards, numbers that the network saw, and in a search values and likelihoods, that were NaN or infinite; such a
    reward counted as 0."""
    calls: Int[Array, ""]
    """How often a `chooser` simulated a step, in all."""
    stuck: Int[Array, ""]
    """Steps at which no action was allowed; there any was."""

    def total(self, discount: float) -> Float[Array, ""]:
        """Add the rewards up.

        Args:
            discount: γ.

        Returns:
            The discounted return.
        """
        return jnp.sum(self.rewards * discount ** jnp.arange(self.rewards.shape[0]))


class Moment(eqx.Module):
    """An episode between two steps."""

    public: Public
    environment: Environment
    """Of the last step; at first that of the beginning."""
    state: State
    memory: Any
    """Of the view."""
    recalled: Any
    """The memory of the network."""
    over: Bool[Array, ""]


def begun(key: Key[Array, ""], process: DecisionProcess, view: View, actor: Actor | None) -> Moment:
    """Begin an episode.

    Args:
        key: Random key.
        process: What is decided.
        view: What the policy sees.
        actor: The policy; None: only the view is carried.

    Returns:
        The moment before the first step.
    """
    start_key, world_key, view_key = jax.random.split(key, 3)
    public = process.start(start_key)
    environment = process.environment(public)
    state, memory = environment.init(world_key), view.start(view_key, environment)
    recalled = None if actor is None else actor.start()
    return Moment(public, environment, state, memory, recalled, process.is_over_at_start(public, state))


def seen(process: DecisionProcess, view: View, moment: Moment, time: Int[Array, ""]) -> Float[Array, " inputs"]:
    """Collect what a network sees: the view, the context, and the share of the horizon that is over.

    Args:
        process: What is decided.
        view: What the policy sees.
        moment: When.
        time: Steps done.

    Returns:
        The numbers.
    """
    shown = view.look(moment.memory, moment.environment, moment.state)
    clock = jnp.asarray(time / process.horizon, jnp.float32)[None]
    return jnp.concatenate([shown, process.context(moment.public), clock]).astype(jnp.float32)


def advanced(
    key: Key[Array, ""], process: DecisionProcess, view: View, moment: Moment, action: Int[Array, ""]
) -> tuple[Moment, Float[Array, ""], Observation]:
    """Take an action: move, observe, update the view.

    Args:
        key: Random key.
        process: What is decided.
        view: What the policy sees.
        moment: Before the step.
        action: The action.

    Returns:
        The moment after it, whose network has not read it yet, the reward, and the observation.
    """
    move_key, look_key, view_key = prng.split(key, 3)
    environment, policy = process.step(moment.public, action)
    state = environment.transition(move_key, moment.state, policy)
    observation = environment.observe(look_key, moment.state, state)
    public = process.after(moment.public, action)
    reward = jnp.asarray(process.reward(moment.public, moment.state, action, public, state), jnp.float32)
    memory = view.update(view_key, moment.memory, Told(observation, environment, policy, action))
    over = moment.over | process.is_over(moment.state, public, state)
    return Moment(public, environment, state, memory, moment.recalled, over), reward, observation


class Choice(eqx.Module):
    """An action, and what it took to choose it."""

    action: Int[Array, ""]
    invalid: Int[Array, ""]
    """How many rewards, values or likelihoods were no numbers."""
    calls: Int[Array, ""]
    """How often a step was simulated."""


class Chooser(eqx.Module):
    """Chooses actions in the place of a policy."""

    @abstractmethod
    def choose(
        self, key: Key[Array, ""], process: DecisionProcess, view: View, moment: Moment, time: Int[Array, ""]
    ) -> Choice:
        """Choose. The true state of the moment is not to be looked at.

        Args:
            key: Random key.
            process: What is decided.
            view: What is seen.
            moment: When.
            time: Steps done.

        Returns:
            The choice.
        """


def act(
    key: Key[Array, ""], process: DecisionProcess, view: View, actor: Actor, *, greedy: bool = False,
    chooser: Chooser | None = None,
) -> Acted:  # fmt: skip
    """Act one episode. To be traced: batches of episodes are a `vmap`.

    Args:
        key: Random key.
        process: What is decided.
        view: What the policy sees.
        actor: The policy.
        greedy: Whether the likeliest action is taken; else one is drawn.
        chooser: Who chooses actions instead, such as a search; None: the policy.

    Returns:
        What happened.
    """
    start_key, step_key = jax.random.split(key)

    def step(moment: Moment, inputs: tuple[Array, Array]) -> tuple[Moment, tuple]:
        time, key = inputs
        choice_key, move_key = prng.split(key)
        numbers, allowed = seen(process, view, moment, time), process.allowed(moment.public)
        stuck = ~moment.over & ~jnp.any(allowed)
        allowed = allowed | moment.over | stuck
        recalled, log_probs, value = actor(moment.recalled, numbers, allowed)
        drawn = jnp.argmax(log_probs) if greedy else jax.random.categorical(choice_key, log_probs)
        choice = Choice(drawn.astype(jnp.int32), jnp.int32(0), jnp.int32(0))
        if chooser is not None:
            choice = chooser.choose(choice_key, process, view, moment, time)
        after, reward, _ = advanced(move_key, process, view, moment, choice.action)
        after = eqx.tree_at(lambda moment: moment.recalled, after, recalled)
        sound, over = jnp.isfinite(reward), moment.over
        invalid = choice.invalid + ~sound + jnp.sum(~jnp.isfinite(numbers))
        return after, (
            numbers, allowed, choice.action, log_probs[choice.action], jnp.where(over, 0.0, value),
            jnp.where(over | ~sound, 0.0, reward), ~over, after.state, after.public,
            jnp.where(over, 0, invalid), jnp.where(over, 0, choice.calls), stuck,
        )  # fmt: skip

    first = _steady(process, view, begun(start_key, process, view, actor))
    times = jnp.arange(process.horizon), jax.random.split(step_key, process.horizon)
    _, told = jax.lax.scan(step, first, times)
    return Acted(*told[:-3], *map(jnp.sum, told[-3:]))


def _steady(process: DecisionProcess, view: View, moment: Moment) -> Moment:
    """The first moment with the types of those after a step: a scan carries no other ones."""
    key, action = jax.random.key(0), jnp.int32(0)
    after = jax.eval_shape(lambda: advanced(key, process, view, moment, action)[0])
    return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), moment, after)
