"""Convergence as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Convergence(Experiment):
    """The theorem: the error of an estimate against the number of particles, on 8-2D-random. Nothing is trained."""

    name = "convergence"
    quick = Amount(episodes=10)

    arm: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """tabular (the perfect model of the theorem), tabular-default (the same in the library's own variant of the
    algorithm), faithful (the shipped model), pf (a particle filter)."""
    particles: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: powers of two from 16 to 16384)")] = ()
    """Particle counts; the slope is that from 1024 on."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.convergence import ARMS, ConvergenceEvaluation, ConvergenceJob

        evaluation = ConvergenceEvaluation(particles=self.particles) if self.particles else ConvergenceEvaluation()
        evaluation = replace(evaluation, episodes=amount.episodes_or(evaluation.episodes))
        return [ConvergenceJob(arm, seed, evaluation=evaluation) for arm in self.arm or ARMS for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import convergence

        return convergence.page(folder)

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(arm=("tabular", "faithful"), particles=(64, 1024, 4096))),)
