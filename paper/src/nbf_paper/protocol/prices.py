"""What each model of the protocol takes, by the times on record."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.protocol.stages import PROTOCOL, Stage
from nbf_paper.records import Run, read_runs


@dataclass(frozen=True)
class Price:
    """What one model of the protocol takes."""

    stage: Stage
    config: str
    timed: str
    """The arm whose runs were timed; empty if none is on record."""
    runs: int
    """How many of them."""
    per_step: float
    """Seconds of a gradient step."""
    per_episode: float
    """Seconds of an episode of the evaluation, by all filters of the job together."""

    @property
    def seconds(self) -> float:
        """Of one seed: training and evaluation."""
        return self.per_step * self.stage.steps + self.per_episode * self.stage.episodes


def prices(results: Path) -> list[Price]:
    """The price of each configuration and model of the protocol, by the means of the recorded runs."""
    found = {stage.experiment.name: _timed_runs(results / stage.experiment.name) for stage in PROTOCOL}
    return [_price(stage, config, found[stage.experiment.name]) for stage in PROTOCOL for config in stage.configs]


def _timed_runs(folder: Path) -> Sequence[Run]:
    return [run for run in read_runs(folder) if isinstance(run.config.get("seconds"), dict)]


def _price(stage: Stage, config: str, runs: Sequence[Run]) -> Price:
    for arm in (stage.arm, stage.like):
        mine = [run for run in runs if arm and run.key.startswith(f"{config}/{arm}/")]
        if mine:
            step = statistics.fmean(run.config["seconds"]["training"] / _steps(run) for run in mine)
            episode = statistics.fmean(run.config["seconds"]["evaluation"] / _episodes(run) for run in mine)
            return Price(stage, config, arm, len(mine), step, episode)
    return Price(stage, config, "", 0, 0.0, 0.0)


def _steps(run: Run) -> int:
    return run.config["training"]["steps"]


def _episodes(run: Run) -> int:
    evaluation = run.config["evaluation"]
    return evaluation["episodes"] if "episodes" in evaluation else evaluation["beliefs"]
