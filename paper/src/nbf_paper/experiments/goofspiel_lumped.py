"""The arm `lumped` of Goofspiel: the exact filter on the lumped state, in the games of the figure.

It has no model. It is compared with the exact posterior over sequences, summed over the orders of bids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbf.environments.goofspiel import MOST_LISTED
from nbf.errors import InputError
from nbf.filters.lumped import LumpedFilter
from nbf.filters.prefixes import PrefixFilter
from nbf_paper.config import GoofspielConfig
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.lumped_games import LUMPED, num_hands, score
from nbf_paper.experiments.policy_pool import SPLITS
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.records import ALL, Record


@dataclass(frozen=True)
class LumpedJob(PoolJob):
    """The lumped filter in the games of one seed, of so many cards. Nothing is trained but the policies."""

    cards: int
    seed: int = 0
    episodes: int = 500
    selfplay: SelfPlayConfig | None = None
    """How the policies are made; None for the paper's settings."""

    def __post_init__(self) -> None:
        if not 3 <= self.cards <= MOST_LISTED:
            raise InputError(f"cards must be 3 to {MOST_LISTED}, for a posterior that is listed; got {self.cards}.")
        if self.policies.cards != self.cards:
            raise InputError(f"The policies are for {self.policies.cards} cards, the game has {self.cards}.")

    @property
    def policies(self) -> SelfPlayConfig:
        """How the policies are made."""
        return self.selfplay or SelfPlayConfig(cards=self.cards)

    @property
    def config(self) -> GoofspielConfig:
        """The game."""
        return GoofspielConfig(self.cards)

    @property
    def evaluated(self) -> int:
        return self.episodes

    @property
    def title(self) -> str:
        return f"goofspiel {self.config.name} lumped seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.config.name}/lumped/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.settings, "arm": "lumped", "seed": self.seed,
            "policies": self.policies.settings, "evaluation": {"episodes": self.episodes},
        }  # fmt: skip

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        parts = self.pool(runs).split()
        calls, records = num_hands(self.cards), list[Record]()
        row = FilterRow(LumpedFilter(), LUMPED, "", 0, calls)
        for split in SPLITS:
            name = self.config.name + ("" if split == SPLITS[0] else f"-{split}")
            base = Record(
                experiment="goofspiel", config=name, filter=row.name, arm="", particles=0, calls=calls, seed=self.seed,
                step=ALL, metric="js", value=0.0, se=None, episodes=self.episodes,
            )  # fmt: skip
            records += score(base, [row], PrefixFilter(), self.config.family(getattr(parts, split)), self.title, bar)
        return records
