"""Baselines of the small card game that predict likelihoods as the neural filter does, in the games of `CardJob`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbf import prng
from nbf_paper.experiments import card_baselines as baselines
from nbf_paper.experiments import card_interpolation as interpolation
from nbf_paper.experiments import cards
from nbf_paper.experiments.cards import CardJob, CardRow, kind_of, ratio, scores
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.names import INTERPOLATED_BASELINES_OF_CARDS, PREDICTED
from nbf_paper.records import Record

GUESS = 64
"""Calls of the tables by which swaps are accepted at first."""
STREAM = 1000
"""The number of the first baseline's random stream: beyond those of the other job."""


def rows(few: bool = False) -> Iterator[CardRow]:
    """Every baseline; `few`: of each kind one."""

    def some(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        return numbers[:1] if few else numbers

    for calls in some((8, 16, 32, 64, 128, 256)):
        yield CardRow(interpolation.interpolated_tables(calls), "interpolated-tables", "", calls)
    for calls in some((32, 64, 128, 256, 512)):
        yield CardRow(interpolation.hands_combined(calls), "policy-inference", f"hands combined, {PREDICTED}", calls)
    for chains, moves in some(((8, 20), (32, 20))):
        row = baselines.mcmc(chains, moves, interpolation.running_tables(GUESS))
        yield CardRow(row, "mcmc", f"{moves} swaps, {PREDICTED}", chains)
    for count, moves in some(((32, 20), (128, 20))):
        row = baselines.resample_move(count, moves, interpolation.running_tables(GUESS))
        yield CardRow(row, "resample-move", f"{moves} swaps, {PREDICTED}", count)


@dataclass(frozen=True)
class InterpolatedCardJob(Job):
    """Baselines with interpolation in the games of another job."""

    other: CardJob

    @property
    def seed(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.other.seed

    @property
    def evaluated(self) -> int:
        return self.other.games

    @property
    def title(self) -> str:
        return f"{self.other.title}, {PREDICTED}"

    @property
    def label(self) -> str:
        return f"{self.other.opponents}-{PREDICTED}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        kernel = {"reach": interpolation.REACH, "ridge": interpolation.RIDGE, "guess": GUESS}
        return {**self.other.settings, "interpolation": kernel}

    def sizes(self) -> list[Size]:
        return self.other.sizes()

    def check(self, runs: Path) -> None:
        self.other.check(runs)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        bar.describe(f"{self.title}: games")
        games, key = self.other.watched(runs)
        # The neural filter with the keys of the other job: how many of its calls each baseline is worth.
        ours = [(n, row) for n, row in enumerate(cards.rows(self.other.few)) if (row.name, row.arm) == ("nbf", "")]
        theirs = list(enumerate(rows(self.other.few), STREAM))
        errors, spent, records = {}, {}, list[Record]()
        for number, row in (*ours, *theirs):
            bar.describe(f"{self.title}: {row.name}({row.particles}) {row.arm}")
            keys = jax.random.split(prng.fold_in(key, number), self.other.games)
            found, calls = scores(row.run, keys, games)
            errors[row[1:]], spent[row[1:]] = cards.scored(found), float(np.mean(np.asarray(calls)))
            if row.name != "nbf":
                records += self.other.errors_of(row, errors[row[1:]], round(spent[row[1:]]))
            bar.advance(self.other.games)
        jax.clear_caches()
        return [*records, *self._worth(errors, spent)]

    def _worth(self, errors: dict[Any, np.ndarray], spent: dict[Any, float]) -> list[Record]:
        """How many times the calls of NBF each baseline needs for the same error.

        A series of records is made by one run, and that of NBF by another one than this. So this number is filed under
        the baseline, with as many particles as NBF has.
        """
        found = []
        for kind, (_, name, arm) in INTERPOLATED_BASELINES_OF_CARDS.items():
            members = [key for key in errors if kind_of(key) == kind]
            for key in (key for key in errors if key[0] == "nbf" and len(members) > 1):
                row = CardRow(baselines.tables, name, arm, key[2])
                found.append(self.other.record_of(row, round(spent[key]), "worth", *ratio(errors, spent, key, members)))
        return found
