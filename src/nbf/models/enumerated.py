"""A decoder for a lattice small enough to enumerate: a softmax over its cells, illegal ones masked."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import FiniteSpace, ListedStates
from nbf.capability import capability, require
from nbf.contracts import Embedding, StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.parts import DecoderConfig


class Enumerated(ListedStates):
    """p_θ(x) = softmax(network(θ))[x] over the legal cells."""

    network: Perceptron
    """From θ to a logit for each cell."""

    def __init__(self, key: Key[Array, ""], cells: int, embedding: int, *, width: int, depth: int):
        """Draw the parameters.

        Args:
            key: Random key.
            cells: Number of cells.
            embedding: Size of the condition.
            width: Units of each hidden layer.
            depth: Hidden layers.
        """
        self.network = Perceptron(key, embedding, cells, width=width, depth=depth, zero_output=True)

    def all_log_probs(self, embedding: Embedding, space: StateSpace) -> Float[Array, " cells"]:
        logits, legal = self.network(embedding), _finite(space).legal
        return jax.nn.log_softmax(logits if legal is None else jnp.where(legal, logits, -jnp.inf))

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        chosen = prng.categoricals(key, jnp.exp(self.all_log_probs(embedding, space)), n)
        return jnp.asarray(_finite(space).points())[chosen]

    def log_prob(self, embedding: Embedding, states: Int[Array, "n d"], space: StateSpace) -> Float[Array, " n"]:
        return self.all_log_probs(embedding, space)[jax.vmap(_finite(space).index)(states)]

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: Int[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        return jax.vmap(self.log_prob)(embeddings, states, space)


def _finite(space: StateSpace) -> FiniteSpace:
    return require(space, FiniteSpace, "The enumerated decoder", "Use a Lattice.")


@dataclass(frozen=True)
class EnumeratedDecoderConfig(DecoderConfig):
    """Config of a softmax over every cell of a lattice."""

    width: int = 128
    """Units of each hidden layer."""
    depth: int = 2
    """Hidden layers."""

    def check(self, space: StateSpace) -> None:
        if capability(space, FiniteSpace) is None:
            raise InputError(f"The enumerated decoder lists the cells of a Lattice; it does not fit {space.signature}.")

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> Enumerated:
        return Enumerated(key, _finite(space).size, condition, width=self.width, depth=self.depth)
