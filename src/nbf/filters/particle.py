"""Sequential importance resampling, the particle filter of section "Particle Filtering".

Per step: resample if the effective sample size is low, move every particle by the simulator, weigh it
by the likelihood of the observation (Gordon, Salmond, Smith 1993; Doucet, Johansen 2009).
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.calls import SpaceOf, space_of
from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import Environment, FilterInfo, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.asking import AskTell
from nbf.filters.attempts import diverged, padded, some_weight, until_some_weight
from nbf.filters.checks import check_counts
from nbf.resampling.likelihoods import count_invalid, log_likelihoods
from nbf.resampling.schemes import RESAMPLERS
from nbf.resampling.weights import effective_sample_size, normalize, uniform_log_weights


class ParticleState(NamedTuple):
    """The weighted set after the last observation, before any resampling. A NamedTuple, since JAX flattens modules in
    Python at every call, which would be a tenth of the time of a small filter."""

    states: State
    """Leading axis n on every leaf."""
    log_weights: Float[Array, " n"]
    """Normalised."""
    space: SpaceOf | None = None
    """What the states are; None if that is not known."""


class ParticleFilter(AskTell):
    """SIR with log weights. Where states are those of a `Box`, `log_prob` of its belief is a kernel density on the
    particles (`nbf.beliefs.kde`).

    The product of the steps' evidence is unbiased unless a step is simulated again: the evidence of such a step is
    conditional on some particle having weight, hence biased upwards. With `max_attempts=1` no step is.
    """

    num_particles: int = eqx.field(static=True)
    threshold: float = eqx.field(static=True, default=0.5)
    """Resample when ESS < threshold·n: never with 0, always with 1 or more."""
    resampler: str = eqx.field(static=True, default="systematic")
    """One of `nbf.resampling.schemes.RESAMPLERS`."""
    max_attempts: int = eqx.field(static=True, default=5)
    """How often a step is simulated at most while every weight is zero."""

    def __check_init__(self) -> None:
        counts = {"num_particles": self.num_particles, "max_attempts": self.max_attempts}
        check_counts("A particle filter", **counts)
        if not self.threshold >= 0:
            raise InputError(
                f"The resampling threshold is a share of the particles, 0 (never) or more; got {self.threshold}."
            )
        if self.resampler not in RESAMPLERS:
            raise InputError(f"Unknown resampler {self.resampler!r}; choose one of {', '.join(RESAMPLERS)}.")

    def init(self, key: Key[Array, ""], environment: Environment) -> ParticleState:
        states = jax.vmap(environment.init)(jax.random.split(key, self.num_particles))
        return ParticleState(states, uniform_log_weights(self.num_particles), space_of(environment.space))

    def update(
        self,
        key: Key[Array, ""],
        state: ParticleState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[ParticleState, FilterInfo]:
        def propose(key: Key[Array, ""], attempt: Int[Array, ""]):
            # One split for all keys: chained splits cost more than the particles do.
            keys = prng.split(key, self.num_particles + 1)
            parents = self._parents(keys[0], state, attempt)
            states = jax.vmap(environment.transition, in_axes=(0, 0, None))(keys[1:], parents.states, policy)
            lost, prior = diverged(states), parents.log_weights
            prior = prior if lost is None else jnp.where(lost, -jnp.inf, prior)
            if observation is None:
                return (states, prior), prior
            return (states, prior), prior + log_likelihoods(environment, observation, parents.states, states)

        (states, prior), log_weights, attempts = until_some_weight(key, self.max_attempts, propose)
        posterior, log_evidence = normalize(log_weights)
        recovered = log_evidence == -jnp.inf
        ess, invalid = effective_sample_size(log_weights), count_invalid(prior, log_weights)
        info = FilterInfo(ess, log_evidence, attempts, recovered, invalid)
        if diverged(states) is None:
            return ParticleState(states, jnp.where(recovered, prior, posterior), state.space), info
        after = ParticleState(states, jnp.where(recovered, normalize(prior)[0], posterior), state.space)
        # If the simulator left nothing that is finite, the set stays as it was.
        return jax.tree.map(lambda old, new: jnp.where(some_weight(prior), new, old), state, after), info

    def belief(self, state: ParticleState, environment: Environment) -> ParticleBelief:
        continuous = capability(environment.space, ContinuousSpace)
        if continuous is None:
            return ParticleBelief(state.states, state.log_weights)
        # States without weight may be NaN.
        sound = ParticleBelief(padded(state.states, state.log_weights), state.log_weights)
        return ParticleBelief(state.states, state.log_weights, KernelDensityBelief.of(sound, continuous))

    def _parents(self, key: Key[Array, ""], state: ParticleState, attempt: Int[Array, ""]) -> ParticleState:
        """The carried set, resampled if its ESS is low, and before every attempt but the first."""
        again = attempt > 0
        if self.threshold >= 1:
            resample = jnp.bool_(True)
        elif self.threshold == 0:
            resample = again
        else:
            resample = again | (effective_sample_size(state.log_weights) < self.threshold * self.num_particles)
        ancestors = RESAMPLERS[self.resampler](key, state.log_weights)
        ancestors = jnp.where(resample, ancestors, jnp.arange(self.num_particles))
        states = jax.tree.map(lambda leaf: leaf.at[ancestors].get(mode="promise_in_bounds"), state.states)
        return ParticleState(states, jnp.where(resample, uniform_log_weights(self.num_particles), state.log_weights))
