"""The paper's proposal: independent draws of the decoded belief (lines 2 to 4 of Algorithm 1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf import prng
from nbf.contracts import Environment, Observation, Policy
from nbf.filters.neural.proposal import Prior, Proposal, Proposed, simulated
from nbf.resampling.weights import normalize


class IndependentProposal(Proposal):
    """The paper's: n independent draws of the decoded belief, each moved by the simulator."""

    def __call__(
        self,
        key: Key[Array, ""],
        prior: Prior,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Proposed:
        n = prior.num_particles
        keys = prng.split(key, n + 1)
        states = prior.model.sample(keys[0], prior.state.embedding, n, prior.space)
        # Normalised over the legal draws: that a model draws illegal states says nothing of the observation.
        legal = normalize(jnp.where(jax.vmap(prior.space.contains)(states), 0.0, -jnp.inf))[0]
        weights = prior.corrected(states, legal, jnp.ones(()))
        return simulated(keys[1:], states, weights, jnp.ones(()), environment, policy)
