"""An embedding function E_φ that attends (after the section "Embedding Function"; Lee et al., "Set Transformer").

Each head h of each learned query q takes its own weighted mean of the set, in which the particles' weights
multiply those of the attention:

a_qh,i ∝ w_i exp(q_h · k_h(x_i) / √s),   θ = A [Σ_i a_qh,i v_h(x_i)]_qh + b

so a set is a measure as it is to the mean: a particle split in two, the order, and entries of weight zero make
no difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.set_encoder import TABLE_LIMIT, inputs, one_hot_cells
from nbf.spaces import Lattice


def attention_weights(logits: Float[Array, "q h n"]) -> Float[Array, "q h n"]:
    """Softmax over the set; all zero, and so is the gradient, when nothing has any weight."""
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    some = largest > -jnp.inf
    weights = jnp.exp(logits - jnp.where(some, largest, 0.0))
    return weights / jnp.where(some, jnp.sum(weights, axis=-1, keepdims=True), 1.0)


class AttentionEncoder(eqx.Module):
    """Attention pooling: learned queries ask a network's keys and collect its values."""

    network: Perceptron
    """The keys and then the values of each state."""
    queries: Float[Array, "q h s"]
    output: Perceptron
    """One linear layer."""

    def __init__(
        self, key: Key[Array, ""], inputs: int, embedding: int, *, width: int, depth: int, heads: int, queries: int
    ):
        if heads < 1 or width % heads:
            raise InputError(f"The width must be a multiple of heads, which share it; got {width} and {heads}.")
        network_key, query_key, output_key = jax.random.split(key, 3)
        self.network = Perceptron(network_key, inputs, 2 * width, width=width, depth=depth)
        self.queries = jax.random.normal(query_key, (queries, heads, width // heads))
        self.output = Perceptron(output_key, queries * width, embedding, width=width, depth=0)

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        scores, values = self.features(states, space)
        attention = attention_weights(scores + log_weights)
        return self.output(jnp.einsum("qhn,hsn->qhs", attention, values).ravel())

    def features(self, states: State, space: StateSpace) -> tuple[Float[Array, "q h n"], Float[Array, "h s n"]]:
        """How each query scores each state, and the values of each state."""
        _, heads, size = self.queries.shape
        columns = self.network(inputs(states, space, self.network.weights[0].shape[1]))
        keys, values = columns.reshape(2, heads, size, -1)
        return jnp.einsum("qhs,hsn->qhn", self.queries, keys) / math.sqrt(size), values

    def prepared(self, space: StateSpace) -> AttentionEncoder | AttentionTable:
        """On a lattice scores and values are computed once for each cell, as `MeanEncoder.prepared` does."""
        if not isinstance(space, Lattice) or space.size > TABLE_LIMIT:
            return self
        return AttentionTable(*self.features(jnp.asarray(space.points()), space), self.output)


class AttentionTable(eqx.Module):
    """An `AttentionEncoder` whose scores and values have been tabulated over a lattice."""

    scores: Float[Array, "q h cells"]
    values: Float[Array, "h s cells"]
    output: Perceptron

    def __call__(self, states: Int[Array, "n d"], log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        one_hot = one_hot_cells(states, space).astype(self.scores.dtype)
        attention = attention_weights(self.scores @ one_hot.T + log_weights)
        return self.output(jnp.einsum("qhc,hsc->qhs", attention @ one_hot, self.values).ravel())

    def prepared(self, space: StateSpace) -> AttentionTable:
        return self


@dataclass(frozen=True)
class AttentionConfig:
    """Multi-head attention of learned queries to an MLP of each state."""

    width: int = 128
    """Units of each hidden layer, and size of the keys and of the values of all heads together."""
    depth: int = 2
    heads: int = 4
    queries: int = 4

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> AttentionEncoder:
        return AttentionEncoder(
            key, inputs, embedding, width=self.width, depth=self.depth, heads=self.heads, queries=self.queries
        )
