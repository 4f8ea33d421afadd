"""The page of the search on beliefs.

| table | numbers |
|---|---|
| `planning` | mean discounted return: higher is better |
| `planning-right` | share of episodes that ended with a gain |
| `planning-score` | mean log score of the true hidden state, in nats: higher is better |
| `planning-search` | simulator calls that the search of a decision has used |
| `planning-time` | mean discounted return where filter and search share time, not calls |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import PLANNING
from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table

TABLES = {
    "planning": ("return", 1, "Discounted return with 2048 simulator calls of filter and search for each decision"),
    "planning-right": ("right", 2, "Share of episodes that ended with a gain: with what was sought"),
    "planning-score": ("log_score", 2, "Log score of the true hidden state in nats, mean over the steps"),
    "planning-search": ("search_calls", 0, "Simulator calls of the search, mean over its decisions"),
    "planning-time": ("return_equal_time", 1, "Discounted return at equal time of a decision"),
}
"""Metric, digits and caption."""


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    recorded = {record.metric for record in records}
    tables = {
        name: markdown_table(
            records, configs=[name for name in PLANNING if any(each.config == name for each in records)],
            metric=metric, digits=digits, calls=True,
        )
        for name, (metric, digits, _) in TABLES.items()
        if metric in recorded
    }  # fmt: skip
    captions = {name: caption + "." for name, (_, _, caption) in TABLES.items() if name in tables}
    return Page(tables, {}, "Search on beliefs", captions)
