"""Corrections of a decoded belief: what its samples and its density are changed by, given the embedding.

The paper makes none. `nbf.filters.neural.moment_matching` has one.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float

from nbf.contracts import BeliefModel, State, StateSpace
from nbf.filters.neural.state import NeuralState
from nbf.resampling.exponential_tilt import Tilt


class Correction(eqx.Module):
    """How a decoded belief is corrected.

    Arguments of the methods:
        model: Whose decoder is corrected.
        state: Of the filter: its embedding is the target.
        states: A weighted set that stands for the decoded belief.
        log_weights: Of the set.
        space: Of the environment, in the context of the embedding.
        random_mass: The share of the set's mass that was decided by a random choice: 0 for a listing of all states.
        newton_steps: Of a correction that names no number itself; None is its default.
    """

    def check(self, model: BeliefModel) -> None:
        """Raise `InputError` unless the correction can be applied to a model: unless overridden, to all."""

    @abstractmethod
    def reweight(
        self,
        model: BeliefModel,
        state: NeuralState,
        states: State,
        log_weights: Float[Array, " k"],
        space: StateSpace,
        random_mass: Float[Array, ""],
        newton_steps: int | None = None,
    ) -> Float[Array, " k"]:
        """Log weights of a set that stands for the corrected belief."""

    def matched(self, model: BeliefModel, states: State, space: StateSpace) -> Float[Array, "m k"] | None:
        """The features of a set whose means the correction matches, as columns; None, unless overridden: it matches
        none."""
        return None

    def of_density(self, model: BeliefModel, state: NeuralState, space: StateSpace) -> Tilt | None:
        """The tilt of the decoded density; None, unless overridden: it is not changed."""
        return None


class NoCorrection(Correction):
    """The decoded belief as it is: the paper's."""

    def reweight(
        self,
        model: BeliefModel,
        state: NeuralState,
        states: State,
        log_weights: Float[Array, " k"],
        space: StateSpace,
        random_mass: Float[Array, ""],
        newton_steps: int | None = None,
    ) -> Float[Array, " k"]:
        return log_weights
