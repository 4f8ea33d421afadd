"""The contracts of a belief model's two halves, encoder and decoder, and of their configs."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Key

from nbf.contracts import Embedding, State, StateSpace


@runtime_checkable
class Encoder(Protocol):
    """The embedding function E_φ.

    Arguments of the methods:
        states: A set of n states.
        log_weights: Of the states, unnormalised.
        space: Of the environment.
    """

    def __call__(self, states: State, log_weights: Float[Array, " n"], space: StateSpace) -> Embedding:
        """The embedding θ of a weighted set."""
        ...

    def prepared(self, space: StateSpace) -> Encoder:
        """The same encoder with whatever does not depend on a belief computed once."""
        ...


@runtime_checkable
class Decoder(Protocol):
    """The generative model f_ψ. One that can draw states with less variance than independent ones claims
    `nbf.capabilities.EvenDraws`, one that can list them `ListedStates`.

    Arguments of the methods:
        key: Random key.
        condition: θ, followed by the context if there is one.
        conditions: The condition of each belief of a batch.
        n: How many states.
        states: States to score.
        space: Of the environment.
    """

    def sample(self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace, /) -> State:
        """Independent states from p_θ."""
        ...

    def log_prob(self, condition: Float[Array, " m"], states: State, space: StateSpace, /) -> Float[Array, " n"]:
        """Log probability of each state under p_θ."""
        ...

    def objective(
        self, key: Key[Array, ""], conditions: Float[Array, "b m"], states: State, space: StateSpace, /
    ) -> Float[Array, "b n"]:
        """What training maximises for each state of a batch of beliefs: see `BeliefModel.objective`."""
        ...


@runtime_checkable
class EncoderConfig(Protocol):
    """The config of an encoder.

    Arguments of the methods:
        key: Random key of the parameters.
        inputs: Numbers per state, its context included.
        embedding: Embedding size m.
    """

    def build(self, key: Any, inputs: int, embedding: int, /) -> Any:
        """An encoder with random parameters."""
        ...


@runtime_checkable
class DecoderConfig(Protocol):
    """The config of a decoder.

    A checkpoint with a decoder of your own cannot be loaded: a loader builds the library's own classes alone.

    Arguments of the methods:
        key: Random key of the parameters.
        space: Space of the states.
        condition: Size of the condition: of θ and the context together.
    """

    def check(self, space: Any, /) -> None:
        """Raise `InputError` unless the decoder fits the space and its settings make sense."""
        ...

    def build(self, key: Any, space: Any, condition: int, /) -> Decoder:
        """A decoder with random parameters."""
        ...
