"""Search on beliefs as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import PLANNING, PLANNING_LISTED
from nbf_paper.report.tables import Page

if TYPE_CHECKING:
    from nbf_paper.experiments.planning import PlanningJob


LONGER = "eight times the steps"
"""The arm of models that were trained for longer."""


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

        usual = (PlanningTimeJob if self.equal_time else PlanningJob)(PLANNING[0])
        usual = replace(usual, steps=amount.checked_steps() or usual.steps, episodes=amount.episodes_or(usual.episodes))
        few = (32,)
        if amount.few:
            usual = replace(usual, calls=200, rows=Rows(few, few, few, few), searching=Searching(20, 5))
        names = self.problems or (PLANNING[:1] if amount.few else PLANNING)
        listed = [name for name in names if name in PLANNING_LISTED]
        if self.equal_time and not amount.few:
            # Beside the plain filters the best one without a network.
            best = replace(usual, rows=Rows(injected_filters=(), regularized_filters=(), branching_filters=(128,)))
            other = replace(usual, rows=Rows(injected_filters=(), regularized_filters=(128,)))
            kinds = [(best if name in listed else other, name) for name in names]
        else:
            # Recorded later than the others: a run of their own.
            branching = replace(usual, rows=Rows((), (), (), (), few if amount.few else (32, 128), references=False))
            neural = Rows((), (), (), few if amount.few else (32, 128), references=False, arm=LONGER)
            longer = replace(usual, rows=neural, steps=8 * usual.steps)
            kinds = [(usual, name) for name in names] + [(job, name) for job in (branching, longer) for name in listed]
        jobs = [replace(job, problem=name, seed=seed) for job, name in kinds for seed in amount.seeds]
        if amount.few:
            return jobs
        return [job if job.problem in listed else _continuous(job, amount) for job in jobs]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import planning

        return planning.page(folder)

    @classmethod
    def parts(cls) -> tuple[Part, ...]:
        return Part(cls(), seeds=2), Part(cls(equal_time=True))


def _continuous(job: PlanningJob, amount: Amount) -> PlanningJob:
    """The same for a problem over real vectors, whose decisions take longer: fewer episodes and filters."""
    from nbf_paper.experiments.planning import PlanningTimeJob
    from nbf_paper.experiments.planning_play import Searching

    rows = job.rows if isinstance(job, PlanningTimeJob) else replace(job.rows, injected_filters=(128,))
    return replace(job, searching=Searching(exploration=0.2), rows=rows, episodes=amount.episodes_or(32))
