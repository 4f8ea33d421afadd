"""An object that is found by touch, as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Touch(Experiment):
    """Where an object lies that a finger pushes blindly, in MuJoCo (needs nbf's extra mujoco)."""

    name = "touch"
    quick = Amount(steps=2, episodes=2, few=True)

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.touch import TouchJob

        usual = TouchJob()
        scored = replace(usual.evaluation, episodes=amount.episodes_or(usual.evaluation.episodes))
        job = replace(usual, steps=amount.checked_steps() or usual.steps, evaluation=scored)
        if amount.few:
            few = replace(
                scored, particle_filters=(32,), regularized_filters=(32,), neural_filters=(32,), approx_samples=64
            )
            job = replace(job, evaluation=few, teacher=64, reference=512)
        return [replace(job, seed=seed) for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import touch

        return touch.page(folder)
