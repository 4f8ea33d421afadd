"""`nbf-paper selfplay`: the opponents of a game."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from nbf.cli.command import Command, say, table_of
from nbf.files.atomic import check_replaceable, check_writable


@dataclass(frozen=True, kw_only=True)
class Selfplay(Command):
    """Make a pool of policies by self-play, or go on with one that was stopped, and say what it is like."""

    game: Positional[Literal["goofspiel"]]
    """Which game."""
    cards: int = 5
    """Cards of the game."""
    seed: int = 0
    """Seed of the pool."""
    checkpoints: int = 128
    """Policies that each of the four runs leaves."""
    out: Annotated[
        Path | None, arg(help_behavior_hint="(default: where `nbf-paper reproduce goofspiel` looks for it)")
    ] = None
    """File of the pool."""

    def answer(self) -> dict[str, Any]:
        from nbf.prng import seed
        from nbf_paper.experiments.demands import announcement, require
        from nbf_paper.experiments.policy_pool import make_pool, pool_path
        from nbf_paper.experiments.pool_statistics import describe
        from nbf_paper.experiments.selfplay import SelfPlayConfig

        config = SelfPlayConfig(cards=self.cards, checkpoints=self.checkpoints, seed=seed(self.seed))
        told = announcement(require(config.size).seconds)
        path = self.out or pool_path(Path("runs"), config)
        check_replaceable(path)
        check_writable(path.parent)
        if told:
            say(f"nbf-paper: {told}")
        return {"pool": str(path), "config": config.settings, **describe(make_pool(config, path))}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        runs = answer["config"]["runs"]
        table = table_of("run", "entropy, first", "last", "against random, first", "last", "against its first, last")
        size = answer["policies"] // runs
        for run in range(runs):
            first, last = run * size, (run + 1) * size - 1
            cells = [answer[name][at] for name in ("entropy", "against_random") for at in (first, last)]
            table.add_row(str(run + 1), *(f"{cell:.2f}" for cell in (*cells, answer["against_first"][last])))
        console.print(f"{answer['policies']} policies in {answer['seconds']:.0f} s: {answer['pool']}", soft_wrap=True)
        console.print("entropy of a bid in nats; results from -1 (all lost) to 1 (all won)\n")
        console.print(table)
        if "belief_js_any" in answer:
            near, far = answer["belief_js_neighbours"], answer["belief_js_any"]
            console.print(f"\nJS between the beliefs of two policies: neighbours {near:.3f}, any two {far:.3f}")
