"""The exact posterior over sequences that grow by one symbol at every step, as the opponent's bids in Goofspiel do.

Where such sequences are listed in lexicographic order, those of the next length are the branches of each in turn:
an update is one product for each length, of shape (sequences, branches), and a normalisation. The policy is called
once for each distinct choice, not once for each sequence.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.categorical import CategoricalBelief
from nbf.capabilities import Prefixes
from nbf.capability import require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.filters.exact import exact_info, normalized
from nbf.resampling.likelihoods import is_invalid


class PrefixFilter(Filter):
    """The posterior of `ExactFilter`, with the same state, for environments with `Prefixes`: one policy call for each
    distinct choice and no scatter."""

    def init(self, key: Key[Array, ""], environment: Environment) -> Float[Array, " states"]:
        return jnp.exp(listed(environment).initial_log_probs())

    def update(
        self,
        key: Key[Array, ""],
        state: Float[Array, " states"],
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[Float[Array, " states"], FilterInfo]:
        environment = listed(environment)
        probs, branches = jnp.exp(environment.choice_log_probs(policy)), environment.branches
        predicted = jnp.where(environment.over, state, _grown(state, probs, branches))
        kept, some = normalized(predicted, state)
        size = jnp.asarray(state.shape[0], state.dtype)
        if observation is None:
            return kept, exact_info(size, some, 0.0)
        log_likelihoods = environment.choice_log_likelihoods(observation)
        likelihood = jnp.exp(log_likelihoods)
        # At a step that adds nothing, the likelihood is the same for all states.
        seen = jnp.where(environment.over, likelihood[0], likelihood[_last_symbols(branches, len(likelihood))])
        joint = predicted * seen
        evidence = jnp.sum(joint)
        possible = (evidence > 0) & (evidence < jnp.inf)
        scale = jnp.where(possible, evidence, 1.0)
        info = exact_info(size, possible, jnp.log(scale), jnp.sum(is_invalid(log_likelihoods), dtype=jnp.int32))
        return jnp.where(possible, joint / scale, kept), info

    def belief(self, state: Float[Array, " states"], environment: Environment) -> CategoricalBelief:
        return CategoricalBelief(state, listed(environment))


def _grown(
    state: Float[Array, " states"],
    weights: Float[Array, "choices k"],
    branches: tuple[Int[np.ndarray, "_ _"], ...],
) -> Float[Array, " states"]:
    """The mass of every state after a step that adds a symbol, given a weight for each symbol of each choice."""
    flat, first, parts = weights.ravel(), 0, [jnp.zeros(len(branches[0]), state.dtype)]
    for entries in branches:
        before = state[first : first + len(entries)]
        parts.append((before[:, None] * flat[entries]).ravel())
        first += len(entries)
    return jnp.concatenate(parts)


def _last_symbols(branches: tuple[Int[np.ndarray, "_ _"], ...], symbols: int) -> Int[np.ndarray, " states"]:
    """The last symbol of every state; 0 for those of the first length, which follow no step."""
    first = np.zeros(len(branches[0]), np.int32)
    return np.concatenate([first, *(entries.ravel() % symbols for entries in branches)])


def listed(environment: Environment) -> Prefixes:
    """See an environment as one of growing sequences, or raise.

    Args:
        environment: Of this step.

    Returns:
        The same environment.
    """
    return require(environment, Prefixes, "The prefix filter", "Use ExactFilter, or a particle filter.")
