"""The classical filters as an experiment: its jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Classical(Experiment):
    """The Gaussian filters and particle filters against the exact Kalman filter. Nothing is trained."""

    name = "classical"
    quick = Amount(episodes=10)

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.classical import ClassicalEvaluation, ClassicalJob

        evaluation = ClassicalEvaluation(episodes=amount.episodes_or(500))
        return [ClassicalJob(seed, evaluation=evaluation) for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import classical

        return classical.page(folder)
