"""The paper's figures "fixed-grids" and "random-grids": Jensen-Shannon divergence by step, one panel per configuration.

Drawn from records without jax. Every figure is an object of its own; nothing here touches matplotlib's global state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from nbf.plot.style import BLUE, FAINT, GREEN, INK, ORANGE, PINK, SKY, VERMILION
from nbf_paper.names import FIXED, RANDOM
from nbf_paper.records import ALL, Record, RecordError, Row, Summary, summary
from nbf_paper.report.labels import row_labels, row_order
from nbf_paper.report.tables import config_order

PANELS = {"fixed": FIXED, "random": RANDOM}
"""The panels of the paper's two figures."""

COLOURS = {
    ("pf", ""): BLUE,
    ("nbf", ""): VERMILION,
    ("approx", ""): GREEN,
    ("exact", ""): INK,
    ("recurrent", ""): PINK,
    ("fine-tuned", ""): "#8C6D1F",
    ("pf-kde", ""): SKY,
    ("nbf", "enumerated"): ORANGE,
    ("approx", "enumerated"): "#7FB800",
    ("nbf", "autoregressive"): ORANGE,
    ("approx", "autoregressive"): "#7FB800",
    ("emp", ""): "#555555",
    ("branching", "branches chosen"): "#444444",
}
SPARE = (PINK, SKY, "#8C6D1F", "#6A51A3", "#555555")
ACROSS = 5
"""Panels beside each other."""
# The more particles, the heavier the line: dots, dashes, then unbroken.
DASHES = ((0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)), (0, (5, 1.5)), "solid")
MARKERS = ("o", "s", "^", "D")


def divergence_figure(
    records: Iterable[Record], configs: Sequence[str] | None = None, *, metric: str = "js", logarithmic: bool = False
) -> Figure:
    """JS by step: one panel per configuration, one line per filter, ±1 standard error shaded.

    `configs` is one of `PANELS`, or any list; every recorded configuration by default. The exact
    filter, whose divergence is zero, is not drawn.
    """
    found = summary(
        record for record in records if record.metric == metric and record.step != ALL and record.filter != "exact"
    )
    panels = list(configs) if configs is not None else sorted({entry.config for entry in found}, key=config_order)
    found = [entry for entry in found if entry.config in panels]
    if not found:
        raise RecordError(f"No record has metric {metric!r} by step in {panels}: there is nothing to draw.")
    looks, names = _looks({entry.row for entry in found}), row_labels(found)
    wide, across = len(panels) > 2, min(len(panels), ACROSS)
    down = math.ceil(len(panels) / across)
    size = (0.8 if wide else 3.7) + 2.8 * across, 0.9 + 2.6 * down
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(down, across, sharey=True, squeeze=False)
    axes = list(places.flat)[: len(panels)]
    for unused in list(places.flat)[len(panels) :]:
        unused.remove()
    for axis, config in zip(axes, panels, strict=True):
        axis.set_title(_plain(config), fontsize=10.5, color=INK)
        _draw_lines(axis, [entry for entry in found if entry.config == config], looks, names)
    _frame_panels(axes, logarithmic)
    for first in axes[::across]:
        first.set_ylabel("JS divergence (nats)" if metric == "js" else metric, fontsize=9.5, color=INK)
    _line_key(figure, looks, names, wide)
    return figure


def _looks(rows: Iterable[Row]) -> dict[Row, dict[str, Any]]:
    """A colour for each family (a filter and its arm), a dash and a marker for each particle count."""
    ordered = sorted(rows, key=row_order)
    families: dict[tuple[str, str], list[Row]] = {}
    for row in ordered:
        families.setdefault((row[0], "" if row[1] == "faithful" else row[1]), []).append(row)
    spare = iter(SPARE * len(families))
    colours = {family: COLOURS.get(family) or next(spare) for family in families}
    looks: dict[Row, dict[str, Any]] = {}
    for family, members in families.items():
        for place, row in enumerate(members):
            below = len(members) - 1 - place
            rank = -1 - below % len(DASHES)
            looks[row] = {
                "color": _tint(colours[family], 0.13 * min(below, 3)), "linestyle": DASHES[rank],
                "linewidth": 2.0 if row[0] == "nbf" else 1.5,
                "marker": MARKERS[rank], "markersize": 3.6, "markeredgewidth": 0,
            }  # fmt: skip
    return looks


def _plain(text: str) -> str:
    """Text without matplotlib's formulas."""
    return text.replace("$", r"\$")


def _tint(colour: str, whiteness: float) -> tuple[float, ...]:
    return tuple(part + (1 - part) * whiteness for part in to_rgb(colour))


def _line_key(figure: Figure, looks: Mapping[Row, dict[str, Any]], names: Mapping[Row, str], wide: bool) -> None:
    """The legend: above many panels, in columns that keep a filter's lines together; beside few panels."""
    handles = [(row[0], Line2D([], [], label=_plain(names[row]), **look)) for row, look in looks.items()]
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "handlelength": 3.2, "labelcolor": INK}
    if not wide:
        figure.legend(handles=[handle for _, handle in handles], loc="outside right upper", **style)
        return
    lines, columns = 1, list[list[Any]]()
    while not columns or (lines < len(handles) and _inches(columns) > figure.get_figwidth()):
        lines += 1
        columns = [
            part + [Line2D([], [], linestyle="", label=" ")] * (lines - len(part))
            for _, group in groupby(handles, key=lambda pair: pair[0])
            for part in _parts([handle for _, handle in group], lines)
        ]
    flat = [handle for column in columns for handle in column]
    figure.legend(handles=flat, loc="outside upper center", ncols=len(columns), columnspacing=1.6, **style)


def _parts(items: Sequence[Any], size: int) -> list[list[Any]]:
    """Parts of so many items; the last one may be shorter."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _inches(columns: Sequence[Sequence[Line2D]]) -> float:
    """About how wide a legend with these columns is: letters, and the lines before them."""
    return sum(0.75 + 0.07 * max(len(str(handle.get_label())) for handle in column) for column in columns)


def _draw_lines(
    axis: Axes, entries: list[Summary], looks: Mapping[Row, dict[str, Any]], names: Mapping[Row, str]
) -> None:
    if not entries:
        axis.text(0.5, 0.5, "not recorded", transform=axis.transAxes, ha="center", va="center", color=FAINT)
        axis.set_xticks([])
        axis.tick_params(left=False)
        return
    for row, look in looks.items():
        line = sorted((entry for entry in entries if entry.row == row), key=lambda entry: entry.step)
        if not line:
            continue
        steps = np.array([entry.step for entry in line])
        mean = np.array([entry.value for entry in line])
        error = np.array([entry.se or 0.0 for entry in line])
        axis.fill_between(steps, mean - error, mean + error, color=look["color"], alpha=0.18, linewidth=0)
        every = max(1, len(steps) // 7)
        axis.plot(steps, mean, label=names[row], markevery=every, zorder=4 if row[0] == "nbf" else 3, **look)


def _frame_panels(axes: Sequence[Axes], logarithmic: bool) -> None:
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(FAINT)
        axis.tick_params(colors=INK, labelsize=8.5, length=3, color=FAINT)
        if axis.lines:
            axis.grid(axis="y", color="#e4e4e4", linewidth=0.7)
            axis.set_axisbelow(True)
            axis.set_xlabel("step", fontsize=9.5, color=INK)
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axis.margins(x=0.02)
    if logarithmic:
        axes[0].set_yscale("log")
    else:
        axes[0].set_ylim(bottom=0)
