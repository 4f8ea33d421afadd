"""Gridworld as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import DIFFUSE, EXAMPLE, FIXED, GRIDWORLD_NAMES, RANDOM
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Gridworld(Experiment):
    """Jensen-Shannon divergence by step on the eight Gridworld configurations."""

    name = "gridworld"
    quick = Amount(steps=100, episodes=10, few=True)

    config: Annotated[
        tuple[str, ...], arg(help_behavior_hint="(default: the paper's eight and 8-2D-random-diffuse)")
    ] = ()
    """Configurations, as the paper names them."""
    arm: tuple[str, ...] = ("faithful",)
    """Models to train for each: faithful (the paper's), enumerated (a softmax over all cells), wide (a larger one),
    recurrent (the paper's baseline), recurrent-adam (the same with an optimizer that learns faster); and, not
    trained, kernel (the kernel mean embedding)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.gridworld import GridworldEvaluation, parse_configs, trained_jobs
        from nbf_paper.experiments.untrained import KERNEL, GridworldKernelJob

        seeds, configs = amount.seeds, self.config or GRIDWORLD_NAMES
        evaluation = GridworldEvaluation(episodes=amount.episodes_or(500))
        if amount.few:
            evaluation = replace(evaluation, particle_filters=(32, 512), neural_filters=(32,))
        trained = [arm for arm in self.arm if arm != KERNEL]
        found: list[Job] = []
        if trained or not self.arm:
            found += trained_jobs(configs, trained, seeds, amount.checked_steps(), evaluation)
        if KERNEL in self.arm:
            grids = parse_configs(configs)
            found += [GridworldKernelJob(config, seed, evaluation) for config in grids for seed in seeds]
        return found

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import gridworld

        return gridworld.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        twice, once = ("5-2D-random", EXAMPLE), ("5-3D-random", "8-3D-random", DIFFUSE)
        return (
            Part(cls(config=FIXED), seeds=5, episodes=100),  # the grid is the seed: few episodes on each of several
            Part(cls(config=twice), seeds=2),
            Part(cls(config=once)),
            Part(cls(config=(EXAMPLE, "5-3D-random"), arm=("enumerated",))),
            Part(cls(config=FIXED, arm=("recurrent",)), seeds=5, episodes=100, steps=10_000),
            Part(cls(config=RANDOM, arm=("recurrent",)), steps=10_000),
            Part(cls(config=(EXAMPLE,), arm=("kernel",))),
        )

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (
            Part(cls(config=("5-2D-fixed", EXAMPLE, "5-3D-random"))),
            Part(cls(config=(EXAMPLE,), arm=("enumerated",))),
        )
