"""An embedding that also says how noisy it is.

The mean of few samples is a noisy mean. A decoder that is not told how few they were must take every embedding for an
average one: too certain of a small set, too vague of a large one. Here the last number of θ is the log of the effective
sample size of the set, and the others are another encoder's embedding. Train it on sets of random size and weights
(`FitConfig.random_sets`), so that the decoder sees all levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.capabilities import MeanFeatures
from nbf.contracts import Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.parts import Encoder, EncoderConfig
from nbf.models.set_encoder import MeanConfig, OneHotConfig
from nbf.resampling.weights import effective_sample_size


class NoiseLevelEncoder(MeanFeatures):
    """Another encoder's embedding, followed by the noise level of the set."""

    encoder: MeanFeatures
    """Of all numbers but the last."""
    largest: int = eqx.field(static=True)
    """Effective sample sizes beyond it are told as this one: no larger sets are seen in training."""

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        assert isinstance(self.encoder, Encoder)
        return jnp.append(self.encoder(states, log_weights, space), self.level(log_weights))

    def level(self, log_weights: Float[Array, " n"]) -> Float[Array, ""]:
        """Compute the noise level of a set.

        Args:
            log_weights: Of the set, unnormalised.

        Returns:
            The log of its effective sample size, scaled to -1 for one sample and 1 for `largest` or more.
        """
        size = jnp.clip(effective_sample_size(log_weights), 1.0, self.largest)
        return 2.0 * jnp.log(size) / math.log(self.largest) - 1.0

    def features(self, states: State, space: StateSpace) -> Float[Array, "k n"]:
        return self.encoder.features(states, space)

    def prepared(self, space: StateSpace) -> NoiseLevelEncoder:
        assert isinstance(self.encoder, Encoder)
        prepared = self.encoder.prepared(space)
        assert isinstance(prepared, MeanFeatures)
        return NoiseLevelEncoder(prepared, self.largest)


@dataclass(frozen=True)
class NoiseLevelConfig(EncoderConfig):
    """Config of an encoder whose last number is the noise level of the set."""

    encoder: MeanConfig | OneHotConfig = field(default_factory=MeanConfig)
    """Config of the encoder of all other numbers."""
    largest: int = 64
    """Effective sample sizes beyond it are told as this one; at least 2."""

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> NoiseLevelEncoder:
        if self.largest < 2 or embedding < 2:
            raise InputError(
                "A noise level needs a `largest` sample size of at least 2 and an embedding of at least 2 numbers; got "
                f"{self.largest} and {embedding}."
            )
        return NoiseLevelEncoder(self.encoder.build(key, inputs, embedding - 1), self.largest)
