"""What `nbf-paper reproduce` can run: the registry of the experiments.

The command line, `nbf-paper reproduce all` and `nbf-paper report` are all made from `EXPERIMENTS`. Nothing here imports
jax until jobs are made, nor matplotlib until a page is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from nbf_paper.experiments.choices.ablation import Ablation
from nbf_paper.experiments.choices.beyond import Beyond
from nbf_paper.experiments.choices.cards import Cards, CardsPlay
from nbf_paper.experiments.choices.classical import Classical
from nbf_paper.experiments.choices.convergence import Convergence
from nbf_paper.experiments.choices.crossing import Crossing
from nbf_paper.experiments.choices.donuts import Donuts
from nbf_paper.experiments.choices.drift import Drift
from nbf_paper.experiments.choices.experiment import Amount, Experiment, Part
from nbf_paper.experiments.choices.fine_tuned import FineTuned
from nbf_paper.experiments.choices.goofspiel import Goofspiel
from nbf_paper.experiments.choices.goofspiel_large import GoofspielLarge
from nbf_paper.experiments.choices.gridworld import Gridworld
from nbf_paper.experiments.choices.learning import Learning
from nbf_paper.experiments.choices.planning import Planning
from nbf_paper.experiments.choices.plaza import Plaza
from nbf_paper.experiments.choices.simulation_cost import SimulationCost
from nbf_paper.experiments.choices.touch import Touch
from nbf_paper.experiments.choices.triangulation import Triangulation
from nbf_paper.experiments.choices.values import Values
from nbf_paper.experiments.choices.wall_clock import WallClock
from nbf_paper.experiments.choices.zoo import Zoo

__all__ = [
    "EXPERIMENTS", "Ablation", "All", "Amount", "Beyond", "Cards", "CardsPlay", "Classical", "Convergence", "Crossing",
    "Donuts", "Drift", "Experiment", "FineTuned", "Goofspiel", "GoofspielLarge", "Gridworld", "Learning", "Part",
    "Planning", "Plaza", "SimulationCost", "Touch", "Triangulation", "Values", "WallClock", "Zoo",
]  # fmt: skip

EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.name: kind
    for kind in (
        Gridworld, Donuts, Goofspiel, GoofspielLarge, Triangulation, FineTuned, Convergence, Classical, Beyond,
        SimulationCost, WallClock, Zoo, Ablation, Drift, Learning, Plaza, Touch, Crossing, Cards, CardsPlay, Planning,
        Values,
    )
}  # fmt: skip
"""By name. `nbf-paper reproduce all` and the report follow this order: an experiment comes after those whose records
it reads."""


@dataclass(frozen=True, kw_only=True)
class All:
    """Every experiment, as much of each as the documentation shows; then one HTML page of all of them."""

    html: Annotated[
        Path | None, arg(help_behavior_hint="(default: nbf-report.html; nbf-report-quick.html with --quick)")
    ] = None
    """The page."""
    protocol: Annotated[Literal["shown", "paper"], arg(help_behavior_hint="(default: shown)")] = "shown"
    """How much: as the documentation shows, or the paper's own models with its seeds, gradient steps and episodes. That
    is a job for a cluster (`nbf-paper cost` says how long it takes)."""
