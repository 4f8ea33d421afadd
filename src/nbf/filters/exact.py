"""The exact Bayes filter, for any environment whose states can be listed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf.beliefs.categorical import CategoricalBelief, TransitionKernel, bayes, transition_kernel
from nbf.capabilities import Enumerable
from nbf.capability import require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy


class ExactFilter(Filter):
    """The posterior by enumeration. Its state is the probability of every state that the environment lists."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Float[Array, " states"]:
        return jnp.exp(_enumerable(environment).initial_log_probs())

    def update(
        self,
        key: Key[Array, ""],
        state: Float[Array, " states"],
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[Float[Array, " states"], FilterInfo]:
        environment = _enumerable(environment)
        branches = transition_kernel(environment, policy)
        size = jnp.asarray(state.shape[0], state.dtype)
        if observation is None:
            predicted, some = _prediction(branches, state)
            info = FilterInfo(jnp.where(some, size, 0.0), jnp.where(some, 0.0, -jnp.inf), jnp.int32(1), ~some)
            return predicted, info
        posterior, log_evidence = bayes(state, observation, environment, branches)
        impossible = ~(log_evidence > -jnp.inf)
        kept = jax.lax.cond(impossible, lambda: _prediction(branches, state)[0], lambda: posterior)
        info = FilterInfo(
            ess=jnp.where(impossible, 0.0, size),
            log_evidence=jnp.where(impossible, -jnp.inf, log_evidence),
            attempts=jnp.int32(1),
            recovered=impossible,
            invalid=branches.invalid(state, observation, environment),
        )
        return kept, info

    def belief(self, state: Float[Array, " states"], environment: Environment) -> CategoricalBelief:
        return CategoricalBelief(state, _enumerable(environment))


def _prediction(
    branches: TransitionKernel, state: Float[Array, " states"]
) -> tuple[Float[Array, " states"], Bool[Array, ""]]:
    """The belief after a step without an observation, and whether the transition had any probability.

    Normalised, since the rounding of thousands of predictions would add up. Under a policy whose probabilities are all
    zero (or NaN), the belief stays as it is.
    """
    moved = branches.predict(state)
    total = jnp.sum(moved)
    some = (total > 0) & (total < jnp.inf)
    return jnp.where(some, moved / jnp.where(some, total, 1.0), state), some


def _enumerable(environment: Environment) -> Enumerable:
    return require(environment, Enumerable, "The exact filter", "Claim it, or use a particle filter.")
