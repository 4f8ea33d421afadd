"""The settings of a training run, and the optimizer that they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from nbf.errors import InputError
from nbf.training import intervals

OPTIMIZERS: dict[str, Callable[[optax.ScalarOrSchedule], optax.GradientTransformation]] = {
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "nadam": optax.nadam,
}
SCHEDULES = ("constant", "cosine")
ADDED_LATER = {"added later": True}
"""Marks a field of a config that runs of earlier versions do not know: see `described`."""


@dataclass(frozen=True)
class FitConfig:
    """How a model is trained; the defaults are the paper's for Gridworld."""

    steps: int = 100_000
    """Gradient steps, rounded up to a multiple of `intervals.CHUNK`."""
    batch: int = 32
    """Beliefs per step."""
    samples: int = 64
    """Samples of each belief: the first half is embedded, the second half is scored."""
    optimizer: str = "adagrad"
    """One of adagrad, adam, nadam."""
    learning_rate: float = 0.1
    """Learning rate; with the cosine schedule, the initial one."""
    random_sets: bool = field(default=False, metadata=ADDED_LATER)
    """Embed sets of random size and random weights, like the few effective particles of a filter. False, as in the
    paper, embeds the whole half with equal weights."""

    schedule: str = field(default="constant", metadata=ADDED_LATER)
    """Of the learning rate: constant, or cosine, which decays to zero at the last step."""
    patience: int = field(default=0, metadata=ADDED_LATER)
    """Stop early after this many evaluations on held-out beliefs, one every 1000 steps, without an improvement.
    0, as in the paper, never stops early."""

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise InputError(f"patience must be 0 or more; got {self.patience}.")
        if self.schedule not in SCHEDULES:
            raise InputError(f"There is no schedule {self.schedule!r}; choose from {', '.join(SCHEDULES)}.")
        if self.optimizer not in OPTIMIZERS:
            raise InputError(f"There is no optimizer {self.optimizer!r}; choose from {', '.join(OPTIMIZERS)}.")
        if self.steps < 1 or self.batch < 1 or self.samples < 2 or not self.learning_rate > 0:
            raise InputError(
                "Training needs steps and batch of at least 1, samples of at least 2 and a learning rate above 0; "
                f"got {self.steps}, {self.batch}, {self.samples} and {self.learning_rate}."
            )


def optimizer_of(config: FitConfig, last: Int[Array, ""] | None = None) -> optax.GradientTransformation:
    """Build the optimizer that a config names, with its learning-rate schedule.

    Args:
        config: Settings of the run.
        last: Step at which the schedule ends, which may be traced, so that runs of any length share a program; None is
            the last step of the config.

    Returns:
        An optax gradient transformation.
    """
    rate = config.learning_rate
    if config.schedule == "constant":
        return OPTIMIZERS[config.optimizer](rate)
    end = last_step(config) if last is None else last

    def cosine(step: Int[Array, ""]) -> Array:
        return rate * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(step, end) / end))

    return OPTIMIZERS[config.optimizer](cosine)


def last_step(config: FitConfig) -> int:
    """Count the steps of a run.

    Args:
        config: Settings of the run.

    Returns:
        Its steps, rounded up to a multiple of `intervals.CHUNK`.
    """
    return -(-config.steps // intervals.CHUNK) * intervals.CHUNK


def described(config: FitConfig) -> dict[str, Any]:
    """Turn a config into plain values, for records and run files.

    A field that was added later is left out at its default, so that a run of an earlier version keeps its description.

    Args:
        config: Settings of the run.

    Returns:
        Values by field name.
    """
    return {
        item.name: getattr(config, item.name)
        for item in fields(config)
        if not ("added later" in item.metadata and getattr(config, item.name) == item.default)
    }
