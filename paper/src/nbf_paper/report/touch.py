"""The page of the object that is found by touch; the acrobot of `crossing` has the same tables.

| table | numbers |
|---|---|
| `touch` | mean log score of the true pose and friction, in nats: higher is better |
| `touch-distance` | mean energy distance to the reference's posterior |
| `touch-lost` | share of episodes at whose end the true pose has less density than uniformly |
| `touch-leads` | by how much NBF's log score is above those of other filters, with the error of the differences |
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nbf.plot.style import BLUE, FAINT, GREEN, INK, PINK, SKY, VERMILION
from nbf_paper.names import ACROBOT, TOUCH
from nbf_paper.records import ALL, Record, Summary, read_records, summary
from nbf_paper.report.labels import FILTERS
from nbf_paper.report.tables import Page, markdown_table
from nbf_paper.report.zoo import ABOUT_LEADS, ROWS, lead_table

CAPTIONS = {
    "": f"Log score of the true {{state}} in nats, mean over the steps; higher is better. {ROWS}",
    "-distance": (
        "Energy distance between a belief and the reference's posterior, mean over the steps; the reference's own row "
        f"compares two of its runs. {ROWS}"
    ),
    "-lost": (
        "Share of episodes that are lost: at their end the belief gives the true {state} less density than the uniform "
        "distribution over the box of states does."
    ),
    "-leads": ABOUT_LEADS,
    ".png": (
        "{name}: log score of the truth (mean over the steps, and after the last one; higher is better), energy "
        "distance to the reference's posterior and share of lost episodes (lower is better), against calls of the "
        "simulator at each step. Bars: one standard error. Level lines: filters that are no choice."
    ),
}
"""By the ends of the names of tables and figures; problems fill in what they are."""
SAID = {
    TOUCH: {"name": "Find an object by touch", "state": "pose and friction"},
    ACROBOT: {"name": "Acrobot", "state": "state"},
}  # fmt: skip
CHOICES = {"pf": BLUE, "pf-injected": SKY, "pf-regularized": INK, "nbf": VERMILION}
"""Filters to choose from, with their colours."""
LEVELS = {"reference": FAINT, "approx": GREEN, "prior": PINK}
"""Rows that are none."""
LAST: Literal["last"] = "last"
PANELS: tuple[tuple[str, Literal["all", "last"], str], ...] = (
    ("log_score", ALL, "log score, mean"), ("log_score", LAST, "log score, last step"),
    ("energy", ALL, "energy distance, mean"), ("lost", ALL, "share of episodes lost"),
)  # fmt: skip
"""Metric, step and title of each panel of the figure."""


def page(folder: Path) -> Page:
    """The tables and the figure of the records in a folder."""
    return scores(read_records(folder), TOUCH)


def scores(records: Sequence[Record], config: str) -> Page:
    """The tables and the figure of the scores with one simulator."""
    metrics = {"": ("log_score", 2), "-distance": ("energy", 3), "-lost": ("lost", 2)}
    tables = {
        f"{config}{end}": markdown_table(records, configs=[config], metric=metric, digits=digits, calls=True)
        for end, (metric, digits) in metrics.items()
    }
    tables[f"{config}-leads"] = lead_table(records, {config: (config,)}, ("Problem",), sizes=(32, 128, 512))
    said = SAID[config]
    captions = {f"{config}{end}": text.format(**said) for end, text in CAPTIONS.items()}
    captions |= {f"{config}-leads": f"{said['name']}. {ABOUT_LEADS}"}
    return Page(tables, {f"{config}.png": functools.partial(figure, records, config)}, said["name"], captions)


def figure(records: Sequence[Record], config: str = TOUCH) -> Figure:
    """Every metric against the calls of an update."""
    found = [entry for entry in summary(records) if entry.config == config and entry.arm == ""]
    last = max((entry.step for entry in found if entry.step != ALL), default=ALL)
    drawn = Figure(figsize=(11.0, 3.3), layout="constrained")
    handles = {}
    for axis, (metric, step, title) in zip(drawn.subplots(1, len(PANELS)), PANELS, strict=True):
        wanted = last if step == LAST else step
        handles |= _panel(axis, [entry for entry in found if (entry.metric, entry.step) == (metric, wanted)])
        axis.set(xscale="log", xlabel="calls of a step")
        axis.set_title(title, fontsize=10, color=INK)
        if metric == "energy":
            axis.set_yscale("log")
        axis.grid(color="#e4e4e4", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, color=FAINT)
    names = ["Ceiling" if name == "approx" else FILTERS[name] for name in handles]
    drawn.legend(
        list(handles.values()), names, loc="outside upper center", ncols=len(names), frameon=False, fontsize=8.5,
        labelcolor=INK,
    )  # fmt: skip
    return drawn


def _panel(axis: Axes, entries: Sequence[Summary]) -> dict[str, object]:
    """One metric; the handles of its legend by filter."""
    handles: dict[str, object] = {}
    for name, colour in CHOICES.items():
        mine = sorted((entry for entry in entries if entry.filter == name), key=lambda entry: entry.calls)
        if mine:
            handles[name] = axis.errorbar(
                [entry.calls for entry in mine], [entry.value for entry in mine], [entry.se or 0.0 for entry in mine],
                fmt="o-", color=colour, markersize=3.5, linewidth=2.0 if name == "nbf" else 1.4, capsize=2,
                zorder=4 if name == "nbf" else 3,
            )  # fmt: skip
    for name, colour in LEVELS.items():
        for entry in (entry for entry in entries if entry.filter == name):
            handles[name] = axis.axhline(entry.value, color=colour, linestyle="--", linewidth=1.2)
    return handles
