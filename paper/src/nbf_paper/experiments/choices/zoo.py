"""The zoo as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import ZOO
from nbf_paper.report.tables import Page

if TYPE_CHECKING:
    from nbf_paper.experiments.zoo import ZooEvaluation

QUICK = ("search", "volatility")
"""The problems of `--quick`: one that is listed, and one that is not."""


def evaluation_of(amount: Amount) -> ZooEvaluation:
    """How filters are scored."""
    from nbf_paper.experiments.zoo import ZooEvaluation

    usual = ZooEvaluation(amount.episodes_or(ZooEvaluation.episodes))
    if not amount.few:
        return usual
    return replace(
        usual, particle_filters=(32, 512), regularized_filters=(32,), branching_filters=(32,), neural_filters=(32,),
        approx_samples=64,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Zoo(Experiment):
    """Every filter on twelve small problems of users' kinds, with a model that nbf.fit trains by its defaults."""

    name = "zoo"
    quick = Amount(steps=40, episodes=4, few=True)

    problems: tuple[str, ...] = ()
    """Problems of the zoo; by default all twelve, with --quick search and volatility."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.zoo import ZooJob

        names = self.problems or (QUICK if amount.few else tuple(ZOO))
        steps = amount.checked_steps() or ZooJob.steps
        return [ZooJob(name, seed, steps, evaluation_of(amount)) for name in names for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import zoo

        return zoo.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=3),)
