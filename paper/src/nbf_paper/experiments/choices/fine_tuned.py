"""Fine-tuning at test time as an experiment: its jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class FineTuned(Experiment):
    """The recurrent baseline, adapted at test time by gradient steps on simulated trajectories, on 8-2D-random."""

    name = "fine-tuned"
    quick = Amount(steps=400, episodes=2)

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.fine_tuned import CONFIG, FineTunedEvaluation, FineTunedJob
        from nbf_paper.experiments.gridworld import arm_of

        steps = amount.checked_steps() or arm_of(CONFIG, "recurrent")[1].steps
        evaluation = FineTunedEvaluation(episodes=amount.episodes_or(50))
        return [FineTunedJob(seed, steps, evaluation) for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import fine_tuned

        return fine_tuned.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), steps=10_000),)
