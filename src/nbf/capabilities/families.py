"""What a family or a source of beliefs can offer beyond its contract, and what each offer buys."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from jaxtyping import Array, Key

from nbf.capability import Capability
from nbf.contracts import BeliefSource, Environment, Family, Observation, Policy, State

if TYPE_CHECKING:
    from nbf.beliefs.categorical import CategoricalBelief


class Scheduled(Family, Capability):
    """Environments or policies that change within an episode, independently of the hidden states. Buys beliefs to
    train on in which they change.

    Arguments of the methods:
        key: Random key.
        steps: Length of the episode.
    """

    @abstractmethod
    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        """The environment and the policy of each step of one random episode, with a leading axis."""


class Episodic(Family, Capability):
    """Environments that follow from earlier observations, as when the observer acts on them: an episode is made whole.
    Buys beliefs of such episodes to train on: `nbf.fit`, `EpisodePosteriors`.

    Arguments of the methods:
        key: Random key.
    """

    @abstractmethod
    def episode(self, key: Key[Array, ""]) -> tuple[Environment, Policy, Observation, State]:
        """The environment, the policy and the observation of each step of one random episode, with a leading axis,
        and the true states x_0..x_T."""


class ExactSource(BeliefSource, Capability):
    """Beliefs that are known exactly, not through samples alone. Buys divergences to the truth in `calibrate`.

    Arguments of the methods:
        key: Random key.
    """

    @abstractmethod
    def posterior(self, key: Key[Array, ""]) -> CategoricalBelief:
        """One random belief; `sample` splits its key into this one's and that of the samples."""
