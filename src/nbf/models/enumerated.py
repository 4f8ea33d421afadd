"""A decoder for a lattice small enough to enumerate: a softmax over its cells, illegal ones masked."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import ListedStates
from nbf.contracts import Embedding, StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.parts import DecoderConfig
from nbf.spaces import Lattice


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
        assert isinstance(space, Lattice)
        logits = self.network(embedding)
        return jax.nn.log_softmax(logits if space.legal is None else jnp.where(space.legal, logits, -jnp.inf))

    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> Int[Array, "n d"]:
        assert isinstance(space, Lattice)
        chosen = prng.categoricals(key, jnp.exp(self.all_log_probs(embedding, space)), n)
        return jnp.asarray(space.points())[chosen]

    def log_prob(self, embedding: Embedding, states: Int[Array, "n d"], space: StateSpace) -> Float[Array, " n"]:
        assert isinstance(space, Lattice)
        return self.all_log_probs(embedding, space)[jax.vmap(space.index)(states)]

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: Int[Array, "b n d"], space: StateSpace
    ) -> Float[Array, "b n"]:
        return jax.vmap(self.log_prob)(embeddings, states, space)


@dataclass(frozen=True)
class EnumeratedDecoderConfig(DecoderConfig):
    """Config of a softmax over every cell of a lattice."""

    width: int = 128
    """Units of each hidden layer."""
    depth: int = 2
    """Hidden layers."""

    def check(self, space: StateSpace) -> None:
        if not isinstance(space, Lattice):
            raise InputError(f"The enumerated decoder lists the cells of a Lattice; it does not fit {space.signature}.")

    def build(self, key: Key[Array, ""], space: StateSpace, condition: int) -> Enumerated:
        assert isinstance(space, Lattice)
        return Enumerated(key, space.size, condition, width=self.width, depth=self.depth)
