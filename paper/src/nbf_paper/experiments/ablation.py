"""What each part of the default filter is worth: filters of 32 calls with one part left out, on problems of the zoo.

| arm of `nbf` | the default filter of the fitted model, but |
|---|---|
| `default` | nothing |
| `faithful` | the paper's update: independent draws of the model, embedded and decoded at every step |
| `drawn anew at every step` | the carried set is never kept |
| `32 points carried` | no points beyond those that are simulated |
| `likelihood in one stage` | candidates are weighed by the whole likelihood at once |
| `no moment matching` | the decoded density is not corrected |
| `model alone`, `kernel alone` | new particles, and the belief, come from one of the two |
| `trust not measured` | half of each, and 0.7 of Silverman's width |
| `nothing carried` | on listed states: the model alone |
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbf.contracts import Environment
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import (
    BranchProposal,
    CarryRule,
    NeuralBayesianFilter,
    NoCorrection,
    Proposal,
    RegeneratingProposal,
    default_proposal,
)
from nbf.filters.prediction import PredictionFilter
from nbf.filters.regeneration import Regeneration
from nbf.filters.surrogate import Surrogate
from nbf.fitting.fitted import FittedModel
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.zoo_job import ProblemJob, without_network
from nbf_paper.records import ALL, Record
from nbf_paper.zoo.problem import Problem

CALLS = 32
"""Of all filters at each step."""
APPROX_SAMPLES = 256
"""Of the reference's posterior, for the ceiling."""


def without_each_part(fitted: FittedModel, environment: Environment) -> Iterator[tuple[str, NeuralBayesianFilter]]:
    """The default filter, and the same without each of its parts."""
    usual = fitted.filter(CALLS)
    named = functools.partial(NeuralBayesianFilter, fitted.model, CALLS)
    proposal = default_proposal(environment, CALLS, usual.trust)
    yield "default", usual
    yield "faithful", fitted.faithful(CALLS)
    yield "no moment matching", named(proposal=proposal, correction=NoCorrection())
    changed: dict[str, Proposal] = {}
    if isinstance(proposal, RegeneratingProposal):
        changed = {
            "drawn anew at every step": replace(proposal, regeneration=Regeneration(threshold=2.0)),
            "32 points carried": replace(proposal, surrogate=Surrogate(points=1)),
            "likelihood in one stage": replace(proposal, regeneration=Regeneration(stages=1)),
            "model alone": replace(proposal, model_share=1.0), "kernel alone": replace(proposal, model_share=0.0),
            "trust not measured": RegeneratingProposal(),
        }  # fmt: skip
    elif isinstance(proposal, BranchProposal):
        changed = {"nothing carried": BranchProposal(CarryRule(share=0.0))}
    yield from ((name, named(proposal=each)) for name, each in changed.items())


@dataclass(frozen=True)
class AblationJob(ProblemJob):
    """Filters of one model, on the episodes of the zoo."""

    episodes: int = 40
    samples: int = 128
    """Of a belief, for an energy distance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes < 2:
            raise InputError(f"An ablation needs 2 episodes at least, for a standard error; got {self.episodes}.")

    @property
    def evaluated(self) -> int:
        return self.episodes

    @property
    def title(self) -> str:
        return f"ablation {self.problem} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "problem": self.problem, "seed": self.seed, "training": {"fit": "defaults", "steps": self.steps},
            "evaluation": {"episodes": self.episodes, "samples": self.samples, "calls": CALLS},
        }  # fmt: skip

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        asked = self.asked
        bar.describe(f"{self.title}: episodes")
        episodes = self.episodes_of(asked, self.samples, asked.horizon)
        fitted = self.training_run(runs).load()
        records: list[Record] = []
        told: list[tuple[FilterRow, np.ndarray]] = []
        for row in self._rows(asked, episodes.environment, fitted):
            bar.describe(f"{self.title}: {row.label}")
            found = episodes.scores(row, bar)
            told.append((row, found["log_score"].mean(axis=1)))
            records += [self._record(row, metric, values.mean(axis=1)) for metric, values in found.items()]
        usual = next(values for row, values in told if (row.name, row.arm) == ("nbf", "default"))
        for row, values in told:
            if values is not usual:
                records.append(self._record(row, "lead_over_default", values - usual))
        jax.clear_caches()  # some ten programs of a problem are of no use to the next
        return records

    def _rows(self, asked: Problem, environment: Environment, fitted: FittedModel) -> Iterator[FilterRow]:
        ceiling = ApproxBeliefs(fitted.model, APPROX_SAMPLES, truth=asked.reference)
        yield FilterRow(ceiling, "approx", "default", 0, 0)
        yield FilterRow(PredictionFilter(asked.reference), "prior", "", 0, 0)
        yield without_network(asked, environment, CALLS, self.seed)
        for arm, filter in without_each_part(fitted, environment):
            yield FilterRow(filter, "nbf", arm, CALLS, CALLS)

    def _record(self, row: FilterRow, metric: str, values: np.ndarray) -> Record:
        mean, error = mean_and_error(values)
        return Record(
            experiment="ablation", config=self.problem, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=self.seed, step=ALL, metric=metric, value=float(mean), se=float(error),
            episodes=self.episodes,
        )  # fmt: skip
