"""The regularised particle filter (Musso, Oudjane, Le Gland 2001), the strongest one here that needs no network.

Instead of copies of few particles, new ones are drawn from a kernel density on them (`nbf.beliefs.kde`). Where the
environment can look ahead, many candidates are drawn from that density, and the look-ahead weight selects those that
are simulated: the same choice that `LookAheadProposal` makes among draws of a neural model.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.calls import SpaceOf, space_of
from nbf.capabilities import LookAhead
from nbf.capability import capability
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.errors import InputError
from nbf.filters.attempts import diverged, some_weight, until_some_weight
from nbf.filters.checks import check_counts
from nbf.resampling.auxiliary import log_favour
from nbf.resampling.likelihoods import count_invalid, log_likelihoods
from nbf.resampling.optimal import optimal_resample, split_heavy
from nbf.resampling.schemes import systematic
from nbf.resampling.weights import effective_sample_size, normalize, uniform_log_weights
from nbf.spaces import Box


class RegularizedState(NamedTuple):
    """A weighted set of particles."""

    states: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    """Normalised."""
    started: Bool[Array, ""]
    """Whether a step was made: before the first one, candidates are draws of p0 itself."""
    space: SpaceOf | None = None
    """What the states are; None if that is not known."""


class RegularizedParticleFilter(Filter):
    """A particle filter over a `Box` whose particles are drawn anew from a kernel density on the set before.

    Without look-ahead that is done when the effective sample size is low. With `LookAhead` it is done at every step:
    of `candidates` draws those are simulated from which the observation is likely, with importance weights.

    The kernel density widens the belief a little each time, so the evidence is biased; the bias vanishes with more
    particles.
    """

    num_particles: int = eqx.field(static=True)
    """Calls of the simulator at each step."""
    candidates: int = eqx.field(static=True, default=128)
    """Draws among which the look-ahead weight selects; at least as many as particles are drawn."""
    threshold: float = eqx.field(static=True, default=0.5)
    """Without look-ahead: draw anew when ESS < threshold·n."""
    defensive: float = eqx.field(static=True, default=0.1)
    """The part of the selection that ignores the look-ahead weight."""
    max_attempts: int = eqx.field(static=True, default=5)
    """How often a step is simulated at most while every weight is zero."""

    def __check_init__(self) -> None:
        counts = {"candidates": self.candidates, "max_attempts": self.max_attempts}
        check_counts("A regularised particle filter", num_particles=self.num_particles, **counts)
        if not (0 < self.defensive <= 1 and self.threshold >= 0):
            raise InputError(
                "A regularised particle filter needs a defensive part in (0, 1] and a threshold of 0 or more; got "
                f"{self.defensive} and {self.threshold}."
            )

    def init(self, key: Key[Array, ""], environment: Environment) -> RegularizedState:
        _box(environment)
        states = jax.vmap(environment.init)(jax.random.split(key, self.num_particles))
        weights = uniform_log_weights(self.num_particles)
        return RegularizedState(states, weights, jnp.bool_(False), space_of(environment.space))

    def update(
        self,
        key: Key[Array, ""],
        state: RegularizedState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[RegularizedState, FilterInfo]:
        guide = None if observation is None else capability(environment, LookAhead)

        def propose(key: Key[Array, ""], attempt: Int[Array, ""]):
            keys = prng.split(key, self.num_particles + 1)
            if guide is None:
                parents, prior = self._redrawn(keys[0], state, attempt, environment)
            else:
                parents, prior = self._selected(keys[0], state, observation, guide, policy)
            children = jax.vmap(environment.transition, (0, 0, None))(keys[1:], parents, policy)
            lost = diverged(children)
            prior = prior if lost is None else jnp.where(lost, -jnp.inf, prior)
            if observation is None:
                return (children, prior), prior
            return (children, prior), prior + log_likelihoods(environment, observation, parents, children)

        (children, prior), log_weights, attempts = until_some_weight(key, self.max_attempts, propose)
        posterior, log_evidence = normalize(log_weights)
        recovered = log_evidence == -jnp.inf
        ess, invalid = effective_sample_size(log_weights), count_invalid(prior, log_weights)
        info = FilterInfo(ess, log_evidence, attempts, recovered, invalid)
        weights = jnp.where(recovered, normalize(prior)[0], posterior)
        after = RegularizedState(children, weights, jnp.bool_(True), state.space)
        # If the simulator left nothing that is finite, the set stays as it was.
        return jax.tree.map(lambda old, new: jnp.where(some_weight(prior), new, old), state, after), info

    def belief(self, state: RegularizedState, environment: Environment) -> KernelDensityBelief:
        return KernelDensityBelief.of(ParticleBelief(state.states, state.log_weights), _box(environment))

    def _redrawn(
        self, key: Key[Array, ""], state: RegularizedState, attempt: Int[Array, ""], environment: Environment
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """The set itself, or a draw of its kernel density if its ESS is low or the step is simulated again."""
        choice_key, noise_key = prng.split(key)
        low = (attempt > 0) | (effective_sample_size(state.log_weights) < self.threshold * self.num_particles)
        density = self.belief(state, environment)
        drawn = density.around(noise_key, systematic(choice_key, state.log_weights))
        weights = jnp.where(low, uniform_log_weights(self.num_particles), state.log_weights)
        return jnp.where(low, drawn, state.states), weights

    def _selected(
        self, key: Key[Array, ""], state: RegularizedState, observation: Observation, guide: LookAhead, policy: Policy
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Those of many draws of the kernel density (before the first step, of p0) from which the observation is
        likely, with weights that stand for the density again."""
        draw_key, start_key, resample_key, split_key = prng.split(key, 4)
        count = max(self.candidates, self.num_particles)
        drawn = self.belief(state, guide).sample(draw_key, count)
        first = jax.vmap(guide.init)(jax.random.split(start_key, count))
        states, log_weights = jnp.where(state.started, drawn, first), uniform_log_weights(count)
        guesses = jax.vmap(guide.look_ahead, (None, 0, None))(observation, states, policy)
        favour = log_favour(log_weights, guesses, self.defensive)
        favoured, log_total = normalize(log_weights + favour)
        (few, few_favour), weights, _ = optimal_resample(resample_key, (states, favour), favoured, self.num_particles)
        chosen, weights = split_heavy(split_key, weights)
        return few[chosen], weights + log_total - few_favour[chosen]


def _box(environment: Environment) -> Box:
    if not isinstance(environment.space, Box):
        raise InputError(
            f"The regularised particle filter draws from a kernel density over a Box; {type(environment).__name__} has "
            f"states of {environment.space.signature}. Use ParticleFilter, or BranchingFilter where states are listed."
        )
    return environment.space
