"""Policies and values on beliefs, as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part, at_least
from nbf_paper.experiments.job import Job
from nbf_paper.names import VALUE_CHANGES
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Values(Experiment):
    """Policies and values on embeddings of beliefs, trained once, in tasks that change afterwards."""

    name = "values"
    quick = Amount(steps=50, episodes=8, few=True)

    task: tuple[str, ...] = tuple(VALUE_CHANGES)
    """walk (Triangulation's, to the origin) and chase (on random grids)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.values import SHORT_POLICY, ValuesJob

        usual = ValuesJob()
        episodes = at_least(2, episodes=amount.episodes_or(usual.episodes))
        job = replace(usual, steps=amount.checked_steps() or usual.steps, episodes=episodes)
        if amount.few:
            job = replace(job, policy=SHORT_POLICY, searches=0, again=False)
        return [replace(job, name=name, seed=seed) for name in self.task for seed in amount.seeds]

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=2),)

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import values

        return values.page(folder)
