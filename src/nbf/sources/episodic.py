"""Beliefs to train on where the environments of an episode depend on earlier observations (section
"Partially-Observable Goofspiel")."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from nbf.capabilities import Episodic
from nbf.capability import require
from nbf.contracts import (
    BeliefSource,
    Environment,
    Family,
    Filter,
    FilterState,
    Observation,
    Policy,
    State,
    StateSpace,
)
from nbf.environments.rollout import at_step
from nbf.errors import InputError
from nbf.filters.run import run


class EpisodePosteriors(BeliefSource):
    """Beliefs of a filter in random episodes of an `Episodic` family, at a depth drawn uniformly from 0..horizon.

    With a `PrefixFilter` this is the paper's source for Goofspiel. Depth 0 is p0. A `BeliefPool` of all beliefs of many
    episodes is a much cheaper source.
    """

    filter: Filter
    family: Family
    """An `Episodic` one."""
    horizon: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.horizon < 0:
            raise InputError(f"horizon must be 0 or more; got {self.horizon}.")
        require(self.family, Episodic, "EpisodePosteriors", "Use FilterPosteriors.")

    def posterior(self, key: Key[Array, ""]) -> tuple[FilterState, Environment]:
        """Filter a random episode up to a random depth.

        Args:
            key: Random key.

        Returns:
            The state of the filter, and the environment of the step that led to it.
        """
        depth_key, episode_key, start_key, step_key = jax.random.split(key, 4)
        environments, policies, observations = self._drawn(episode_key)
        depth = jax.random.randint(depth_key, (), 0, self.horizon + 1)

        def step(time: Int[Array, ""], state: FilterState) -> FilterState:
            environment, policy, observation = at_step((environments, policies, observations), time, changing=True)
            update_key = jax.random.fold_in(step_key, time)
            return self.filter.update(update_key, state, observation, environment, policy)[0]

        start = self.filter.init(start_key, at_step(environments, 0, changing=True))
        last = at_step(environments, jnp.maximum(depth - 1, 0), changing=True)
        return jax.lax.fori_loop(0, depth, step, start), last

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        belief_key, sample_key = jax.random.split(key)
        state, environment = self.posterior(belief_key)
        return self.filter.belief(state, environment).sample(sample_key, n), environment.space

    def episode(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        episode_key, start_key, run_key, sample_key = jax.random.split(key, 4)
        environments, policies, observations = self._drawn(episode_key)
        start = self.filter.init(start_key, at_step(environments, 0, changing=True))
        after, _ = run(self.filter, run_key, observations, environments, policies, changing=True)

        def sampled(key: Key[Array, ""], state: FilterState, step: Int[Array, ""]) -> tuple[State, StateSpace]:
            environment = at_step(environments, step, changing=True)
            return self.filter.belief(state, environment).sample(key, n), environment.space

        states = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more[: self.horizon]]), start, after)
        depths = jnp.arange(self.horizon + 1)
        return jax.vmap(sampled)(jax.random.split(sample_key, len(depths)), states, jnp.maximum(depths - 1, 0))

    def _drawn(self, key: Key[Array, ""]) -> tuple[Environment, Policy, Observation]:
        """Environment, policy and observation of each step of a random episode."""
        family = require(self.family, Episodic, "EpisodePosteriors", "Use FilterPosteriors.")
        environments, policies, observations, _ = family.episode(key)
        steps = jax.tree.leaves(observations)[0].shape[0]
        if self.horizon > steps:
            raise InputError(f"An episode has {steps} steps; got a horizon of {self.horizon}.")
        return environments, policies, observations
