"""The likeliest branches of the decoded belief, where transition probabilities are known before moving.

Instead of drawing one branch for each particle, all branches of all candidates are weighed by their probability, and
the optimal resampling for discrete states (Fearnhead, Clifford 2003) selects those that are followed.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.model import mixed
from nbf.capabilities import FiniteSpace, KnownTransitions, ListedStates
from nbf.capability import capability, require
from nbf.contracts import Environment, Observation, Policy, State, StateSpace
from nbf.errors import InputError
from nbf.filters.checks import check_numbers
from nbf.filters.neural.even import decoded
from nbf.filters.neural.proposal import Carried, Prior, Proposal, Proposed
from nbf.filters.neural.state import NeuralState
from nbf.resampling.optimal import merge_duplicates, optimal_resample, select_branches
from nbf.resampling.weights import normalize


class CarryRule(eqx.Module):
    """How much of the next belief the particles stand for themselves: share · (1 - random mass)^fading, and all of it
    while no random choice has been made since the start."""

    share: float = eqx.field(static=True, default=0.7)
    """Where no random choice was made at this step."""
    fading: int | float = eqx.field(static=True, default=8)
    """The power by which the share falls with the random mass."""

    def __check_init__(self) -> None:
        check_numbers("CarryRule", most=1.0, share=self.share)
        check_numbers("CarryRule", fading=self.fading)

    def __call__(self, carried_share: Float[Array, ""], random_mass: Float[Array, ""]) -> Float[Array, ""]:
        """Compute the share of the next belief.

        Args:
            carried_share: Of the belief before.
            random_mass: Of this step.

        Returns:
            The share, between 0 and 1.
        """
        return self.rule(carried_share, random_mass, self.share, self.fading)

    @staticmethod
    def rule(
        carried_share: Float[Array, ""],
        random_mass: Float[Array, ""],
        share: float | Float[Array, ""],
        fading: int | float | Float[Array, ""],
    ) -> Float[Array, ""]:
        """Compute the share of the next belief by any numbers.

        Args:
            carried_share: Of the belief before.
            random_mass: Of this step; rounding may leave it a little above 1.
            share: Where no random choice was made at this step.
            fading: The power by which it falls with the random mass.

        Returns:
            The share, between 0 and 1.
        """
        exact = (carried_share >= 1.0) & (random_mass <= 0.0)
        return jnp.where(exact, 1.0, share * jnp.maximum(1.0 - random_mass, 0.0) ** fading)


class BranchProposal(Proposal):
    """Follow the likeliest branches. Needs `KnownTransitions`, with no more branches than there are particles."""

    carry: CarryRule | None = CarryRule()
    """How particles stand for a share of the next belief beside the decoded embedding; None: never."""

    def trusted(self, space: StateSpace) -> tuple[str, ...]:
        return ("carry",)

    def carried(self, state: NeuralState, space: StateSpace) -> tuple[Carried, Float[Array, ""]] | None:
        return None if self.carry is None else (state.particles, state.carried_share)

    def check(self, environment: Environment, num_particles: int) -> None:
        known = require(environment, KnownTransitions, "BranchProposal", "Use EvenProposal.")
        if known.num_branches > num_particles:
            raise InputError(
                f"BranchProposal needs at least as many particles as a state has branches, {known.num_branches} in "
                f"{type(environment).__name__}; got {num_particles}. Use more particles, or EvenProposal."
            )

    def __call__(
        self,
        key: Key[Array, ""],
        prior: Prior,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Proposed:
        known = require(environment, KnownTransitions, "BranchProposal", "Use EvenProposal.")
        n = prior.num_particles
        draw_key, resample_key, select_key = prng.split(prng.split(key, n + 1)[0], 3)
        states, log_weights, drawn = decoded(draw_key, prior, n)
        if self.carry is not None:
            states, log_weights = _joined(states, log_weights, prior, known)
            drawn = drawn * (1.0 - prior.state.carried_share)
        # Never more candidates than there are states.
        few, weights, lost = optimal_resample(resample_key, states, log_weights, min(n, log_weights.shape[0]))
        made = jnp.maximum(lost, drawn)
        weights = prior.corrected(few, weights, made)
        log_probs = jax.vmap(known.transition_log_probs, (0, None))(few, policy)
        chosen, branch, weights, left = select_branches(select_key, weights, log_probs, n)
        parents = jax.tree.map(lambda leaf: leaf[chosen], few)
        children = jax.vmap(known.follow, (0, None, 0))(parents, policy, branch)
        mass = jnp.maximum(left, made)
        share = jnp.zeros(()) if self.carry is None else self.carry(prior.state.carried_share, mass)
        return Proposed(parents, children, weights, mass, share)


def _joined(
    states: State, log_weights: Float[Array, " k"], prior: Prior, environment: KnownTransitions
) -> tuple[State, Float[Array, " j"]]:
    """Decoded states and carried particles, with their shares; equal states are merged."""
    carried, space = prior.state.particles.states, prior.space
    legal = jax.vmap(space.contains)(carried)
    own, log_total = normalize(jnp.where(legal, prior.state.particles.log_weights, -jnp.inf))
    share = jnp.where(log_total > -jnp.inf, prior.state.carried_share, 0.0)
    log_weights = normalize(log_weights)[0]
    if capability(prior.model, ListedStates) is not None:
        finite = require(space, FiniteSpace, "A model that lists its states", "Use a Lattice.")
        listed = jnp.zeros(finite.size).at[jax.vmap(finite.index)(carried)].add(jnp.exp(own))
        return states, mixed(share, log_weights, jnp.log(listed))
    both = jax.tree.map(lambda made, kept: jnp.concatenate([made, kept]), states, carried)
    weights = jnp.concatenate([jnp.log1p(-share) + log_weights, jnp.log(share) + own])
    first, totals = merge_duplicates(jax.vmap(environment.index)(both), weights, weights.shape[0])
    return jax.tree.map(lambda leaf: leaf[first], both), normalize(totals)[0]
