"""The page of the recordings of Plaza.

| table | numbers |
|---|---|
| `plaza` | mean log score of the true pose, in nats: higher is better |
| `plaza-distance` | mean energy distance to the reference's posterior |
| `plaza-leads` | by how much NBF's log score is above those of other filters, with the error of the differences |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import SITES
from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table
from nbf_paper.report.zoo import ABOUT_LEADS, ROWS, lead_table

CAPTIONS = {
    "plaza": f"Log score of the true pose in nats, mean over the steps; higher is better. {ROWS}",
    "plaza-distance": (
        "Energy distance between a belief and the reference's posterior, mean over the steps; the reference's own row "
        f"compares two of its runs. {ROWS}"
    ),
    "plaza-leads": ABOUT_LEADS,
}


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    sites = [site for site in SITES if any(record.config == site for record in records)]
    tables = {
        "plaza": markdown_table(records, configs=sites, metric="log_score", digits=2, calls=True),
        "plaza-distance": markdown_table(records, configs=sites, metric="energy", digits=3, calls=True),
        "plaza-leads": lead_table(records, {site: (site,) for site in sites}, ("Site",)),
    }
    return Page(tables, {}, "A real robot", CAPTIONS)
