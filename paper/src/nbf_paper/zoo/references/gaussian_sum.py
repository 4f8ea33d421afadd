"""The posterior as a sum of Gaussians, for systems that are linear and Gaussian given a few discrete events.

Every hypothesis (a sequence of events) has a Kalman filter of its own; a step multiplies the hypotheses by the events
of that step, and the optimal resampling of Fearnhead and Clifford (2003) leaves a fixed number. While there are no more
than that, the posterior is exact; after that, only the resampling is random, and decides little mass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import Belief, Environment, Filter, FilterInfo, Observation, Policy
from nbf.resampling import schemes
from nbf.resampling.optimal import optimal_resample
from nbf.resampling.weights import effective_sample_size, normalize


class Hypothesis(NamedTuple):
    """A Gaussian with a label, which is the part of the state that is discrete. Of many: a leading axis."""

    label: Int[Array, ""]
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]


class Hypotheses(NamedTuple):
    """A weighted set of them."""

    each: Hypothesis
    log_weights: Float[Array, " n"]
    """Normalised."""


class GaussianSumBelief(Belief):
    """A mixture of Gaussians with labels. A state is the vector; with `labelled`, the label comes first, plus a number
    that is uniform on (-1/2, 1/2), so that it has a density."""

    terms: Hypotheses
    labelled: bool = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        choice_key, noise_key, label_key = jax.random.split(key, 3)
        chosen = schemes.draw(choice_key, self.terms.log_weights, n)
        label, mean, covariance = jax.tree.map(lambda leaf: leaf[chosen], self.terms.each)
        noise = jax.random.normal(noise_key, mean.shape)
        drawn = mean + jnp.einsum("nij,nj->ni", jnp.linalg.cholesky(covariance), noise)
        if not self.labelled:
            return drawn
        return jnp.concatenate([(label + jax.random.uniform(label_key, (n,)) - 0.5)[:, None], drawn], axis=1)

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        label, mean, covariance = self.terms.each
        point = state[1:] if self.labelled else state
        same = label == jnp.round(state[0]).astype(label.dtype) if self.labelled else jnp.ones_like(label, bool)
        logs = jax.vmap(jax.scipy.stats.multivariate_normal.logpdf, (None, 0, 0))(point, mean, covariance)
        return jax.nn.logsumexp(jnp.where(same, self.terms.log_weights + logs, -jnp.inf))

    def log_probs(self, states: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jax.vmap(self.log_prob)(states)

    def expectation(self, function: Callable[[Any], Any]) -> Any:
        draws = self.sample(jax.random.key(0), 4096)
        return jax.tree.map(lambda values: jnp.mean(values, axis=0), jax.vmap(function)(draws))


class GaussianSumFilter(Filter):
    """Tracks hypotheses."""

    num_hypotheses: int = eqx.field(static=True)
    prior: Callable = eqx.field(static=True)
    """`prior()`: a few `Hypotheses` that are p0."""
    expand: Callable = eqx.field(static=True)
    """`expand(hypothesis, observation, policy)`: the hypotheses that follow from one, each updated by the observation
    (None: only predicted), and the log probability of each event with the observation."""
    labelled: bool = eqx.field(static=True, default=False)

    def init(self, key: Key[Array, ""], environment: Environment) -> Hypotheses:
        few = self.prior()
        missing = self.num_hypotheses - few.log_weights.shape[0]
        each = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[:1], missing, axis=0)]), few.each)
        return Hypotheses(each, jnp.pad(few.log_weights, (0, missing), constant_values=-jnp.inf))

    def update(
        self, key: Key[Array, ""], state: Hypotheses, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Hypotheses, FilterInfo]:
        each, gained = jax.vmap(lambda one: self.expand(one, observation, policy))(state.each)
        each = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), each)
        normal, log_evidence = normalize((state.log_weights[:, None] + gained).ravel())
        few, log_weights, _ = optimal_resample(key, each, normal, self.num_hypotheses)
        info = FilterInfo(effective_sample_size(log_weights), log_evidence, jnp.int32(1), jnp.bool_(False))
        return Hypotheses(few, log_weights), info

    def belief(self, state: Hypotheses, environment: Environment) -> GaussianSumBelief:
        return GaussianSumBelief(state, self.labelled)


def corrected(
    mean: Float[Array, " d"],
    covariance: Float[Array, "d d"],
    reading: Float[Array, " k"],
    sensor: Float[Array, "k d"],
    noise: Float[Array, "k k"],
) -> tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, ""]]:
    """The Kalman update: mean, covariance (in Joseph's form) and log evidence of a reading."""
    total = sensor @ covariance @ sensor.T + noise
    gain = jnp.linalg.solve(total, sensor @ covariance).T
    kept = jnp.eye(mean.shape[0]) - gain @ sensor
    log_evidence = jnp.asarray(jax.scipy.stats.multivariate_normal.logpdf(reading, sensor @ mean, total))
    return mean + gain @ (reading - sensor @ mean), kept @ covariance @ kept.T + gain @ noise @ gain.T, log_evidence
