"""The belief embedding model (section "Model Definition"): an encoder and a decoder.

Each kind of model has one small frozen dataclass, its config: it builds the model, and it is what a checkpoint records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.capabilities import EvenDraws, ListedStates, MeanFeatures, Reader, RecurrentModel
from nbf.capability import Capability, capability, require
from nbf.contracts import BeliefModel, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.attention import AttentionConfig
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.dequantization import DequantizedFlow, DequantizedFlowConfig
from nbf.models.enumerated import Enumerated, EnumeratedDecoderConfig
from nbf.models.flow import CouplingFlowConfig
from nbf.models.flow_matching import FlowMatchingConfig
from nbf.models.kernel import BoxKernelConfig, LatticeKernelConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.noise_level import NoiseLevelConfig
from nbf.models.parts import Decoder, DecoderConfig, Encoder
from nbf.models.recurrent import RecurrentConfig
from nbf.models.set_encoder import DeepSetsConfig, MeanConfig, MeanEncoder, OneHotConfig
from nbf.models.space_configs import AnySpace
from nbf.models.space_configs import BoxConfig as BoxConfig
from nbf.models.space_configs import LatticeConfig as LatticeConfig
from nbf.models.space_configs import TokensConfig as TokensConfig
from nbf.models.space_configs import space_config as space_config
from nbf.spaces import Lattice


class BeliefEmbeddingModel(BeliefModel, MeanFeatures, ListedStates, EvenDraws, RecurrentModel):
    """An encoder E_φ with a decoder f_ψ."""

    space: StateSpace
    """What the states are."""
    encoder: Encoder
    """E_φ."""
    decoder: Decoder
    """f_ψ."""
    context: int = eqx.field(static=True, default=0)
    """Numbers of context that the model conditions on; 0 is the paper's model."""

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        space = self.space if space is None else space
        self._check_context(space)
        return self.encoder(states, log_weights, space)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> State:
        return self.decoder.sample(key, self._condition(embedding, space), n, space)

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[State, Float[Array, " n"]]:
        even = capability(self.decoder, EvenDraws)
        if even is None:
            return super().draw(key, embedding, n, space)
        return even.draw(key, self._condition(embedding, space), n, space)

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        """Those of the encoder and of the decoder."""
        offers = {
            MeanFeatures: capability(self.encoder, MeanFeatures),
            RecurrentModel: capability(self.encoder, Reader),
            ListedStates: capability(self.decoder, ListedStates),
            EvenDraws: capability(self.decoder, EvenDraws),
        }
        return frozenset(kind for kind, part in offers.items() if part is not None)

    @property
    def reader(self) -> Reader:
        return require(self.encoder, Reader, "A recurrent model", "Build the model with a RecurrentConfig encoder.")

    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        self._check_context(space)
        told = require(self.encoder, MeanFeatures, "A mean of features", "Build the model with a MeanConfig encoder.")
        return told.features(states, space)

    def all_log_probs(self, embedding: Embedding, space: StateSpace) -> Float[Array, " states"]:
        listed = require(self.decoder, ListedStates, "A list of all states", "Use an EnumeratedDecoderConfig.")
        return listed.all_log_probs(self._condition(embedding, space), space)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        return self.decoder.log_prob(self._condition(embedding, space), states, space)

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        return self.decoder.objective(key, self._condition(embeddings, space), states, space)

    def prepared(self) -> BeliefEmbeddingModel:
        encoder = self.encoder if self.context else self.encoder.prepared(self.space)
        return BeliefEmbeddingModel(space=self.space, encoder=encoder, decoder=self.decoder, context=self.context)

    def _condition(self, embedding: Float[Array, "*b m"], space: StateSpace) -> Float[Array, "*b k"]:
        self._check_context(space)
        if self.context == 0 or space.context is None:
            return embedding
        return jnp.concatenate([embedding, space.context], axis=-1)

    def _check_context(self, space: StateSpace) -> None:
        given = 0 if space.context is None else space.context.shape[-1]
        if self.context and given != self.context:
            raise InputError(
                f"This model conditions on a context of {self.context} numbers; the space has {given}: give the "
                "environment's space a `context` of that size, or build the model with another one."
            )


def check_sizes(config: Any) -> None:
    """Raise `InputError` unless every size of a config is large enough.

    Args:
        config: Config of a model or of a part of one.
    """
    for name, value in vars(config).items():
        least = 0 if name.endswith(("depth", "context", "importance_samples", "symbols")) else 1
        if type(value) is int and value < least:
            raise InputError(f"{name} must be at least {least}; got {value}.")


@dataclass(frozen=True)
class FlowConfig:
    """Config of the paper's Gridworld model; the defaults are its table."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    embedding: int = 32
    """Embedding size m."""
    encoder_width: int = 128
    """Hidden units of the encoder."""
    encoder_depth: int = 3
    """Hidden layers of the encoder."""
    noise_width: int = 32
    """Hidden units of the dequantization network."""
    noise_depth: int = 2
    """Hidden layers of the dequantization network."""
    flow_width: int = 32
    """Hidden units of each coupling layer's network."""
    flow_depth: int = 5
    """Hidden layers of each coupling layer's network."""
    flow_layers: int = 5
    """Coupling layers."""
    quadrature: int = 4
    """Gauss-Legendre points along each axis of a cell, for `log_prob`; training does not use them. 4 in 2-D and 3 in
    3-D are within 0.001 nats of JS of twice as many."""

    def build(self, key: Key[Array, ""]) -> BeliefEmbeddingModel:
        """Build a model with random parameters.

        Args:
            key: Random key.

        Returns:
            The model.
        """
        space = Lattice(self.shape)
        check_sizes(self)
        if self.quadrature > 64:
            raise InputError(f"quadrature must be at most 64 points an axis; got {self.quadrature}.")
        encoder_key, decoder_key = jax.random.split(key)
        encoder = MeanEncoder(
            encoder_key, space.dimension, self.embedding, width=self.encoder_width, depth=self.encoder_depth
        )
        decoder = DequantizedFlow(
            decoder_key,
            space,
            self.embedding,
            layers=self.flow_layers,
            width=self.flow_width,
            depth=self.flow_depth,
            noise_width=self.noise_width,
            noise_depth=self.noise_depth,
            points=self.quadrature,
        )
        return BeliefEmbeddingModel(space=space, encoder=encoder, decoder=decoder)


@dataclass(frozen=True)
class EnumeratedConfig:
    """Config of the paper's encoder with a softmax over all cells as decoder."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    embedding: int = 32
    """Embedding size m."""
    encoder_width: int = 128
    """Hidden units of the encoder."""
    encoder_depth: int = 3
    """Hidden layers of the encoder."""
    decoder_width: int = 128
    """Hidden units of the decoder."""
    decoder_depth: int = 2
    """Hidden layers of the decoder."""

    def build(self, key: Key[Array, ""]) -> BeliefEmbeddingModel:
        """Build a model with random parameters.

        Args:
            key: Random key.

        Returns:
            The model.
        """
        space = Lattice(self.shape)
        check_sizes(self)
        encoder_key, decoder_key = jax.random.split(key)
        encoder = MeanEncoder(
            encoder_key, space.dimension, self.embedding, width=self.encoder_width, depth=self.encoder_depth
        )
        decoder = Enumerated(
            decoder_key, space.size, self.embedding, width=self.decoder_width, depth=self.decoder_depth
        )
        return BeliefEmbeddingModel(space=space, encoder=encoder, decoder=decoder)


AnyEncoder = MeanConfig | DeepSetsConfig | AttentionConfig | OneHotConfig | NoiseLevelConfig
"""Configs of the library's encoders: see `parts.EncoderConfig`."""
AnyDecoder = (
    EnumeratedDecoderConfig
    | AutoregressiveConfig
    | MixtureConfig
    | FlowMatchingConfig
    | CouplingFlowConfig
    | DequantizedFlowConfig
)
"""Configs of the library's decoders: see `parts.DecoderConfig`."""


@dataclass(frozen=True)
class ModelConfig:
    """Config of any encoder, or a recurrent network in its place, with any decoder that fits the space."""

    space: AnySpace
    """What the states are."""
    decoder: AnyDecoder | DecoderConfig
    """Settings of the decoder."""
    encoder: AnyEncoder | RecurrentConfig = field(default_factory=MeanConfig)
    """Settings of the encoder."""
    embedding: int = 32
    """Embedding size m."""
    context: int = 0
    """Numbers of context that encoder and decoder condition on; 0 is the paper's model."""

    def build(self, key: Key[Array, ""]) -> BeliefEmbeddingModel:
        """Build a model with random parameters.

        Args:
            key: Random key.

        Returns:
            The model.
        """
        space = self.space.build()
        inner = self.encoder.encoder if isinstance(self.encoder, NoiseLevelConfig) else self.encoder
        for part in (self, self.decoder, self.encoder, inner):
            check_sizes(part)
        self.decoder.check(space)
        if isinstance(inner, OneHotConfig):
            inner.check(space)
        encoder_key, decoder_key = jax.random.split(key)
        encoder = self.encoder.build(encoder_key, space.num_features + self.context, self.embedding)
        decoder = self.decoder.build(decoder_key, space, self.embedding + self.context)
        return BeliefEmbeddingModel(space=space, encoder=encoder, decoder=decoder, context=self.context)


MODELS: dict[str, type] = {
    kind.__name__: kind for kind in (FlowConfig, EnumeratedConfig, ModelConfig, LatticeKernelConfig, BoxKernelConfig)
}
"""Configs that a checkpoint may name."""
