"""Goofspiel with more cards than the paper's: particle filters against the exact filter on the lumped state.

Of 10 cards there are up to 3 628 800 sequences and 1260 lumped states, of 13 cards 6 227 020 800 and 12 012: sequences
can no longer be listed, lumped states can. So divergences are over lumped states (`lumped_games`), and every filter's
cost stands beside that of the exact one. Nothing is trained but the policies, all of which play.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbf.beliefs.lumped import MOST_SYMBOLS
from nbf.errors import InputError
from nbf.filters.lumped import LumpedFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prediction import PredictionFilter
from nbf_paper.config import GoofspielConfig
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.lumped_games import LUMPED, num_hands, score
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.records import ALL, Record


@dataclass(frozen=True)
class LargeEvaluation:
    """How the filters are scored."""

    episodes: int = 200
    """Games per seed; every filter sees the same ones."""
    particle_filters: tuple[int, ...] = (64, 512, 2048, 8192)

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise InputError(f"episodes must be at least 2; got {self.episodes}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {"episodes": self.episodes, "particle_filters": self.particle_filters}


@dataclass(frozen=True)
class LargeGoofspielJob(PoolJob):
    """Every filter in the games of one seed, of so many cards."""

    policies: SelfPlayConfig
    """How the policies are made, and for how many cards."""
    seed: int = 0
    evaluation: LargeEvaluation = field(default_factory=LargeEvaluation)

    def __post_init__(self) -> None:
        if not 3 <= self.cards <= MOST_SYMBOLS:
            raise InputError(f"cards must be 3 to {MOST_SYMBOLS}, for lumped states that are listed; got {self.cards}.")

    @property
    def cards(self) -> int:
        """Of the game."""
        return self.policies.cards

    @property
    def config(self) -> GoofspielConfig:
        """The game."""
        return GoofspielConfig(self.cards)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"goofspiel-large {self.config.name} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.config.name}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.settings, "seed": self.seed, "policies": self.policies.settings,
            "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def rows(self) -> list[FilterRow]:
        """Every filter."""
        exact, calls = LumpedFilter(), num_hands(self.cards)
        return [
            FilterRow(exact, LUMPED, "", 0, calls),
            FilterRow(PredictionFilter(exact), "prior", "", 0, calls),
            *(FilterRow(ParticleFilter(n), "pf", "", n, n) for n in self.evaluation.particle_filters),
        ]

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        pool = self.pool(runs)
        base = Record(
            experiment="goofspiel-large", config=self.config.name, filter=LUMPED, arm="", particles=0, calls=0,
            seed=self.seed, step=ALL, metric="js", value=0.0, se=None, episodes=self.evaluation.episodes,
        )  # fmt: skip
        return score(base, self.rows, LumpedFilter(), self.config.family(pool.policies), self.title, bar)
