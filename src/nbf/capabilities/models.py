"""What a belief model, or a part of it, can offer beyond its contract, and what each offer buys."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from nbf.capability import Capability
from nbf.contracts import Embedding, Observation, State, StateSpace


class MeanFeatures(Capability):
    """An embedding that is, or begins with, the weighted mean of features of the states. Buys `MomentMatching`.

    Arguments of the methods:
        states: n states.
        space: Of the environment.
    """

    @abstractmethod
    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        """φ of each state, as columns."""


class ListedStates(Capability):
    """A decoder that computes the probability of all states of a finite space together. Buys proposals without
    sampling error: all states are candidates.

    Arguments of the methods:
        embedding: θ, of a decoder followed by the context if there is one.
        space: Of the environment; its `points()` are the states.
    """

    @abstractmethod
    def all_log_probs(self, embedding: Embedding, space: StateSpace) -> Float[Array, " states"]:
        """log p_θ of all states."""


class EvenDraws(Capability):
    """Draws of states that vary less than independent ones. Buys proposals with less sampling error: `EvenProposal`,
    `BranchProposal` and `LookAheadProposal` take them.

    Arguments of the methods:
        key: Random key.
        condition: θ, of a decoder followed by the context if there is one.
        n: How many states.
        space: Of the environment.
    """

    @abstractmethod
    def draw(
        self, key: Key[Array, ""], condition: Float[Array, " m"], n: int, space: StateSpace, /
    ) -> tuple[State, Float[Array, " n"]]:
        """States and their log weights: see `BeliefModel.draw`."""


class Reader(Capability):
    """A network that reads observations one after the other, in the encoder's place. Buys `RecurrentFilter`.

    Arguments of the methods:
        memory: What was read so far.
        observation: y; None is a missing one, and the memory stays as it was.
        space: Of the environment.
        observations: Of a whole history.
        spaces: Of each of its steps.
        seen: Which of them were observed; None is all.
    """

    context: eqx.AbstractVar[int]
    """Numbers of the space's context that are read at every step."""

    @abstractmethod
    def start(self) -> Float[Array, "layers 2 width"]:
        """The memory before anything is read."""

    @abstractmethod
    def read(
        self, memory: Float[Array, "layers 2 width"], observation: Observation, space: StateSpace
    ) -> Float[Array, "layers 2 width"]:
        """The memory after one more step."""

    @abstractmethod
    def embedding(self, memory: Float[Array, "layers 2 width"]) -> Embedding:
        """The embedding that the memory stands for."""

    @abstractmethod
    def embeddings(
        self, observations: Observation, spaces: StateSpace, seen: Bool[Array, " steps"] | None
    ) -> Float[Array, "depths m"]:
        """The embeddings before the first and after each step of a history."""


class RecurrentModel(Capability):
    """A model whose embedding is read off the observations. Buys `RecurrentFilter` and `FineTunedFilter`."""

    @property
    @abstractmethod
    def reader(self) -> Reader:
        """The network that reads them."""
