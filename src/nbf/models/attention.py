"""An embedding function E_φ with attention (after section "Embedding Function"; Lee et al., "Set Transformer").

Each head h of each learned query q takes its own weighted mean of the set, where the particles' weights multiply those
of the attention:

    a_qh,i ∝ w_i exp(q_h · k_h(x_i) / √s),   θ = A [Σ_i a_qh,i v_h(x_i)]_qh + b

So the set is treated as a measure, as by the mean: splitting a particle in two, the order, and entries of weight zero
make no difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.capabilities import FiniteSpace
from nbf.capability import capability
from nbf.contracts import Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.parts import EncoderConfig
from nbf.models.set_encoder import TABLE_LIMIT, inputs, one_hot_cells


def attention_weights(logits: Float[Array, "q h n"]) -> Float[Array, "q h n"]:
    """Softmax over the set.

    Args:
        logits: Scores plus log weights.

    Returns:
        Weights of total one; all zero, with zero gradient, if no entry has weight.
    """
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    some = largest > -jnp.inf
    weights = jnp.exp(logits - jnp.where(some, largest, 0.0))
    return weights / jnp.where(some, jnp.sum(weights, axis=-1, keepdims=True), 1.0)


class AttentionEncoder(eqx.Module):
    """Attention pooling. On a lattice `prepared` computes scores and values once for each cell."""

    network: Perceptron
    """From a state to its keys and then its values."""
    queries: Float[Array, "q h s"]
    """Learned queries of each head."""
    output: Perceptron
    """One linear layer to the embedding."""

    def __init__(
        self, key: Key[Array, ""], inputs: int, embedding: int, *, width: int, depth: int, heads: int, queries: int
    ):
        """Draw the parameters.

        Args:
            key: Random key.
            inputs: Numbers per state, its context included.
            embedding: Embedding size m.
            width: Units of each hidden layer.
            depth: Hidden layers.
            heads: Heads, which share the width.
            queries: Learned queries.
        """
        if heads < 1 or width % heads:
            raise InputError(f"The width must be a multiple of heads, which share it; got {width} and {heads}.")
        network_key, query_key, output_key = jax.random.split(key, 3)
        self.network = Perceptron(network_key, inputs, 2 * width, width=width, depth=depth)
        self.queries = jax.random.normal(query_key, (queries, heads, width // heads))
        self.output = Perceptron(output_key, queries * width, embedding, width=width, depth=0)

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        scores, values = self.scores_and_values(states, space)
        attention = attention_weights(scores + log_weights)
        return self.output(jnp.einsum("qhn,hsn->qhs", attention, values).ravel())

    def scores_and_values(
        self, states: State, space: StateSpace
    ) -> tuple[Float[Array, "q h n"], Float[Array, "h s n"]]:
        """Compute the scores and values of each state.

        Args:
            states: A set of n states.
            space: Of the environment.

        Returns:
            The score of each state by each query, and the values of each state.
        """
        _, heads, size = self.queries.shape
        columns = self.network(inputs(states, space, self.network.weights[0].shape[1]))
        keys, values = columns.reshape(2, heads, size, -1)
        return jnp.einsum("qhs,hsn->qhn", self.queries, keys) / math.sqrt(size), values

    def prepared(self, space: StateSpace) -> AttentionEncoder | AttentionTable:
        finite = capability(space, FiniteSpace)
        if finite is None or finite.size > TABLE_LIMIT:
            return self
        return AttentionTable(*self.scores_and_values(jnp.asarray(finite.points()), space), self.output)


class AttentionTable(eqx.Module):
    """An `AttentionEncoder` whose scores and values are tabulated over a lattice."""

    scores: Float[Array, "q h cells"]
    """Score of each cell by each query."""
    values: Float[Array, "h s cells"]
    """Values of each cell."""
    output: Perceptron
    """One linear layer to the embedding."""

    def __call__(self, states: Int[Array, "n d"], log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        one_hot = one_hot_cells(states, space).astype(self.scores.dtype)
        attention = attention_weights(self.scores @ one_hot.T + log_weights)
        return self.output(jnp.einsum("qhc,hsc->qhs", attention @ one_hot, self.values).ravel())

    def prepared(self, space: StateSpace) -> AttentionTable:
        return self


@dataclass(frozen=True)
class AttentionConfig(EncoderConfig):
    """Config of multi-head attention of learned queries to a network of each state."""

    width: int = 128
    """Units of each hidden layer, and size of the keys and of the values of all heads together."""
    depth: int = 2
    """Hidden layers."""
    heads: int = 4
    """Heads, which share the width."""
    queries: int = 4
    """Learned queries."""

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> AttentionEncoder:
        return AttentionEncoder(
            key, inputs, embedding, width=self.width, depth=self.depth, heads=self.heads, queries=self.queries
        )
