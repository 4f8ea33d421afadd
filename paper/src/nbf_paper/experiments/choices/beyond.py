"""The default filter beyond the paper as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import DIFFUSE, FIXED, LONG, RANDOM, TRIANGULATION
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Beyond(Experiment):
    """The default filter beside the paper's, each of its parts left out, and baselines at equal calls and at others."""

    name = "beyond"
    quick = Amount(steps=50, episodes=4)

    config: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """Gridworld configurations, 8-2D-random-long (200 steps), k=5, k=6, k=7, triangulation."""
    part: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """neural (the default filter and each of its parts left out, with a trained model), baselines (without a model, in
    other sizes), controls (the prior, the default filter with an untrained model, a regularised particle filter)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.beyond import CONFIGS, PARTS, BeyondJob

        steps = amount.checked_steps()
        usual = {TRIANGULATION: 100}  # its truth is expensive
        return [
            BeyondJob(name, seed, amount.episodes_or(usual.get(name, 200)), steps, part)
            for name in self.config or CONFIGS
            for seed in amount.seeds
            for part in self.part or PARTS
        ]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import beyond

        return beyond.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        others = (*RANDOM, DIFFUSE, LONG, TRIANGULATION)
        games = ("k=5", "k=6", "k=7")
        # On fixed grids the grid is the seed.
        return (Part(cls(config=FIXED), seeds=5), Part(cls(config=others), seeds=3), Part(cls(config=games), seeds=3))

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(config=("5-2D-random",))),)
