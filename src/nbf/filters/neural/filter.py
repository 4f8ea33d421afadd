"""Neural Bayesian Filtering: Algorithm 1 of the paper.

x_1:n ~ p_θ                            generate particles from the embedding
x_i' ~ T(x_i, π),  w_i = H(x_i, x_i')[y]   simulate and weigh them
μ = Σ w_i f(x_i') / Σ w_i               estimate an expectation, if one is asked for
θ' = E_φ(x_1:n', w_1:n)                 embed the weighted set

How particles are generated and moved is a `Proposal`, how the decoded belief is corrected a `Correction`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.model import ModelBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import BeliefModel, Environment, FilterInfo, Observation, Policy, State
from nbf.filters.asking import AskTell
from nbf.filters.attempts import diverged, until_some_weight
from nbf.filters.checks import check_counts, check_space
from nbf.filters.neural.correction import Correction, NoCorrection
from nbf.filters.neural.default import Picked, check_parts, default_correction, description, picked
from nbf.filters.neural.independent import IndependentProposal
from nbf.filters.neural.proposal import Prior, Proposal
from nbf.filters.neural.start import initial_state
from nbf.filters.neural.state import NeuralState, in_context, thinned
from nbf.filters.neural.trust import Trust
from nbf.filters.neural.weighing import weighed
from nbf.resampling.likelihoods import log_likelihoods


class NeuralBayesianFilter(AskTell):
    """Track the embedding of a belief with a trained model, by `num_particles` calls of the simulator a step.

    A filter is a proposal and a correction. Where none is named, the best one that model and environment allow is
    taken; `print(filter.describe(environment))` says which. The paper's algorithm is `NeuralBayesianFilter.faithful`.

    An illegal particle has weight zero. When all weights are zero, particles are proposed again, up to `max_attempts`
    times; after that the prediction is kept, and `info.recovered` says so.
    """

    model: BeliefModel
    num_particles: int = eqx.field(static=True)
    proposal: Proposal | None
    """None: the default for each environment."""
    correction: Correction
    trust: Trust
    max_attempts: int = eqx.field(static=True)
    initial_samples: int | None = eqx.field(static=True)

    def __init__(
        self,
        model: BeliefModel,
        num_particles: int,
        *,
        proposal: Proposal | None = None,
        correction: Correction | None = None,
        trust: Trust | None = None,
        max_attempts: int = 5,
        initial_samples: int | None = None,
    ):
        """Build a filter.

        Args:
            model: A trained belief model.
            num_particles: Calls of the simulator at each step.
            proposal: How particles are generated and moved; None picks one by the environment's capabilities.
            correction: Of the decoded belief; None picks `MomentMatching` where the model has `MeanFeatures`.
            trust: In the model, if the proposal is picked (`nbf.fit` measures it); None is `Trust()`.
            max_attempts: How often a step is simulated at most while every weight is zero.
            initial_samples: Samples of p0 that the first embedding is made of, where p0 cannot be listed; None: 1024.
        """
        counts = {} if initial_samples is None else {"initial_samples": initial_samples}
        check_counts("A neural filter", num_particles=num_particles, max_attempts=max_attempts, **counts)
        check_parts(proposal, correction, trust)
        self.model = model.prepared()
        self.num_particles, self.max_attempts, self.initial_samples = num_particles, max_attempts, initial_samples
        self.proposal, self.trust = proposal, trust or Trust()
        self.correction = default_correction(self.model) if correction is None else correction
        self.correction.check(self.model)

    @classmethod
    def faithful(
        cls, model: BeliefModel, num_particles: int, *, max_attempts: int = 5, initial_samples: int | None = None
    ) -> NeuralBayesianFilter:
        """Build Algorithm 1 of the paper to the letter: independent draws, no correction.

        Args:
            model: A trained belief model.
            num_particles: Calls of the simulator at each step.
            max_attempts: How often a step is simulated at most while every weight is zero.
            initial_samples: Samples of p0 that the first embedding is made of, where p0 cannot be listed; None: 1024.

        Returns:
            The filter.
        """
        parts = {"proposal": IndependentProposal(), "correction": NoCorrection()}
        return cls(model, num_particles, **parts, max_attempts=max_attempts, initial_samples=initial_samples)

    def init(self, key: Key[Array, ""], environment: Environment) -> NeuralState:
        check_space(self.model, environment)
        n = self._proposal(environment).size(environment, self.num_particles)
        return initial_state(key, self.model, environment, n, self.initial_samples)

    def update(
        self,
        key: Key[Array, ""],
        state: NeuralState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[NeuralState, FilterInfo]:
        check_space(self.model, environment)
        proposal, space = self._proposal(environment), in_context(environment.space, state.context)
        prior = Prior(self.model, self.correction, state, space, self.num_particles)

        def propose(key: Key[Array, ""], attempt: Int[Array, ""]) -> tuple[tuple[Any, ...], Float[Array, " n"]]:
            proposed = proposal(key, prior, observation, environment, policy)
            lost = diverged(proposed.children)
            predicted = proposed.log_weights if lost is None else jnp.where(lost, -jnp.inf, proposed.log_weights)
            made = proposed.children, predicted, proposed.random_mass, proposed.carried_share
            if observation is None:
                return made, predicted
            told = proposed.log_likelihoods
            if told is None:
                told = log_likelihoods(environment, observation, proposed.parents, proposed.children)
            return made, predicted + told

        made, log_weights, attempts = until_some_weight(key, self.max_attempts, propose)
        particles, predicted, mass, share = made
        weights, info = weighed(predicted, log_weights, attempts, missing=observation is None)
        belief = ParticleBelief(particles, weights)
        few = thinned(prng.fold_in(key, jnp.int32(1)), belief, proposal.embedded(self.num_particles))
        embedding = self.model.embed(few.states, few.log_weights, environment.space)
        after = NeuralState(embedding, belief, mass, share, environment.space.context)
        if diverged(particles) is None:
            return after, info
        finite = jnp.all(jnp.isfinite(embedding))  # else the simulator left nothing finite: the belief stays
        info = dataclasses.replace(info, recovered=info.recovered | ~finite)
        return jax.tree.map(lambda old, new: jnp.where(finite, new, old), state, after), info

    def belief(self, state: NeuralState, environment: Environment) -> ModelBelief:
        space = in_context(environment.space, state.context)
        found = self.correction.of_density(self.model, state, space)
        particles, share = self._proposal(environment).carried(state, space) or (None, 0.0)
        return ModelBelief(self.model, state.embedding, space, found, particles, share)

    def estimate(self, state: NeuralState, function: Callable[[State], Any]) -> Any:
        """Estimate an expectation from the step's own particles (line 7 of Algorithm 1).

        Args:
            state: Of the filter.
            function: Of one state; gives a pytree of arrays.

        Returns:
            The self-normalised estimate of E[function(x)].
        """
        return state.particles.expectation(function)

    def describe(self, environment: Environment) -> str:
        """Say which proposal, correction and parts of the trust are used for an environment, and why.

        Args:
            environment: For which.

        Returns:
            A few lines for a reader.
        """
        trust = self.trust if self.proposal is None else None
        return description(self.num_particles, self._picked(environment), self.correction, environment.space, trust)

    def __repr__(self) -> str:
        named = "picked by environment: see describe" if self.proposal is None else self.proposal
        parts = f"num_particles={self.num_particles}, proposal={named}, correction={self.correction}"
        return f"NeuralBayesianFilter({type(self.model).__name__} for {self.model.space.signature}, {parts})"

    def _proposal(self, environment: Environment) -> Proposal:
        return self._picked(environment).proposal

    def _picked(self, environment: Environment) -> Picked:
        if self.proposal is None:
            return picked(environment, self.num_particles, self.trust)
        self.proposal.check(environment, self.num_particles)
        return Picked(self.proposal, "as asked")
