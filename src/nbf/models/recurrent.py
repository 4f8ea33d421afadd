"""The paper's baseline without a simulator: an LSTM from the observations so far to an embedding.

Appendix, "Recurrent Model":

    i, f, g, o = W y + U h + b          c' = σ(f) c + σ(i) tanh(g)          h' = σ(o) tanh(c')

The output of the last layer, in Goofspiel through a further network, conditions the same decoders as a belief model's
embedding. It sees neither the environment nor the policy: it only knows those that it was trained with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf.capabilities import Reader
from nbf.contracts import Embedding, Observation, State, StateSpace
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.models.parts import EncoderConfig

Memory = Float[Array, "layers 2 width"]
"""h and c of every layer."""


class LSTM(eqx.Module):
    """One LSTM layer. Parameters start uniform within ±1 / √width."""

    inputs: Float[Array, "gates in"]
    """W."""
    recurrent: Float[Array, "gates width"]
    """U."""
    bias: Float[Array, " gates"]
    """b."""

    def __init__(self, key: Key[Array, ""], in_size: int, width: int):
        """Draw the parameters.

        Args:
            key: Random key.
            in_size: Numbers per input.
            width: Hidden units.
        """
        bound = 1.0 / math.sqrt(width)
        shapes = (4 * width, in_size), (4 * width, width), (4 * width,)
        keys = jax.random.split(key, len(shapes))
        self.inputs, self.recurrent, self.bias = (
            jax.random.uniform(key, shape, minval=-bound, maxval=bound) for key, shape in zip(keys, shapes, strict=True)
        )

    def project(self, inputs: Float[Array, "*steps in"]) -> Float[Array, "*steps gates"]:
        """Compute what inputs contribute to the gates: one product for a whole history.

        Args:
            inputs: Inputs of each step.

        Returns:
            W y + b of each step.
        """
        return inputs @ self.inputs.T + self.bias

    def step(self, memory: Float[Array, "2 width"], gates: Float[Array, " gates"]) -> Float[Array, "2 width"]:
        """Advance by one input.

        Args:
            memory: h and c before.
            gates: What the input contributes to the gates, from `project`.

        Returns:
            h and c after.
        """
        write, keep, new, tell = jnp.split(gates + self.recurrent @ memory[0], 4)
        cell = jax.nn.sigmoid(keep) * memory[1] + jax.nn.sigmoid(write) * jnp.tanh(new)
        return jnp.stack([jax.nn.sigmoid(tell) * jnp.tanh(cell), cell])


class RecurrentEncoder(Reader):
    """Embeds a history of observations, where other encoders embed a set of states.

    One step reads a one-hot symbol and the context of the step's space, if the model has one: in Goofspiel the public
    record, which includes the observations. A step without an observation leaves the memory unchanged.
    """

    layers: tuple[LSTM, ...]
    """LSTM layers."""
    head: Perceptron | None
    """From the last layer's output to the embedding; None if that output is the embedding."""
    symbols: int = eqx.field(static=True)
    """Number of observation symbols; 0 if only the context is read."""
    context: int = eqx.field(static=True)
    """Numbers of context read at every step."""

    def start(self) -> Memory:
        return jnp.zeros((len(self.layers), 2, self.layers[0].recurrent.shape[1]))

    def read(self, memory: Memory, observation: Observation, space: StateSpace) -> Memory:
        if observation is None:
            return memory
        layer_inputs, after = self._inputs(observation, space), []
        for layer, before in zip(self.layers, memory, strict=True):
            after.append(layer.step(before, layer.project(layer_inputs)))
            layer_inputs = after[-1][0]
        return jnp.stack(after)

    def embedding(self, memory: Memory) -> Embedding:
        return memory[-1, 0] if self.head is None else self.head(memory[-1, 0])

    def embeddings(
        self, observations: Observation, spaces: StateSpace, seen: Bool[Array, " steps"] | None = None
    ) -> Float[Array, "depths m"]:
        outputs, start = self._inputs(observations, spaces), self.start()
        for layer, memory in zip(self.layers, start, strict=True):
            outputs = _outputs(layer, outputs, memory, seen)
        outputs = jnp.concatenate([start[-1, :1], outputs])
        return outputs if self.head is None else self.head(outputs.T).T

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        raise InputError(
            "A recurrent model embeds observations, not sets of states: use it with RecurrentFilter or "
            "FineTunedFilter; the particles of a neural filter need another encoder."
        )

    def prepared(self, space: StateSpace) -> RecurrentEncoder:
        return self

    def _inputs(self, observations: Observation, space: StateSpace) -> Float[Array, "*steps in"]:
        parts = []
        if self.symbols:
            symbols = jnp.asarray(observations)
            if not jnp.issubdtype(symbols.dtype, jnp.integer):
                raise InputError(
                    f"A recurrent model reads symbols, 0..{self.symbols - 1}; got {symbols.dtype} numbers."
                )
            parts.append(jax.nn.one_hot(symbols, self.symbols))
        if self.context:
            given = None if space.context is None else space.context.shape[-1]
            if given != self.context or space.context is None:
                raise InputError(
                    f"This recurrent model reads a context of {self.context} numbers; that of the space is {given}: "
                    "give it the environments that it was trained with."
                )
            parts.append(space.context)
        return jnp.concatenate(parts, axis=-1)


def _outputs(
    layer: LSTM,
    layer_inputs: Float[Array, "steps in"],
    start: Float[Array, "2 width"],
    seen: Bool[Array, " steps"] | None,
) -> Float[Array, "steps width"]:
    """The hidden state h after each step."""

    def step(
        memory: Float[Array, "2 width"], inputs: tuple[Float[Array, " gates"], Bool[Array, ""] | None]
    ) -> tuple[Float[Array, "2 width"], Float[Array, " width"]]:
        gates, was_seen = inputs
        after = layer.step(memory, gates)
        after = after if was_seen is None else jnp.where(was_seen, after, memory)
        return after, after[0]

    return jax.lax.scan(step, start, (layer.project(layer_inputs), seen))[1]


@dataclass(frozen=True)
class RecurrentConfig(EncoderConfig):
    """Config of an LSTM in the encoder's place; the defaults are the paper's for Gridworld."""

    symbols: int = 0
    """Number of observation symbols; 0 if observations are part of the context."""
    context: int = 0
    """Numbers of the space's context read at every step; the decoder does not see them."""
    width: int = 32
    """Hidden units of each layer."""
    depth: int = 2
    """Layers."""
    head_width: int = 64
    """Hidden units of the head."""
    head_depth: int = 0
    """Hidden layers of the head, from the last layer's output to the embedding; 0: that output is the embedding."""

    def build(self, key: Key[Array, ""], inputs: int, embedding: int) -> RecurrentEncoder:
        if self.depth < 1:
            raise InputError(f"depth must be at least 1 layer of a recurrent model; got {self.depth}.")
        if self.symbols < 0 or self.symbols + self.context < 1:
            raise InputError(
                "A recurrent model must read something: give symbols (how many observations there are) or context "
                f"(how many numbers) of at least 1; got {self.symbols} and {self.context}."
            )
        if self.head_depth == 0 and self.width != embedding:
            raise InputError(
                f"Without a head (head_depth=0) the embedding is the last layer's output: embedding must be width, "
                f"{self.width}; got {embedding}."
            )
        head_key, *keys = jax.random.split(key, self.depth + 1)
        sizes = (self.symbols + self.context, *(self.width,) * (self.depth - 1))
        layers = tuple(LSTM(key, size, self.width) for key, size in zip(keys, sizes, strict=True))
        head = None
        if self.head_depth:
            head = Perceptron(head_key, self.width, embedding, width=self.head_width, depth=self.head_depth)
        return RecurrentEncoder(layers=layers, head=head, symbols=self.symbols, context=self.context)
