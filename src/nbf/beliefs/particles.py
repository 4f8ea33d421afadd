"""Weighted particles: the belief Σ w_i δ(x - x_i)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Key, PyTree

from nbf import dispatch
from nbf.contracts import Belief, State
from nbf.errors import InputError
from nbf.resampling import schemes as resampling
from nbf.resampling.weights import normalize


class ParticleBelief(Belief):
    """The distribution that puts weight w_i on state x_i. The weights of equal states add up.

    Of states that are real vectors no two are equal, and points have no density. There `density` answers `log_prob`;
    samples and expectations are those of the points in either case.
    """

    states: State
    """Leading axis n on every leaf."""
    log_weights: Float[Array, " n"]
    """Not necessarily normalised; some entry must have weight."""
    density: Belief | None = None
    """What `log_prob` says: a kernel density on the same set, where a particle filter's states are those of a `Box`.
    None: the weights of the states that are equal to the one asked for."""

    def __check_init__(self) -> None:
        n = self.log_weights.shape[0]
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(self.states)]
        if n < 1 or not shapes or any(shape[:1] != (n,) for shape in shapes):
            raise InputError(
                f"A particle belief needs states and log weights of the same length n >= 1; "
                f"got {n} log weights and states of shapes {shapes}."
            )
        if isinstance(self.log_weights, Tracer):
            return
        weights = np.asarray(self.log_weights)
        if not np.any(np.isfinite(weights)) or np.any(np.isnan(weights)):
            raise InputError(
                "A particle belief needs log weights that are not NaN, and at least one that is finite; "
                f"got {np.isnan(weights).sum()} NaN and {np.isfinite(weights).sum()} finite of {n}."
            )

    def sample(self, key: Key[Array, ""], n: int) -> State:
        drawn = resampling.draw(key, self.log_weights, n)
        return jax.tree.map(lambda leaf: leaf[drawn], self.states)

    def log_prob(self, state: State) -> Float[Array, ""]:
        if self.density is not None:
            return self.density.log_prob(state)

        def same(leaf: Array, value: Array) -> Array:
            return jnp.all(jnp.reshape(leaf == value, (leaf.shape[0], -1)), axis=1)

        equal = jax.tree.leaves(jax.tree.map(same, self.states, state))
        log_weights, _ = normalize(self.log_weights)
        _, log_total = normalize(jnp.where(jnp.all(jnp.stack(equal), axis=0), log_weights, -jnp.inf))
        # Rounding of the weights must not make a probability above one.
        return jnp.minimum(log_total, 0.0)

    def expectation(self, function: Callable[[State], Any]) -> PyTree:
        return _means(self.log_weights, jax.vmap(function)(self.states))


@dispatch.from_python
def _means(log_weights: Float[Array, " n"], values: PyTree) -> PyTree:
    weights = jnp.exp(normalize(log_weights)[0])

    def mean(leaf: Array) -> Array:
        aligned = jnp.reshape(weights, (-1,) + (1,) * (leaf.ndim - 1))
        # Where the weight is zero, the value may be NaN.
        return jnp.sum(jnp.where(aligned > 0, aligned * leaf, 0.0), axis=0)

    return jax.tree.map(mean, values)
