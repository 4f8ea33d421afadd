"""The page of donuts: the paper's two figures, and a table of the decoders."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import BELIEF, FAINT
from nbf_paper.pictures import read_picture
from nbf_paper.records import read_records, summary
from nbf_paper.report.tables import Page, cell, layout, legend

COLUMNS = {
    "nll": ("NLL", 3), "entropy": ("entropy", 3), "nll_gap": ("NLL − entropy", 3), "energy_distance": ("energy", 4),
    "coverage_gap": ("coverage gap", 3), "training_seconds": ("training (s)", 0),
    "us_sample_16": ("16 samples (µs)", 0), "us_density_64": ("64 densities (µs)", 0),
}  # fmt: skip
"""Metrics in the order of the table's columns, with their heads and digits."""
CAPTIONS = {
    "donuts": "Each decoder on donuts that it has not seen, of which 64 samples are embedded: negative log-likelihood "
    "and how far it lies above the true entropy, energy distance, the error of its coverage, and its costs.",
    "donuts.png": "Samples of unseen donuts over their true densities.",
    "donuts-densities.png": "What each decoder makes of 64 points of an unseen donut; the truth in the first row.",
    "donuts-flow-matching.png": "The paper's figure of flow matching: what a model with optimal transport coupling "
    "makes of 256 points of an unseen donut, on 512 x 512 points.",
}
ORDER = (
    "flow", "flow-paper", "nlsq", "spline", "mixture", "cfm-independent", "cfm-ot", "cfm-independent-paper",
    "cfm-ot-paper",
)  # fmt: skip
FINE = "cfm-ot-paper-512.npz"
"""The data of the paper's figure of flow matching."""

SHAPES = {"axis": "x", "points": "donuts points 2", "density": "donuts x x", "truth": "donuts x x"}
"""The arrays of a picture."""
Picture = Mapping[str, np.ndarray]
"""Of a few donuts: `axis`, the `points` that were embedded, the model's `density` and the `truth` on a grid."""


def page(folder: Path) -> Page:
    """The table and figures of the records in a folder."""
    found = {(entry.arm, entry.metric): entry for entry in summary(read_records(folder))}
    arms = sorted({arm for arm, _ in found}, key=lambda arm: (ORDER.index(arm) if arm in ORDER else len(ORDER), arm))
    lines = [["Decoder", *(head for head, _ in COLUMNS.values())]]
    for arm in arms:
        lines.append([arm, *(cell(found.get((arm, metric)), digits) for metric, (_, digits) in COLUMNS.items())])
    pictures = {
        arm: read_picture(folder / f"{arm}.npz", SHAPES, "nbf-paper reproduce donuts")
        for arm in arms
        if (folder / f"{arm}.npz").exists()
    }
    figures = {}
    if pictures:
        figures["donuts.png"] = functools.partial(examples_figure, next(iter(pictures.values())))
        figures["donuts-densities.png"] = functools.partial(densities_figure, pictures)
    if (folder / FINE).exists():
        shapes = {name: shape for name, shape in SHAPES.items() if name != "truth"}
        fine = read_picture(folder / FINE, shapes, "nbf-paper reproduce donuts")
        figures["donuts-flow-matching.png"] = functools.partial(flow_matching_figure, fine)
    table = layout(lines, legend((entry.over for entry in found.values()), unit="donuts"))
    return Page({"donuts": table}, figures, "Donuts", CAPTIONS)


def examples_figure(picture: Picture) -> Figure:
    """Samples of donuts over their own densities."""
    return _panels({"": (picture["axis"], picture["points"], picture["truth"])})


def densities_figure(pictures: Mapping[str, Picture]) -> Figure:
    """The density of each decoder, given the points; the truth in the first row."""
    first = next(iter(pictures.values()))
    rows = {"truth": (first["axis"], first["points"], first["truth"])}
    return _panels(rows | {arm: (item["axis"], item["points"], item["density"]) for arm, item in pictures.items()})


def flow_matching_figure(picture: Picture) -> Figure:
    """Densities on a fine grid, without the points."""
    none = np.zeros((len(picture["points"]), 0, 2), np.float32)
    return _panels({"": (picture["axis"], none, picture["density"])})


def _panels(rows: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    count = len(next(iter(rows.values()))[1])
    figure = Figure(figsize=(2.0 * count, 2.0 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, (axis, points, density)) in zip(axes, rows.items(), strict=True):
        for panel, some, grid in zip(line, points, density.astype(np.float32), strict=True):
            panel.contourf(axis, axis, grid, levels=np.linspace(1e-3, grid.max(), 12), cmap=BELIEF)
            panel.plot(*some.T, ".", color="#D55E00", markersize=2.5, alpha=0.8)
            panel.set(xticks=[], yticks=[], aspect="equal", xlim=axis[[0, -1]], ylim=axis[[0, -1]])
            panel.spines[:].set_color(FAINT)
        line[0].set_ylabel(name)
    return figure
