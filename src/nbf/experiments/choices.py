"""What `nbf reproduce` can run: for each experiment the options of its own, and the jobs they ask for.

Imported by the command line before it knows what is asked for, hence without jax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

from tyro.conf import arg

if TYPE_CHECKING:
    from nbf.experiments.training_runs import Counter


@runtime_checkable
class Job(Protocol):
    """One arm with one training seed: trained, evaluated, recorded."""

    @property
    def title(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def evaluated(self) -> int: ...

    def check(self, runs: Path) -> None: ...
    def run(self, results: Path, runs: Path, *, command: str, bar: Counter) -> bool: ...


@dataclass(frozen=True)
class Amount:
    """How much is done; None is what the paper does."""

    seeds: Sequence[int]
    steps: int | None = None
    episodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gridworld:
    """Jensen-Shannon divergence by step on the eight Gridworld configurations."""

    config: Annotated[
        tuple[str, ...], arg(help_behavior_hint="(default: the paper's eight and 8-2D-random-diffuse)")
    ] = ()
    """Configurations, as the paper names them."""
    arm: tuple[str, ...] = ("faithful",)
    """Models to train for each: faithful (the paper's), enumerated (a softmax over all cells)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf.config import GRIDWORLD_NAMES
        from nbf.experiments.requests import jobs

        episodes = 500 if amount.episodes is None else amount.episodes
        return jobs(self.config or GRIDWORLD_NAMES, self.arm, amount.seeds, amount.steps, episodes)


@dataclass(frozen=True, kw_only=True)
class Donuts:
    """Belief models of ring distributions in the plane, one for each decoder."""

    decoder: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """flow (the paper's sizes), flow-paper (its learning rate and ReLU too), nlsq, spline, mixture, cfm-independent,
    cfm-ot."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf.experiments.donuts import DECODERS, DonutsJob, EvaluationConfig
        from nbf.experiments.requests import at_least, seed

        steps = None if amount.steps is None else at_least(1, steps=amount.steps)
        scored = EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, beliefs=at_least(2, episodes=amount.episodes))
        return [
            DonutsJob(decoder, seed(number), steps=steps, evaluation=scored)
            for decoder in self.decoder or DECODERS
            for number in amount.seeds
        ]


@dataclass(frozen=True, kw_only=True)
class Goofspiel:
    """What the opponent has bid in a card game, by policies of self-play, made first if they are not there."""

    cards: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: the paper's 4 5 6 7)")] = ()
    """Numbers of cards."""
    arm: tuple[str, ...] = ("faithful",)
    """faithful (the paper's), autoregressive (a softmax for each bid, legal ones only), autoregressive-context (the
    same, told the public history)."""
    split: tuple[str, ...] = ("random",)
    """How test policies are kept apart: random (the paper's), run (those of a run of their own)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf.experiments.goofspiel import CARDS, TRAINING, EvaluationConfig, GoofspielJob
        from nbf.experiments.requests import at_least, seed
        from nbf.experiments.selfplay import SelfPlayConfig

        training, scored, checkpoints = TRAINING, EvaluationConfig(), SelfPlayConfig().checkpoints
        if amount.steps is not None:  # a short training needs no large pool
            training = replace(TRAINING, steps=at_least(1, steps=amount.steps))
            checkpoints = min(checkpoints, max(2, amount.steps // 200))
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        return [
            GoofspielJob(
                cards, arm, seed(number), split, training, scored, SelfPlayConfig(cards=cards, checkpoints=checkpoints)
            )
            for cards in self.cards or CARDS
            for arm in self.arm
            for split in self.split
            for number in amount.seeds
        ]


@dataclass(frozen=True, kw_only=True)
class Triangulation:
    """Continuous beliefs on a plane, against a point-mass filter and against a particle filter of 1024."""

    arm: tuple[str, ...] = ("faithful",)
    """faithful (the paper's), affine (the same, trained on the truth), spline, mixture."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf.experiments.requests import at_least, seed
        from nbf.experiments.triangulation import POOL_EPISODES, TRAINING, EvaluationConfig, TriangulationJob

        training, pool = TRAINING, POOL_EPISODES
        if amount.steps is not None:  # a short training needs no large pool
            training = replace(TRAINING, steps=at_least(1, steps=amount.steps))
            pool = min(POOL_EPISODES, max(64, amount.steps))
        scored = EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        return [
            TriangulationJob(arm, seed(number), training=training, evaluation=scored, pool_episodes=pool)
            for arm in self.arm
            for number in amount.seeds
        ]
