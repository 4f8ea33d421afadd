"""Beliefs to train on where the environments of an episode depend on earlier observations (section
"Partially-Observable Goofspiel")."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from nbf.capabilities import Episodic
from nbf.capability import require
from nbf.contracts import BeliefSource, Environment, Family, Filter, FilterState, State, StateSpace
from nbf.environments.rollout import at_step
from nbf.errors import InputError


class EpisodePosteriors(BeliefSource):
    """Beliefs of a filter in random episodes of an `Episodic` family, at a depth drawn uniformly from 0..horizon.

    With a `PrefixFilter` this is the paper's source for Goofspiel. Depth 0 is p0.
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
        environments, policies, observations, _ = require(
            self.family, Episodic, "EpisodePosteriors", "Use FilterPosteriors."
        ).episode(episode_key)
        steps = jax.tree.leaves(observations)[0].shape[0]
        if self.horizon > steps:
            raise InputError(f"An episode has {steps} steps; got a horizon of {self.horizon}.")
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
