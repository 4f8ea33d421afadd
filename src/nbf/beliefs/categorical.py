"""Beliefs over finitely many states, and the exact Bayes update of them.

    p'(x') ∝ Σ_x p(x) · T(x, π)[x'] · H(x, x')[y]

A `TransitionKernel` is T of one environment and policy, computed once; an update weighs it by the likelihood of the
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
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.capabilities import Enumerable, Stencil, TransitionMatrix
from nbf.capability import capability
from nbf.contracts import Belief, Observation, Policy, State
from nbf.resampling.likelihoods import is_invalid, log_likelihood_of
from nbf.resampling.weights import scaled


class CategoricalBelief(Belief):
    """A probability for each of the states that an `Enumerable` environment lists."""

    probs: Float[Array, " states"]
    environment: Enumerable

    def sample(self, key: Key[Array, ""], n: int) -> State:
        chosen = prng.categoricals(key, self.probs, n)
        return jax.tree.map(lambda leaf: leaf[chosen], self.environment.states())

    def log_prob(self, state: State) -> Float[Array, ""]:
        return jnp.log(self.probs[self.environment.index(state)])

    def expectation(self, function: Callable[[State], Any]) -> Any:
        values = jax.vmap(function)(self.environment.states())
        return jax.tree.map(lambda value: jnp.tensordot(self.probs, value, axes=1), values)


class TransitionKernel(eqx.Module):
    """T(·, π) of one environment and policy, ready to be applied to many beliefs.

    Arguments of the methods:
        probs: p(x) of every state x.
        observation: y.
        environment: Of this step.
    """

    @abstractmethod
    def joint(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        """p(x', y) / c for every x', and log c.

        c is the largest likelihood: nothing underflows where all likelihoods are below float32's range. If all are
        zero, so is p(x', y) / c, and log c is -inf.
        """

    @abstractmethod
    def invalid(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> Int[Array, ""]:
        """How many of the branches that are taken have a likelihood of NaN or +inf; they count as impossible."""

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
        weights, log_scale = scaled(self._log_likelihoods(probs, observation, environment))
        return self._scatter(probs, weights), log_scale

    def invalid(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> Int[Array, ""]:
        return jnp.sum(is_invalid(self._log_likelihoods(probs, observation, environment)), dtype=jnp.int32)

    def _log_likelihoods(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> Float[Array, "states b"]:
        """Of each branch; -inf where it is not taken."""
        states = environment.states()
        ends = jax.tree.map(lambda leaf: leaf[self.targets], states)
        likelihood = jax.vmap(jax.vmap(log_likelihood_of(environment), (None, None, 0)), (None, 0, 0))
        taken = probs[:, None] * self.probs > 0
        return jnp.where(taken, likelihood(observation, states, ends), -jnp.inf)

    def predict(self, probs: Float[Array, " states"]) -> Float[Array, " states"]:
        return self._scatter(probs, jnp.ones_like(self.probs))

    def _scatter(self, probs: Float[Array, " states"], weights: Float[Array, "states b"]) -> Float[Array, " states"]:
        return jnp.zeros_like(probs).at[self.targets].add(probs[:, None] * self.probs * weights)


class StencilKernel(TransitionKernel):
    """For each offset the probability of arriving by it; the sum over origins is a few shifts.

    The lattice is laid out in row-major order, so a shift along any axis is a shift of the flat
    vector. What wraps around an edge is multiplied by a zero of `arrivals`.
    """

    arrivals: Float[Array, "b states"]
    """Of each state, by each offset."""
    shifts: tuple[int, ...] = eqx.field(static=True)
    """Of the flat vector, for each offset."""

    def joint(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        weights, log_scale = scaled(_offset_log_likelihoods(observation, environment))
        return self._shift(probs, weights), log_scale

    def invalid(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> Int[Array, ""]:
        return jnp.sum(is_invalid(_offset_log_likelihoods(observation, environment)), dtype=jnp.int32)

    def predict(self, probs: Float[Array, " states"]) -> Float[Array, " states"]:
        return self._shift(probs, jnp.ones(len(self.shifts)))

    def _shift(self, probs: Float[Array, " states"], weights: Float[Array, " b"]) -> Float[Array, " states"]:
        parts = zip(weights, self.arrivals, self.shifts, strict=True)
        shifted = (weight * arriving * _shifted(probs, shift) for weight, arriving, shift in parts)
        return functools.reduce(operator.add, shifted)


class MatrixKernel(TransitionKernel):
    """T itself; the sum over origins is a product of a vector and a matrix."""

    matrix: Float[Array, "states states"]

    def joint(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> tuple[Float[Array, " states"], Float[Array, ""]]:
        likelihoods, reached = self._log_likelihoods(probs, observation, environment)
        usable = reached & (likelihoods < jnp.inf)
        weights, log_scale = scaled(jnp.where(usable, likelihoods, -jnp.inf))
        if weights.ndim == 1:
            return (probs @ self.matrix) * weights, log_scale
        return probs @ (self.matrix * weights), log_scale

    def invalid(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> Int[Array, ""]:
        likelihoods, reached = self._log_likelihoods(probs, observation, environment)
        return jnp.sum(is_invalid(jnp.where(reached, likelihoods, -jnp.inf)), dtype=jnp.int32)

    def predict(self, probs: Float[Array, " states"]) -> Float[Array, " states"]:
        return probs @ self.matrix

    def _log_likelihoods(
        self, probs: Float[Array, " states"], observation: Observation, environment: Enumerable
    ) -> (
        tuple[Float[Array, " states"], Bool[Array, " states"]]
        | tuple[Float[Array, "states states"], Bool[Array, "states states"]]
    ):
        """Of each next state, or of each move, and which of them have any probability."""
        assert isinstance(environment, TransitionMatrix)
        table = environment.log_likelihood_table(observation)
        return table, (probs @ self.matrix > 0 if table.ndim == 1 else probs[:, None] * self.matrix > 0)


def _offset_log_likelihoods(observation: Observation, environment: Enumerable) -> Float[Array, " b"]:
    assert isinstance(environment, Stencil)
    offsets = jnp.asarray(environment.offsets, jnp.int32)
    likelihood = jax.vmap(log_likelihood_of(environment), (None, None, 0))
    return likelihood(observation, jnp.zeros_like(offsets[0]), offsets)


def _shifted(vector: Float[Array, " states"], shift: int) -> Float[Array, " states"]:
    """`vector[i - shift]`, zero where that lies outside."""
    size = vector.shape[0]
    if shift >= 0:
        return jnp.pad(vector, (shift, 0))[:size]
    return jnp.pad(vector, (0, -shift))[-shift:]


def transition_kernel(environment: Enumerable, policy: Policy) -> TransitionKernel:
    """Compute the kernel of an environment under a policy, in the fastest form that the environment allows.

    Args:
        environment: G.
        policy: π.

    Returns:
        A `StencilKernel` where the environment is a `Stencil`, a `MatrixKernel` where it has a `TransitionMatrix`, else
        a `BranchKernel`.
    """
    states = environment.states()
    stencil = capability(environment, Stencil)
    if stencil is not None:
        log_probs = jax.vmap(stencil.offset_log_probs, (0, None))(states, policy)
        leaving = jnp.where(jax.vmap(stencil.space.contains)(states)[:, None], jnp.exp(log_probs), 0.0)
        strides = stencil.space.strides
        shifts = tuple(int(np.dot(offset, strides)) for offset in stencil.offsets)
        arrivals = jnp.stack([_shifted(column, shift) for column, shift in zip(leaving.T, shifts, strict=True)])
        return StencilKernel(arrivals, shifts)
    table = capability(environment, TransitionMatrix)
    if table is not None:
        return MatrixKernel(table.transition_matrix(policy))
    ends, log_probs = jax.vmap(environment.successors, (0, None))(states, policy)
    return BranchKernel(jax.vmap(jax.vmap(environment.index))(ends), jnp.exp(log_probs))


def bayes(
    probs: Float[Array, " states"], observation: Observation, environment: Enumerable, kernel: TransitionKernel
) -> tuple[Float[Array, " states"], Float[Array, ""]]:
    """Update a belief by one observation.

    Args:
        probs: The belief before the step, normalised.
        observation: y.
        environment: Of this step.
        kernel: Its transition kernel, under the policy of this step.

    Returns:
        The posterior and log p(y); zeros and -inf if the observation is impossible.
    """
    joint, log_scale = kernel.joint(probs, observation, environment)
    evidence = jnp.sum(joint)
    return joint / jnp.maximum(evidence, jnp.finfo(probs.dtype).tiny), jnp.log(evidence) + log_scale
