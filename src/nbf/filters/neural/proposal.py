"""Proposals: how a belief becomes particles, and where each is moved to (lines 2 to 4 of Algorithm 1).

A proposal turns the belief before a step into parents x, children x' and log weights, such that the weighted pairs
stand for p(x) T(x, π)[x']. The filter then weighs them by the likelihood of the observation.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf.beliefs.gaussian_kernels import GaussianKernels
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import BeliefModel, Environment, Observation, Policy, State, StateSpace
from nbf.filters.neural.correction import Correction
from nbf.filters.neural.state import MOST_EMBEDDED, NeuralState

Carried = ParticleBelief | GaussianKernels
"""What particles stand for themselves."""


class Prior(eqx.Module):
    """The belief before a step, as a proposal sees it."""

    model: BeliefModel
    correction: Correction
    state: NeuralState
    space: StateSpace
    """Of the environment at this step, in the context of the embedding."""
    num_particles: int = eqx.field(static=True)

    def corrected(
        self,
        states: State,
        log_weights: Float[Array, " k"],
        random_mass: Float[Array, ""],
        newton_steps: int | None = None,
    ) -> Float[Array, " k"]:
        """Correct the weights of a set that stands for the decoded belief.

        Args:
            states: The set.
            log_weights: Its log weights.
            random_mass: The share of its mass that was decided by a random choice.
            newton_steps: Instead of the correction's own number.

        Returns:
            Its log weights for the corrected belief.
        """
        return self.correction.reweight(
            self.model, self.state, states, log_weights, self.space, random_mass, newton_steps
        )


class Proposed(eqx.Module):
    """What a proposal gives."""

    parents: State
    """n states of the belief."""
    children: State
    """Where each is moved to."""
    log_weights: Float[Array, " n"]
    """Of the pairs, before the observation; illegal parents have -inf, the others a total weight of one."""
    random_mass: Float[Array, ""]
    """The share of the mass that was decided by a random choice."""
    carried_share: Float[Array, ""]
    """The share of the next belief that the children may stand for themselves."""
    log_likelihoods: Float[Array, " n"] | None = None
    """Of the observation after each pair, where the proposal had to know them; else the filter computes them."""


class Proposal(eqx.Module):
    """How particles are proposed. Its fields are constants; they are compiled in."""

    def check(self, environment: Environment, num_particles: int) -> None:
        """Raise `InputError` unless the proposal can be used. Unless overridden, it can be used everywhere.

        Args:
            environment: Of the filter.
            num_particles: Of the filter.
        """

    @abstractmethod
    def __call__(
        self,
        key: Key[Array, ""],
        prior: Prior,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Proposed:
        """Propose weighted pairs of a parent and a child, by `prior.num_particles` calls of the simulator."""

    def size(self, environment: Environment, num_particles: int) -> int:
        """How many particles a filter carries: as many as it simulates, unless a proposal moves others as well.

        Args:
            environment: Of the filter.
            num_particles: Calls of the simulator.

        Returns:
            The number of pairs that are proposed.
        """
        return num_particles

    def embedded(self, num_particles: int) -> int:
        """How many particles are embedded at most: the mean features of more differ little, and cost time.

        Args:
            num_particles: Calls of the simulator.

        Returns:
            The number.
        """
        return max(MOST_EMBEDDED, num_particles)

    def trusted(self, space: StateSpace) -> tuple[str, ...]:
        """Name what the proposal takes from `Trust` where it is picked by default: nothing, unless it says so.

        Args:
            space: Of the environment.

        Returns:
            The names of fields of `Trust`.
        """
        return ()

    def carried(self, state: NeuralState, space: StateSpace) -> tuple[Carried, Float[Array, ""]] | None:
        """What particles stand for themselves in the belief that is reported, beside the decoded embedding.

        Args:
            state: Of the filter.
            space: Of the environment, in the context of the embedding.

        Returns:
            The belief of the particles and its share; None: there is none.
        """
        return None


def simulated(
    keys: Key[Array, " n"],
    parents: State,
    log_weights: Float[Array, " n"],
    random_mass: Float[Array, ""],
    environment: Environment,
    policy: Policy,
) -> Proposed:
    """Move every parent by the simulator.

    Args:
        keys: One for each parent.
        parents: n states.
        log_weights: Of the parents.
        random_mass: The share of their mass that was decided by a random choice.
        environment: Of this step.
        policy: π.

    Returns:
        The proposal; nothing of it is carried.
    """
    children = jax.vmap(environment.transition, (0, 0, None))(keys, parents, policy)
    return Proposed(parents, children, log_weights, random_mass, jnp.zeros(()))
