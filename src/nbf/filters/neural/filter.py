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

from nbf import prng
from nbf.beliefs.exponential_tilt import STEPS, Tilt, tilt
from nbf.beliefs.model import ModelBelief, listed_or_drawn, mixed, whole
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import (
    BeliefModel,
    Embedding,
    Enumerable,
    Environment,
    Filter,
    FilterInfo,
    Observation,
    Policy,
    State,
    StateSpace,
)
from nbf.errors import InputError
from nbf.filters.attempts import diverged, until_some_weight
from nbf.resampling.optimal import (
    merge_duplicates,
    optimal_indices,
    optimal_resample,
    random_mass,
    select_branches,
    split_heavy,
)
from nbf.resampling.weights import effective_sample_size, normalize
from nbf.spaces import Lattice

SURE = 0.01
"""Ridge of the tilt where chance had no part in an embedding."""
NOISE = 4.0
"""The ridge of an embedding made of one particle that chance chose; of n alike an n-th, as is their variance."""
CARRIED = 0.7
"""The share of the next belief that particles stand for by themselves where chance had no part in them of late."""
FADING = 8
"""That share is this power of the mass that was not left to chance, times the above."""
CANDIDATES = 128
"""Draws of a model among which a forecast of the observation chooses those that are simulated."""
CALIBRATED = 0.2
"""Ridge of the tilt that brings those to the mean embedding of all candidates."""
QUICK = 2
"""Newton's steps of both tilts of that choice: a third one changes no divergence by more than chance does, and takes
its time twice."""
DEFENSIVE = 0.1
"""The part of a choice that a forecast has no say in, so that no weight is larger than ten times what it would be."""


class NeuralState(eqx.Module):
    """The embedding, and the weighted particles it was made from (for the estimate; never reused)."""

    embedding: Embedding
    particles: ParticleBelief
    doubt: Float[Array, ""]
    """The share of the belief's mass that chance decided upon when the particles were drawn."""
    kept: Float[Array, ""]
    """The share of the belief that the particles stand for by themselves; the model has the rest."""
    context: Float[Array, " c"] | None
    """The context in which the embedding was made, if the environment has one."""


class NeuralBayesianFilter(Filter):
    """Tracks the embedding of a belief with a trained model, by `num_particles` calls of the simulator a step.

    The paper's algorithm is `NeuralBayesianFilter.faithful`. Five things are done better here, see docs/beyond.md:

    - particles are drawn evenly (`BeliefModel.draw`; of a model that lists its states, by Fearnhead and Clifford's
      optimal resampling) and carry weights;
    - what the model makes of an embedding is tilted towards one whose own mean embedding that is, the more so the
      less of it is due to chance (`consistent`). A model whose embedding is no mean of features, such as one with
      attention, is not tilted;
    - where the environment knows the `chances` of branches before it follows them, the most likely branches of all
      particles are simulated, instead of one drawn for each (`expand`, which needs `even_draws`);
    - particles that were made so, with little chance, stand for a share of the next belief by themselves, for all of it
      while chance has had no part since the start (`carry`);
    - where the environment offers a `forecast` of the observation, it chooses among many draws those that are simulated
      (`look_ahead`).

    A particle that the model puts on an illegal state has weight zero. When all weights are zero,
    particles are drawn from the model again, up to `max_attempts` times.
    """

    model: BeliefModel
    num_particles: int = eqx.field(static=True)
    even_draws: bool = eqx.field(static=True)
    consistent: bool = eqx.field(static=True)
    expand: bool = eqx.field(static=True)
    carry: bool = eqx.field(static=True)
    look_ahead: bool = eqx.field(static=True)
    max_attempts: int = eqx.field(static=True)
    initial_samples: int = eqx.field(static=True)
    """How many samples of p0 the first embedding is made of, where p0 cannot be listed."""

    def __init__(
        self,
        model: BeliefModel,
        num_particles: int,
        *,
        even_draws: bool = True,
        consistent: bool = True,
        expand: bool = True,
        carry: bool = True,
        look_ahead: bool = True,
        max_attempts: int = 5,
        initial_samples: int = 1024,
    ):
        if num_particles < 1 or max_attempts < 1 or initial_samples < 1:
            raise InputError(
                "A neural filter needs num_particles, max_attempts and initial_samples of at least 1; "
                f"got {num_particles}, {max_attempts} and {initial_samples}."
            )
        if expand and not even_draws:
            raise InputError(
                "Successors are expanded of states that were drawn evenly: set expand=False too where even_draws=False."
            )
        self.model = model.prepared()
        self.num_particles, self.max_attempts, self.initial_samples = num_particles, max_attempts, initial_samples
        self.even_draws, self.consistent, self.expand = even_draws, consistent, expand
        self.carry, self.look_ahead = carry, look_ahead

    @classmethod
    def faithful(
        cls, model: BeliefModel, num_particles: int, *, max_attempts: int = 5, initial_samples: int = 1024
    ) -> NeuralBayesianFilter:
        """Algorithm 1 of the paper to the letter: independent draws, no tilt."""
        return cls(
            model, num_particles, even_draws=False, consistent=False, expand=False, carry=False, look_ahead=False,
            max_attempts=max_attempts, initial_samples=initial_samples,
        )  # fmt: skip

    def init(self, key: Key[Array, ""], environment: Environment) -> NeuralState:
        check_space(self.model, environment)
        embedding_key, particle_key = jax.random.split(key)
        space, kept = environment.space, jnp.zeros(())
        if isinstance(environment, Enumerable):
            states, log_probs = environment.states(), environment.initial_log_probs()
            embedding = self.model.embed(states, log_probs, space)
            chosen, weights, left = optimal_indices(particle_key, log_probs, self.num_particles)
            particles = ParticleBelief(jax.tree.map(lambda leaf: leaf[chosen], states), weights)
            kept = (left <= 0.0).astype(jnp.float32)
        else:
            samples = jax.vmap(environment.init)(jax.random.split(embedding_key, self.initial_samples))
            embedding = self.model.embed(samples, jnp.zeros(self.initial_samples), space)
            drawn = jax.vmap(environment.init)(jax.random.split(particle_key, self.num_particles))
            particles = ParticleBelief(drawn, self._even())
        return NeuralState(embedding, particles, jnp.zeros(()), kept, space.context)

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

        def propose(key: Key[Array, ""], attempt: Int[Array, ""]) -> tuple[tuple[Any, ...], Float[Array, " n"]]:
            states, moved, prior, doubt, kept = self._moved(key, state, space, observation, environment, policy)
            lost = diverged(moved)
            prior = prior if lost is None else jnp.where(lost, -jnp.inf, prior)
            if observation is None:
                return (moved, prior, doubt, kept), prior
            likelihood = jax.vmap(environment.log_likelihood, (None, 0, 0))(observation, states, moved)
            return (moved, prior, doubt, kept), prior + likelihood

        (particles, prior, doubt, kept), log_weights, attempts = until_some_weight(key, self.max_attempts, propose)
        posterior, log_total = normalize(log_weights)
        recovered = log_total == -jnp.inf
        # The prediction is that of the legal particles; if there is not one, of all.
        predicted, log_legal = normalize(prior)
        prediction = jnp.where(log_legal == -jnp.inf, self._even(), predicted)
        weights = jnp.where(recovered, prediction, posterior)
        log_evidence = log_total
        if observation is None:
            log_evidence = jnp.where(recovered, -jnp.inf, 0.0)
        info = FilterInfo(effective_sample_size(log_weights), log_evidence, attempts, recovered)
        embedding = self.model.embed(_padded(particles, weights), weights, environment.space)
        after = NeuralState(embedding, ParticleBelief(particles, weights), doubt, kept, environment.space.context)
        if diverged(particles) is None:
            return after, info
        # If simulator or model left nothing that is finite, the belief stays as it was.
        sound = jnp.all(jnp.isfinite(embedding))
        info = FilterInfo(info.ess, info.log_evidence, attempts, recovered | ~sound)
        return jax.tree.map(lambda old, new: jnp.where(sound, new, old), state, after), info

    def belief(self, state: NeuralState, environment: Environment) -> ModelBelief:
        space = _in_context(environment.space, state.context)
        found = None
        if self.consistent:
            # What chance alone made is no reason to correct the model: then it is reported as it is.
            states, log_weights = whole(self.model, state.embedding, space)
            odds = lambda share: share / jnp.maximum(1.0 - share, 1e-6)  # noqa: E731
            found = self._tilt(states, log_weights, state, space, lambda share: odds(jnp.maximum(state.doubt, share)))
        if not (self.carry and self.expand and isinstance(environment, Enumerable)):
            return ModelBelief(self.model, state.embedding, space, found)
        return ModelBelief(self.model, state.embedding, space, found, state.particles, state.kept)

    def _moved(
        self,
        key: Key[Array, ""],
        state: NeuralState,
        space: StateSpace,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[State, State, Float[Array, " n"], Float[Array, ""], Float[Array, ""]]:
        """States of the belief, where each is moved to, log weights (illegal states have none), how much chance there
        is in them, and the share of the next belief that they may stand for by themselves."""
        keys = prng.split(key, self.num_particles + 1)

        def simulated(states: State, log_weights: Float[Array, " n"], doubt: Float[Array, ""]) -> tuple[Any, ...]:
            moved = jax.vmap(environment.transition, (0, 0, None))(keys[1:], states, policy)
            return states, moved, log_weights, doubt, jnp.zeros(())

        if not self.even_draws:
            states = self.model.sample(keys[0], state.embedding, self.num_particles, space)
            log_weights = jnp.where(jax.vmap(space.contains)(states), self._even(), -jnp.inf)
            return simulated(states, self._tilted(states, log_weights, state, space), jnp.ones(()))
        draw_key, spread_key, split_key = prng.split(keys[0], 3)
        forecast = self._forecast(observation, environment, policy, state)
        branching = self._branching(environment, policy, state)
        aim = forecast if branching is None else None
        count = self.num_particles if aim is None else max(self.num_particles, CANDIDATES)
        states, log_weights = listed_or_drawn(self.model, draw_key, state.embedding, count, space)
        listed = jax.eval_shape(self.model.listed, state.embedding, space) is not None
        drawn = jnp.zeros(()) if listed else random_mass(log_weights)
        if aim is not None:
            log_weights = self._tilted(states, log_weights, state, space, QUICK)
            few, weights, doubt = self._aimed(spread_key, jax.vmap(aim)(states), states, log_weights, space)
            return simulated(few, weights, jnp.maximum(doubt, drawn))
        if branching is not None and self.carry:
            states, log_weights = _joined(states, log_weights, state, space, None if listed else branching)
            drawn = drawn * (1.0 - state.kept)
        # Of those that are followed branch by branch no more are looked at than there are.
        looks = self.num_particles if branching is None else min(self.num_particles, log_weights.shape[0])
        few, weights, lost = optimal_resample(spread_key, states, log_weights, looks)
        weights, doubt = self._tilted(few, weights, state, space), jnp.maximum(lost, drawn)
        if branching is None:
            chosen, weights = split_heavy(split_key, weights)
            return simulated(jax.tree.map(lambda leaf: leaf[chosen], few), weights, doubt)
        chances = jnp.asarray(jax.vmap(branching.chances, (0, None))(few, policy))
        chosen, branch, weights, lost = select_branches(split_key, weights, chances, self.num_particles)
        states = jax.tree.map(lambda leaf: leaf[chosen], few)
        moved = jax.vmap(branching.follow, (0, None, 0))(states, policy, branch)
        doubt = jnp.maximum(lost, doubt)
        kept = jnp.where((state.kept >= 1.0) & (doubt <= 0.0), 1.0, CARRIED * (1.0 - doubt) ** FADING)
        return states, moved, weights, doubt, kept

    def _branching(self, environment: Environment, policy: Policy, state: NeuralState) -> Enumerable | None:
        """The environment, if it tells the chances of branches, no more than can be followed."""
        if not (self.expand and isinstance(environment, Enumerable)):
            return None
        one = jax.tree.map(lambda leaf: leaf[0], state.particles.states)
        chances = jax.eval_shape(environment.chances, one, policy)
        return environment if chances is not None and chances.shape[0] <= self.num_particles else None

    def _forecast(
        self, observation: Observation, environment: Environment, policy: Policy, state: NeuralState
    ) -> Callable[[State], Float[Array, ""]] | None:
        """What the environment foretells of a state, if it does."""
        if not self.look_ahead or observation is None:
            return None
        one = jax.tree.map(lambda leaf: leaf[0], state.particles.states)
        if jax.eval_shape(lambda state: environment.forecast(observation, state, policy), one) is None:
            return None
        return lambda state: jnp.asarray(environment.forecast(observation, state, policy))

    def _aimed(
        self, key: Key[Array, ""], forecasts: Float[Array, " k"], states: State, log_weights: Float[Array, " k"],
        space: StateSpace,
    ) -> tuple[State, Float[Array, " n"], Float[Array, ""]]:  # fmt: skip
        """Of many states those that the observation is likely to come from, with log weights for which they stand for
        the belief before it all the same, and how much chance there is in them."""
        likely = forecasts - jax.nn.logsumexp(log_weights + forecasts)
        aims = jnp.logaddexp(jnp.log1p(-DEFENSIVE) + jnp.where(likely < jnp.inf, likely, -jnp.inf), jnp.log(DEFENSIVE))
        aimed, log_total = normalize(log_weights + aims)
        spread_key, split_key = prng.split(key)
        features = self.model.features(states, space) if self.consistent else None
        columns = jnp.zeros((log_weights.shape[0], 0)) if features is None else features.T
        (few, few_aims, few_columns), weights, doubt = optimal_resample(
            spread_key, (states, aims, columns), aimed, self.num_particles
        )
        if features is not None:
            found = tilt(weights, few_columns.T, features @ jnp.exp(aimed), CALIBRATED, QUICK)
            weights = normalize(found(weights, few_columns.T))[0]
        chosen, weights = split_heavy(split_key, weights)
        few, few_aims = jax.tree.map(lambda leaf: leaf[chosen], (few, few_aims))
        return few, weights + log_total - few_aims, doubt

    def _tilted(
        self,
        states: State,
        log_weights: Float[Array, " k"],
        state: NeuralState,
        space: StateSpace,
        steps: int = STEPS,
    ) -> Float[Array, " k"]:
        own = _noise(state.doubt, state.particles.log_weights)
        ridge = lambda share: jnp.maximum(own, _noise(share, normalize(log_weights)[0]))  # noqa: E731
        found = self._tilt(states, log_weights, state, space, ridge, steps)
        features = self.model.features(states, space)
        return log_weights if found is None or features is None else found(log_weights, features)

    def _tilt(
        self,
        states: State,
        log_weights: Float[Array, " k"],
        state: NeuralState,
        space: StateSpace,
        ridge: Callable[[Float[Array, ""]], Float[Array, ""]],
        steps: int = STEPS,
    ) -> Tilt | None:
        """Towards the embedding, the less so the larger the ridge, given how much chance there is in the states; None
        where nothing is to be tilted."""
        features = self.model.features(states, space) if self.consistent else None
        if features is None:
            return None
        return tilt(log_weights, features, state.embedding, SURE + ridge(random_mass(normalize(log_weights)[0])), steps)

    def estimate(self, state: NeuralState, function: Callable[[State], Any]) -> Any:
        """Line 7 of Algorithm 1: the self-normalised estimate of E[f(x)] from the step's own particles."""
        return state.particles.expectation(function)

    def _even(self) -> Float[Array, " n"]:
        return jnp.full(self.num_particles, -math.log(self.num_particles), jnp.float32)


def _noise(share: Float[Array, ""], log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    """The ridge for a mean over particles of which a share was left to chance."""
    return jnp.minimum(1.0, NOISE * share * jnp.sum(jnp.exp(2.0 * log_weights)))


def _joined(
    states: State,
    log_weights: Float[Array, " k"],
    state: NeuralState,
    space: StateSpace,
    environment: Enumerable | None,
) -> tuple[State, Float[Array, " j"]]:
    """States of the model and particles that were kept, with their shares; equal ones as one. Without an environment
    the states are all that the space lists."""
    kept = state.particles.states
    legal = jax.vmap(space.contains)(kept)
    kept_weights, log_total = normalize(jnp.where(legal, state.particles.log_weights, -jnp.inf))
    share = jnp.where(log_total > -jnp.inf, state.kept, 0.0)
    log_weights = normalize(log_weights)[0]
    if environment is None:
        assert isinstance(space, Lattice)
        own = jnp.zeros(space.size).at[jax.vmap(space.index)(kept)].add(jnp.exp(kept_weights))
        return states, mixed(share, log_weights, jnp.log(own))
    both = jax.tree.map(lambda made, kept: jnp.concatenate([made, kept]), states, kept)
    weights = jnp.concatenate([jnp.log1p(-share) + log_weights, jnp.log(share) + kept_weights])
    first, totals = merge_duplicates(jax.vmap(environment.index)(both), weights, weights.shape[0])
    return jax.tree.map(lambda leaf: leaf[first], both), normalize(totals)[0]


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
