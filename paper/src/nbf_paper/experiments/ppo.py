"""Proximal policy optimisation with action masks, on the device, and what all pools of self-play have in common.

Schulman et al. (arXiv 1707.06347), with generalised advantage estimation; the settings are those of Stable-Baselines3,
which the paper modified. A policy is trained against its previous checkpoint, and every checkpoint joins the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf_paper.experiments.demands import Size


@dataclass(frozen=True)
class PoolConfig(ABC):
    """How a pool is made; the defaults are the paper's and, where it is silent, Stable-Baselines3's."""

    runs: int = 4
    """Runs of self-play, each from scratch."""
    checkpoints: int = 128
    """Policies that a run leaves."""
    timesteps: int = 4096
    """Decisions of the learner between two checkpoints, rounded up to whole games."""
    epochs: int = 10
    """Passes over those decisions."""
    minibatch: int = 64
    learning_rate: float = 3e-4
    discount: float = 0.99
    trace: float = 0.95
    """λ of the generalised advantages."""
    clip: float = 0.2
    value_weight: float = 0.5
    largest_gradient: float = 0.5
    entropy_weight: float = 0.0
    width: int = 64
    depth: int = 2
    seed: int = 0

    kind: ClassVar[str]
    """What the file of a pool says it is."""

    def __post_init__(self) -> None:
        for name in ("runs", "checkpoints", "timesteps", "epochs", "minibatch", "width", "depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be above 0; got {self.learning_rate}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "runs": self.runs,
            "checkpoints": self.checkpoints,
            "timesteps": self.timesteps,
            "epochs": self.epochs,
            "minibatch": self.minibatch,
            "learning_rate": self.learning_rate,
            "discount": self.discount,
            "trace": self.trace,
            "clip": self.clip,
            "value_weight": self.value_weight,
            "largest_gradient": self.largest_gradient,
            "entropy_weight": self.entropy_weight,
            "width": self.width,
            "depth": self.depth,
            "seed": self.seed,
        }

    @property
    @abstractmethod
    def title(self) -> str:
        """The pool as progress names it."""

    @property
    @abstractmethod
    def file(self) -> str:
        """The pool's file in a folder of trainings."""

    @property
    @abstractmethod
    def decisions(self) -> int:
        """Decisions of the learner in one game."""

    @property
    @abstractmethod
    def size(self) -> Size:
        """What grows with the policies of a run."""

    @abstractmethod
    def stream(self, *names: str | int) -> Key[Array, ""]:
        """The random stream of this pool with a name."""

    @abstractmethod
    def learner(self, key: Key[Array, ""]) -> Learner:
        """A learner that starts near the uniform policy, with value 0."""

    @abstractmethod
    def play(self, key: Key[Array, ""], learner: Learner, opponent: Any) -> Decisions:
        """Many games of a learner against an opponent."""

    @property
    def games(self) -> int:
        """Games between two checkpoints."""
        return -(-self.timesteps // self.decisions)

    @property
    def minibatches(self) -> int:
        """Minibatches of one epoch; decisions that do not fill the last one are left out of the epoch."""
        return max(1, self.games * self.decisions // self.minibatch)


class Learner(eqx.Module):
    """The learning policy and its value function."""

    policy: Any
    value: Perceptron

    def values(self, views: Float[Array, "n view"]) -> Float[Array, " n"]:
        """The values of some positions, given the views of the player."""
        return self.value(views.T)[0]


class Decisions(eqx.Module):
    """The decisions of a learner in many positions, with advantages and returns."""

    inputs: tuple[Array, ...]
    """Of the policy's `log_probs`, each with a leading axis; the first is the player's view."""
    actions: Int[Array, " n"]
    log_probs: Float[Array, " n"]
    advantages: Float[Array, " n"]
    returns: Float[Array, " n"]

    @classmethod
    def of(
        cls, inputs: tuple[Array, ...], actions: Int[Array, "t g"], log_probs: Float[Array, "t g"],
        values: Float[Array, "t g"], results: Float[Array, " g"], config: PoolConfig,
    ) -> Decisions:  # fmt: skip
        """From the t decisions of each of g games, in their order, and the results of the games."""
        rewards = jnp.zeros_like(values).at[-1].set(results)
        gained = advantages(rewards, values, config.discount, config.trace)
        flat = jax.tree.map(
            lambda part: part.reshape(-1, *part.shape[2:]), (inputs, actions, log_probs, gained, gained + values)
        )
        return cls(*flat)


def advantages(
    rewards: Float[Array, "t n"], values: Float[Array, "t n"], discount: float, trace: float
) -> Float[Array, "t n"]:
    """Generalised advantages of games that end after the last of t rounds (Schulman et al., arXiv 1506.02438)."""
    after = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    errors = rewards + discount * after - values

    def step(later: Array, error: Array) -> tuple[Array, Array]:
        now = error + discount * trace * later
        return now, now

    return jax.lax.scan(step, jnp.zeros_like(values[0]), errors, reverse=True)[1]


def objective(learner: Learner, taken: Decisions, config: PoolConfig) -> Float[Array, ""]:
    """PPO's clipped loss of a minibatch, with the squared error of the value and the entropy bonus."""
    log_probs = jax.vmap(learner.policy.log_probs)(*taken.inputs)
    chosen = jnp.take_along_axis(log_probs, taken.actions[:, None], axis=1)[:, 0]
    ratio = jnp.exp(chosen - taken.log_probs)
    gained = (taken.advantages - jnp.mean(taken.advantages)) / (jnp.std(taken.advantages) + 1e-8)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * gained, clipped * gained))
    value_loss = jnp.mean((taken.returns - learner.values(taken.inputs[0])) ** 2)
    return policy_loss + config.value_weight * value_loss - config.entropy_weight * jnp.mean(entropy(log_probs))


def entropy(log_probs: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """Entropy in nats of the distributions of log probabilities, some of which may be -inf."""
    return -jnp.sum(jnp.where(log_probs > -jnp.inf, jnp.exp(log_probs) * log_probs, 0.0), axis=-1)


def _optimizer(config: PoolConfig) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(config.largest_gradient), optax.adam(config.learning_rate, eps=1e-5))


class SelfPlayRun(eqx.Module):
    """A run of self-play between two checkpoints."""

    learner: Learner
    state: Any
    """The optimizer's state."""
    opponent: Any
    """The previous checkpoint."""


def start(config: PoolConfig, number: int) -> SelfPlayRun:
    """A run at its beginning; its first opponent is itself."""
    learner = config.learner(config.stream("start", number))
    return SelfPlayRun(learner, _optimizer(config).init(eqx.filter(learner, eqx.is_array)), learner.policy)


@eqx.filter_jit
def advance(config: PoolConfig, key: Key[Array, ""], before: SelfPlayRun) -> SelfPlayRun:
    """From one checkpoint to the next."""
    play_key, shuffle_key = jax.random.split(key)
    taken = config.play(play_key, before.learner, before.opponent)
    count, size = config.minibatches, min(config.minibatch, len(taken.actions))

    def epoch(carry: tuple[Learner, Any], key: Key[Array, ""]) -> tuple[tuple[Learner, Any], None]:
        chosen = jax.random.permutation(key, len(taken.actions))[: count * size].reshape(count, size)
        return jax.lax.scan(minibatch, carry, chosen)

    def minibatch(carry: tuple[Learner, Any], chosen: Int[Array, " m"]) -> tuple[tuple[Learner, Any], None]:
        learner, state = carry
        part = jax.tree.map(lambda leaf: leaf[chosen], taken)
        gradient = jax.grad(objective)(learner, part, config)
        updates, state = _optimizer(config).update(gradient, state)
        return (eqx.apply_updates(learner, updates), state), None

    keys = jax.random.split(shuffle_key, config.epochs)
    (learner, state), _ = jax.lax.scan(epoch, (before.learner, before.state), keys)
    return SelfPlayRun(learner, state, learner.policy)
