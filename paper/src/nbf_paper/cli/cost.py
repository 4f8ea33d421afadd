"""`nbf-paper cost`: how long the paper's protocol takes on many cores, from the times on record."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from nbf.cli.command import Command, table_of
from nbf.errors import InputError
from nbf_paper.experiments.choices.experiment import at_least
from nbf_paper.protocol.prices import prices


@dataclass(frozen=True, kw_only=True)
class Cost(Command):
    """How long the paper's protocol takes (`nbf-paper reproduce all --protocol paper`), from the times on record."""

    seeds: Annotated[int | None, arg(help_behavior_hint="(default: as many as the paper's)")] = None
    """Training seeds of each configuration and model."""
    cores: int = 64
    """Workers; each does one job at a time."""
    results: Path = Path("results")
    """Folder of the records."""

    def answer(self) -> dict[str, Any]:
        at_least(1, cores=self.cores)
        if self.seeds is not None:
            at_least(1, seeds=self.seeds)
        models, jobs, unknown = [], [], []
        for price in prices(self.results):
            seeds = price.stage.seeds if self.seeds is None else self.seeds
            name = {"experiment": price.stage.experiment.name, "config": price.config, "arm": price.stage.arm}
            if price.runs:
                jobs += [price.seconds] * seeds  # in the order of `nbf-paper reproduce`
                models.append({**name, "runs": price.runs, "seconds": round(price.seconds, 1), "seeds": seeds})
            else:
                unknown.append(name)
        if not models:
            raise InputError(
                f"No run of the paper's models is on record in {self.results}. Make one with `nbf-paper reproduce`, or "
                "name another folder with --results."
            )
        serial, parallel = sum(jobs) / 3600, makespan(jobs, self.cores) / 3600
        totals = {"jobs": len(jobs), "serial_hours": round(serial, 1), "hours": round(parallel, 2)}
        return {"models": models, "unknown": unknown, **totals}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        table = table_of("experiment", "configuration", "model", "runs on record", "hours a seed", "seeds")
        for row in answer["models"]:
            numbers = str(row["runs"]), f"{row['seconds'] / 3600:.2f}", str(row["seeds"])
            table.add_row(row["experiment"], row["config"], row["arm"], *numbers)
        console.print(table)
        console.print(
            f"{answer['jobs']} jobs; one after the other {answer['serial_hours']:.0f} h, on {self.cores} workers "
            f"{answer['hours']:.1f} h",
            soft_wrap=True,
        )
        if answer["unknown"]:
            named = ", ".join(f"{row['config']} ({row['arm']})" for row in answer["unknown"])
            console.print(f"Not counted, since no run is on record: {named}", soft_wrap=True)


def makespan(jobs: Sequence[float], workers: int) -> float:
    """When the last job ends if each worker takes the next one as soon as it is free, as executors do."""
    free = [0.0] * workers
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
