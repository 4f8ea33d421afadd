"""What the records of Goofspiel are made into: the paper's figure, and its numbers with what our models add.

| table | configurations | rows |
|---|---|---|
| `goofspiel` | test policies drawn at random, as in the paper | every arm |
| `goofspiel-run` | test policies from a run of their own | every arm |
| `goofspiel-legality` | all | how many of a model's draws are legal |
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from nbf.evaluation.records import Record, read_records
from nbf.report.claims import Claim, beside
from nbf.report.plots import divergence_figure
from nbf.report.tables import Page, markdown_table

DRAWN = {("pf", 64), ("pf", 512), ("nbf", 64), ("approx", 0), ("emp", 64), ("recurrent", 0)}
"""Filters, with their particles, that the figure has room for; all, where none of them is recorded."""

CAPTIONS = {
    "goofspiel": "Mean divergence over the rounds of a game; test policies drawn at random, as in the paper.",
    "goofspiel-run": "The same, against test policies from a run of self-play that no training has seen.",
    "goofspiel-legality": "How many of a model's draws are sequences of bids that the rules allow.",
    "goofspiel.png": "Divergence from the exact posterior by round, one panel for each number of cards.",
    "goofspiel-run.png": "The same by round, against test policies from a run of self-play of their own.",
}
CLAIMS = (
    Claim(
        "NBF outperforms the particle filters with an order of magnitude fewer particles (64 against 512) in all four "
        "sizes.",
        (("nbf", "faithful", 64), ("pf", "", 64), ("pf", "", 512)), tuple(f"k={cards}" for cards in (4, 5, 6, 7)),
    ),
)  # fmt: skip


def page(folder: Path) -> Page:
    """The tables and figures of the records in a folder."""
    records = read_records(folder)
    tables: dict[str, str] = {}
    figures: dict[str, Callable[[], Figure]] = {}
    for name, ending in (("goofspiel", ""), ("goofspiel-run", "-run")):
        mine = [record for record in records if record.config.endswith("-run") == bool(ending)]
        if mine:
            panels = sorted({record.config for record in mine})
            tables[name] = markdown_table(mine, configs=panels)
            figures[f"{name}.png"] = functools.partial(figure, mine, panels)
    if any(record.metric == "legality" for record in records):
        panels = sorted({record.config for record in records if record.metric == "legality"})
        tables["goofspiel-legality"] = markdown_table(records, configs=panels, metric="legality")
    return Page(tables, figures, "Goofspiel", CAPTIONS, beside(CLAIMS, records))


def figure(records: Sequence[Record], panels: Sequence[str]) -> Figure:
    """JS by round, one panel for each number of cards."""
    chosen = [record for record in records if (record.filter, record.particles) in DRAWN]
    return divergence_figure(chosen or records, panels)
