"""The paper's "Approx Beliefs": the belief model applied to samples of the true posterior. Its error is that of the
model alone, without any error of tracking: the best that a filter with this model can reach."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf.beliefs.model import ModelBelief
from nbf.capabilities import Enumerable
from nbf.capability import capability
from nbf.contracts import BeliefModel, Embedding, Environment, Filter, FilterInfo, FilterState, Observation, Policy
from nbf.errors import InputError
from nbf.filters.checks import check_counts, check_space
from nbf.filters.exact import ExactFilter


class ApproxState(eqx.Module):
    """The true posterior, and the embedding of samples of it."""

    truth: FilterState
    embedding: Embedding


class ApproxBeliefs(Filter):
    """Tracks the true posterior with a reference filter, and embeds samples of it at every step."""

    model: BeliefModel
    num_samples: int = eqx.field(static=True)
    truth: Filter

    def __init__(self, model: BeliefModel, num_samples: int = 64, *, truth: Filter | None = None):
        """Build a filter.

        Args:
            model: A trained belief model.
            num_samples: Samples of the posterior at each step.
            truth: The reference filter; None is `ExactFilter()`.
        """
        check_counts("Approx Beliefs", num_samples=num_samples)
        self.model, self.num_samples = model.prepared(), num_samples
        self.truth = ExactFilter() if truth is None else truth

    def init(self, key: Key[Array, ""], environment: Environment) -> ApproxState:
        check_space(self.model, environment)
        if isinstance(self.truth, ExactFilter) and capability(environment, Enumerable) is None:
            raise InputError(
                "Approx Beliefs embed samples of the truth, which is the exact filter unless another one is named; but "
                f"states of {type(environment).__name__} cannot be listed (it does not claim Enumerable). Name one: "
                "ApproxBeliefs(model, truth=nbf.ParticleFilter(4096)), or fitted.ceiling() after nbf.fit."
            )
        return self._embed(key, self.truth.init(key, environment), environment)

    def update(
        self,
        key: Key[Array, ""],
        state: ApproxState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[ApproxState, FilterInfo]:
        update_key, sample_key = jax.random.split(key)
        truth, info = self.truth.update(update_key, state.truth, observation, environment, policy)
        return self._embed(sample_key, truth, environment), info

    def belief(self, state: ApproxState, environment: Environment) -> ModelBelief:
        return ModelBelief(self.model, state.embedding, environment.space)

    def _embed(self, key: Key[Array, ""], truth: FilterState, environment: Environment) -> ApproxState:
        samples = self.truth.belief(truth, environment).sample(key, self.num_samples)
        return ApproxState(truth, self.model.embed(samples, jnp.zeros(self.num_samples), environment.space))
