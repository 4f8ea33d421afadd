"""`nbf-paper cost`: how long seeds × configurations of Gridworld take on many cores, from the times on record."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from nbf.cli.command import Command, table_of
from nbf.errors import InputError
from nbf_paper.experiments.choices.experiment import at_least
from nbf_paper.names import FIXED, RANDOM
from nbf_paper.records import read_runs


@dataclass(frozen=True, kw_only=True)
class Cost(Command):
    """How long many seeds of the paper's eight Gridworld configurations take, from the times of the recorded runs."""

    seeds: int = 100
    """Training seeds of each configuration."""
    cores: int = 64
    """Workers; each does one job at a time."""
    arm: str = "faithful"
    """Which model."""
    results: Path = Path("results")
    """Folder of the records."""

    def answer(self) -> dict[str, Any]:
        at_least(1, seeds=self.seeds)
        at_least(1, cores=self.cores)
        seconds = {name: self._times(name) for name in (*FIXED, *RANDOM)}
        means = {name: sum(times) / len(times) for name, times in seconds.items()}
        jobs = [mean for mean in means.values() for _ in range(self.seeds)]  # in the order of `nbf-paper reproduce`
        configs = [
            {
                "config": name,
                "runs": len(times),
                "seconds": round(means[name], 1),
                "least": min(times),
                "most": max(times),
            }
            for name, times in seconds.items()
        ]
        serial, parallel = sum(jobs) / 3600, makespan(jobs, self.cores) / 3600
        return {"configs": configs, "jobs": len(jobs), "serial_hours": round(serial, 1), "hours": round(parallel, 2)}

    def _times(self, config: str) -> list[float]:
        """Seconds of the recorded runs of a configuration: training and evaluation."""
        runs = [run for run in read_runs(self.results / "gridworld") if run.key.startswith(f"{config}/{self.arm}/")]
        if not runs:
            raise InputError(
                f"No run of {config} with the arm {self.arm!r} is on record in {self.results / 'gridworld'}. Make one: "
                f"`nbf-paper reproduce gridworld --config {config} --arm {self.arm}`."
            )
        return [round(run.seconds, 1) for run in runs]

    def show(self, answer: dict[str, Any], console: Console) -> None:
        table = table_of("configuration", "recorded runs", "mean, s", "least", "most")
        for row in answer["configs"]:
            table.add_row(row["config"], *(f"{row[name]:.0f}" for name in ("runs", "seconds", "least", "most")))
        console.print(table)
        console.print(
            f"{self.seeds} seeds of each: {answer['jobs']} jobs; one after the other {answer['serial_hours']:.0f} h, "
            f"on {self.cores} workers {answer['hours']:.1f} h",
            soft_wrap=True,
        )


def makespan(jobs: Sequence[float], workers: int) -> float:
    """When the last job ends if each worker takes the next one as soon as it is free, as executors do."""
    free = [0.0] * workers
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
