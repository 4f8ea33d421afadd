"""The page of the object that is found by touch.

| table | numbers |
|---|---|
| `touch` | mean log score of the true pose and friction, in nats: higher is better |
| `touch-distance` | mean energy distance to the reference's posterior |
| `touch-lost` | share of episodes at whose end the true pose has less density than uniformly |
| `touch-leads` | by how much NBF's log score is above those of other filters, with the error of the differences |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import TOUCH
from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table
from nbf_paper.report.zoo import ABOUT_LEADS, ROWS, lead_table

CAPTIONS = {
    "touch": f"Log score of the true pose and friction in nats, mean over the steps; higher is better. {ROWS}",
    "touch-distance": (
        "Energy distance between a belief and the reference's posterior, mean over the steps; the reference's own row "
        f"compares two of its runs. {ROWS}"
    ),
    "touch-lost": (
        "Share of episodes that are lost: at their end the belief gives the true pose and friction less density than "
        "the uniform distribution over the table does."
    ),
    "touch-leads": ABOUT_LEADS,
}


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    tables = {
        "touch": markdown_table(records, configs=[TOUCH], metric="log_score", digits=2, calls=True),
        "touch-distance": markdown_table(records, configs=[TOUCH], metric="energy", digits=3, calls=True),
        "touch-lost": markdown_table(records, configs=[TOUCH], metric="lost", digits=2, calls=True),
        "touch-leads": lead_table(records, {TOUCH: (TOUCH,)}, ("Problem",)),
    }
    return Page(tables, {}, "Find an object by touch", CAPTIONS)
