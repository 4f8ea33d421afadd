"""Moment matching: the decoded density is tilted towards the embedding.

An embedding that is a mean of features, θ = E[φ(x)], also says what the mean features of the decoded density should be.
The density is exponentially tilted so that its mean features equal the embedding, p(x) ∝ q_θ(x) exp(λ·φ(x)), as far as
the noise in θ allows: `nbf.resampling.exponential_tilt`.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nbf.beliefs.model import support
from nbf.capabilities import MeanFeatures
from nbf.capability import require
from nbf.contracts import BeliefModel, State, StateSpace
from nbf.filters.checks import check_counts, check_numbers
from nbf.filters.neural.correction import Correction
from nbf.filters.neural.state import NeuralState
from nbf.resampling.exponential_tilt import Tilt, tilt
from nbf.resampling.optimal import random_mass as mass_of_draws
from nbf.resampling.weights import normalize

NEWTON_STEPS = 3
"""Of the minimisation that finds a tilt, where nobody names a number."""


class MomentMatching(Correction):
    """An exponential tilt towards the embedding. Needs a model with `MeanFeatures`.

    The ridge of the tilt is the variance that the embedding's own sampling noise leaves: the noisier the embedding, the
    weaker the tilt.
    """

    min_ridge: float = eqx.field(static=True, default=0.01)
    """Ridge of an embedding without sampling noise."""
    noise_ridge: float = eqx.field(static=True, default=4.0)
    """Ridge of an embedding made of one random particle; it scales as 1/ESS."""
    newton_steps: int | None = eqx.field(static=True, default=None)
    """Of the minimisation that finds a tilt. None: `NEWTON_STEPS`, but of the candidates of a `LookAheadProposal` as
    many as that one says."""

    def __check_init__(self) -> None:
        if self.newton_steps is not None:
            check_counts("MomentMatching", least=0, newton_steps=self.newton_steps)
        check_numbers("MomentMatching", min_ridge=self.min_ridge, noise_ridge=self.noise_ridge)

    def check(self, model: BeliefModel) -> None:
        require(model, MeanFeatures, "MomentMatching", "Pass correction=NoCorrection(), or use a MeanConfig encoder.")

    def reweight(
        self,
        model: BeliefModel,
        state: NeuralState,
        states: State,
        log_weights: Float[Array, " k"],
        space: StateSpace,
        random_mass: Float[Array, ""],
        newton_steps: int | None = None,
    ) -> Float[Array, " k"]:
        own = self._noise(state.random_mass, state.particles.log_weights)
        ridge = jnp.maximum(own, self._noise(random_mass, normalize(log_weights)[0]))
        steps = NEWTON_STEPS if newton_steps is None else newton_steps
        features, found = self._tilt(model, state, states, log_weights, space, ridge, steps)
        return found(log_weights, features)

    def matched(self, model: BeliefModel, states: State, space: StateSpace) -> Float[Array, "m k"]:
        return require(model, MeanFeatures, "MomentMatching", "Pass NoCorrection().").features(states, space)

    def of_density(self, model: BeliefModel, state: NeuralState, space: StateSpace) -> Tilt:
        states, log_weights, listed = support(model, state.embedding, space)
        # Sampling noise is no reason to correct the model: an embedding of random particles leaves it as it is.
        drawn = 0.0 if listed else mass_of_draws(normalize(log_weights)[0])
        larger = jnp.maximum(state.random_mass, drawn)
        ridge = larger / jnp.maximum(1.0 - larger, 1e-6)
        return self._tilt(model, state, states, log_weights, space, ridge, NEWTON_STEPS)[1]

    def _tilt(
        self,
        model: BeliefModel,
        state: NeuralState,
        states: State,
        log_weights: Float[Array, " k"],
        space: StateSpace,
        ridge: Float[Array, ""],
        steps: int,
    ) -> tuple[Float[Array, "m k"], Tilt]:
        """The features of a set, and the tilt that matches their mean, by so many steps unless the number is named."""
        features = self.matched(model, states, space)
        target = state.embedding[: features.shape[0]]  # a noise level may follow
        steps = steps if self.newton_steps is None else self.newton_steps
        return features, tilt(log_weights, features, target, self.min_ridge + ridge, steps)

    def _noise(self, share: Float[Array, ""], log_weights: Float[Array, " n"]) -> Float[Array, ""]:
        """The ridge for a mean over particles of which a share was random."""
        return jnp.minimum(1.0, self.noise_ridge * share * jnp.sum(jnp.exp(2.0 * log_weights)))
