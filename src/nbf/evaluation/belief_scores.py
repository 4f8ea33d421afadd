"""How good a belief is beside the true state and a reference belief: what `nbf.compare` measures at every step.

The log score is the log of the probability (or density) that a belief gives to the true state. Weighted particles have
no density: over real vectors they are smoothed by a kernel (`nbf.beliefs.kde`). The divergence to a reference belief is
Jensen-Shannon's where all states can be listed, and the energy distance elsewhere.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, Enumerable, FiniteSpace
from nbf.capability import capability
from nbf.contracts import Belief, Environment, State
from nbf.evaluation.divergence import jensen_shannon, state_probabilities
from nbf.evaluation.energy import mean_distance, mean_pairwise_distance
from nbf.resampling.weights import normalize

DRAWS = 512
"""Draws by which a belief is known where its states cannot be listed. Of fewer particles each counts by its weight."""
LISTABLE = 2**16
"""States up to which all of them are listed."""
PRIOR_SHARE = 1e-3
"""Of every belief, for its log score: a filter that has lost the state is as wrong as this, not infinitely wrong."""
LOWEST = -1000.0
"""The lowest log score, in nats."""


class ReferenceBelief(eqx.Module):
    """What is known of a reference belief, or of those of many steps, with a leading axis."""

    probs: Float[Array, "*steps states"] | None
    """Of all states, where they can be listed."""
    draws: Float[Array, "*steps n d"] | None
    """Encoded, in units of the typical width, where they cannot."""
    pairwise_distance: Float[Array, "*steps"] | None
    """E|Y - Y'| of the draws."""


def listable(environment: Environment) -> bool:
    """Whether all states of an environment can be listed, by itself or by its space.

    Args:
        environment: Any environment.

    Returns:
        A static fact.
    """
    if capability(environment, Enumerable) is not None:
        return num_states(environment) <= LISTABLE
    finite = capability(environment.space, FiniteSpace)
    return finite is not None and finite.size <= LISTABLE


def num_states(environment: Environment) -> int:
    """Count the states that an `Enumerable` environment lists.

    Args:
        environment: An enumerable environment.

    Returns:
        How many; nothing is computed.
    """
    found = capability(environment, Enumerable)
    assert found is not None
    return jax.tree.leaves(jax.eval_shape(found.states))[0].shape[0]


def listed_probabilities(belief: Belief, environment: Environment) -> Float[Array, " states"]:
    """Find the probability of every state that can be listed.

    Args:
        belief: Any belief over them; particles count as their weighted histogram.
        environment: One that is `listable`.

    Returns:
        One probability per state.
    """
    enumerable = capability(environment, Enumerable)
    if enumerable is not None:
        return state_probabilities(belief, enumerable)
    finite = capability(environment.space, FiniteSpace)
    assert finite is not None
    if isinstance(belief, ParticleBelief):
        weights = jnp.exp(normalize(belief.log_weights)[0])
        return jnp.zeros(finite.size).at[jax.vmap(finite.index)(belief.states)].add(weights)
    return jnp.exp(belief.log_probs(jnp.asarray(finite.points())))


def encoded_draws(key: Key[Array, ""], belief: Belief, environment: Environment) -> Float[Array, "n d"]:
    """Draw from a belief, as numbers.

    Args:
        key: Random key.
        belief: Any belief.
        environment: Whose space encodes the states.

    Returns:
        `DRAWS` rows.
    """
    return jax.vmap(environment.space.encode)(belief.sample(key, DRAWS))


def log_prob(belief: Belief, state: State, environment: Environment) -> Float[Array, ""]:
    """Compute the log of the probability, or density, of the true state.

    Args:
        belief: Any belief; weighted particles over a box are smoothed by a kernel.
        state: The true state.
        environment: Where it is.

    Returns:
        The log-probability; -inf where the belief excludes the state.
    """
    continuous = capability(environment.space, ContinuousSpace)
    if isinstance(belief, ParticleBelief) and continuous is not None:
        belief = KernelDensityBelief.of(belief, continuous)
    return belief.log_prob(state)


def divergence(
    key: Key[Array, ""],
    belief: Belief,
    environment: Environment,
    reference: ReferenceBelief,
    width: Float[Array, " d"] | None,
) -> Float[Array, ""]:
    """Compare a belief with a reference.

    Args:
        key: Random key of draws.
        belief: Any belief.
        environment: Where it arose.
        reference: Of the same step.
        width: The unit of distances along each coordinate; None where states are listed.

    Returns:
        The Jensen-Shannon divergence, or an unbiased estimate of the energy distance, which may be below 0.
    """
    if reference.probs is not None:
        return jensen_shannon(reference.probs, listed_probabilities(belief, environment))
    assert reference.draws is not None
    assert reference.pairwise_distance is not None
    assert width is not None
    if isinstance(belief, ParticleBelief) and belief.log_weights.shape[0] <= DRAWS:
        points = jax.vmap(environment.space.encode)(belief.states) / width
        weights = belief.log_weights
        within = mean_distance(points, weights, points, weights)
    else:
        points, weights = encoded_draws(key, belief, environment) / width, jnp.zeros(DRAWS)
        within = mean_pairwise_distance(points)
    across = mean_distance(points, weights, reference.draws, jnp.zeros(reference.draws.shape[0]))
    return 2.0 * across - within - reference.pairwise_distance


def smoothed_log_scores(
    log_probs: Float[np.ndarray, "*any"], prior: Float[np.ndarray, "*any"]
) -> Float[np.ndarray, "*any"]:
    """Turn log-probabilities of true states into log scores: those of a belief with a small share of the prior in it.

    Args:
        log_probs: Of the belief; NaN counts as -inf.
        prior: Of the prior.

    Returns:
        log((1 - s)·p + s·prior) with s = `PRIOR_SHARE`, at least `LOWEST`.
    """
    found = np.where(np.isnan(log_probs), -np.inf, np.asarray(log_probs, np.float64))
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp(math.log1p(-PRIOR_SHARE) + found, math.log(PRIOR_SHARE) + prior)
    return np.maximum(mixed, LOWEST)
