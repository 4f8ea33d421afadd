"""Carry a weighted set, and draw it anew only when few particles explain the observation.

Every cycle of embedding and decoding costs accuracy, so most steps make none: the particles of the last step are moved
and weighed, as in a particle filter. Over a `Box` many more are carried than are simulated (`nbf.filters.surrogate`).
When their effective sample size is low, new ones come from densities on the *predicted* set, the belief model's and a
kernel's, by many candidates that are weighed without being simulated (`nbf.filters.regeneration`). The share of each
density and the width of the kernel are earned: `nbf.fit` runs the filter on episodes of the family, and takes those
with which it tells the true states best (`nbf.fitting.trust`).
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.gaussian_kernels import GaussianKernels, has_kernels
from nbf.beliefs.model import listed_or_drawn
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, StateEmission
from nbf.capability import capability, require
from nbf.contracts import BeliefModel, Environment, Observation, Policy, State, StateSpace
from nbf.errors import check_likelihood
from nbf.filters.attempts import padded
from nbf.filters.checks import check_numbers, check_unused
from nbf.filters.neural.correction import Correction
from nbf.filters.neural.proposal import Carried, Prior, Proposal, Proposed
from nbf.filters.neural.state import MOST_EMBEDDED, NeuralState, thinned
from nbf.filters.regeneration import Drawn, KernelSmoother, Regeneration, Smoother
from nbf.filters.surrogate import Surrogate
from nbf.resampling.weights import normalize

MOST_MODELLED = 256
"""Candidates of a model, at most, where others come from a kernel."""


class ModelSmoother(Smoother):
    """The density to which a belief model decodes the embedding of a set."""

    model: BeliefModel
    correction: Correction

    def __call__(self, key: Key[Array, ""], particles: ParticleBelief, space: StateSpace, count: int) -> Drawn:
        particles = thinned(prng.fold_in(key, jnp.int32(1)), particles, MOST_EMBEDDED)
        embedding = self.model.embed(particles.states, particles.log_weights, space)
        states, log_weights = listed_or_drawn(self.model, key, embedding, count, space)
        behind = NeuralState(embedding, particles, jnp.ones(()), jnp.zeros(()), space.context)
        log_weights = self.correction.reweight(self.model, behind, states, log_weights, space, jnp.ones(()))
        return Drawn(states, normalize(log_weights)[0], jnp.zeros(log_weights.shape[0], jnp.int32))


class MixedSmoother(Smoother):
    """The mixture of a model's density and a kernel's, with half of the candidates from each, up to `MOST_MODELLED`
    from the model, whose candidates cost more."""

    first: ModelSmoother
    second: KernelSmoother
    share: float | Float[Array, ""]
    """Of the model."""

    def __call__(self, key: Key[Array, ""], particles: ParticleBelief, space: StateSpace, count: int) -> Drawn:
        first_key, second_key = prng.split(key)
        modelled = min(count - count // 2, MOST_MODELLED)
        made = self.first(first_key, particles, space, modelled)
        near = self.second(second_key, particles, space, count - modelled)
        share = jnp.asarray(self.share, jnp.float32)
        states = jax.tree.map(lambda one, two: jnp.concatenate([one, two]), made.states, near.states)
        weights = jnp.concatenate([jnp.log(share) + made.log_weights, jnp.log1p(-share) + near.log_weights])
        return Drawn(states, weights, jnp.concatenate([made.origins, near.origins]))


class RegeneratingProposal(Proposal):
    """Carry particles, and regenerate them when their effective sample size is low. Needs `StateEmission`: an
    observation that depends on the new state alone. On a box or a lattice, candidates come from the model and from a
    kernel; elsewhere nearby states are not alike, and all come from the model."""

    regeneration: Regeneration = Regeneration()
    """When and how particles are drawn anew."""
    kernel: KernelSmoother = KernelSmoother()
    """The kernel on a particle."""
    model_share: float | Float[Array, ""] = 0.5
    """The model's share of a belief beside the kernel's; `nbf.fit` measures it. An argument of the compiled program."""
    surrogate: Surrogate = Surrogate()
    """Over a box: how many points are carried, and how those that are not simulated move."""

    def __check_init__(self) -> None:
        check_numbers("RegeneratingProposal", most=1.0, model_share=self.model_share)

    def check(self, environment: Environment, num_particles: int) -> None:
        require(environment, StateEmission, "RegeneratingProposal", "Use EvenProposal.")
        where = f"over {environment.space.signature}"
        if capability(environment.space, ContinuousSpace) is None:
            check_unused("RegeneratingProposal", f"{where}: it needs a Box", surrogate=(self.surrogate, Surrogate()))
        if not has_kernels(environment.space):
            scales = self.kernel.scale, KernelSmoother().scale
            check_unused("RegeneratingProposal", f"{where}: it needs a Box or a Lattice", kernel=scales)

    def trusted(self, space: StateSpace) -> tuple[str, ...]:
        return ("model_share", "kernel_scale") if has_kernels(space) else ("model_share",)

    def size(self, environment: Environment, num_particles: int) -> int:
        return self.surrogate.size(environment.space, num_particles)

    def carried(self, state: NeuralState, space: StateSpace) -> tuple[Carried, Float[Array, ""]]:
        particles = ParticleBelief(
            padded(state.particles.states, state.particles.log_weights), state.particles.log_weights
        )
        near = GaussianKernels.of(particles, space, self.kernel.scale) if has_kernels(space) else particles
        return near, 1.0 - jnp.asarray(self.model_share, jnp.float32)

    def __call__(
        self,
        key: Key[Array, ""],
        prior: Prior,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Proposed:
        emission = require(environment, StateEmission, "RegeneratingProposal", "Use EvenProposal.")
        keys = prng.split(key)
        before, one = prior.state.particles, jnp.ones(())
        children = self.surrogate(keys[1], before, environment, policy, prior.num_particles)
        moved = Proposed(before.states, children, normalize(before.log_weights)[0], one, jnp.zeros(()))
        if observation is None:
            return moved

        def likelihoods(_: State, states: State) -> Float[Array, " k"]:
            found = jax.vmap(emission.state_log_likelihood, (None, 0))(observation, states)
            check_likelihood(found.shape[1:], environment)
            return found

        told = likelihoods(moved.children, moved.children)
        moved = replace(moved, log_likelihoods=told)

        def anew() -> Proposed:
            predicted = ParticleBelief(padded(moved.children, moved.log_weights), moved.log_weights)
            smoother = self._smoother(prior, environment.space)
            found = self.regeneration(
                keys[0], smoother, predicted.states, predicted, likelihoods, environment.space
            )  # fmt: skip
            # The filter weighs by the likelihood, so it is divided out here: the weights after it are those found.
            after = likelihoods(found.states, found.states)
            weights = found.log_weights + found.log_evidence - after
            weights = jnp.where(found.log_weights > -jnp.inf, weights, -jnp.inf)
            made = replace(
                moved, parents=found.states, children=found.states, log_weights=weights, log_likelihoods=after
            )
            some = found.log_evidence > -jnp.inf
            return jax.tree.map(lambda new, old: jnp.where(some, new, old), made, moved)

        return jax.lax.cond(self.regeneration.needed(moved.log_weights + told), anew, lambda: moved)

    def _smoother(self, prior: Prior, space: StateSpace) -> Smoother:
        model = ModelSmoother(prior.model, prior.correction)
        return MixedSmoother(model, self.kernel, self.model_share) if has_kernels(space) else model
