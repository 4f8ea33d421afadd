"""Triangulation as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Triangulation(Experiment):
    """Continuous beliefs on a plane, against a point-mass filter and against a particle filter of 1024."""

    name = "triangulation"
    quick = Amount(steps=100, episodes=10, few=True)

    arm: tuple[str, ...] = ("faithful",)
    """faithful (the paper's), affine (the same, trained on the truth), spline, mixture; and, not trained, kernel (the
    kernel mean embedding) and classical (cubature and ensemble Kalman filters)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.triangulation import (
            POOL_EPISODES,
            TRAINING,
            TriangulationEvaluation,
            TriangulationJob,
        )
        from nbf_paper.experiments.untrained import CLASSICAL, KERNEL, UntrainedTriangulationJob

        training, pool = TRAINING, POOL_EPISODES
        if (steps := amount.checked_steps()) is not None:  # a short training needs no large pool
            training, pool = replace(TRAINING, steps=steps), min(POOL_EPISODES, max(64, steps))
        evaluation = TriangulationEvaluation(episodes=amount.episodes_or(100))
        if amount.few:
            few = {"particle_filters": (32, 256), "smoothed_filters": (32,), "neural_filters": (32,)}
            evaluation = replace(evaluation, **few, resolution=100)
        return [
            UntrainedTriangulationJob(arm, seed, evaluation=evaluation)
            if arm in (KERNEL, CLASSICAL)
            else TriangulationJob(arm, seed, training=training, evaluation=evaluation, pool_episodes=pool)
            for arm in self.arm
            for seed in amount.seeds
        ]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import triangulation

        return triangulation.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (
            Part(cls(), seeds=20),
            Part(cls(arm=("spline", "mixture", "kernel", "classical")), seeds=5),
        )

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(arm=("faithful", "mixture"))),)
