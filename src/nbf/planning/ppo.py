"""Proximal policy optimisation with action masks: advantages, loss and gradient steps, for whoever makes the decisions.

Schulman et al. (arXiv 1707.06347), with generalised advantage estimation (arXiv 1506.02438). Self-play and policies on
beliefs share what is here; the defaults are those of Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf.filters.checks import check_counts, check_numbers

Learner = TypeVar("Learner")


@dataclass(frozen=True)
class PPO:
    """Settings of the optimisation."""

    epochs: int = 10
    """Passes over the decisions of an iteration."""
    minibatch: int = 64
    """Decisions (or, with a memory, episodes) of a gradient step."""
    learning_rate: float = 3e-4
    discount: float = 0.99
    """γ."""
    trace: float = 0.95
    """λ of the generalised advantages."""
    clip: float = 0.2
    value_weight: float = 0.5
    largest_gradient: float = 0.5
    entropy_weight: float = 0.0

    def __post_init__(self) -> None:
        check_counts("PPO", epochs=self.epochs, minibatch=self.minibatch)
        positive = ("learning_rate", "clip", "largest_gradient")
        check_numbers("PPO", above=True, **{name: getattr(self, name) for name in positive})
        check_numbers("PPO", value_weight=self.value_weight, entropy_weight=self.entropy_weight)
        check_numbers("PPO", most=1.0, discount=self.discount, trace=self.trace)


def advantages(
    rewards: Float[Array, "t n"], values: Float[Array, "t n"], discount: float, trace: float
) -> Float[Array, "t n"]:
    """Estimate the advantages of n episodes that end after the last of t steps.

    An episode that ends before has rewards and values of 0 from there on; its advantages there are 0.

    Args:
        rewards: Of each step.
        values: V before each step.
        discount: γ.
        trace: λ.

    Returns:
        Σ_k (γλ)^k δ_{t+k} with δ_t = r_t + γ V_{t+1} - V_t. Added to the values they are the targets of V.
    """
    after = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    errors = rewards + discount * after - values

    def step(later: Array, error: Array) -> tuple[Array, Array]:
        now = error + discount * trace * later
        return now, now

    return jax.lax.scan(step, jnp.zeros_like(values[0]), errors, reverse=True)[1]


def clipped_loss(
    log_probs: Float[Array, "n k"], values: Float[Array, " n"], actions: Int[Array, " n"], before: Float[Array, " n"],
    gains: Float[Array, " n"], returns: Float[Array, " n"], settings: PPO, counts: Bool[Array, " n"] | None = None,
) -> Float[Array, ""]:  # fmt: skip
    """Compute PPO's clipped loss of a minibatch, with the squared error of the value and the entropy bonus.

    Args:
        log_probs: log π(a | ·) of all actions, now; -inf for those that are not allowed.
        values: V, now.
        actions: Which ones were taken.
        before: log π of them when they were taken.
        gains: Their advantages; they are standardised here.
        returns: The targets of V.
        settings: The weights, and the clip.
        counts: Which decisions count; None: all.

    Returns:
        The loss.
    """

    def mean(each: Float[Array, " n"]) -> Float[Array, ""]:
        if counts is None:
            return jnp.mean(each)
        return jnp.sum(jnp.where(counts, each, 0.0)) / jnp.maximum(jnp.sum(counts), 1)  # there may be none

    deviation = jnp.std(gains) if counts is None else jnp.sqrt(mean((gains - mean(gains)) ** 2))
    chosen = jnp.take_along_axis(log_probs, actions[:, None], axis=1)[:, 0]
    ratio = jnp.exp(chosen - before)
    gained = (gains - mean(gains)) / (deviation + 1e-8)
    clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
    policy_loss = -mean(jnp.minimum(ratio * gained, clipped * gained))
    value_loss = mean((returns - values) ** 2)
    return policy_loss + settings.value_weight * value_loss - settings.entropy_weight * mean(entropy(log_probs))


def entropy(log_probs: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """Compute the entropy of distributions.

    Args:
        log_probs: log probabilities, some of which may be -inf.

    Returns:
        The entropies, in nats.
    """
    return -jnp.sum(jnp.where(log_probs > -jnp.inf, jnp.exp(log_probs) * log_probs, 0.0), axis=-1)


def optimizer(settings: PPO, steps: int | None = None) -> optax.GradientTransformation:
    """Make the optimizer: Adam behind a bound of the gradient's norm.

    Args:
        settings: The learning rate, and the bound.
        steps: Gradient steps over which the learning rate falls to 0; None: it stays.

    Returns:
        The optimizer.
    """
    rate = settings.learning_rate if steps is None else optax.linear_schedule(settings.learning_rate, 0.0, steps)
    return optax.chain(optax.clip_by_global_norm(settings.largest_gradient), optax.adam(rate, eps=1e-5))


def minibatches(total: int, size: int) -> int:
    """Count the gradient steps of an epoch.

    Args:
        total: Items of an iteration.
        size: Of a minibatch, at most.

    Returns:
        How many minibatches there are; items that do not fill the last one are left out.
    """
    return max(1, total // size)


def improve(
    key: Key[Array, ""], learner: Learner, state: Any, items: PyTree, loss: Callable[[Learner, Any], Array],
    optimizer: optax.GradientTransformation, epochs: int, minibatch: int,
) -> tuple[Learner, Any]:  # fmt: skip
    """Take the gradient steps of an iteration.

    Args:
        key: Random key.
        learner: What is trained; all its arrays are.
        state: Of the optimizer.
        items: Decisions or whole episodes, along a leading axis.
        loss: `loss(learner, some items)`.
        optimizer: Of the gradients.
        epochs: Passes over the items.
        minibatch: Items of a gradient step, at most.

    Returns:
        The learner and the optimizer's state after them.
    """
    total = jax.tree.leaves(items)[0].shape[0]
    count, size = minibatches(total, minibatch), min(minibatch, total)

    def epoch(carry: tuple[Learner, Any], key: Key[Array, ""]) -> tuple[tuple[Learner, Any], None]:
        chosen = jax.random.permutation(key, total)[: count * size].reshape(count, size)
        return jax.lax.scan(step, carry, chosen)

    def step(carry: tuple[Learner, Any], chosen: Int[Array, " m"]) -> tuple[tuple[Learner, Any], None]:
        learner, state = carry
        gradient = eqx.filter_grad(loss)(learner, jax.tree.map(lambda leaf: leaf[chosen], items))
        updates, state = optimizer.update(gradient, state)
        return (eqx.apply_updates(learner, updates), state), None

    return jax.lax.scan(epoch, (learner, state), jax.random.split(key, epochs))[0]
