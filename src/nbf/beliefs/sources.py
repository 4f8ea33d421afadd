"""Where the beliefs that a model is trained on come from (appendix, "Training belief embedding models")."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf.beliefs.categorical import CategoricalBelief, bayes, kernel
from nbf.contracts import BeliefSource, Enumerable, Environment, Family, Observation, Policy, State, StateSpace


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

    Depth 0 is p0: the belief that every filter starts from is in the training set.
    """

    family: Family
    horizon: int = eqx.field(static=True)

    def posterior(self, key: Key[Array, ""]) -> CategoricalBelief:
        """One random belief."""
        instance_key, depth_key, episode_key = jax.random.split(key, 3)
        environment, policy = self.family.sample(instance_key)
        assert isinstance(environment, Enumerable)
        depth = jax.random.randint(depth_key, (), 0, self.horizon + 1)
        _, observations = rollout(episode_key, environment, policy, self.horizon)
        branches = kernel(environment, policy)

        def step(probs: Float[Array, " states"], inputs: tuple[Int[Array, ""], Observation]):
            time, observation = inputs
            posterior, _ = bayes(probs, observation, environment, branches)
            return jnp.where(time < depth, posterior, probs), None

        prior = jnp.exp(environment.initial_log_probs())
        probs, _ = jax.lax.scan(step, prior, (jnp.arange(self.horizon), observations))
        return CategoricalBelief(probs, environment)

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        belief_key, sample_key = jax.random.split(key)
        belief = self.posterior(belief_key)
        return belief.sample(sample_key, n), belief.environment.space
