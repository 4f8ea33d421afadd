"""What the belief of a decision costs ISMCTS, beside its simulations: processor time, in one run.

    python -m benchmarks.card_decisions [--games 6] [--width 64] [--simulations 200]

Beliefs are timed from the observer's last decision to this one: updates for the opponents' actions in between, and
deals for all simulations. The last columns are ratios: what a belief costs, in simulations. The opponents are networks
of two hidden layers that were never trained.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Int
from rich.console import Console
from rich.table import Table

from nbf import prng
from nbf.adapters.oh_hell import OhHellResampler, deal_filter
from nbf.environments.hidden_hands import PlayPolicy
from nbf.environments.trick_taking import TrickTaking
from nbf.filters.hands import HandTableFilter
from nbf_paper.experiments.belief_play import PolicyRollouts
from nbf_paper.experiments.card_games import random_network
from nbf_paper.experiments.card_inference import PolicyInference
from nbf_paper.experiments.card_play import game_of, play

RULES = TrickTaking()
DECISIONS = RULES.tricks + 1
"""Of a game; the last one is none."""


class Timed(OhHellResampler):
    """Adds up the processor time of its belief, without that of making states of OpenSpiel."""

    seconds = 0.0

    def log_prob(self, state: Any, player: int) -> float:
        return 0.0  # only a referee's: a search does not need it

    def _deals(self, history: list[int], player: int) -> Int[np.ndarray, "n cards"]:
        start = time.process_time()
        found = super()._deals(history, player)
        self.seconds += time.process_time() - start
        return found


def one(number: int, width: int, make: Any, simulations: int, by_policies: bool) -> tuple[float, float]:
    """Processor time of a game: of its beliefs, and of all else."""
    key = prng.fold_in(prng.stream(0, "bench", "card-decisions"), number)
    policies: dict[int, PlayPolicy] = {
        seat: random_network(key, RULES, width) for seat, key in enumerate(jax.random.split(key, RULES.players))
    }
    belief = make(policies)
    evaluator = PolicyRollouts(RULES, policies, number) if by_policies else None
    start = time.process_time()
    play(RULES, key, policies, belief, simulations, number, evaluator=evaluator)
    return belief.seconds, time.process_time() - start - belief.seconds


def main() -> None:
    """Time them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=6, help="of each row, after a first one that compiles")
    parser.add_argument("--width", type=int, default=64, help="units of a layer of an opponent")
    parser.add_argument("--simulations", type=int, default=200, help="of each decision")
    options = parser.parse_args()
    game, many = game_of(RULES), options.simulations

    def timed(make: Any, simulations: int, by_policies: bool = False) -> tuple[float, ...]:
        """Milliseconds of a decision: belief, and search."""
        runs = [one(number, options.width, make, simulations, by_policies) for number in range(options.games + 1)][1:]
        return tuple(1e3 * sum(part) / len(part) / DECISIONS for part in zip(*runs, strict=True))

    filters = {
        "NBF (64)": (deal_filter(RULES, 64), 128), "policy inference (512)": (PolicyInference(512), many),
        "policy inference (4096)": (PolicyInference(4096), many), "exact": (HandTableFilter(), 128),
    }  # fmt: skip
    made = {
        name: lambda policies, filter=filter, samples=samples: Timed(game, policies, filter, samples=samples)
        for name, (filter, samples) in filters.items()
    }
    cheap = made["policy inference (512)"]
    costs = {
        kind: (timed(cheap, many, kind == "policies")[1] - timed(cheap, many // 4, kind == "policies")[1])
        / (many - many // 4)
        for kind in ("random", "policies")
    }
    table = Table("belief", "ms a decision", *(f"simulations, rollouts: {kind}" for kind in costs))
    for name, make in made.items():
        belief = timed(make, many)[0]
        table.add_row(name, f"{belief:.2f}", *(f"{belief / cost:.0f}" for cost in costs.values()))
    table.add_row("one simulation, ms", "", *(f"{cost:.3f}" for cost in costs.values()))
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
