"""Donuts as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class Donuts(Experiment):
    """Belief models of ring distributions in the plane, one for each decoder."""

    name = "donuts"

    decoder: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """flow (the paper's sizes), flow-paper (its learning rate and ReLU too), nlsq, spline, mixture, cfm-independent,
    cfm-ot, and both with the paper's learning rate, cfm-independent-paper and cfm-ot-paper."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.donuts import DECODERS, DonutsEvaluation, DonutsJob

        steps = amount.checked_steps()
        evaluation = DonutsEvaluation(beliefs=amount.episodes_or(500))
        return [
            DonutsJob(decoder, seed, steps=steps, evaluation=evaluation)
            for decoder in self.decoder or DECODERS
            for seed in amount.seeds
        ]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import donuts

        return donuts.page(folder)

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(decoder=("flow", "nlsq", "spline", "mixture", "cfm-ot"))),)
