"""Exact posteriors over sequences that grow by one symbol at every step, for training: see `nbf.filters.prefixes`."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.capabilities import Episodic
from nbf.contracts import BeliefSource, Environment, State, StateSpace
from nbf.environments.rollout import at_step
from nbf.errors import InputError
from nbf.filters.prefixes import listed


class PrefixPosteriors(BeliefSource):
    """The beliefs of `EpisodePosteriors` with a `PrefixFilter`, several times as fast.

    The states after t steps are the sequences of one length, so one pass over the listed states computes the
    posteriors of all depths of an episode, each at the states of its length.
    """

    family: Episodic
    horizon: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.horizon < 0:
            raise InputError(f"horizon must be 0 or more; got {self.horizon}.")

    def posteriors(self, key: Key[Array, ""]) -> tuple[Float[Array, " states"], Environment]:
        """Compute the posteriors of all depths of a random episode.

        Args:
            key: Random key.

        Returns:
            The probabilities of the states of each length, given the observations up to it, one after the other; and
            the environments of the episode, with a leading axis.
        """
        environments, policies, observations, _ = self.family.episode(key)
        first = listed(at_step(environments, 0, changing=True))
        if self.horizon > len(first.branches):
            raise InputError(f"An episode has {len(first.branches)} steps; got a horizon of {self.horizon}.")
        depths = [jnp.exp(first.initial_log_probs())[: len(first.branches[0])]]
        for time, entries in enumerate(first.branches[: self.horizon]):
            step = at_step((environments, policies, observations), time, changing=True)
            environment, policy, observation = step
            weights = jnp.exp(environment.choice_log_probs(policy) + environment.choice_log_likelihoods(observation))
            joint = (depths[-1][:, None] * weights.ravel()[entries]).ravel()
            depths.append(joint / jnp.maximum(jnp.sum(joint), jnp.finfo(joint.dtype).tiny))
        return jnp.concatenate(depths), environments

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        depth_key, episode_key, sample_key = jax.random.split(key, 3)
        probs, environments = self.posteriors(episode_key)
        depth = jax.random.randint(depth_key, (), 0, self.horizon + 1)
        environment = listed(at_step(environments, jnp.maximum(depth - 1, 0), changing=True))
        sizes = np.asarray([len(environment.branches[0]), *(part.size for part in environment.branches)])
        sizes = sizes[: self.horizon + 1]
        start = jnp.asarray(np.cumsum(sizes) - sizes)[depth]
        # No length has more sequences than the last one, so a window of that size fits at every start.
        window = jax.lax.dynamic_slice(probs, (start,), (int(sizes[-1]),))
        window = jnp.where(jnp.arange(sizes[-1]) < jnp.asarray(sizes)[depth], window, 0.0)
        chosen = start + prng.categoricals(sample_key, window, n)
        return jax.tree.map(lambda leaf: leaf[chosen], environment.states()), environment.space

    def episode(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        episode_key, sample_key = jax.random.split(key)
        probs, environments = self.posteriors(episode_key)
        first = listed(at_step(environments, 0, changing=True))
        ends = np.cumsum([len(first.branches[0]), *(part.size for part in first.branches)])[: self.horizon + 1]
        keys = jax.random.split(sample_key, self.horizon + 1)
        parts = zip(keys, [0, *ends[:-1]], ends, strict=True)
        chosen = jnp.stack([start + prng.categoricals(key, probs[start:end], n) for key, start, end in parts])
        depths = np.maximum(np.arange(self.horizon + 1) - 1, 0)
        spaces = jax.tree.map(lambda leaf: leaf[depths], environments.space)
        return jax.tree.map(lambda leaf: leaf[chosen], first.states()), spaces
