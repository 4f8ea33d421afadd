"""The paper's measure: the Jensen-Shannon divergence between two beliefs, in nats (at most log 2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import rel_entr
from jaxtyping import Array, Float

from nbf.beliefs.categorical import CategoricalBelief
from nbf.beliefs.model import ModelBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import Enumerable
from nbf.contracts import Belief
from nbf.resampling.weights import normalize


def jensen_shannon(p: Float[Array, " k"], q: Float[Array, " k"]) -> Float[Array, ""]:
    """Jensen-Shannon divergence of two probability vectors, each normalised first.

    Args:
        p: Probabilities, up to a factor.
        q: Probabilities, up to a factor.

    Returns:
        The divergence in nats.
    """
    p, q = p / jnp.sum(p), q / jnp.sum(q)
    # Half of the smallest float is 0, of which the divergence would be infinite.
    least = 4.0 * jnp.finfo(p.dtype).tiny
    p, q = jnp.where(p > least, p, 0.0), jnp.where(q > least, q, 0.0)
    middle = (p + q) / 2.0
    return jnp.maximum(jnp.sum(rel_entr(p, middle) + rel_entr(q, middle)) / 2.0, 0.0)


def state_probabilities(belief: Belief, environment: Enumerable) -> Float[Array, " states"]:
    """Probability that a belief gives to each state of an enumerable environment.

    Args:
        belief: A particle belief counts as its weighted histogram; others are asked for the probability of each state.
            What a model decodes to counts as it is, so that mass on illegal states is an error of the model.
        environment: Environment that enumerates its states.

    Returns:
        One probability per state.
    """
    if isinstance(belief, CategoricalBelief):
        return belief.probs
    if isinstance(belief, ParticleBelief):
        cells = jax.vmap(environment.index)(belief.states)
        count = jax.tree.leaves(environment.states())[0].shape[0]
        return jnp.zeros(count).at[cells].add(jnp.exp(normalize(belief.log_weights)[0]))
    if isinstance(belief, ModelBelief) and belief.tilt is None and belief.particles is None:
        return jnp.exp(belief.decoded_log_probs(environment.states()))
    return jnp.exp(belief.log_probs(environment.states()))
