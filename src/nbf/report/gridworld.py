"""What the records of Gridworld are made into.

| table | configurations | rows |
|---|---|---|
| `gridworld` | the paper's eight | the paper's model |
| `gridworld-fixed`, `gridworld-random` | four of them | the paper's model |
| `gridworld-extra` | those that go beyond the paper, or that another arm was trained for | every arm |
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from nbf.evaluation.records import Record, read_records
from nbf.report.plots import PANELS, divergence_figure
from nbf.report.tables import Page, config_order, markdown_table

PAPER = (*PANELS["fixed"], *PANELS["random"])
"""The paper's eight configurations."""


def selections(records: Iterable[Record]) -> dict[str, tuple[list[str], list[Record]]]:
    """For each table and figure of which something is recorded, its configurations and its records."""
    records = list(records)
    paper = [record for record in records if record.arm in ("", "faithful")]
    beyond = {record.config for record in records if record.config not in PAPER or record not in paper}
    wanted = {
        "gridworld": (list(PAPER), paper),
        **{f"gridworld-{kind}": (list(panels), paper) for kind, panels in PANELS.items()},
        "gridworld-extra": (sorted(beyond, key=config_order), records),
    }
    recorded = {name: {record.config for record in chosen} for name, (_, chosen) in wanted.items()}
    present = {name: [c for c in configs if c in recorded[name]] for name, (configs, _) in wanted.items()}
    return {name: (present[name], chosen) for name, (_, chosen) in wanted.items() if present[name]}


def page(folder: Path) -> Page:
    """The tables and figures of the records in a folder."""
    chosen = selections(read_records(folder))
    figures = {}
    for name, (configs, rows) in chosen.items():
        if name != "gridworld":
            panels = PANELS.get(name.removeprefix("gridworld-"), configs)
            figures[f"{name}.png"] = functools.partial(divergence_figure, rows, panels)
    return Page({name: markdown_table(rows, configs=configs) for name, (configs, rows) in chosen.items()}, figures)
