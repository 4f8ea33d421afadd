"""The paper's measure: the Jensen-Shannon divergence between two beliefs, in nats (at most log 2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import rel_entr
from jaxtyping import Array, Float

from nbf.beliefs.categorical import CategoricalBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief, Enumerable
from nbf.resampling.weights import normalize


def jensen_shannon(p: Float[Array, " k"], q: Float[Array, " k"]) -> Float[Array, ""]:
    """JS of two vectors of probabilities, each normalised first."""
    p, q = p / jnp.sum(p), q / jnp.sum(q)
    # Half of the smallest float is 0, of which the divergence would be infinite.
    least = 4.0 * jnp.finfo(p.dtype).tiny
    p, q = jnp.where(p > least, p, 0.0), jnp.where(q > least, q, 0.0)
    middle = (p + q) / 2.0
    return jnp.maximum(jnp.sum(rel_entr(p, middle) + rel_entr(q, middle)) / 2.0, 0.0)


def state_probabilities(belief: Belief, environment: Enumerable) -> Float[Array, " states"]:
    """What a belief gives to each state that the environment lists.

    A particle set counts as its weighted histogram, a model as its own probability of each state.
    """
    if isinstance(belief, CategoricalBelief):
        return belief.probs
    if isinstance(belief, ParticleBelief):
        cells = jax.vmap(environment.index)(belief.states)
        count = jax.tree.leaves(environment.states())[0].shape[0]
        return jnp.zeros(count).at[cells].add(jnp.exp(normalize(belief.log_weights)[0]))
    return jnp.exp(belief.log_probs(environment.states()))
