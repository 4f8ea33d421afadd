"""Beliefs to train on where what is public in an episode depends on what was observed before (section
"Partially-Observable Goofspiel")."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from nbf.contracts import BeliefSource, Environment, Filter, FilterState, Observation, Policy, State, StateSpace
from nbf.environments.rollout import at_step
from nbf.errors import InputError


@runtime_checkable
class Episodic(Protocol):
    """A family whose environments follow from earlier observations, as when the observer acts on them: an episode
    is made whole."""

    def episode(self, key: Key[Array, ""], /) -> tuple[Environment, Policy, Observation, State]:
        """The environment, the policy and the observation of each step of one random episode, with a leading axis,
        and the true states x_0..x_T."""
        ...


class EpisodePosteriors(BeliefSource):
    """Beliefs of a filter in random episodes of an `Episodic` family, at a depth drawn uniformly from 0..horizon.

    With a `PrefixFilter` the paper's source for Goofspiel. Depth 0 is p0.
    """

    filter: Filter
    family: Episodic
    horizon: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.horizon < 0:
            raise InputError(f"horizon must be 0 or more; got {self.horizon}.")
        if not isinstance(self.family, Episodic):
            raise InputError(
                f"EpisodePosteriors needs a family with episode(key); {type(self.family).__name__} has none: use "
                "FilterPosteriors."
            )

    def posterior(self, key: Key[Array, ""]) -> tuple[FilterState, Environment]:
        """The filter's state at a random depth of a random episode, and the environment of the step before."""
        depth_key, episode_key, start_key, step_key = jax.random.split(key, 4)
        environments, policies, observations, _ = self.family.episode(episode_key)
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
