"""The recordings of a real robot as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.choices.zoo import evaluation_of
from nbf_paper.experiments.job import Job
from nbf_paper.names import SITES
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Plaza(Experiment):
    """A real robot on two sites, with a model that was trained in a simulator of random ones (needs gtsam's data)."""

    name = "plaza"
    quick = Amount(steps=40, episodes=2, few=True)

    sites: tuple[str, ...] = SITES
    """Sites of the recordings."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.plaza import PlazaJob

        steps = amount.checked_steps() or PlazaJob.steps
        return [PlazaJob(site, seed, steps, evaluation_of(amount)) for seed in amount.seeds for site in self.sites]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import plaza

        return plaza.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=3),)
