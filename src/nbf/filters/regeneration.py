"""Regeneration: new particles from a density on the prediction, where few of the old ones explain the observation.

A filter that carries its weighted set from step to step loses nothing in most of them. When the effective sample size
falls, the *predicted* set is smoothed to a density g, many candidates are drawn from g and weighed by the likelihood,
which needs no simulation, and resampled to few:

    x_k ~ g,    w_k = H(x_k)[y],    k = 1..K.

Where the observation is so sharp that few candidates explain it, the likelihood is applied in stages, H^β with β rising
to 1 as fast as the effective sample size of the candidates allows; the set of each stage is smoothed anew (progressive
correction: Musso, Oudjane, Le Gland 2001).

The evidence is that of g instead of the prediction: biased by the smoothing, which vanishes with more particles.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.beliefs.gaussian_kernels import GaussianKernels, legal_log_weights
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import FilterInfo, State, StateSpace
from nbf.errors import InputError
from nbf.filters.checks import check_counts
from nbf.resampling import schemes as resampling
from nbf.resampling.optimal import optimal_resample
from nbf.resampling.weights import effective_sample_size, normalize, uniform_log_weights

EXPONENTS = 0.5 ** np.arange(12)
"""What is left of the likelihood is applied in one of these parts."""
CANDIDATES_EACH = 2
"""Candidates for each particle, at least."""


class RegenerationInfo(FilterInfo):
    """What a step of a filter tells that may regenerate its particles."""

    regenerated: Bool[Array, ""] = eqx.field(kw_only=True)
    """Whether the particles were drawn anew at this step."""


class Drawn(NamedTuple):
    """Candidates."""

    states: State
    """k of them."""
    log_weights: Float[Array, " k"]
    """Normalised; -inf for illegal states."""
    origins: Int[Array, " k"]
    """The particle that each was drawn around; 0 where there is none."""


class Smoother(eqx.Module):
    """How a weighted set becomes a density."""

    @abstractmethod
    def __call__(self, key: Key[Array, ""], particles: ParticleBelief, space: StateSpace, count: int) -> Drawn:
        """Draw `count` candidates from a density on the particles.

        Args:
            key: Random key.
            particles: A weighted set.
            space: Of the environment at this step.
            count: How many.

        Returns:
            The candidates, which stand for the density.
        """


class KernelSmoother(Smoother):
    """A Gaussian kernel of the shape of the set on each particle: `nbf.beliefs.gaussian_kernels`."""

    scale: float | Float[Array, ""] = 0.7
    """Factor of Silverman's bandwidth, which is right for one Gaussian and too wide for many modes (`nbf.tuned` finds
    the best one). An argument of the compiled program, unlike other constants."""

    def __check_init__(self) -> None:
        if isinstance(self.scale, int | float) and not 0 < self.scale < np.inf:
            raise InputError(f"The bandwidth of a kernel needs a scale above 0; got {self.scale}.")

    def __call__(self, key: Key[Array, ""], particles: ParticleBelief, space: StateSpace, count: int) -> Drawn:
        choice_key, noise_key = prng.split(key)
        kernels = GaussianKernels.of(particles, space, self.scale)
        origins = resampling.systematic_draw(choice_key, kernels.log_weights, count)
        states = kernels.around(noise_key, origins)
        return Drawn(states, legal_log_weights(states, uniform_log_weights(count), space), origins)


class Regenerated(NamedTuple):
    """The outcome of a regeneration."""

    parents: State
    """Of each particle before the step; of one that was not drawn around another, itself."""
    states: State
    """n new particles."""
    log_weights: Float[Array, " n"]
    """Normalised, after the observation; all -inf if no candidate explains it."""
    log_evidence: Float[Array, ""]
    """log Σ g(x) H(x)[y], estimated."""


class Regeneration(eqx.Module):
    """When and how particles are drawn anew. Its fields are constants; they are compiled in."""

    threshold: float = eqx.field(static=True, default=0.2)
    """Regenerate when the effective sample size after the observation is below threshold·n."""
    candidates: int = eqx.field(static=True, default=512)
    """Candidates that are weighed in each stage; at least two for each particle."""
    tempering: float = eqx.field(static=True, default=0.2)
    """The share of the candidates that each stage keeps as effective sample size."""
    stages: int = eqx.field(static=True, default=8)
    """The last of so many stages applies all that is left of the likelihood."""

    def __check_init__(self) -> None:
        check_counts("Regeneration", candidates=self.candidates, stages=self.stages)
        if not (self.threshold >= 0 and 0 < self.tempering < 1):
            raise InputError(
                "Regeneration needs a threshold of 0 or more and a tempering in (0, 1); got "
                f"{self.threshold} and {self.tempering}."
            )

    def needed(self, log_weights: Float[Array, " n"]) -> Bool[Array, ""]:
        """Tell whether particles are to be drawn anew.

        Args:
            log_weights: Of the particles after the observation.

        Returns:
            True if their effective sample size is low.
        """
        return ~(effective_sample_size(log_weights) >= self.threshold * log_weights.shape[0])

    def __call__(
        self,
        key: Key[Array, ""],
        smoother: Smoother,
        parents: State,
        predicted: ParticleBelief,
        log_likelihoods: Callable[[State, State], Float[Array, " k"]],
        space: StateSpace,
    ) -> Regenerated:
        """Draw new particles that stand for the belief after an observation.

        Args:
            key: Random key.
            smoother: Makes a density of the prediction, and of the set of each stage.
            parents: n states before the step.
            predicted: Where they moved to, with their weights before the observation.
            log_likelihoods: Of pairs of a state before the step and one after it.
            space: Of the environment at this step.

        Returns:
            The new particles.
        """
        n = predicted.log_weights.shape[0]
        count = max(self.candidates, CANDIDATES_EACH * n)

        def stage(carry: tuple) -> tuple:
            number, done, before, now, log_evidence = carry
            draw_key, resample_key = prng.split(prng.fold_in(key, number))
            drawn = smoother(draw_key, now, space, count)
            old = jax.tree.map(lambda leaf: leaf[drawn.origins], before)
            found = log_likelihoods(old, drawn.states)
            part = self._exponent(drawn.log_weights, found, 1.0 - done, number)
            # Zero times minus infinity would be NaN; an impossible candidate stays impossible at any exponent.
            applied = jnp.where(found < jnp.inf, found, -jnp.inf)
            weights, log_total = normalize(drawn.log_weights + part * applied)
            (old, states), kept, _ = optimal_resample(resample_key, (old, drawn.states), weights, n)
            done = jnp.where(part >= 1.0 - done, 1.0, done + part)
            return number + 1, done, old, ParticleBelief(states, kept), log_evidence + log_total

        def unfinished(carry: tuple) -> Bool[Array, ""]:
            number, done, _, _, log_evidence = carry
            return (number < self.stages) & (done < 1.0) & (log_evidence > -jnp.inf)

        start = jnp.int32(0), jnp.zeros(()), parents, predicted, jnp.zeros(())
        _, _, old, after, log_evidence = jax.lax.while_loop(unfinished, stage, start)
        return Regenerated(old, after.states, after.log_weights, log_evidence)

    def _exponent(
        self,
        log_weights: Float[Array, " k"],
        log_likelihoods: Float[Array, " k"],
        left: Float[Array, ""],
        number: Int[Array, ""],
    ) -> Float[Array, ""]:
        """The largest part of what is left of the likelihood that keeps the effective sample size high."""
        parts = left * jnp.asarray(EXPONENTS, jnp.float32)
        usable = jnp.where(log_likelihoods < jnp.inf, log_likelihoods, -jnp.inf)
        sizes = jax.vmap(lambda part: effective_sample_size(log_weights + part * usable))(parts)
        possible = effective_sample_size(jnp.where(usable > -jnp.inf, log_weights, -jnp.inf))
        enough = sizes >= self.tempering * possible
        chosen = parts[jnp.argmax(enough)]
        part = jnp.where(jnp.any(enough), chosen, parts[-1])
        return jnp.where(number >= self.stages - 1, left, part)
