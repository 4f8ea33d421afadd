"""The page of the long episodes: errors near step 40 and near step 200, and their ratio.

| table | numbers |
|---|---|
| `drift` | the error before step 200 over that before step 40 |
| `drift-early`, `drift-late` | energy distance to the reference, or Jensen-Shannon divergence where states are listed |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import EARLY, LATE, ZOO
from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table

ERROR = "Energy distance to the reference's posterior, or Jensen-Shannon divergence on search and mazes"
ROWS = (
    "The prior sees no observation; Approx Beliefs is the ceiling: a model on samples of the reference's posterior. "
    "The reference's own row compares two of its runs."
)
WANTED = {
    "drift": ("drift", 2, f"The error before step {LATE} over the error before step {EARLY}: above 1, it grows."),
    "drift-early": (f"error_at_{EARLY}", 3, f"{ERROR}: mean over the 20 steps before step {EARLY}."),
    "drift-late": (f"error_at_{LATE}", 3, f"{ERROR}: mean over the 20 steps before step {LATE}."),
}
"""Metric, digits and caption of each table."""


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    names = [name for name in ZOO if any(record.config == name for record in records)]
    tables = {
        table: markdown_table(records, configs=names, metric=metric, digits=digits)
        for table, (metric, digits, _) in WANTED.items()
    }
    return Page(tables, {}, "Long episodes", {table: f"{told} {ROWS}" for table, (_, _, told) in WANTED.items()})
