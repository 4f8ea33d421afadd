"""p_θ as a belief: a decoded embedding, tilted or not, alone or beside carried particles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.exponential_tilt import Tilt
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, FiniteSpace, ListedStates, MeanFeatures
from nbf.capability import capability, require
from nbf.contracts import Belief, BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import normalize

DRAWS = 256
"""Draws by which the normalising constant of a tilt is estimated where states cannot be listed."""
LISTABLE = 4096
"""Up to this many cells, the normalising constant of a tilt on a lattice is the sum over all of them."""


class ModelBelief(Belief):
    """p_θ, the density to which a belief model decodes an embedding, or its tilt, restricted to legal states."""

    model: BeliefModel
    embedding: Embedding
    space: StateSpace
    tilt: Tilt | None = None
    particles: ParticleBelief | None = None
    """Carried particles, which stand for a share of the belief themselves; None: there are none."""
    carried_share: Float[Array, ""] | float = 0.0
    """That share."""

    def sample(self, key: Key[Array, ""], n: int) -> State:
        if self.particles is None:
            return self._sample(key, n)
        model_key, kept_key, choice_key = jax.random.split(key, 3)
        own = jax.random.uniform(choice_key, (n,)) < self.carried_share
        pick = lambda kept, made: jnp.where(own.reshape(-1, *[1] * (made.ndim - 1)), kept, made)  # noqa: E731
        return jax.tree.map(pick, self.particles.sample(kept_key, n), self._sample(model_key, n))

    def _sample(self, key: Key[Array, ""], n: int) -> State:
        if self.tilt is None:
            return self.model.sample(key, self.embedding, n, self.space)
        # Importance resampling: exact where the model lists its states, else of four times as many draws.
        draw_key, choice_key = jax.random.split(key)
        states, log_weights = listed_or_drawn(self.model, draw_key, self.embedding, max(4 * n, DRAWS), self.space)
        chosen = resampling.draw(choice_key, self._tilted(log_weights, states), n)
        return jax.tree.map(lambda leaf: leaf[chosen], states)

    def log_prob(self, state: State) -> Float[Array, ""]:
        return self.log_probs(jax.tree.map(lambda leaf: leaf[None], state))[0]

    def log_probs(self, states: State) -> Float[Array, " n"]:
        found = self._tilted(self.model.log_prob(self.embedding, states, self.space), states)
        if self.particles is None:
            return found
        return mixed(self.carried_share, found, self.particles.log_probs(states))

    def expectation(self, function: Callable[[State], Any]) -> Any:
        finite = capability(self.space, FiniteSpace)
        if finite is None:
            raise InputError(
                f"The expectation over {self.space.signature} has no closed form: average over samples instead, or "
                "use the filter's own estimate, NeuralBayesianFilter.estimate."
            )
        points = jnp.asarray(finite.points())
        probs = jax.nn.softmax(self.log_probs(points))
        return jax.tree.map(lambda values: jnp.tensordot(probs, values, 1), jax.vmap(function)(points))

    def _tilted(self, log_probs: Float[Array, " n"], states: State) -> Float[Array, " n"]:
        if self.tilt is None:
            return log_probs
        model = require(self.model, MeanFeatures, "A tilted belief", "Report it without a tilt.")
        tilted = self.tilt(log_probs, model.features(states, self.space))
        # Density beyond the bounds is the mass that clipping puts on them.
        if capability(self.space, ContinuousSpace) is not None:
            return tilted
        return jnp.where(jax.vmap(self.space.contains)(states), tilted, -jnp.inf)


def mixed(share: Float[Array, ""] | float, first: Float[Array, " n"], second: Float[Array, " n"]) -> Float[Array, " n"]:
    """Mix two distributions.

    Args:
        share: Of the second one.
        first: log probabilities of n states.
        second: log probabilities of the same states.

    Returns:
        log of (1 - share)·first + share·second.
    """
    return jnp.logaddexp(jnp.log1p(-share) + first, jnp.log(share) + second)


def listed_or_drawn(
    model: BeliefModel, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
) -> tuple[State, Float[Array, " k"]]:
    """Decode an embedding to a weighted set: all states of a model that lists them, else low-variance draws.

    Args:
        model: A belief model.
        key: Random key.
        embedding: θ.
        n: How many draws.
        space: Of the environment.

    Returns:
        States and normalised log weights; illegal states have -inf.
    """
    lister, finite = capability(model, ListedStates), capability(space, FiniteSpace)
    if lister is None or finite is None:
        states, log_probs = model.draw(key, embedding, n, space)
    else:
        states, log_probs = jnp.asarray(finite.points()), lister.all_log_probs(embedding, space)
    return states, normalize(jnp.where(jax.vmap(space.contains)(states), log_probs, -jnp.inf))[0]


def support(model: BeliefModel, embedding: Embedding, space: StateSpace) -> tuple[State, Float[Array, " k"]]:
    """Find a fixed weighted set that stands for p_θ: all states of a small finite space, else many draws.

    Args:
        model: A belief model.
        embedding: θ.
        space: Of the environment.

    Returns:
        States and log weights whose total over the legal states is their mass under p_θ; illegal states have -inf.
    """
    finite = capability(space, FiniteSpace)
    if finite is not None and finite.size <= LISTABLE:
        states = jnp.asarray(finite.points())
        log_probs = model.log_prob(embedding, states, space)
    else:
        states, log_weights = model.draw(prng.stream(0, "the total of a tilt"), embedding, DRAWS, space)
        log_probs = normalize(log_weights)[0]
    return states, jnp.where(jax.vmap(space.contains)(states), log_probs, -jnp.inf)
