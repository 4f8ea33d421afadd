"""The page of the classical filters: one table, and errors against the number of particles."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import INK
from nbf_paper.records import ALL, Record, Row, Summary, read_records, summary
from nbf_paper.report.labels import FILTERS, label, row_order
from nbf_paper.report.tables import Page, cell, layout, legend

METRICS = {
    "mean_error": "error of the mean", "covariance_error": "error of the covariance",
    "log_evidence_error": "error of the log evidence",
}  # fmt: skip
COLOURS = {"pf": "#0072B2", "enkf": "#009E73"}


def page(folder: Path) -> Page:
    """The table and the figure of the records in a folder."""
    records = read_records(folder)
    about = "against the exact Kalman filter, on a point that moves in the plane with nearly constant velocity."
    captions = {
        "classical": f"The classical filters {about} Errors of mean and covariance are in standard deviations of the "
        "exact belief, the log evidence is that of an episode of 20 steps.",
        "classical.png": f"Particle and ensemble filters {about} The ensemble filter's errors fall as one over the "
        "root of the number.",
    }
    figures = {"classical.png": functools.partial(figure, records)}
    return Page({"classical": table(records)}, figures, title="Classical filters", captions=captions)


def table(records: list[Record]) -> str:
    """One line per filter."""
    found: dict[tuple[Row, str], Summary] = {
        (entry.row, entry.metric): entry for entry in summary(records) if entry.step == ALL
    }
    lines = [["Filter", *METRICS.values()]]
    for row in sorted({row for row, _ in found}, key=row_order):
        lines.append([label(*row), *(cell(found.get((row, metric)), 4) for metric in METRICS)])
    return layout(lines, legend(entry.over for entry in found.values()))


def figure(records: list[Record]) -> Figure:
    """Each error against the number of particles."""
    found = [entry for entry in summary(records) if entry.step == ALL]
    drawn = Figure(figsize=(9.0, 3.0), layout="constrained")
    for axis, (metric, head) in zip(drawn.subplots(1, len(METRICS)), METRICS.items(), strict=True):
        for filter, colour in COLOURS.items():
            curve = sorted(
                (entry for entry in found if (entry.filter, entry.metric) == (filter, metric)),
                key=lambda entry: entry.particles,
            )
            counts, values = (np.array([getattr(entry, name) for entry in curve]) for name in ("particles", "value"))
            errors = [entry.se or 0.0 for entry in curve]
            axis.errorbar(counts, values, errors, marker="o", markersize=3.5, color=colour, label=FILTERS[filter])
        axis.set(xscale="log", yscale="log", xlabel="particles")
        axis.set_title(head, fontsize=10, color=INK)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e4e4e4", linewidth=0.7)
    drawn.axes[0].legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return drawn
