"""Jobs without a model, for the tests of who runs jobs: workers import them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nbf.errors import InputError
from nbf_paper.experiments.choices.experiment import Amount, Experiment
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.pictures import write_picture
from nbf_paper.records import Record
from nbf_paper.report.tables import Page


@dataclass(frozen=True)
class PlainJob(Job):
    """Draws numbers. `fate` is what happens to it: nothing, killed once, or a mistake."""

    seed: int
    fate: str = ""

    @property
    def title(self) -> str:
        return f"plain {self.seed}"

    @property
    def label(self) -> str:
        return f"plain/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    @property
    def evaluated(self) -> int:
        return 3

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        mark = runs / f"{self.seed} was here"
        if self.fate == "killed once" and not mark.exists():
            runs.mkdir(parents=True, exist_ok=True)
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fate == "mistake":
            raise InputError("the seed is odd")
        bar.describe("drawing")
        print("what a job prints")
        drawn = np.random.default_rng(self.seed).normal(size=3)
        if self.seed == 0:
            write_picture(results / "drawn.npz", {"drawn": drawn})
        return [self.record_of(step, "value", float(value)) for step, value in enumerate(drawn)]

    def record_of(self, step: int, metric: str, value: float) -> Record:
        return Record("plain", "c", "pf", "", 8, 8, self.seed, step, metric, value, None, 1)


@dataclass(frozen=True)
class TimedJob(PlainJob):
    """Tells which process it ran in."""

    timed = True

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        return [self.record_of(0, "process", float(os.getpid()))]


@dataclass(frozen=True, kw_only=True)
class Plain(Experiment):
    """Four jobs, and what happens to the second."""

    name = "plain"
    fate: str = ""
    timed_job: bool = False

    def jobs(self, amount: Amount) -> Sequence[Job]:
        plain = [PlainJob(seed, self.fate if seed == 1 else "") for seed in range(4)]
        return [*plain, TimedJob(4)] if self.timed_job else plain

    @staticmethod
    def page(folder: Path) -> Page:
        raise NotImplementedError
