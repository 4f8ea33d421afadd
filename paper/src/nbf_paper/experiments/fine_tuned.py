"""Accuracy and cost of fine-tuning at test time (the discussion of Sokota et al. in section "Wall-Clock Time
Experiments"): the recurrent baseline of randomized grids takes m gradient steps at every filter step. Neural filters,
which are given the same grid and policy, take none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.files.shipped import shipped_model
from nbf.filters.fine_tuned import FineTunedFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.gridworld import arm_of, compare, training_run
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.settings import model_settings, training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.names import EXAMPLE
from nbf_paper.records import Record

CONFIG = GridworldConfig.parse(EXAMPLE)
"""The configuration of the shipped model of the paper, which the neural filters use."""


@dataclass(frozen=True)
class FineTunedEvaluation:
    """How the filters are scored."""

    episodes: int = 50
    """The first of the episodes on which Gridworld's filters are scored."""
    gradient_steps: tuple[int, ...] = (0, 1, 10, 100)
    """The values of m, one filter for each."""
    batch: int = 32
    """Trajectories of a gradient step."""
    learning_rate: float = 3e-2
    """Learning rate of Adam: the best of 0.003, 0.01 and 0.03 for m = 10, on other episodes."""
    neural_filters: tuple[int, ...] = (16, 32)
    """Particle counts of the shipped model's filters."""

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise InputError(f"A standard error needs at least 2 episodes; got {self.episodes}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes,
            "gradient_steps": self.gradient_steps,
            "batch": self.batch,
            "learning_rate": self.learning_rate,
            "neural_filters": self.neural_filters,
        }


def filter_rows(model: BeliefModel, horizon: int, settings: FineTunedEvaluation) -> list[FilterRow]:
    """A filter for each m, and the neural filters. Simulator calls are averaged over the steps of an episode."""
    rows = []
    for steps in settings.gradient_steps:
        filter = FineTunedFilter(
            model, steps, batch=settings.batch, learning_rate=settings.learning_rate, longest=horizon
        )
        calls = sum(filter.calls(time) for time in range(1, horizon + 1)) / horizon
        rows.append(FilterRow(filter, "fine-tuned", f"m={steps}", 0, round(calls)))
    neural = shipped_model(f"{CONFIG.name}-faithful")
    return rows + [
        FilterRow(NeuralBayesianFilter.faithful(neural, n), "nbf", "faithful", n, n) for n in settings.neural_filters
    ]


@dataclass(frozen=True)
class FineTunedJob(Job):
    """One training seed of Gridworld's recurrent model, fine-tuned and scored."""

    seed: int
    steps: int
    """Gradient steps of the model's training."""
    evaluation: FineTunedEvaluation = field(default_factory=FineTunedEvaluation)

    @property
    def settings(self) -> dict[str, Any]:
        model_config, fit_config = arm_of(CONFIG, "recurrent")
        return {
            "environment": CONFIG.settings,
            "seed": self.seed,
            "model": model_settings(model_config),
            "training": training_settings(replace(fit_config, steps=self.steps)),
            "evaluation": self.evaluation.settings,
        }

    @property
    def label(self) -> str:
        return f"{CONFIG.name}/fine-tuned/{self.seed}"

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"{CONFIG.name} fine-tuned seed {self.seed}"

    def training_run(self, runs: Path) -> TrainingRun:
        return training_run(CONFIG, "recurrent", self.seed, runs, steps=self.steps)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        rows = filter_rows(self.training_run(runs).load(), CONFIG.horizon, self.evaluation)
        found = compare(rows, CONFIG, self.seed, self.evaluation.episodes, bar, title=self.title)
        return [replace(record, experiment="fine-tuned") for record in found]
