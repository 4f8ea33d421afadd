"""The page of Triangulation: the paper's table with both references, and three figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from nbf.plot.style import AGENT, BELIEF, FAINT, INK
from nbf_paper.pictures import read_picture
from nbf_paper.records import ALL, Over, Record, Row, Summary, read_records, summary
from nbf_paper.report.claims import Claim, beside
from nbf_paper.report.labels import row_labels, row_order
from nbf_paper.report.plots import divergence_figure
from nbf_paper.report.tables import MISSING, Page, cell, layout, legend, one_among_several

PAPER = {
    ("pf", "", 32): (0.638, 0.001), ("pf", "", 64): (0.607, 0.001), ("pf", "", 128): (0.565, 0.001),
    ("pf", "", 256): (0.513, 0.001), ("nbf", "faithful", 16): (0.459, 0.002), ("nbf", "faithful", 32): (0.459, 0.002),
}  # fmt: skip
"""The paper's table, mean and error, by filter, arm and particles."""
CAPTIONS = {
    "triangulation": "Mean divergence over 10 steps: the paper's numbers and ours to its reference, a particle filter "
    "of 1024; ours to the truth, a point-mass filter; and how far from the origin an agent stops that acts by it.",
    "triangulation.png": "Divergence from the truth by step; shaded: one standard error.",
    "triangulation-distance.png": "How far from the origin the agent stops, with each filter.",
    "triangulation-episode.png": "One episode as the truth, a particle filter and NBF (the paper's flow) see it; "
    "circles: a scan.",
}
CLAIMS = (
    Claim(
        "NBF with only 16 particles performs substantially better than the particle filters (to PF(1024)).",
        tuple(PAPER), ("triangulation",), "js_pf1024",
    ),
)  # fmt: skip
METRICS = {"js_pf1024": 3, "js": 3, "distance": 2}
"""Our columns, with their digits."""
SHOWN = (0, 2, 4, 6, 9)
"""The steps of the episode's figure, from 0."""
WIDTH = 5.0
"""Of the plane, from its middle."""

SHAPES = {
    "truth": "steps cells", "nbf": "steps cells", "particles": "steps particles 2", "weights": "steps particles",
    "positions": "steps 2", "readings": "steps", "scanning": "steps", "beacons": "beacons 2", "active": "steps",
}  # fmt: skip
"""The arrays of a picture."""
Picture = Mapping[str, np.ndarray]


def page(folder: Path) -> Page:
    """The table and figures of the records in a folder."""
    records = read_records(folder)
    tables = {"triangulation": table(records)}
    curves = [record for record in records if drawn(record)]
    figures: dict[str, Callable[[], Figure]] = {"triangulation.png": functools.partial(divergence_figure, curves)}
    if any(record.metric == "distance" for record in records):
        figures["triangulation-distance.png"] = functools.partial(distance_figure, records)
    if (folder / "episode.npz").exists():
        episode = read_picture(folder / "episode.npz", SHAPES, "nbf-paper reproduce triangulation")
        figures["triangulation-episode.png"] = functools.partial(episode_figure, episode)
    return Page(tables, figures, "Triangulation", CAPTIONS, beside(CLAIMS, records))


def table(records: list[Record]) -> str:
    """One line per filter: the paper's number, ours to its reference, ours to the truth, and the agent's distance."""
    found: dict[tuple[Row, str], Summary] = {
        (entry.row, entry.metric): entry for entry in summary(records) if entry.step == ALL
    }
    rows = sorted({row for row, metric in found if metric == "js"}, key=row_order)
    heads = ["Filter", "JS to PF(1024), paper", "JS to PF(1024), ours", "JS to the truth, ours", "final distance"]
    lines, names = [heads], row_labels(found.values())
    shown: list[Over] = [entry.over for (row, metric), entry in found.items() if metric in METRICS and row in rows]
    mixed = one_among_several(shown)
    for row in rows:
        paper = f"{PAPER[row][0]:.3f} ± {PAPER[row][1]:.3f}" if row in PAPER else MISSING
        ours = (cell(found.get((row, metric)), digits, mixed=mixed) for metric, digits in METRICS.items())
        lines.append([names[row], paper, *ours])
    counts = [entry for (_, metric), entry in found.items() if metric == "js"]
    behind = f"{max(entry.seeds for entry in counts)} × {max(entry.episodes for entry in counts)}"
    lines.append(["*seeds × episodes*", "20 × 100", behind, behind, behind])
    return layout(lines, legend(shown))


def drawn(record: Record) -> bool:
    """Whether the figure by step shows a record."""
    rows = {("pf", 32), ("pf", 256), ("pf", 1024), ("pf-kde", 32), ("pf-kde", 256), ("ekf", 0), ("approx", 0)}
    wanted = (record.filter, record.particles) in rows | {("nbf", 16), ("nbf", 32)}
    return wanted and record.arm in ("", "faithful") and record.metric == "js"


def distance_figure(records: list[Record]) -> Figure:
    """The distance from the origin at which the agent stops, with each filter."""
    found = [entry for entry in summary(records) if entry.metric == "distance" and entry.step == ALL]
    found.sort(key=lambda entry: row_order(entry.row), reverse=True)
    figure = Figure(figsize=(5.6, 0.6 + 0.26 * len(found)), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(found))
    errors = [entry.se or 0.0 for entry in found]
    colours = ["#D55E00" if entry.filter == "nbf" else "#0072B2" if entry.filter == "pf" else FAINT for entry in found]
    axis.barh(places, [entry.value for entry in found], xerr=errors, color=colours, height=0.7, ecolor=INK)
    names = row_labels(found)
    axis.set_yticks(places, [names[entry.row] for entry in found], fontsize=8.5)
    axis.set_xlabel("distance from the origin at the end")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def episode_figure(episode: Picture) -> Figure:
    """One episode: the truth, a particle filter of 64 and the neural filter of 32, at a few steps."""
    steps = [step for step in SHOWN if step < len(episode["positions"])]
    figure = Figure(figsize=(2.1 * len(steps), 6.6), layout="constrained")
    axes = figure.subplots(3, len(steps), squeeze=False)
    for column, step in enumerate(steps):
        for row, name in enumerate(("truth", "pf", "nbf")):
            axis = axes[row, column]
            _plane(axis, episode, step)
            if name == "pf":
                sizes = 2.0 + 200.0 * episode["weights"][step]
                axis.scatter(*episode["particles"][step].T, s=sizes, color="#0072B2", alpha=0.7, linewidths=0)
                continue
            cells = episode[name][step].astype(np.float32)
            side = round(len(cells) ** 0.5)
            extent = (-WIDTH, WIDTH, -WIDTH, WIDTH)
            axis.imshow(np.sqrt(cells.reshape(side, side).T), origin="lower", extent=extent, cmap=BELIEF)
        doing = f"scan: {episode['readings'][step]:.1f}" if episode["scanning"][step] else "move"
        axes[0, column].set_title(f"step {step + 1}, {doing}", fontsize=9, color=INK)
    for row, name in enumerate(("truth", "PF (64)", "NBF (32)")):
        axes[row, 0].set_ylabel(name, color=INK)
    return figure


def _plane(axis: Axes, episode: Picture, step: int) -> None:
    """The agent, the beacons and, at a scan, the circle on which the reading puts the agent."""
    axis.plot(*episode["beacons"].T, "^", color=FAINT, markersize=4)
    axis.plot(*episode["positions"][step], "o", color=AGENT, markersize=5, markeredgecolor="white", zorder=5)
    if episode["scanning"][step]:
        centre = episode["beacons"][episode["active"][step]]
        axis.plot(*centre, "^", color=INK, markersize=5)
        x, y = map(float, centre)
        axis.add_patch(
            Circle((x, y), max(float(episode["readings"][step]), 0.0), fill=False, color=FAINT, linestyle=":")
        )
    axis.set(xlim=(-WIDTH, WIDTH), ylim=(-WIDTH, WIDTH), xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_color(FAINT)
