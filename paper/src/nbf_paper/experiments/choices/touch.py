"""An object that is found by touch, as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page

if TYPE_CHECKING:
    from nbf_paper.experiments.touch import TouchJob
    from nbf_paper.experiments.zoo import ZooEvaluation


@dataclass(frozen=True, kw_only=True)
class Touch(Experiment):
    """Where an object lies that a finger pushes blindly, in MuJoCo (needs nbf's extra mujoco)."""

    name = "touch"
    quick = Amount(steps=2, episodes=2, few=True)

    def jobs(self, amount: Amount) -> Sequence[Job]:
        return [replace(touch_job(amount), seed=seed) for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import touch

        return touch.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=2, episodes=12),)


def touch_job(amount: Amount) -> TouchJob:
    """The job of the first seed."""
    from nbf_paper.experiments.touch import TouchJob

    usual = TouchJob()
    scored = replace(usual.evaluation, episodes=amount.episodes_or(usual.evaluation.episodes))
    job = replace(usual, steps=amount.checked_steps() or usual.steps, evaluation=scored)
    return replace(job, evaluation=few_filters(scored), teacher=64, reference=512) if amount.few else job


def few_filters(scored: ZooEvaluation) -> ZooEvaluation:
    """One size of each filter."""
    few = (32,)
    return replace(scored, particle_filters=few, regularized_filters=few, neural_filters=few, approx_samples=64)
