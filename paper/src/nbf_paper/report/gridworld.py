"""The page of Gridworld.

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

from nbf_paper.names import GRIDWORLDS
from nbf_paper.records import Record, read_records
from nbf_paper.report.claims import Claim, beside
from nbf_paper.report.plots import PANELS, divergence_figure
from nbf_paper.report.tables import Page, config_order, markdown_table

CAPTIONS = {
    "gridworld": "Mean divergence over 20 steps on the paper's eight configurations, with the paper's model.",
    "gridworld-fixed": "The same on fixed grids: one grid and policy for a training seed.",
    "gridworld-random": "The same on random grids: a new grid and goal in every episode.",
    "gridworld-extra": "Beyond the paper: other models, and policies that are less predictable (diffuse).",
    "gridworld-fixed.png": "Divergence from the exact posterior by step, on fixed grids; shaded: one standard error.",
    "gridworld-random.png": "Divergence from the exact posterior by step, on random grids; shaded: one standard error.",
    "gridworld-extra.png": "Divergence from the exact posterior by step: other models, other policies.",
}
PAPER_ARMS = ("", "faithful")
APPROX, NBF16, NBF32 = ("approx", "faithful", 0), ("nbf", "faithful", 16), ("nbf", "faithful", 32)
PF32, PF128, PF512 = ("pf", "", 32), ("pf", "", 128), ("pf", "", 512)
CLAIMS = (
    Claim("Fixed grids: the embedding is expressive enough to model the beliefs.", (APPROX,), PANELS["fixed"]),
    Claim("Fixed grids: NBF stays low, comparable to the belief model over many steps, with few particles.",
          (APPROX, NBF16, NBF32), PANELS["fixed"]),
    Claim("Fixed grids: even with orders of magnitude more particles the particle filters struggle to be comparable.",
          (NBF32, PF128, PF512), PANELS["fixed"]),
    Claim("Random grids: the recurrent filter, which cannot be told grid and policy, degrades.",
          (("recurrent", "", 0),), GRIDWORLDS),
    Claim("Random grids: NBF performs best overall, with relatively few particles.",
          (NBF16, NBF32, PF32, PF128, PF512), PANELS["random"]),
)  # fmt: skip


def selections(records: Iterable[Record]) -> dict[str, tuple[list[str], list[Record]]]:
    """The configurations and records of each table and figure, where there are any."""
    records = list(records)
    paper = [record for record in records if record.arm in PAPER_ARMS]
    beyond = {record.config for record in records if record.config not in GRIDWORLDS or record.arm not in PAPER_ARMS}
    wanted = {
        "gridworld": (list(GRIDWORLDS), paper),
        **{f"gridworld-{kind}": (list(panels), paper) for kind, panels in PANELS.items()},
        "gridworld-extra": (sorted(beyond, key=config_order), records),
    }
    recorded = {name: {record.config for record in chosen} for name, (_, chosen) in wanted.items()}
    present = {name: [c for c in configs if c in recorded[name]] for name, (configs, _) in wanted.items()}
    return {name: (present[name], chosen) for name, (_, chosen) in wanted.items() if present[name]}


def page(folder: Path) -> Page:
    """The tables and figures of the records in a folder."""
    records = read_records(folder)
    chosen = selections(records)
    figures = {}
    for name, (configs, rows) in chosen.items():
        if name != "gridworld":
            panels = PANELS.get(name.removeprefix("gridworld-"), configs)
            figures[f"{name}.png"] = functools.partial(divergence_figure, rows, panels)
    tables = {name: markdown_table(rows, configs=configs) for name, (configs, rows) in chosen.items()}
    return Page(tables, figures, "Gridworld", CAPTIONS, beside(CLAIMS, records))
