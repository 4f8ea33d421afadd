"""The belief embedding model (section "Model Definition"): an encoder and a decoder, one contract.

Each kind of model is one small frozen dataclass, its config: it builds the model, it is the
command line, and it is what a checkpoint records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax
from jaxtyping import Array, Float, Key

from nbf.contracts import BeliefModel, Embedding, InputError, State, StateSpace
from nbf.models.dequantization import DequantizedFlow
from nbf.models.enumerated import Enumerated
from nbf.models.set_encoder import MeanEncoder, TableEncoder
from nbf.spaces import Lattice


class Decoder(Protocol):
    """The generative half of a `BeliefModel`."""

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> State: ...
    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]: ...
    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]: ...


class BeliefEmbeddingModel(BeliefModel):
    """E_φ and f_ψ, each exchangeable."""

    space: Lattice
    encoder: MeanEncoder | TableEncoder
    decoder: DequantizedFlow | Enumerated

    def embed(self, states: State, log_weights: Float[Array, " n"]) -> Embedding:
        return self.encoder(states, log_weights, self.space)

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> State:
        return self.decoder.sample(key, embedding, n, space)

    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        return self.decoder.log_prob(embedding, states, space)

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        return self.decoder.objective(key, embeddings, states, space)

    def prepared(self) -> BeliefEmbeddingModel:
        return BeliefEmbeddingModel(space=self.space, encoder=self.encoder.prepared(self.space), decoder=self.decoder)


def _check_sizes(config: FlowConfig | EnumeratedConfig) -> None:
    for name, value in vars(config).items():
        least = 0 if name.endswith("_depth") else 1
        if isinstance(value, int) and value < least:
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
        _check_sizes(self)
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
        _check_sizes(self)
        encoder_key, decoder_key = jax.random.split(key)
        encoder = MeanEncoder(
            encoder_key, space.dimension, self.embedding, width=self.encoder_width, depth=self.encoder_depth
        )
        decoder = Enumerated(
            decoder_key, space.size, self.embedding, width=self.decoder_width, depth=self.decoder_depth
        )
        return BeliefEmbeddingModel(space=space, encoder=encoder, decoder=decoder)


MODELS: dict[str, type] = {kind.__name__: kind for kind in (FlowConfig, EnumeratedConfig)}
"""The configs that a checkpoint may name."""
