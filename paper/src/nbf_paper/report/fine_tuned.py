"""The page of fine-tuning at test time: accuracy against gradient steps, and against simulator calls."""

from __future__ import annotations

import functools
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.records import ALL, Record, Summary, read_records, summary
from nbf_paper.report.labels import label, row_labels, row_order
from nbf_paper.report.plots import COLOURS
from nbf_paper.report.tables import Page, markdown_table

CAPTIONS = {
    "fine-tuned": "The recurrent filter of randomized grids, adapted by m gradient steps at every filter step on "
    "trajectories that are simulated with the current grid and policy, beside neural filters, which are told the same "
    "and take none. JS to the exact posterior in nats; calls to the simulator at each step.",
    "fine-tuned.png": "JS divergence of the fine-tuned recurrent filter, against gradient steps per filter step and "
    "against simulator calls per filter step; neural filters beside it.",
}


def page(folder: Path) -> Page:
    """The table and the figure of the records in a folder."""
    records = read_records(folder)
    tables = {"fine-tuned": markdown_table(records, calls=True)}
    figures = {"fine-tuned.png": functools.partial(figure, records)}
    return Page(tables, figures, title="Fine-tuning at test time", captions=CAPTIONS)


def gradient_steps(entry: Summary) -> int:
    """m, from the arm of a record: `m=10`."""
    return int(entry.arm.removeprefix("m="))


def figure(records: list[Record]) -> Figure:
    """JS against m, and against simulator calls."""
    found = [entry for entry in summary(records) if entry.metric == "js" and entry.step == ALL]
    tuned = sorted((entry for entry in found if entry.filter == "fine-tuned"), key=gradient_steps)
    others = sorted((entry for entry in found if entry.filter != "fine-tuned"), key=lambda e: row_order(e.row))
    names = row_labels(found)
    drawing = Figure(figsize=(8.6, 3.4), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True)
    _curve(left, [gradient_steps(entry) for entry in tuned], tuned)
    _curve(right, [entry.calls for entry in tuned], tuned)
    for entry, dash in zip(others, ("--", ":", "-.", "-") * len(others), strict=False):
        colour = COLOURS.get((entry.filter, ""), FAINT)
        left.axhline(entry.value, color=colour, linestyle=dash, linewidth=1.5, label=names[entry.row])
        right.errorbar(entry.calls, entry.value, entry.se or 0.0, color=colour, marker="o", markersize=4.5)
        right.annotate(
            label(entry.filter, particles=entry.particles),
            (entry.calls, entry.value),
            (5, 5),
            fontsize=8,
            color=INK,
            textcoords="offset points",
        )
    left.set_xlabel("gradient steps at every filter step (m)", color=INK)
    right.set_xlabel("simulator calls at every filter step", color=INK)
    left.set_ylabel("JS divergence (nats)", color=INK)
    left.set_ylim(bottom=0)
    left.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return drawing


def _curve(axis: Axes, places: list[int], entries: list[Summary]) -> None:
    """The fine-tuned filter, on a logarithmic axis that includes zero."""
    errors = [entry.se or 0.0 for entry in entries]
    look = {"color": COLOURS["fine-tuned", ""], "marker": "s", "markersize": 4.5, "linewidth": 1.5, "capsize": 2.5}
    axis.errorbar(places, [entry.value for entry in entries], errors, label="Fine-tuned", **look)  # pyright: ignore
    axis.set_xscale("symlog", linthresh=1.0)
    axis.set_xlim(left=-0.15)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(colors=INK, labelsize=8.5, length=3, color=FAINT)
    axis.grid(axis="y", color="#e4e4e4", linewidth=0.7)
