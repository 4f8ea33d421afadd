"""The loss of a belief embedding model (appendix, "Training belief embedding models").

Half of each belief's samples are embedded; the other half is scored under the model conditioned on the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from nbf.contracts import BeliefModel, State, StateSpace

SMALLEST_SET = 4
"""Samples in the smallest random set."""
CONCENTRATIONS = (0.2, 10.0)
"""Range of the gamma concentration of random weights. At the lower end the effective sample size is about a sixth of
the set size, at the upper end nearly all of it."""

Loss = Callable[[Any, Key[Array, ""], PyTree, PyTree], Float[Array, ""]]
"""(model, key, states, space) -> the loss of a batch; states and space are a batch of draws of the belief source."""


def random_log_weights(key: Key[Array, ""], n: int) -> Float[Array, " n"]:
    """Draw the log weights of a random set of up to n samples; the rest is padding of weight zero.

    The size is log-uniform between `SMALLEST_SET` (n, if that is less) and n. The weights are gamma variables whose
    concentration is log-uniform within `CONCENTRATIONS`. They do not depend on the samples, so the weighted set is an
    unbiased representation of the belief, however small its effective sample size.

    Args:
        key: Random key.
        n: Number of samples, padding included.

    Returns:
        Unnormalised log weights, -inf for padding.
    """
    size_key, concentration_key, weight_key = jax.random.split(key, 3)
    least = min(SMALLEST_SET, n)
    size = jnp.exp(jax.random.uniform(size_key, minval=math.log(least), maxval=math.log(n + 1)))
    low, high = CONCENTRATIONS
    concentration = jnp.exp(jax.random.uniform(concentration_key, minval=math.log(low), maxval=math.log(high)))
    log_weights = jax.random.loggamma(weight_key, concentration, (n,))
    # At least `least`: exp may round log 4 to below 4.
    return jnp.where(jnp.arange(n) < jnp.maximum(jnp.floor(size), least), log_weights, -jnp.inf)


def batch_loss(
    model: BeliefModel, key: Key[Array, ""], states: State, space: StateSpace, *, random_sets: bool = False
) -> Float[Array, ""]:
    """Minus the mean objective of the second half of each belief's samples, given the first half.

    Args:
        model: Model to score.
        key: Random key of the objective and of random sets.
        states: Samples; leaves have axes (beliefs, samples, ...).
        space: Space of each belief, batched along a leading axis.
        random_sets: Embed a random weighted part of the first half: see `random_log_weights`.

    Returns:
        Loss in nats per sample.
    """
    prepared = model.prepared()
    half = jax.tree.leaves(states)[0].shape[1] // 2
    embedded = jax.tree.map(lambda leaf: leaf[:, :half], states)
    scored = jax.tree.map(lambda leaf: leaf[:, half:], states)
    if random_sets:
        key, set_key = jax.random.split(key)
        keys = jax.random.split(set_key, jax.tree.leaves(states)[0].shape[0])
        log_weights = jax.vmap(lambda key: random_log_weights(key, half))(keys)
        embeddings = jax.vmap(prepared.embed)(embedded, log_weights, space)
    else:
        embeddings = jax.vmap(lambda states, space: prepared.embed(states, jnp.zeros(half), space))(embedded, space)
    return -jnp.mean(prepared.objective(key, embeddings, scored, space))
