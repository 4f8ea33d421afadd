"""What all pools of self-play have in common: proximal policy optimisation (`nbf.planning.ppo`) against oneself.

The settings are those of Stable-Baselines3, which the paper modified. A policy is trained against its previous
checkpoint, and every checkpoint joins the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf.planning.ppo import PPO, advantages, clipped_loss, entropy, improve, optimizer
from nbf_paper.experiments.demands import Size

__all__ = [
    "Decisions",
    "Learner",
    "PoolConfig",
    "SelfPlayRun",
    "advance",
    "advantages",
    "entropy",
    "objective",
    "start",
]


@dataclass(frozen=True)
class PoolConfig(PPO, ABC):
    """How a pool is made; the defaults are the paper's and, where it is silent, Stable-Baselines3's."""

    runs: int = 4
    """Runs of self-play, each from scratch."""
    checkpoints: int = 128
    """Policies that a run leaves."""
    timesteps: int = 4096
    """Decisions of the learner between two checkpoints, rounded up to whole games."""
    width: int = 64
    depth: int = 2
    seed: int = 0

    kind: ClassVar[str]
    """What the file of a pool says it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("runs", "checkpoints", "timesteps", "width", "depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}.")

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


def objective(learner: Learner, taken: Decisions, config: PoolConfig) -> Float[Array, ""]:
    """PPO's clipped loss of a minibatch, with the squared error of the value and the entropy bonus."""
    log_probs, values = jax.vmap(learner.policy.log_probs)(*taken.inputs), learner.values(taken.inputs[0])
    return clipped_loss(log_probs, values, taken.actions, taken.log_probs, taken.advantages, taken.returns, config)


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
    return SelfPlayRun(learner, optimizer(config).init(eqx.filter(learner, eqx.is_array)), learner.policy)


@eqx.filter_jit
def advance(config: PoolConfig, key: Key[Array, ""], before: SelfPlayRun) -> SelfPlayRun:
    """From one checkpoint to the next."""
    play_key, shuffle_key = jax.random.split(key)
    taken = config.play(play_key, before.learner, before.opponent)
    learner, state = improve(
        shuffle_key, before.learner, before.state, taken, lambda learner, part: objective(learner, part, config),
        optimizer(config), config.epochs, config.minibatch,
    )  # fmt: skip
    return SelfPlayRun(learner, state, learner.policy)
