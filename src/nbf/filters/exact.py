"""The exact Bayes filter, for any environment whose states can be listed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.categorical import CategoricalBelief, bayes, transition_kernel
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
            predicted, some = normalized(branches.predict(state), state)
            return predicted, exact_info(size, some, 0.0)
        posterior, log_evidence = bayes(state, observation, environment, branches)
        possible = log_evidence > -jnp.inf
        kept = jax.lax.cond(possible, lambda: posterior, lambda: normalized(branches.predict(state), state)[0])
        return kept, exact_info(size, possible, log_evidence, branches.invalid(state, observation, environment))

    def belief(self, state: Float[Array, " states"], environment: Environment) -> CategoricalBelief:
        return CategoricalBelief(state, _enumerable(environment))


def normalized(
    moved: Float[Array, "*states"], state: Float[Array, "*states"]
) -> tuple[Float[Array, "*states"], Bool[Array, ""]]:
    """Normalise a prediction, since the rounding of thousands of them would add up.

    Args:
        moved: The masses after a transition.
        state: Those before it.

    Returns:
        The prediction, and whether it has any mass: under a policy whose probabilities are all zero (or NaN), the
        belief stays as it was.
    """
    total = jnp.sum(moved)
    some = (total > 0) & (total < jnp.inf)
    return jnp.where(some, moved / jnp.where(some, total, 1.0), state), some


def exact_info(
    size: Float[Array, ""],
    possible: Bool[Array, ""],
    log_evidence: float | Float[Array, ""],
    invalid: int | Int[Array, ""] = 0,
) -> FilterInfo:
    """Tell of a step that sums over all states.

    Args:
        size: How many states, which is the effective sample size.
        possible: Whether the observation, or without one the transition, had any probability.
        log_evidence: Of the observation; 0 without one.
        invalid: Likelihoods that were no numbers.

    Returns:
        What the step tells.
    """
    evidence = jnp.where(possible, log_evidence, -jnp.inf)
    return FilterInfo(jnp.where(possible, size, 0.0), evidence, jnp.int32(1), ~possible, jnp.int32(invalid))


def _enumerable(environment: Environment) -> Enumerable:
    return require(environment, Enumerable, "The exact filter", "Claim it, or use a particle filter.")
