"""Low-variance draws of the decoded belief, each moved by the simulator."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.model import listed_or_drawn
from nbf.capabilities import ListedStates
from nbf.capability import capability
from nbf.contracts import Environment, Observation, Policy, State
from nbf.filters.neural.proposal import Prior, Proposal, Proposed, simulated
from nbf.resampling.optimal import optimal_resample, random_mass, split_heavy


def decoded(key: Key[Array, ""], prior: Prior, count: int) -> tuple[State, Float[Array, " k"], Float[Array, ""]]:
    """Decode the embedding of a belief to a weighted set.

    Args:
        key: Random key.
        prior: The belief.
        count: How many states are drawn, where the model does not list all of them.

    Returns:
        The states, their log weights, and the share of the mass that the draws decided: 0 for a listing.
    """
    states, log_weights = listed_or_drawn(prior.model, key, prior.state.embedding, count, prior.space)
    listed = capability(prior.model, ListedStates) is not None
    return states, log_weights, jnp.zeros(()) if listed else random_mass(log_weights)


class EvenProposal(Proposal):
    """Draws that vary less than independent ones (`BeliefModel.draw`; of a model that lists its states, the optimal
    resampling of Fearnhead and Clifford), with weights. Places without weight go to copies of heavy states."""

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
        draw_key, resample_key, split_key = prng.split(keys[0], 3)
        states, log_weights, drawn = decoded(draw_key, prior, n)
        few, weights, lost = optimal_resample(resample_key, states, log_weights, n)
        mass = jnp.maximum(lost, drawn)
        chosen, weights = split_heavy(split_key, prior.corrected(few, weights, mass))
        parents = jax.tree.map(lambda leaf: leaf[chosen], few)
        return simulated(keys[1:], parents, weights, mass, environment, policy)
