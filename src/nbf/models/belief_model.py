"""The belief embedding model (section "Model Definition"): an encoder and a decoder, one contract.

Each kind of model is one small frozen dataclass, its config: it builds the model, it is the
command line, and it is what a checkpoint records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.capabilities import ListedStates, MeanFeatures, Reader, RecurrentModel
from nbf.capability import Capability
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
from nbf.models.recurrent import RecurrentConfig
from nbf.models.set_encoder import DeepSetsConfig, MeanConfig, MeanEncoder
from nbf.spaces import Box, Lattice, Tokens


@runtime_checkable
class Decoder(Protocol):
    """The generative half of a `BeliefModel`. A `condition` is θ, followed by the context if there is one."""

    def sample(self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace, /) -> State: ...
    def log_prob(self, condition: Float[Array, " m"], states: State, space: StateSpace, /) -> Float[Array, " n"]: ...
    def objective(
        self, key: Key[Array, ""], conditions: Float[Array, "b m"], states: State, space: StateSpace, /
    ) -> Float[Array, "b n"]: ...


@runtime_checkable
class EvenDecoder(Protocol):
    """A decoder whose draws can be more even than independent ones: see `BeliefModel.draw`."""

    def draw(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace, /
    ) -> tuple[State, Float[Array, " n"]]: ...


@runtime_checkable
class Encoder(Protocol):
    """The embedding half of a `BeliefModel`."""

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding: ...
    def prepared(self, space: StateSpace) -> Encoder: ...


class BeliefEmbeddingModel(BeliefModel, MeanFeatures, ListedStates, RecurrentModel):
    """E_φ and f_ψ, each exchangeable."""

    space: StateSpace
    encoder: Encoder
    decoder: Decoder
    context: int = eqx.field(static=True, default=0)
    """How many numbers of context the model conditions on; 0 is the paper's model."""

    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        space = self.space if space is None else space
        self._check_context(space)
        return self.encoder(states, log_weights, space)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> State:
        return self.decoder.sample(key, self._condition(embedding, space), n, space)

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[State, Float[Array, " n"]]:
        if isinstance(self.decoder, EvenDecoder):
            return self.decoder.draw(key, self._condition(embedding, space), n, space)
        return super().draw(key, embedding, n, space)

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        """What the encoder and the decoder can do, the model can."""
        offers = {
            MeanFeatures: isinstance(self.encoder, MeanFeatures),
            RecurrentModel: isinstance(self.encoder, Reader),
            ListedStates: isinstance(self.decoder, ListedStates),
        }
        return frozenset(kind for kind, offered in offers.items() if offered)

    @property
    def reader(self) -> Reader:
        assert isinstance(self.encoder, Reader)
        return self.encoder

    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        self._check_context(space)
        assert isinstance(self.encoder, MeanFeatures)
        return self.encoder.features(states, space)

    def all_log_probs(self, embedding: Embedding, space: StateSpace) -> Float[Array, " states"]:
        assert isinstance(self.decoder, ListedStates)
        return self.decoder.all_log_probs(self._condition(embedding, space), space)

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
    """Raise unless every size of a config makes sense."""
    for name, value in vars(config).items():
        least = 0 if name.endswith(("depth", "context", "importance_samples", "symbols")) else 1
        if type(value) is int and value < least:
            raise InputError(f"{name} must be at least {least}; got {value}.")


@dataclass(frozen=True)
class FlowConfig:
    """The paper's Gridworld model; the defaults are its table."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    embedding: int = 32
    """Embedding size m."""
    encoder_width: int = 128
    encoder_depth: int = 3
    noise_width: int = 32
    """Hidden units of the dequantization network."""
    noise_depth: int = 2
    flow_width: int = 32
    """Hidden units of each coupling layer's network."""
    flow_depth: int = 5
    flow_layers: int = 5
    """Coupling layers."""
    quadrature: int = 4
    """Gauss-Legendre points along each axis of a cell when a probability is asked for. Training does
    not use them. 4 in 2-D and 3 in 3-D are within 0.001 nats of JS of twice as many."""

    def build(self, key: Key[Array, ""]) -> BeliefEmbeddingModel:
        """A model with fresh parameters."""
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
    """The paper's encoder with a softmax over all cells as its decoder."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    embedding: int = 32
    """Embedding size m."""
    encoder_width: int = 128
    encoder_depth: int = 3
    decoder_width: int = 128
    decoder_depth: int = 2

    def build(self, key: Key[Array, ""]) -> BeliefEmbeddingModel:
        """A model with fresh parameters."""
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


AnyEncoder = MeanConfig | DeepSetsConfig | AttentionConfig
"""The configs of the encoders; each builds its encoder from (key, inputs, embedding)."""
AnyDecoder = (
    EnumeratedDecoderConfig
    | AutoregressiveConfig
    | MixtureConfig
    | FlowMatchingConfig
    | CouplingFlowConfig
    | DequantizedFlowConfig
)
"""The configs of the decoders; each says whether it fits a space, and builds its decoder for one from
(key, space, size of the condition)."""


@runtime_checkable
class DecoderConfig(Protocol):
    """What a config of a user's own decoder must offer. Its checkpoints cannot be loaded: a loader builds the
    library's own classes alone."""

    def check(self, space: Any, /) -> None: ...
    def build(self, key: Any, space: Any, condition: int, /) -> Decoder: ...


@dataclass(frozen=True)
class BoxConfig:
    """Which `Box` the states lie in."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    bounded: bool = True

    def build(self) -> Box:
        return Box(self.low, self.high, self.bounded)


@dataclass(frozen=True)
class LatticeConfig:
    """Which `Lattice` the states lie on."""

    shape: tuple[int, ...]

    def build(self) -> Lattice:
        return Lattice(self.shape)


@dataclass(frozen=True)
class TokensConfig:
    """Which `Tokens` the states are."""

    length: int
    categories: int

    def build(self) -> Tokens:
        return Tokens(self.length, self.categories)


def space_config(space: StateSpace) -> BoxConfig | LatticeConfig | TokensConfig:
    """The config of a space: what a model must know of it, without what changes from step to step."""
    if isinstance(space, Box):
        return BoxConfig(space.low, space.high, space.bounded)
    if isinstance(space, Lattice):
        return LatticeConfig(space.shape)
    if isinstance(space, Tokens):
        return TokensConfig(space.length, space.categories)
    raise InputError(f"No config is known for {space.signature}; a model needs a Box, a Lattice or Tokens.")


@dataclass(frozen=True)
class ModelConfig:
    """Any encoder, or a recurrent network in its place, with any decoder that fits the space."""

    space: BoxConfig | LatticeConfig | TokensConfig
    decoder: AnyDecoder | DecoderConfig
    encoder: AnyEncoder | RecurrentConfig = field(default_factory=MeanConfig)
    embedding: int = 32
    """Embedding size m."""
    context: int = 0
    """Numbers of context that encoder and decoder condition on; 0 is the paper's model."""

    def build(self, key: Key[Array, ""]) -> BeliefEmbeddingModel:
        """A model with fresh parameters."""
        space = self.space.build()
        for part in (self, self.decoder, self.encoder):
            check_sizes(part)
        self.decoder.check(space)
        encoder_key, decoder_key = jax.random.split(key)
        encoder = self.encoder.build(encoder_key, space.num_features + self.context, self.embedding)
        decoder = self.decoder.build(decoder_key, space, self.embedding + self.context)
        return BeliefEmbeddingModel(space=space, encoder=encoder, decoder=decoder, context=self.context)


MODELS: dict[str, type] = {
    kind.__name__: kind for kind in (FlowConfig, EnumeratedConfig, ModelConfig, LatticeKernelConfig, BoxKernelConfig)
}
"""The configs that a checkpoint may name."""
