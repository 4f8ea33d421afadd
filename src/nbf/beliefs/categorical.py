"""Beliefs over finitely many states, and Bayes' rule for them, exactly.

    p'(x') ∝ Σ_x p(x) · T(x, π)[x'] · H(x, x')[y]

A `TransitionKernel` holds T once for an environment and a policy; an update then only weighs it by the
observation.
"""

from __future__ import annotations

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.capabilities import Enumerable, Stencil
from nbf.capability import capability
from nbf.contracts import Belief, Observation, Policy, State


class CategoricalBelief(Belief):
    """A probability for each of the states that an `Enumerable` environment lists."""

    probs: Float[Array, " states"]
    environment: Enumerable

    def sample(self, key: Key[Array, ""], n: int) -> State:
        chosen = prng.categoricals(key, self.probs, n)
        return jax.tree.map(lambda leaf: leaf[chosen], self.environment.states())

    def log_prob(self, state: State) -> Float[Array, ""]:
        return jnp.log(self.probs[self.environment.index(state)])

    def log_probs(self, states: State) -> Float[Array, " n"]:
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function: Callable[[State], Any]) -> Any:
        values = jax.vmap(function)(self.environment.states())
        return jax.tree.map(lambda value: jnp.tensordot(self.probs, value, axes=1), values)


class TransitionKernel(eqx.Module):
    """T(·, π) of one environment and policy, ready to be applied to many beliefs."""

    @abstractmethod
    def joint(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        """p(x', y) / c for every x', given p(x) for every x, and log c.

        c is the largest likelihood, so that likelihoods far below float32's range do no harm.
        """

    @abstractmethod
    def predict(self, probs: Float[Array, " states"]) -> Float[Array, " states"]:
        """p(x') for every x'."""


class BranchKernel(TransitionKernel):
    """Every branch out of every state; the sum over origins is a scatter."""

    targets: Int[Array, "states b"]
    probs: Float[Array, "states b"]

    def joint(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        states = environment.states()
        ends = jax.tree.map(lambda leaf: leaf[self.targets], states)
        likelihood = jax.vmap(jax.vmap(environment.log_likelihood, (None, None, 0)), (None, 0, 0))
        taken = probs[:, None] * self.probs > 0
        weights, log_scale = _scaled(jnp.where(taken, likelihood(observation, states, ends), -jnp.inf))
        return self._scatter(probs, weights), log_scale

    def predict(self, probs: Float[Array, " states"]) -> Float[Array, " states"]:
        return self._scatter(probs, jnp.ones_like(self.probs))

    def _scatter(self, probs: Float[Array, " states"], weights: Float[Array, "states b"]) -> Float[Array, " states"]:
        return jnp.zeros_like(probs).at[self.targets].add(probs[:, None] * self.probs * weights)


class StencilKernel(TransitionKernel):
    """For each offset the probability of arriving by it; the sum over origins is a few shifts.

    The lattice is laid out in row-major order, so a shift along any axis is a shift of the flat
    vector. What wraps around an edge meets a zero in `arrivals`.
    """

    arrivals: Float[Array, "b states"]
    shifts: tuple[int, ...] = eqx.field(static=True)

    def joint(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        assert isinstance(environment, Stencil)
        offsets = jnp.asarray(environment.offsets, jnp.int32)
        likelihood = jax.vmap(environment.log_likelihood, (None, None, 0))
        weights, log_scale = _scaled(likelihood(observation, jnp.zeros_like(offsets[0]), offsets))
        return self._shift(probs, weights), log_scale

    def predict(self, probs: Float[Array, " states"]) -> Float[Array, " states"]:
        return self._shift(probs, jnp.ones(len(self.shifts)))

    def _shift(self, probs: Float[Array, " states"], weights: Float[Array, " b"]) -> Float[Array, " states"]:
        parts = zip(weights, self.arrivals, self.shifts, strict=True)
        shifted = (weight * arriving * _shifted(probs, shift) for weight, arriving, shift in parts)
        return functools.reduce(operator.add, shifted)


def _scaled(log_likelihood: Float[Array, "*any"]) -> tuple[Float[Array, "*any"], Float[Array, ""]]:
    """Likelihoods divided by the largest of them, and the log of that. NaN and +inf count as zero."""
    usable = jnp.where(log_likelihood < jnp.inf, log_likelihood, -jnp.inf)
    largest = jnp.max(usable)
    log_scale = jnp.where(largest > -jnp.inf, largest, 0.0)
    return jnp.exp(usable - log_scale), log_scale


def _shifted(vector: Float[Array, " states"], shift: int) -> Float[Array, " states"]:
    """`vector[i - shift]`, zero where that lies outside."""
    size = vector.shape[0]
    if shift >= 0:
        return jnp.pad(vector, (shift, 0))[:size]
    return jnp.pad(vector, (0, -shift))[-shift:]


def transition_kernel(environment: Enumerable, policy: Policy) -> TransitionKernel:
    """The kernel of an environment under a policy, in the fastest form that the environment allows."""
    states = environment.states()
    stencil = capability(environment, Stencil)
    if stencil is not None:
        log_probs = jax.vmap(stencil.offset_log_probs, (0, None))(states, policy)
        leaving = jnp.where(jax.vmap(stencil.space.contains)(states)[:, None], jnp.exp(log_probs), 0.0)
        strides = stencil.space.strides
        shifts = tuple(int(np.dot(offset, strides)) for offset in stencil.offsets)
        arrivals = jnp.stack([_shifted(column, shift) for column, shift in zip(leaving.T, shifts, strict=True)])
        return StencilKernel(arrivals, shifts)
    ends, log_probs = jax.vmap(environment.successors, (0, None))(states, policy)
    return BranchKernel(jax.vmap(jax.vmap(environment.index))(ends), jnp.exp(log_probs))


def bayes(
    probs: Float[Array, " states"], observation: Observation, environment: Enumerable, kernel: TransitionKernel
) -> tuple[Float[Array, " states"], Float[Array, ""]]:
    """The posterior after one observation that has a positive probability, and log p(y)."""
    joint, log_scale = kernel.joint(probs, observation, environment)
    evidence = jnp.sum(joint)
    return joint / jnp.maximum(evidence, jnp.finfo(probs.dtype).tiny), jnp.log(evidence) + log_scale
