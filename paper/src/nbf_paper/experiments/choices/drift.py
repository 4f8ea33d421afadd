"""Long episodes as an experiment: its options, jobs and page."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part, at_least
from nbf_paper.experiments.job import Job
from nbf_paper.names import ENDLESS, GROWING, LATE
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Drift(Experiment):
    """The filters on episodes of 200 steps, on problems of the zoo: whether errors grow."""

    name = "drift"
    quick = Amount(steps=40, episodes=4, few=True)

    problems: tuple[str, ...] = ()
    """Problems of the zoo; by default the seven that go on for ever, with --quick search."""
    trained_on: int = 0
    """Steps of the episodes that a model is trained on; 0 takes the zoo's models, of 25 to 40 steps."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.drift import DriftJob

        names = self.problems or (("search",) if amount.few else ENDLESS)
        steps, episodes = amount.checked_steps() or DriftJob.steps, amount.episodes_or(DriftJob.episodes)
        if self.trained_on:
            at_least(1, **{"trained-on": self.trained_on})
        jobs = functools.partial(DriftJob, steps=steps, episodes=episodes, trained_on=self.trained_on)
        return [jobs(name, seed) for name in names for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import drift

        return drift.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls()), Part(cls(problems=GROWING, trained_on=LATE)))
