"""The cost of simulation as an experiment: its options, jobs and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.job import Job
from nbf_paper.names import TIMED_CONFIGS, TRIANGULATION
from nbf_paper.report.tables import Page


@dataclass(frozen=True, kw_only=True)
class SimulationCost(Experiment):
    """Time of an update when calls of the simulator cost something, of the filters that other experiments recorded.
    Run it on an idle machine."""

    name = "simulation-cost"
    quick = Amount(episodes=20, few=True)

    config: tuple[str, ...] = TIMED_CONFIGS
    """Configurations, as records name them; their divergences must be recorded."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.simulation_cost import SLOW, SimulationCostJob

        updates, slow = amount.episodes_or(500, 1), (100, 1000) if amount.few else SLOW
        return [SimulationCostJob(name, seed, updates, slow) for name in self.config for seed in amount.seeds]

    @staticmethod
    def page(folder: Path) -> Page:
        from nbf_paper.report import simulation_cost

        return simulation_cost.page(folder)

    @classmethod
    def quick_parts(cls) -> tuple[Part, ...]:
        return (Part(cls(config=("5-3D-random", TRIANGULATION, "k=4"))),)
