"""The regularised particle filter (Musso, Oudjane, Le Gland 2001), the strongest one here that needs no network.

Instead of copies of few particles, new ones are drawn from a kernel density. Without look-ahead a large weighted set is
carried from step to step. A few of its points are simulated, the others follow them: `nbf.filters.surrogate`. When
few points explain the observation, new ones are drawn from the density on the *prediction*, by many candidates that are
weighed but not simulated: `nbf.filters.regeneration`. Where the environment can look ahead, many candidates are drawn
from the density on the set before the step, and the look-ahead weight selects those that are simulated: the same choice
that `LookAheadProposal` makes among draws of a neural model.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.beliefs.gaussian_kernels import GaussianKernels, kernel_space
from nbf.beliefs.kde import KernelDensityBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.calls import SpaceOf, space_of
from nbf.capabilities import ContinuousSpace, LookAhead
from nbf.capability import capability
from nbf.contracts import Environment, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.asking import AskTell
from nbf.filters.attempts import diverged, padded, some_weight, until_some_weight
from nbf.filters.checks import check_counts, check_unused
from nbf.filters.regeneration import KernelSmoother, Regeneration, RegenerationInfo
from nbf.filters.surrogate import Surrogate
from nbf.resampling.auxiliary import log_first_stage
from nbf.resampling.likelihoods import count_invalid, log_likelihoods
from nbf.resampling.optimal import optimal_resample, split_heavy
from nbf.resampling.weights import effective_sample_size, normalize, uniform_log_weights

CANDIDATES, DEFENSIVE = 128, 0.1
"""Defaults of the options of look-ahead."""
DRAWS_EACH = 4
"""Draws for each particle, at least, among which a look-ahead weight selects."""


class RegularizedState(NamedTuple):
    """A weighted set of particles."""

    states: State
    log_weights: Float[Array, " n"]
    """Normalised."""
    started: Bool[Array, ""]
    """Whether a step was made: before the first one, candidates are draws of p0 itself."""
    space: SpaceOf | None = None
    """What the states are; None if that is not known."""


class RegularizedParticleFilter(AskTell):
    """A particle filter over a `Box` or a `Lattice` whose particles are drawn anew from a kernel density when few of
    them explain an observation. Over a box it carries many more points than it simulates. With `LookAhead`, on a box,
    particles are drawn anew at every step: of `candidates` draws those are simulated from which the observation is
    likely, with importance weights.

    The kernel density widens the belief a little each time, and points that are not simulated are moved by a
    regression, so the evidence is biased; the bias vanishes with more particles.
    """

    num_particles: int = eqx.field(static=True)
    """Calls of the simulator at each step."""
    candidates: int = eqx.field(static=True, default=CANDIDATES)
    """With look-ahead: draws among which its weight selects; at least four for each particle."""
    regeneration: Regeneration = Regeneration()
    """Without look-ahead: when and how particles are drawn anew."""
    smoother: KernelSmoother = KernelSmoother()
    """The kernel that they are drawn from."""
    surrogate: Surrogate = Surrogate()
    """Without look-ahead, over a box: how many points are carried, and how those that are not simulated move."""
    defensive: float = eqx.field(static=True, default=DEFENSIVE)
    """With look-ahead: the part of the selection that ignores its weight."""
    max_attempts: int = eqx.field(static=True, default=5)
    """How often a step is simulated at most while every weight is zero."""

    def __check_init__(self) -> None:
        counts = {"candidates": self.candidates, "max_attempts": self.max_attempts}
        check_counts("A regularised particle filter", num_particles=self.num_particles, **counts)
        if not 0 < self.defensive <= 1:
            raise InputError(f"A regularised particle filter needs a defensive part in (0, 1]; got {self.defensive}.")

    def init(self, key: Key[Array, ""], environment: Environment) -> RegularizedState:
        kernel_space(environment.space)
        self._check_used(environment)
        size = self._size(environment)
        states = jax.vmap(environment.init)(jax.random.split(key, size))
        return RegularizedState(states, uniform_log_weights(size), jnp.bool_(False), space_of(environment.space))

    def update(
        self,
        key: Key[Array, ""],
        state: RegularizedState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[RegularizedState, RegenerationInfo]:
        self._check_used(environment)
        guide = None if observation is None else self._guide(environment)

        def propose(key: Key[Array, ""], attempt: Int[Array, ""]):
            if guide is None:
                keys = prng.split(key)
                parents, prior = self._carried(keys[0], state, attempt, environment)
                before = ParticleBelief(parents, prior)
                children = self.surrogate(keys[1], before, environment, policy, self.num_particles)
            else:
                keys = prng.split(key, self.num_particles + 1)
                parents, prior = self._selected(keys[0], state, observation, guide, policy)
                children = jax.vmap(environment.transition, (0, 0, None))(keys[1:], parents, policy)
            lost = diverged(children)
            prior = prior if lost is None else jnp.where(lost, -jnp.inf, prior)
            if observation is None:
                return (children, prior, jnp.int32(0), jnp.bool_(False)), prior
            weights = prior + log_likelihoods(environment, observation, parents, children)
            invalid = count_invalid(prior, weights)
            if guide is not None:
                return (children, prior, invalid, jnp.bool_(False)), weights
            again_key = prng.fold_in(keys[0], jnp.int32(1))
            pair = parents, ParticleBelief(children, prior)
            children, weights, anew = self._regenerated(again_key, *pair, weights, observation, environment)
            return (children, prior, invalid, anew), weights

        (children, prior, invalid, anew), log_weights, attempts = until_some_weight(key, self.max_attempts, propose)
        posterior, log_evidence = normalize(log_weights)
        recovered = log_evidence == -jnp.inf
        ess = effective_sample_size(log_weights)
        info = RegenerationInfo(ess, log_evidence, attempts, recovered, invalid, regenerated=anew)
        weights = jnp.where(recovered, normalize(prior)[0], posterior)
        after = RegularizedState(children, weights, jnp.bool_(True), state.space)
        # If the simulator left nothing that is finite, the set stays as it was.
        return jax.tree.map(lambda old, new: jnp.where(some_weight(prior), new, old), state, after), info

    def belief(self, state: RegularizedState, environment: Environment) -> KernelDensityBelief | GaussianKernels:
        particles, guide = ParticleBelief(state.states, state.log_weights), self._guide(environment)
        if guide is None:
            return GaussianKernels.of(particles, environment.space, self.smoother.scale)
        return KernelDensityBelief.of(particles, _box(environment))

    def _guide(self, environment: Environment) -> LookAhead | None:
        """The environment, if it can look ahead and its states are those of a box."""
        continuous = capability(environment.space, ContinuousSpace) is not None
        return capability(environment, LookAhead) if continuous else None

    def _check_used(self, environment: Environment) -> None:
        """Raise if an option was given that does nothing in an environment."""
        who, name = "RegularizedParticleFilter", type(environment).__name__
        ahead = {"candidates": (self.candidates, CANDIDATES), "defensive": (self.defensive, DEFENSIVE)}
        regeneration = {"regeneration": (self.regeneration, Regeneration())}
        surrogate = {"surrogate": (self.surrogate, Surrogate())}
        if self._guide(environment) is not None:
            check_unused(who, f"with look-ahead, which {name} has over a Box", **regeneration, **surrogate)
            return
        check_unused(who, f"without look-ahead: {name} does not claim LookAhead over a Box", **ahead)
        if capability(environment.space, ContinuousSpace) is None:
            check_unused(who, f"over {environment.space.signature}: it needs a Box", **surrogate)

    def _size(self, environment: Environment) -> int:
        """How many points are carried."""
        looks_ahead = self._guide(environment) is not None
        return self.num_particles if looks_ahead else self.surrogate.size(environment.space, self.num_particles)

    def _carried(
        self, key: Key[Array, ""], state: RegularizedState, attempt: Int[Array, ""], environment: Environment
    ) -> tuple[State, Float[Array, " n"]]:
        """The set itself, or a draw of its kernel density if the step is simulated again."""
        particles = ParticleBelief(state.states, state.log_weights)

        def drawn() -> tuple[State, Float[Array, " n"]]:
            found = self.smoother(key, particles, environment.space, state.log_weights.shape[0])
            return found.states, found.log_weights

        return jax.lax.cond(attempt > 0, drawn, lambda: (state.states, state.log_weights))

    def _regenerated(
        self,
        key: Key[Array, ""],
        parents: State,
        predicted: ParticleBelief,
        log_weights: Float[Array, " n"],
        observation: Observation,
        environment: Environment,
    ) -> tuple[State, Float[Array, " n"], Bool[Array, ""]]:
        """The predicted states with their weights after the observation, or new ones if their ESS is low; and which."""

        def anew() -> tuple[State, Float[Array, " n"], Bool[Array, ""]]:
            sound = ParticleBelief(padded(predicted.states, predicted.log_weights), predicted.log_weights)
            found = self.regeneration(
                key, self.smoother, parents, sound,
                lambda old, new: log_likelihoods(environment, observation, old, new), environment.space,
            )  # fmt: skip
            some = found.log_evidence > -jnp.inf
            states = jax.tree.map(lambda new, old: jnp.where(some, new, old), found.states, predicted.states)
            return states, jnp.where(some, found.log_weights + found.log_evidence, log_weights), some

        low = self.regeneration.needed(log_weights) & some_weight(predicted.log_weights)
        return jax.lax.cond(low, anew, lambda: (predicted.states, log_weights, jnp.bool_(False)))

    def _selected(
        self, key: Key[Array, ""], state: RegularizedState, observation: Observation, guide: LookAhead, policy: Policy
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Those of many draws of the kernel density (before the first step, of p0) from which the observation is
        likely, with weights that stand for the density again."""
        draw_key, start_key, resample_key, split_key = prng.split(key, 4)
        count = max(self.candidates, DRAWS_EACH * self.num_particles)
        density = KernelDensityBelief.of(ParticleBelief(state.states, state.log_weights), _box(guide))
        drawn = density.sample(draw_key, count)
        first = jax.vmap(guide.init)(jax.random.split(start_key, count))
        states, log_weights = jnp.where(state.started, drawn, first), uniform_log_weights(count)
        guesses = jax.vmap(guide.look_ahead, (None, 0, None))(observation, states, policy)
        first = log_first_stage(log_weights, guesses, self.defensive)
        selected, log_total = normalize(log_weights + first)
        (few, few_first), weights, _ = optimal_resample(resample_key, (states, first), selected, self.num_particles)
        chosen, weights = split_heavy(split_key, weights)
        return few[chosen], weights + log_total - few_first[chosen]


def _box(environment: Environment) -> ContinuousSpace:
    space = capability(environment.space, ContinuousSpace)
    assert space is not None
    return space
