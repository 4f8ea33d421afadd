"""The embedding function E_φ (section "Embedding Function"): the weighted mean of a network's output.

    θ = Σ_i w_i φ(x_i) / Σ_i w_i

or, where a mean of features is too little, a second network of it (Zaheer et al., "Deep Sets").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.capabilities import ContinuousSpace, FiniteSpace, MeanFeatures
from nbf.capability import capability, require
from nbf.contracts import Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.parts import EncoderConfig
from nbf.resampling.weights import mean_weights
from nbf.spaces import Lattice

TABLE_LIMIT = 4096
"""Most cells of a lattice over which φ is tabulated."""


def inputs(states: State, space: StateSpace, size: int) -> Float[Array, "size n"]:
    """What a network sees of each state, as columns: its encoding, and the context if `size` has room for it.

    A point outside of a bounded box, where training widens walls by a `wall_band`, is clipped to the box.

    Args:
        states: A set of n states.
        space: Of the environment.
        size: Number of inputs of the network.

    Returns:
        The inputs.
    """
    encoded = jax.vmap(space.encode, out_axes=1)(states)
    continuous = capability(space, ContinuousSpace)
    if continuous is not None and continuous.bounded:
        encoded = jnp.clip(encoded, -1.0, 1.0)
    if size == encoded.shape[0]:
        return encoded
    assert space.context is not None
    context = jnp.broadcast_to(space.context[:, None], (space.context.shape[0], encoded.shape[1]))
    return jnp.concatenate([encoded, context])


def one_hot_cells(states: Int[Array, "n d"], space: StateSpace) -> Bool[Array, "n cells"]:
    """Which cell of a lattice each state is, one-hot.

    For a product instead of a gather: the gradient of a product is a product, that of a gather is a scatter.

    Args:
        states: A set of n states.
        space: A lattice.

    Returns:
        One row per state.
    """
    finite = require(space, FiniteSpace, "A table of states", "Use a Lattice.")
    return jax.vmap(finite.index)(states)[:, None] == jnp.arange(finite.size)


class MeanEncoder(MeanFeatures):
    """The mean over the set of a network of each state.

    On a lattice φ takes finitely many values: `prepared` computes each once, and a set becomes a histogram. Training
    then needs 64 evaluations of the network per step instead of 1024 on an 8 x 8 grid, and a filter none.
    """

    network: Perceptron
    """φ."""

    def __init__(self, key: Key[Array, ""], inputs: int, embedding: int, *, width: int, depth: int):
        """Draw the parameters.

        Args:
            key: Random key.
            inputs: Numbers per state, its context included.
            embedding: Embedding size m.
            width: Units of each hidden layer.
            depth: Hidden layers.
        """
        self.network = Perceptron(key, inputs, embedding, width=width, depth=depth)

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        return self.features(states, space) @ mean_weights(log_weights)

    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        return self.network(inputs(states, space, self.network.weights[0].shape[1]))

    def prepared(self, space: StateSpace) -> MeanEncoder | TableEncoder:
        finite = capability(space, FiniteSpace)
        if finite is None or finite.size > TABLE_LIMIT:
            return self
        return TableEncoder(self.features(jnp.asarray(finite.points()), space))


@dataclass(frozen=True)
class MeanConfig(EncoderConfig):
    """Config of the paper's encoder: the weighted mean of a network of each state."""

    width: int = 128
    """Units of each hidden layer."""
    depth: int = 3
    """Hidden layers."""

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> MeanEncoder:
        return MeanEncoder(key, inputs, embedding, width=self.width, depth=self.depth)


class TableEncoder(MeanFeatures):
    """A `MeanEncoder` whose φ is tabulated over a lattice."""

    table: Float[Array, "m cells"]
    """φ of every cell."""

    def __call__(self, states: Int[Array, "n d"], log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        return self.table @ (mean_weights(log_weights) @ one_hot_cells(states, space).astype(self.table.dtype))

    def features(self, states: Int[Array, "n d"], space: StateSpace) -> Float[Array, "m n"]:
        finite = require(space, FiniteSpace, "A table of states", "Use a Lattice.")
        return self.table[:, jax.vmap(finite.index)(states)]

    def prepared(self, space: StateSpace) -> TableEncoder:
        return self


class OneHotEncoder(MeanFeatures):
    """The mean over the set of a network of each state's one-hot vector, followed by the context if there is one.

    For states that are names alone: a network of their numbers would have to unlearn that near numbers are alike.
    """

    network: Perceptron
    """φ."""
    cells: int = eqx.field(static=True)
    """How many states there are."""

    def __init__(self, key: Key[Array, ""], cells: int, context: int, embedding: int, *, width: int, depth: int):
        """Draw the parameters.

        Args:
            key: Random key.
            cells: How many states there are.
            context: Numbers of context.
            embedding: Embedding size m.
            width: Units of each hidden layer.
            depth: Hidden layers.
        """
        self.cells = cells
        network = Perceptron(key, cells + context, embedding, width=width, depth=depth)
        # One input of many is not zero: scaled as if it were the only one.
        scale = np.where(np.arange(cells + context) < cells, math.sqrt((cells + context) / 2.0), 1.0)
        self.network = eqx.tree_at(lambda network: network.weights[0], network, network.weights[0] * scale)

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        return self.features(states, space) @ mean_weights(log_weights)

    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        first = self.network.weights[0]
        product = first[:, : self.cells] @ one_hot_cells(states, space).T.astype(first.dtype)
        if first.shape[1] > self.cells:
            assert space.context is not None
            product = product + (first[:, self.cells :] @ space.context)[:, None]
        return self.network.from_first(product)

    def prepared(self, space: StateSpace) -> OneHotEncoder | TableEncoder:
        first, finite = self.network.weights[0], capability(space, FiniteSpace)
        listed = finite is not None and finite.size == self.cells <= TABLE_LIMIT
        return TableEncoder(self.network.from_first(first)) if listed and first.shape[1] == self.cells else self


@dataclass(frozen=True)
class OneHotConfig(EncoderConfig):
    """Config of the weighted mean of a network of each state's one-hot vector, over the cells of a lattice."""

    shape: tuple[int, ...]
    """Sides of the lattice."""
    width: int = 128
    """Units of each hidden layer."""
    depth: int = 1
    """Hidden layers."""

    def check(self, space: StateSpace) -> None:
        """Raise `InputError` unless the encoder fits the space.

        Args:
            space: Space of the states.
        """
        finite = capability(space, FiniteSpace)
        if finite is None or finite.shape != self.shape:
            raise InputError(
                f"This encoder has an input for each cell of {Lattice(self.shape).signature}; it does not fit "
                f"{space.signature}: give the shape of that lattice, or use MeanConfig()."
            )

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> OneHotEncoder:
        context = inputs - len(self.shape)
        return OneHotEncoder(key, math.prod(self.shape), context, embedding, width=self.width, depth=self.depth)


class DeepSetsEncoder(eqx.Module):
    """A network of the mean of a network of each state; on a lattice the latter can be tabulated."""

    mean: MeanEncoder | TableEncoder
    """The mean of a network of each state."""
    after: Perceptron
    """The network of that mean."""

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        return self.after(self.mean(states, log_weights, space))

    def prepared(self, space: StateSpace) -> DeepSetsEncoder:
        return DeepSetsEncoder(self.mean.prepared(space), self.after)


@dataclass(frozen=True)
class DeepSetsConfig(EncoderConfig):
    """Config of the weighted mean of a network of each state, and a second network of that mean."""

    width: int = 128
    """Units of each hidden layer before the mean, and size of the mean."""
    depth: int = 3
    """Hidden layers before the mean."""
    after_width: int = 128
    """Units of each hidden layer after the mean."""
    after_depth: int = 2
    """Hidden layers after the mean."""

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> DeepSetsEncoder:
        mean_key, after_key = jax.random.split(key)
        mean = MeanEncoder(mean_key, inputs, self.width, width=self.width, depth=self.depth)
        after = Perceptron(after_key, self.width, embedding, width=self.after_width, depth=self.after_depth)
        return DeepSetsEncoder(mean, after)
