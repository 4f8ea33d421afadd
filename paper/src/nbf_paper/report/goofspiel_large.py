"""The page of Goofspiel with many cards: particle filters beside the exact filter on the lumped state.

| table | numbers |
|---|---|
| `goofspiel-large` | divergence over lumped states, and policy calls of an update |
| `goofspiel-large-time` | microseconds of an update |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table

CAPTIONS = {
    "goofspiel-large": "Mean divergence over the rounds of a game in nats, over the missing card and the set of bids; "
    "and policy calls of an update. The exact filter on these lumped states calls the policy once for each hand that "
    "the opponent may hold; the prior sees no outcome.",
    "goofspiel-large-time": "Microseconds of one update, the median of 300 in a row; ± over seeds.",
}


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    sizes = sorted({record.config for record in records}, key=lambda config: int(config.removeprefix("k=")))
    tables = {
        "goofspiel-large": markdown_table(records, configs=sizes, calls=True),
        "goofspiel-large-time": markdown_table(records, configs=sizes, metric="us_per_update", digits=0),
    }
    return Page(tables, {}, "Goofspiel with many cards", CAPTIONS)
