"""What a neural filter carries from one step to the next."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Embedding, StateSpace
from nbf.filters.attempts import padded
from nbf.resampling.optimal import optimal_resample
from nbf.resampling.weights import normalize


class NeuralState(eqx.Module):
    """The embedding, and the weighted particles that it was made from."""

    embedding: Embedding
    particles: ParticleBelief
    random_mass: Float[Array, ""]
    """The share of the belief's mass that was decided by a random choice when the particles were proposed: 1 for
    independent draws, 0 where every state with any mass was kept."""
    carried_share: Float[Array, ""]
    """The share of the belief that the particles stand for themselves; the decoded embedding has the rest."""
    context: Float[Array, " c"] | None
    """The context in which the embedding was made, if the environment has one."""


MOST_EMBEDDED = 256
"""Particles, at most, of which an embedding is made, unless more are simulated or a proposal says otherwise."""


def thinned(key: Key[Array, ""], particles: ParticleBelief, most: int) -> ParticleBelief:
    """Leave few particles of a large set, to be embedded in its place.

    Args:
        key: Random key.
        particles: A weighted set.
        most: How many.

    Returns:
        The set itself, or so many of it with weights that keep every mean unbiased; all of them finite.
    """
    states = padded(particles.states, particles.log_weights)
    if particles.log_weights.shape[0] <= most:
        return ParticleBelief(states, particles.log_weights)
    states, log_weights, _ = optimal_resample(key, states, normalize(particles.log_weights)[0], most)
    return ParticleBelief(states, log_weights)


def in_context(space: StateSpace, context: Float[Array, " c"] | None) -> StateSpace:
    """Give a space the context that an embedding was made in, which the next step may have replaced.

    Args:
        space: Of the environment at this step.
        context: Of the embedding.

    Returns:
        The space with that context.
    """
    if context is None:
        return space
    return eqx.tree_at(lambda space: space.context, space, context, is_leaf=lambda leaf: leaf is None)
