"""The particle filter for discrete states that follows every branch, then resamples (Fearnhead, Clifford 2003).

Per step: resample to as many points as have `num_calls` branches together, by the optimal resampling for discrete
states (`nbf.resampling.optimal`); follow every branch of each; weigh all by the likelihood of the observation; merge
equal states. Only the resampling is random.

Where the environment has `KnownTransitions`, the same resampling selects branches instead of points: no impossible
branch is followed, and some branches of a point may be followed without the others.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.beliefs.particles import ParticleBelief
from nbf.calls import space_of
from nbf.capabilities import Enumerable, KnownTransitions
from nbf.capability import capability, require
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.checks import check_counts
from nbf.filters.particle import ParticleState
from nbf.resampling.likelihoods import count_invalid, log_likelihoods
from nbf.resampling.optimal import merge_duplicates, optimal_indices, select_branches
from nbf.resampling.weights import effective_sample_size, normalize


class BranchingFilter(Filter):
    """A particle filter that follows the `successors` of its points, `num_calls` branches a step.

    Its points are different states, so with a call for every branch of every state it is the exact filter. The product
    of the steps' evidence is unbiased.
    """

    num_calls: int = eqx.field(static=True)
    """Calls of the simulator at each step."""
    choose: bool = eqx.field(static=True, default=True)
    """Whether branches are selected by their probability, where the environment has `KnownTransitions`. Otherwise all
    branches of few points are followed, as Fearnhead and Clifford did."""

    def __check_init__(self) -> None:
        check_counts("A branching filter", num_calls=self.num_calls)

    def init(self, key: Key[Array, ""], environment: Environment) -> ParticleState:
        environment = _enumerable(environment)
        chosen, log_weights, _ = optimal_indices(key, environment.initial_log_probs(), self.num_calls)
        states = jax.tree.map(lambda leaf: leaf[chosen], environment.states())
        return ParticleState(states, log_weights, space_of(environment.space))

    def update(
        self,
        key: Key[Array, ""],
        state: ParticleState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[ParticleState, FilterInfo]:
        environment = _enumerable(environment)
        parents, ends, prior = self._followed(key, state, policy, environment)
        log_weights = prior
        if observation is not None:
            log_weights = prior + log_likelihoods(environment, observation, parents, ends)
        posterior, log_evidence = normalize(log_weights)
        predicted, log_total = normalize(prior)
        recovered = log_evidence == -jnp.inf
        after = self._merged(ends, jnp.where(recovered, predicted, posterior), environment)._replace(space=state.space)
        # Under a policy with no branch of positive probability, the set stays as it was.
        after = jax.tree.map(lambda old, new: jnp.where(log_total > -jnp.inf, new, old), state, after)
        ess = jnp.where(recovered, 0.0, effective_sample_size(after.log_weights))
        if observation is None:
            log_evidence = jnp.where(recovered, -jnp.inf, 0.0)
        return after, FilterInfo(ess, log_evidence, jnp.int32(1), recovered, count_invalid(prior, log_weights))

    def belief(self, state: ParticleState, environment: Environment) -> ParticleBelief:
        return ParticleBelief(state.states, state.log_weights)

    def _followed(
        self, key: Key[Array, ""], state: ParticleState, policy: Policy, environment: Enumerable
    ) -> tuple[State, State, Float[Array, " calls"]]:
        """Pairs of a point and the end of one of its branches, and their log weights."""
        known = capability(environment, KnownTransitions) if self.choose else None
        if known is not None:
            log_probs = jax.vmap(known.transition_log_probs, (0, None))(state.states, policy)
            chosen, branch, weights, _ = select_branches(key, state.log_weights, log_probs, self.num_calls)
            parents = jax.tree.map(lambda leaf: leaf[chosen], state.states)
            return parents, jax.vmap(known.follow, (0, None, 0))(parents, policy, branch), weights
        one = jax.tree.map(lambda leaf: leaf[0], state.states)
        branches = jax.eval_shape(environment.successors, one, policy)[1].shape[0]
        if branches > self.num_calls:
            raise InputError(
                f"A state of {type(environment).__name__} has {branches} branches, all of which a branching filter "
                f"follows: it needs num_calls of at least {branches}; got {self.num_calls}."
            )
        chosen, weights, _ = optimal_indices(key, state.log_weights, self.num_calls // branches)
        points = jax.tree.map(lambda leaf: leaf[chosen], state.states)
        ends, log_probs = jax.vmap(environment.successors, (0, None))(points, policy)
        parents = jax.tree.map(lambda leaf: jnp.repeat(leaf, branches, axis=0), points)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), ends)
        return parents, flat, (weights[:, None] + log_probs).ravel()

    def _merged(self, states: State, log_weights: Float[Array, " k"], environment: Enumerable) -> ParticleState:
        """The set with equal states merged, padded to `num_calls` entries by copies of weight zero."""
        first, totals = merge_duplicates(jax.vmap(environment.index)(states), log_weights, self.num_calls)
        return ParticleState(jax.tree.map(lambda leaf: leaf[first], states), normalize(totals)[0])


def _enumerable(environment: Environment) -> Enumerable:
    return require(environment, Enumerable, "The branching filter", "Claim it, or use a particle filter.")
