"""p_θ as a belief: a decoded embedding, tilted or not, alone or beside carried particles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from nbf import dispatch, prng
from nbf.beliefs.gaussian_kernels import GaussianKernels
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, FiniteSpace, ListedStates, MeanFeatures
from nbf.capability import capability, require
from nbf.contracts import Belief, BeliefModel, Embedding, State, StateSpace
from nbf.resampling import schemes as resampling
from nbf.resampling.exponential_tilt import Tilt
from nbf.resampling.weights import normalize

DRAWS = 256
"""Draws by which the normalising constant of a tilt is estimated where states cannot be listed."""
EXPECTATION_DRAWS = 2048
"""Draws of an expectation where states cannot be listed."""
LISTABLE = 4096
"""Up to this many cells, the normalising constant of a tilt on a lattice is the sum over all of them."""


class ModelBelief(Belief):
    """p_θ, the density to which a belief model decodes an embedding, or its tilt, restricted to legal states.

    Over a finite space of up to `LISTABLE` states the probabilities of the legal ones add up to 1. In larger ones the
    mass q of p_θ on legal states is estimated from `DRAWS` draws, which are the same every time: log_prob then has a
    standard error of √((1 - q) / (q · DRAWS)), 0.06 at q = 0.5 and 0 for a model that draws legal states only.

    An expectation over a finite space is the sum over its states. Elsewhere it is the weighted mean of
    `EXPECTATION_DRAWS` draws, which are the same every time: of a function with a standard deviation of σ under the
    belief its standard error is at most about σ/45, and less where the model draws with low variance.
    """

    model: BeliefModel
    embedding: Embedding
    space: StateSpace
    tilt: Tilt | None = None
    particles: ParticleBelief | GaussianKernels | None = None
    """What carried particles stand for themselves, a share of the belief; None: there are none."""
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
            return self._legal_sample(key, n)
        # Importance resampling: exact where the model lists its states, else of four times as many draws.
        draw_key, choice_key = jax.random.split(key)
        states, log_weights = listed_or_drawn(self.model, draw_key, self.embedding, max(4 * n, DRAWS), self.space)
        chosen = resampling.draw(choice_key, self._tilted(log_weights, states), n)
        return jax.tree.map(lambda leaf: leaf[chosen], states)

    def _legal_sample(self, key: Key[Array, ""], n: int) -> State:
        """Draws of p_θ without the illegal ones; of four times as many draws, the legal ones come again if too few."""
        if capability(self.space, ContinuousSpace) is not None:
            return self.model.sample(key, self.embedding, n, self.space)
        drawn = self.model.sample(key, self.embedding, 4 * n, self.space)
        legal = jax.vmap(self.space.contains)(drawn)
        places = jnp.argsort(~legal, stable=True)[jnp.arange(n) % jnp.maximum(jnp.sum(legal), 1)]
        return jax.tree.map(lambda leaf: leaf[places], drawn)

    def log_prob(self, state: State) -> Float[Array, ""]:
        return self.log_probs(jax.tree.map(lambda leaf: leaf[None], state))[0]

    def log_probs(self, states: State) -> Float[Array, " n"]:
        found = self._tilted(self.decoded_log_probs(states), states)
        if self.particles is None:
            return found
        return mixed(self.carried_share, found, self.particles.log_probs(states))

    def decoded_log_probs(self, states: State) -> Float[Array, " n"]:
        """What the decoder itself says, neither restricted to legal states nor normalised over them.

        Args:
            states: n states.

        Returns:
            log p_θ of each.
        """
        return self.model.log_prob(self.embedding, states, self.space)

    def expectation(self, function: Callable[[State], Any]) -> Any:
        points, probs = self._weighted()
        return _means(probs, jax.vmap(function)(points))

    @dispatch.from_python
    def _weighted(self) -> tuple[State, Float[Array, " k"]]:
        """A set of states with probabilities whose mean is an expectation: all states, where they can be listed."""
        finite = capability(self.space, FiniteSpace)
        if finite is not None:
            points = jnp.asarray(finite.points())
            return points, jax.nn.softmax(self.log_probs(points))
        key = prng.stream(0, "an expectation")
        drawn, log_weights = listed_or_drawn(self.model, key, self.embedding, EXPECTATION_DRAWS, self.space)
        if self.tilt is not None:
            log_weights = self._tilted(log_weights, drawn)
        probs = jax.nn.softmax(jnp.where(jnp.any(log_weights > -jnp.inf), log_weights, 0.0))
        if self.particles is None:
            return drawn, probs
        both = jax.tree.map(lambda *parts: jnp.concatenate(parts), drawn, self.particles.states)
        kept = self.carried_share * jnp.exp(normalize(self.particles.log_weights)[0])
        return both, jnp.concatenate([(1.0 - self.carried_share) * probs, kept])

    def _tilted(self, log_probs: Float[Array, " n"], states: State) -> Float[Array, " n"]:
        # Density beyond the bounds of a box is the mass that clipping puts on them.
        continuous = capability(self.space, ContinuousSpace) is not None
        if self.tilt is not None:
            model = require(self.model, MeanFeatures, "A tilted belief", "Report it without a tilt.")
            log_probs = self.tilt(log_probs, model.features(states, self.space))
        elif not continuous:
            log_probs = log_probs - self._log_legal_mass()
        if continuous:
            return log_probs
        return jnp.where(jax.vmap(self.space.contains)(states), log_probs, -jnp.inf)

    def _log_legal_mass(self) -> Float[Array, ""]:
        """log of the mass that p_θ has on legal states; 0 if it has none there, or none is seen."""
        log_total = normalize(support(self.model, self.embedding, self.space)[1])[1]
        return jnp.where(log_total > -jnp.inf, log_total, 0.0)


@dispatch.from_python
def _means(probs: Float[Array, " k"], values: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.tensordot(probs, leaf, 1), values)


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


def support(model: BeliefModel, embedding: Embedding, space: StateSpace) -> tuple[State, Float[Array, " k"], bool]:
    """Find a fixed weighted set that stands for p_θ: all states of a small finite space, else many draws.

    Args:
        model: A belief model.
        embedding: θ.
        space: Of the environment.

    Returns:
        States, log weights whose total over the legal states is their mass under p_θ (illegal states have -inf), and
        whether they are all states.
    """
    finite = capability(space, FiniteSpace)
    listed = finite is not None and finite.size <= LISTABLE
    if finite is not None and listed:
        states = jnp.asarray(finite.points())
        log_probs = model.log_prob(embedding, states, space)
    else:
        states, log_weights = model.draw(prng.stream(0, "the total of a tilt"), embedding, DRAWS, space)
        log_probs = normalize(log_weights)[0]
    return states, jnp.where(jax.vmap(space.contains)(states), log_probs, -jnp.inf), listed
