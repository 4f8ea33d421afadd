"""Exact posteriors to train on, where states can be listed (appendix, "Training belief embedding models")."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf.beliefs.categorical import CategoricalBelief, bayes, transition_kernel
from nbf.capabilities import Enumerable, ExactSource, Scheduled
from nbf.capability import capability, require
from nbf.contracts import Family, Observation, Policy, State, StateSpace
from nbf.environments.rollout import at_step, draw_instance, rollout


class ExactPosteriors(ExactSource):
    """Exact posteriors of random episodes of a family, at a depth drawn uniformly from 0..horizon.

    Depth 0 is p0: the training set contains the belief with which every filter starts. Environment and policy of a
    `Scheduled` family may change at every step.
    """

    family: Family
    horizon: int = eqx.field(static=True)

    def posterior(self, key: Key[Array, ""]) -> CategoricalBelief:
        """Draw one random belief.

        Args:
            key: Random key.

        Returns:
            The posterior, with the environment of the step that led to it.
        """
        instance_key, depth_key, episode_key = jax.random.split(key, 3)
        family = self.family
        steps = max(self.horizon, 1) if capability(family, Scheduled) is not None else self.horizon
        *drawn, changing = draw_instance(family, instance_key, steps)
        pair: tuple[Any, Policy] = (drawn[0], drawn[1])
        first = require(at_step(pair[0], 0, changing=changing), Enumerable, "ExactPosteriors", "Use FilterPosteriors.")
        depth = jax.random.randint(depth_key, (), 0, self.horizon + 1)
        _, observations = rollout(episode_key, pair[0], pair[1], steps, changing=changing)
        branches = None if changing else transition_kernel(first, pair[1])

        def step(probs: Float[Array, " states"], inputs: tuple[Int[Array, ""], Observation, PyTree]):
            time, observation, changed = inputs
            now, control = changed if changing else pair
            posterior, _ = bayes(
                probs, observation, now, transition_kernel(now, control) if branches is None else branches
            )
            return jnp.where(time < depth, posterior, probs), None

        prior = jnp.exp(first.initial_log_probs())
        inputs = jnp.arange(steps), observations, pair if changing else None
        probs, _ = jax.lax.scan(step, prior, inputs)
        return CategoricalBelief(probs, at_step(pair[0], jnp.maximum(depth - 1, 0), changing=changing))

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        belief_key, sample_key = jax.random.split(key)
        belief = self.posterior(belief_key)
        return belief.sample(sample_key, n), belief.environment.space
