"""Wall-clock time as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import WALL_CLOCK_GRIDS
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class WallClock(Experiment):
    """Times of one update step of every filter, and of one gradient step, on fixed grids; `--episodes` is how many
    measurements, 10000 by default. Run it on an idle machine."""

    name = "wall-clock"
    quick = Amount(episodes=200)

    config: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: the paper's four fixed grids)")] = ()
    """Gridworld configurations."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.config import GridworldConfig
        from nbf_paper.experiments.wall_clock import MEASUREMENTS, WallClockJob

        measurements = amount.episodes_or(MEASUREMENTS)
        configs = [GridworldConfig.parse(name) for name in self.config or WALL_CLOCK_GRIDS]
        return [WallClockJob(config, seed, measurements) for config in configs for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import wall_clock

        return wall_clock.page(folder)

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(config=("5-2D-fixed",))),)
