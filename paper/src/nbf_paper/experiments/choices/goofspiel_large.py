"""Goofspiel with many cards as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part, at_least
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class GoofspielLarge(Experiment):
    """Particle filters in games of many cards, against the exact filter on the lumped state. No model is trained."""

    name = "goofspiel-large"
    quick = Amount(episodes=4, few=True)

    cards: tuple[int, ...] = (10, 13)
    """Numbers of cards, at most 13."""
    checkpoints: int = 32
    """Policies that each of the four runs of self-play leaves; the paper's have 128. --quick makes two."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.goofspiel_large import LargeEvaluation, LargeGoofspielJob
        from nbf_paper.experiments.selfplay import SelfPlayConfig

        checkpoints = 2 if amount.few else at_least(1, checkpoints=self.checkpoints)
        particles = (64, 512) if amount.few else LargeEvaluation().particle_filters
        evaluation = LargeEvaluation(amount.episodes_or(LargeEvaluation().episodes), particles)
        policies = [SelfPlayConfig(cards=cards, checkpoints=checkpoints) for cards in self.cards]
        return [LargeGoofspielJob(each, seed, evaluation) for each in policies for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import goofspiel_large

        return goofspiel_large.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=2),)

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(cards=(9,))),)
