"""p_θ as a belief: what a model makes of an embedding, tilted or not, alone or beside particles that were kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.exponential_tilt import Tilt
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief, BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import normalize
from nbf.spaces import Box, Lattice

DRAWS = 256
"""States of a model by which the total of a tilt is estimated where they cannot be listed."""
LISTABLE = 4096
"""Up to this many cells, the total of a tilt on a lattice is the sum over all of them."""


class ModelBelief(Belief):
    """p_θ: what a belief model makes of an embedding, or its tilt, which is of the legal states alone."""

    model: BeliefModel
    embedding: Embedding
    space: StateSpace
    tilt: Tilt | None = None
    particles: ParticleBelief | None = None
    """Those that stand for a share of the belief by themselves."""
    kept: Float[Array, ""] | float = 0.0
    """That share."""

    def sample(self, key: Key[Array, ""], n: int) -> State:
        if self.particles is None:
            return self._sample(key, n)
        model_key, kept_key, choice_key = jax.random.split(key, 3)
        own = jax.random.uniform(choice_key, (n,)) < self.kept
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
        """log p_θ of each state of a set."""
        found = self._tilted(self.model.log_prob(self.embedding, states, self.space), states)
        if self.particles is None:
            return found
        return mixed(self.kept, found, self.particles.log_probs(states))

    def expectation(self, function: Callable[[State], Any]) -> Any:
        if not isinstance(self.space, Lattice):
            raise InputError(
                f"The expectation over {self.space.signature} has no closed form: average over samples instead, or "
                "use the filter's own estimate, NeuralBayesianFilter.estimate."
            )
        points = jnp.asarray(self.space.points())
        probs = jax.nn.softmax(self.log_probs(points))
        return jax.tree.map(lambda values: jnp.tensordot(probs, values, 1), jax.vmap(function)(points))

    def _tilted(self, log_probs: Float[Array, " n"], states: State) -> Float[Array, " n"]:
        if self.tilt is None:
            return log_probs
        features = self.model.features(states, self.space)
        assert features is not None
        tilted = self.tilt(log_probs, features)
        if isinstance(self.space, Box):  # the mass beyond its walls is what clipping puts on them
            return tilted
        return jnp.where(jax.vmap(self.space.contains)(states), tilted, -jnp.inf)


def mixed(share: Float[Array, ""] | float, first: Float[Array, " n"], second: Float[Array, " n"]) -> Float[Array, " n"]:
    """log of (1 - share) of one probability and the share of another."""
    return jnp.logaddexp(jnp.log1p(-share) + first, jnp.log(share) + second)


def listed_or_drawn(
    model: BeliefModel, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
) -> tuple[State, Float[Array, " k"]]:
    """All states of a model that lists them, else n even draws, with normalised log weights; illegal states have
    none."""
    log_probs = model.listed(embedding, space)
    if log_probs is None:
        states, log_probs = model.draw(key, embedding, n, space)
    else:
        assert isinstance(space, Lattice)
        states = jnp.asarray(space.points())
    return states, normalize(jnp.where(jax.vmap(space.contains)(states), log_probs, -jnp.inf))[0]


def whole(model: BeliefModel, embedding: Embedding, space: StateSpace) -> tuple[State, Float[Array, " k"]]:
    """All states of a lattice, of others many even draws, and log weights whose total over the legal ones is theirs
    under p_θ; illegal ones have none."""
    if isinstance(space, Lattice) and space.size <= LISTABLE:
        states = jnp.asarray(space.points())
        log_probs = model.log_prob(embedding, states, space)
    else:
        states, log_weights = model.draw(prng.stream(0, "the total of a tilt"), embedding, DRAWS, space)
        log_probs = normalize(log_weights)[0]
    return states, jnp.where(jax.vmap(space.contains)(states), log_probs, -jnp.inf)
