"""Neural Bayesian Filtering: Algorithm 1 of the paper.

x_1:n ~ p_θ                            generate particles from the embedding
x_i' ~ T(x_i, π),  w_i = H(x_i, x_i')[y]   simulate and weigh them
μ = Σ w_i f(x_i') / Σ w_i               estimate an expectation, if one is asked for
θ' = E_φ(x_1:n', w_1:n)                 embed the weighted set
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.particles import ParticleBelief, effective_sample_size, normalize
from nbf.contracts import (
    Belief,
    BeliefModel,
    Embedding,
    Enumerable,
    Environment,
    Filter,
    FilterInfo,
    InputError,
    Observation,
    Policy,
    State,
    StateSpace,
)
from nbf.filters.attempts import diverged, until_some_weight
from nbf.spaces import Lattice


class ModelBelief(Belief):
    """p_θ: what a belief model makes of an embedding."""

    model: BeliefModel
    embedding: Embedding
    space: StateSpace

    def sample(self, key: Key[Array, ""], n: int) -> State:
        return self.model.sample(key, self.embedding, n, self.space)

    def log_prob(self, state: State) -> Float[Array, ""]:
        one = jax.tree.map(lambda leaf: leaf[None], state)
        return self.model.log_prob(self.embedding, one, self.space)[0]

    def log_probs(self, states: State) -> Float[Array, " n"]:
        """log p_θ of each state of a set."""
        return self.model.log_prob(self.embedding, states, self.space)

    def expectation(self, function: Callable[[State], Any]) -> Any:
        if not isinstance(self.space, Lattice):
            raise InputError(
                f"The expectation over {self.space.signature} has no closed form: average over samples instead, or "
                "use the filter's own estimate, NeuralBayesianFilter.estimate."
            )
        points = jnp.asarray(self.space.points())
        probs = jax.nn.softmax(self.log_probs(points))
        return jax.tree.map(lambda values: jnp.tensordot(probs, values, 1), jax.vmap(function)(points))


class NeuralState(eqx.Module):
    """The embedding, and the weighted particles it was made from (for the estimate; never reused)."""

    embedding: Embedding
    particles: ParticleBelief
    context: Float[Array, " c"] | None
    """The context in which the embedding was made, if the environment has one."""


class NeuralBayesianFilter(Filter):
    """Tracks the embedding of a belief with a trained model.

    A particle that the model puts on an illegal state has weight zero. When all weights are zero,
    particles are drawn from the model again, up to `max_attempts` times.
    """

    model: BeliefModel
    num_particles: int = eqx.field(static=True)
    max_attempts: int = eqx.field(static=True)
    initial_samples: int = eqx.field(static=True)
    """How many samples of p0 the first embedding is made of, where p0 cannot be listed."""

    def __init__(self, model: BeliefModel, num_particles: int, *, max_attempts: int = 5, initial_samples: int = 1024):
        if num_particles < 1 or max_attempts < 1 or initial_samples < 1:
            raise InputError(
                "A neural filter needs num_particles, max_attempts and initial_samples of at least 1; "
                f"got {num_particles}, {max_attempts} and {initial_samples}."
            )
        self.model = model.prepared()
        self.num_particles, self.max_attempts, self.initial_samples = num_particles, max_attempts, initial_samples

    def init(self, key: Key[Array, ""], environment: Environment) -> NeuralState:
        check_space(self.model, environment)
        embedding_key, particle_key = jax.random.split(key)
        particles = jax.vmap(environment.init)(jax.random.split(particle_key, self.num_particles))
        if isinstance(environment, Enumerable):
            embedding = self.model.embed(environment.states(), environment.initial_log_probs(), environment.space)
        else:
            samples = jax.vmap(environment.init)(jax.random.split(embedding_key, self.initial_samples))
            embedding = self.model.embed(samples, jnp.zeros(self.initial_samples), environment.space)
        return NeuralState(embedding, ParticleBelief(particles, self._even()), environment.space.context)

    def update(
        self,
        key: Key[Array, ""],
        state: NeuralState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[NeuralState, FilterInfo]:
        check_space(self.model, environment)
        space = _in_context(environment.space, state.context)

        def propose(key: Key[Array, ""], attempt: Int[Array, ""]) -> tuple[tuple[State, Array], Float[Array, " n"]]:
            keys = jax.random.split(key, self.num_particles + 1)
            states = self.model.sample(keys[0], state.embedding, self.num_particles, space)
            moved = jax.vmap(environment.transition, (0, 0, None))(keys[1:], states, policy)
            prior = jnp.where(jax.vmap(space.contains)(states), 0.0, -jnp.inf)
            lost = diverged(moved)
            prior = prior if lost is None else jnp.where(lost, -jnp.inf, prior)
            if observation is None:
                return (moved, prior), prior
            likelihood = jax.vmap(environment.log_likelihood, (None, 0, 0))(observation, states, moved)
            return (moved, prior), prior + likelihood

        (particles, prior), log_weights, attempts = until_some_weight(key, self.max_attempts, propose)
        posterior, log_total = normalize(log_weights)
        recovered = log_total == -jnp.inf
        # The prediction is that of the legal particles; if there is not one, of all.
        predicted, log_legal = normalize(prior)
        kept = jnp.where(log_legal == -jnp.inf, self._even(), predicted)
        weights = jnp.where(recovered, kept, posterior)
        log_evidence = log_total - math.log(self.num_particles)
        if observation is None:
            log_evidence = jnp.where(recovered, -jnp.inf, 0.0)
        info = FilterInfo(effective_sample_size(log_weights), log_evidence, attempts, recovered)
        embedding = self.model.embed(_padded(particles, weights), weights, environment.space)
        after = NeuralState(embedding, ParticleBelief(particles, weights), environment.space.context)
        if diverged(particles) is None:
            return after, info
        # If simulator or model left nothing that is finite, the belief stays as it was.
        sound = jnp.all(jnp.isfinite(embedding))
        info = FilterInfo(info.ess, info.log_evidence, attempts, recovered | ~sound)
        return jax.tree.map(lambda old, new: jnp.where(sound, new, old), state, after), info

    def belief(self, state: NeuralState, environment: Environment) -> ModelBelief:
        return ModelBelief(self.model, state.embedding, _in_context(environment.space, state.context))

    def estimate(self, state: NeuralState, function: Callable[[State], Any]) -> Any:
        """Line 7 of Algorithm 1: the self-normalised estimate of E[f(x)] from the step's own particles."""
        return state.particles.expectation(function)

    def _even(self) -> Float[Array, " n"]:
        return jnp.full(self.num_particles, -math.log(self.num_particles), jnp.float32)


def _padded(states: State, log_weights: Float[Array, " n"]) -> State:
    """The set with the heaviest state in the place of those without weight: zero times NaN would be NaN."""
    if diverged(states) is None:
        return states
    heaviest = jnp.argmax(log_weights)

    def leaf(values: Array) -> Array:
        none = jnp.reshape(log_weights == -jnp.inf, (-1,) + (1,) * (values.ndim - 1))
        return jnp.where(none, values[heaviest], values)

    return jax.tree.map(leaf, states)


def _in_context(space: StateSpace, context: Float[Array, " c"] | None) -> StateSpace:
    """The space with the context that an embedding was made in, which the next step may have replaced."""
    if context is None:
        return space
    return eqx.tree_at(lambda space: space.context, space, context, is_leaf=lambda leaf: leaf is None)


def check_space(model: BeliefModel, environment: Environment) -> None:
    """Raise unless a model is for the states of an environment."""
    mine, theirs = model.space.signature, environment.space.signature
    if mine != theirs:
        raise InputError(
            f"This model was trained for states of {mine}, the environment has states of {theirs}: "
            "load a model that was trained for it, or train one."
        )
