"""The tables of `docs/scale.md`: what the records took here, and what the paper's protocol would take."""

from __future__ import annotations

from pathlib import Path

from nbf_paper.experiments.choices import EXPERIMENTS
from nbf_paper.protocol.prices import Price, prices
from nbf_paper.records import Run, read_runs
from nbf_paper.report.labels import MODELS
from nbf_paper.report.tables import MISSING, layout

HOUR = 3600.0
IN_ALL = "*all*"
"""The last row."""
LIKE = "§"
"""The mark of a row that is timed with another arm."""


def scale(results: Path) -> dict[str, str]:
    """The tables, by the names that their markers ask for, of all records in a folder."""
    return {"scale-here": here(results), "scale-paper": paper(prices(results))}


def here(results: Path) -> str:
    """One line for each experiment: its runs, and hours of training and of the rest."""
    found = {name: read_runs(results / name) for name in EXPERIMENTS}
    rows = [[name, *_spent(runs)] for name, runs in found.items() if runs]
    every = [run for runs in found.values() for run in runs]
    head = ["Experiment", "runs", "training, h", "evaluation, h", "all, h"]
    return layout([head, *rows, [IN_ALL, *_spent(every)]])


def _spent(runs: list[Run]) -> list[str]:
    training = sum(_trained(run) for run in runs) / HOUR
    total = sum(run.seconds for run in runs) / HOUR
    return [str(len(runs)), f"{training:.1f}", f"{total - training:.1f}", f"{total:.1f}"]


def _trained(run: Run) -> float:
    seconds = run.config.get("seconds")
    return seconds["training"] if isinstance(seconds, dict) else 0.0


def paper(found: list[Price]) -> str:
    """One line for each configuration and model of the protocol."""
    head = ["Model", "runs timed", "s, 1000 steps", "s, 100 episodes", "h, one seed", "seeds", "h, all seeds"]
    rows = [_line(price) for price in found]
    total = sum(price.seconds * price.stage.seeds for price in found) / HOUR
    jobs = sum(price.stage.seeds for price in found)
    last = [IN_ALL, str(sum(price.runs for price in found)), MISSING, MISSING, MISSING, str(jobs), f"{total:.0f}"]
    legend = ""
    if any(price.timed == price.stage.like for price in found if price.runs):
        legend = f"{LIKE} timed with runs of the arm `faithful`, whose network and batches have the same size."
    return layout([head, *rows, last], legend)


def _line(price: Price) -> list[str]:
    stage = price.stage
    mark = f" {LIKE}" if price.runs and price.timed != stage.arm else ""
    name = f"{price.config}, {MODELS.get(stage.arm, stage.arm)}{mark}"
    if not price.runs:
        return [name, "0", MISSING, MISSING, MISSING, str(stage.seeds), MISSING]
    hours = price.seconds / HOUR
    numbers = [f"{1000 * price.per_step:.1f}", f"{100 * price.per_episode:.1f}", f"{hours:.2f}"]
    return [name, str(price.runs), *numbers, str(stage.seeds), f"{hours * stage.seeds:.0f}"]
