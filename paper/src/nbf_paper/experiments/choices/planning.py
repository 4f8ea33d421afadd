"""Search on beliefs as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import PLANNING
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Planning(Experiment):
    """The return of a tree search on the belief of each filter, at equal simulator calls in all."""

    name = "planning"
    quick = Amount(steps=2, episodes=2, few=True)

    problems: tuple[str, ...] = ()
    """Problems; by default all, with --quick light-dark."""
    equal_time: bool = False
    """Limit time instead of calls. Needs the machine for itself."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.planning import PlanningJob, PlanningTimeJob, Rows
        from nbf_paper.experiments.planning_play import Searching

        kind = PlanningTimeJob if self.equal_time else PlanningJob
        usual = kind(PLANNING[0])
        usual = replace(usual, steps=amount.checked_steps() or usual.steps, episodes=amount.episodes_or(usual.episodes))
        if amount.few:
            few = (32,)
            usual = replace(usual, calls=200, rows=Rows(few, few, few, few), searching=Searching(20, 5))
        names = self.problems or (PLANNING[:1] if amount.few else PLANNING)
        # Recorded later than the others: a run of their own.
        branching = replace(usual, rows=Rows((), (), (), (), (32,) if amount.few else (32, 128), references=False))
        kinds = (usual, branching)
        return [replace(job, problem=name, seed=seed) for job in kinds for name in names for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import planning

        return planning.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return (Part(cls(), seeds=2),)
