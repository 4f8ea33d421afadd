"""The ablation of the default filter as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import EXPLORATION
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Ablation(Experiment):
    """The default filter of 32 calls with one part left out at a time, on problems of the zoo."""

    name = "ablation"
    quick = Amount(steps=40, episodes=4, few=True)

    problems: tuple[str, ...] = ()
    """Problems of the zoo; by default the six for exploration, with --quick search."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.ablation import AblationJob

        names = self.problems or (("search",) if amount.few else EXPLORATION)
        steps, episodes = amount.checked_steps() or AblationJob.steps, amount.episodes_or(AblationJob.episodes)
        return [AblationJob(name, seed, steps, episodes) for name in names for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import ablation

        return ablation.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls()),)
