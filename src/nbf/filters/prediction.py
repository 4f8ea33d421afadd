"""The prior as a baseline: what a filter believes that is told no observation."""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Key

from nbf.contracts import Belief, Environment, Filter, FilterInfo, FilterState, Observation, Policy


class PredictionFilter(Filter):
    """Predict with another filter, and never update: every observation is missing to it.

    A filter that does no better than this one on a problem has learned nothing from the observations.
    """

    filter: Filter
    """That predicts, for instance `ExactFilter()` or a large `ParticleFilter`."""

    def init(self, key: Key[Array, ""], environment: Environment) -> FilterState:
        return self.filter.init(key, environment)

    def update(
        self,
        key: Key[Array, ""],
        state: FilterState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[Any, FilterInfo]:
        return self.filter.update(key, state, None, environment, policy)

    def belief(self, state: FilterState, environment: Environment) -> Belief:
        return self.filter.belief(state, environment)
