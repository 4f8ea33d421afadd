"""What a call costs, and which filter wins, as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nbf.errors import InputError
from nbf_paper.experiments.choices.experiment import Amount, Experiment
from nbf_paper.experiments.choices.touch import few_filters, touch_job
from nbf_paper.experiments.job import Job
from nbf_paper.names import ACROBOT, CROSSING_SIMULATORS, TOUCH
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Crossing(Experiment):
    """Which filter wins at equal wall time with simulators that are not JAX (needs nbf's extras gymnasium and mujoco).
    Times need an idle machine; they come last."""

    name = "crossing"
    quick = Amount(steps=2, episodes=2, few=True)

    simulators: tuple[str, ...] = CROSSING_SIMULATORS
    """acrobot (Gymnasium), touch (MuJoCo, whose scores are those of the experiment touch)."""
    times: bool = True
    """Also time the filters, last of all."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.crossing import AcrobotJob, CrossingTimesJob

        unknown = sorted(set(self.simulators) - set(CROSSING_SIMULATORS))
        if unknown:
            raise InputError(f"Simulators are {', '.join(CROSSING_SIMULATORS)}; got {unknown[0]!r}.")
        acrobot = AcrobotJob()
        scored = replace(acrobot.evaluation, episodes=amount.episodes_or(acrobot.evaluation.episodes))
        acrobot = replace(acrobot, steps=amount.checked_steps() or acrobot.steps, evaluation=scored)
        if amount.few:
            acrobot = replace(acrobot, evaluation=few_filters(scored), teacher=64, reference=256)
        jobs = {ACROBOT: acrobot, TOUCH: touch_job(amount)}
        asked = [replace(jobs[name], seed=seed) for name in self.simulators for seed in amount.seeds]
        few = (1, 1) if amount.few else ()
        own = [job for job in asked if job.experiment == self.name]
        return [*own, *(CrossingTimesJob(job, *few) for job in asked if self.times)]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import crossing

        return crossing.page(folder)
