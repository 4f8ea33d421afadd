"""Where the beliefs that a model is trained on come from (appendix, "Training belief embedding models")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf.beliefs.categorical import CategoricalBelief, bayes, kernel
from nbf.contracts import (
    BeliefSource,
    Enumerable,
    Environment,
    Family,
    InputError,
    Observation,
    Policy,
    State,
    StateSpace,
)


@runtime_checkable
class Scheduled(Protocol):
    """A family whose environments or policies change within an episode, in a way that does not depend on the
    hidden states."""

    def schedule(self, key: Key[Array, ""], steps: int, /) -> tuple[Environment, Policy]:
        """The environment and the policy of each step of one random episode, with a leading axis."""
        ...


def rollout(
    key: Key[Array, ""], environment: Environment, policy: Policy, steps: int, *, changing: bool = False
) -> tuple[State, Observation]:
    """One episode: the states x_0..x_steps and the observations y_1..y_steps.

    With `changing`, environment and policy have a leading axis: those of each step.
    """
    start_key, walk_key = jax.random.split(key)
    start = at_step(environment, 0, changing=changing).init(start_key)

    def step(state: State, inputs: tuple[Key[Array, ""], PyTree]) -> tuple[State, tuple[State, Observation]]:
        key, changed = inputs
        now, control = changed if changing else (environment, policy)
        move_key, observe_key = jax.random.split(key)
        next_state = now.transition(move_key, state, control)
        return next_state, (next_state, now.observe(observe_key, state, next_state))

    inputs = jax.random.split(walk_key, steps), (environment, policy) if changing else None
    _, (states, observations) = jax.lax.scan(step, start, inputs)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states), observations


def at_step(tree: PyTree, step: int | Int[Array, ""], *, changing: bool) -> Any:
    """What an environment or a policy is at one step: itself, unless it is `changing` along a leading axis."""
    return jax.tree.map(lambda leaf: leaf[step], tree) if changing else tree


class ExactPosteriors(BeliefSource):
    """Exact posteriors of random episodes of a family, at a depth drawn uniformly from 0..horizon.

    Depth 0 is p0: the belief that every filter starts from is in the training set. A `Scheduled` family may change
    its environment and policy at every step.
    """

    family: Family
    horizon: int = eqx.field(static=True)

    def posterior(self, key: Key[Array, ""]) -> CategoricalBelief:
        """One random belief."""
        instance_key, depth_key, episode_key = jax.random.split(key, 3)
        family = self.family
        changing = isinstance(family, Scheduled)
        steps = max(self.horizon, 1) if changing else self.horizon
        pair: tuple[Any, Policy] = family.schedule(instance_key, steps) if changing else family.sample(instance_key)
        first = at_step(pair[0], 0, changing=changing)
        assert isinstance(first, Enumerable)
        depth = jax.random.randint(depth_key, (), 0, self.horizon + 1)
        _, observations = rollout(episode_key, pair[0], pair[1], steps, changing=changing)
        branches = None if changing else kernel(first, pair[1])

        def step(probs: Float[Array, " states"], inputs: tuple[Int[Array, ""], Observation, PyTree]):
            time, observation, changed = inputs
            now, control = changed if changing else pair
            posterior, _ = bayes(probs, observation, now, kernel(now, control) if branches is None else branches)
            return jnp.where(time < depth, posterior, probs), None

        prior = jnp.exp(first.initial_log_probs())
        inputs = jnp.arange(steps), observations, pair if changing else None
        probs, _ = jax.lax.scan(step, prior, inputs)
        return CategoricalBelief(probs, at_step(pair[0], jnp.maximum(depth - 1, 0), changing=changing))

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        belief_key, sample_key = jax.random.split(key)
        belief = self.posterior(belief_key)
        return belief.sample(sample_key, n), belief.environment.space


@runtime_checkable
class EpisodeSource(Protocol):
    """A source that makes all beliefs of an episode together."""

    def episode(self, key: Key[Array, ""], n: int, /) -> tuple[State, StateSpace]:
        """n samples of every belief of one random episode, depths along a leading axis."""
        ...


class Pool(BeliefSource):
    """Samples of many beliefs, drawn once and used again and again: for beliefs that are dear to make.

    A draw takes one belief at random, and a random stretch of its samples, which must be in no order.
    """

    states: State
    """Leading axes (beliefs, samples) on every leaf."""
    spaces: StateSpace
    """Of each belief: a leading axis on every leaf, if there are any."""

    def __check_init__(self) -> None:
        shapes = {jnp.shape(leaf)[:2] for leaf in jax.tree.leaves(self.states)}
        if len(shapes) != 1 or min(min(shapes), default=0) < 1:
            raise InputError(f"A pool needs states with leading axes (beliefs, samples), none empty; got {shapes}.")

    @classmethod
    def of_episodes(
        cls,
        source: EpisodeSource,
        key: Key[Array, ""],
        *,
        episodes: int,
        samples: int,
        batch: int = 64,
        advance: Callable[[int], None] = lambda done: None,
    ) -> Pool:
        """All beliefs of many episodes: a belief that costs a whole episode is then drawn for nothing.

        `advance` is told how many episodes were finished.
        """
        if episodes < 1 or samples < 1 or batch < 1:
            raise InputError(
                f"A pool needs episodes, samples and batch of at least 1; got {episodes}, {samples} and {batch}."
            )
        # The source is an argument: the policies that it may hold are too many to be constants.
        make = eqx.filter_jit(lambda source, keys: jax.vmap(lambda key: source.episode(key, samples))(keys))
        parts = []
        for first in range(0, episodes, batch):
            chosen = jnp.arange(first, first + min(batch, episodes))  # the last batch is full; what is too much is cut
            parts.append(jax.device_get(make(source, jax.vmap(lambda i: jax.random.fold_in(key, i))(chosen))))
            advance(min(batch, episodes - first))

        def joined(*leaves: np.ndarray) -> Array:
            whole = np.concatenate(leaves)[:episodes]
            return jnp.asarray(whole.reshape(-1, *whole.shape[2:]))

        return cls(*jax.tree.map(joined, *parts))

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        beliefs, samples = jax.tree.leaves(self.states)[0].shape[:2]
        if n > samples:
            raise InputError(f"This pool holds {samples} samples of each belief; {n} were asked for.")
        belief_key, first_key = jax.random.split(key)
        belief = jax.random.randint(belief_key, (), 0, beliefs)
        chosen = (jax.random.randint(first_key, (), 0, samples) + jnp.arange(n)) % samples
        space = jax.tree.map(lambda leaf: leaf[belief], self.spaces)
        return jax.tree.map(lambda leaf: leaf[belief, chosen], self.states), space
