"""Learning while filtering as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbf.errors import InputError
from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import LEARNED, LEARNED_CHANGES, ZOO
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Learning(Experiment):
    """Models that learn from what their filter meets (nbf.learn), against a teacher beforehand that makes as many calls
    of the simulator, and after a change of the world."""

    name = "learning"
    quick = Amount(steps=20, episodes=2, few=True)

    problems: tuple[str, ...] = ()
    """triangulation, 8-2D-random and problems of the zoo; by default the first two and terrain, with --quick the
    second."""
    changed: bool = True
    """Also change the world of triangulation and 8-2D-random in mid-run; not with --quick."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.learning import ChangeJob, LearningJob

        names = self.problems or (tuple(LEARNED_CHANGES)[1:] if amount.few else LEARNED)
        unknown = sorted(set(names) - {*LEARNED, *ZOO})
        if unknown:
            raise InputError(f"Problems are {', '.join(dict.fromkeys((*LEARNED, *ZOO)))}; got {unknown[0]!r}.")
        few: dict[str, Any] = {"rounds": 1, "met": 4} if amount.few else {}
        steps, episodes = amount.checked_steps() or LearningJob.steps, amount.episodes_or(LearningJob.episodes)
        jobs: list[Job] = []
        for name in names:
            for seed in amount.seeds:
                jobs.append(LearningJob(name, seed, steps=steps, episodes=episodes, **few))
                if self.changed and not amount.few and name in LEARNED_CHANGES:
                    jobs.append(ChangeJob(name, seed, steps=steps, episodes=episodes))
        return jobs

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import learning

        return learning.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=2),)
