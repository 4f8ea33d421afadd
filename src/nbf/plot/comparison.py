"""The figure of a comparison of filters: how good each is, against what it costs."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nbf.errors import InputError
from nbf.plot.style import BLUE, FAINT, GREEN, INK, ORANGE, PINK, SKY, VERMILION, frame, legend, write_figure

STYLES = {
    "neural": (VERMILION, "o"), "regularised": (GREEN, "s"), "particle": (BLUE, "D"), "branching": (SKY, "^"),
    "kalman": (PINK, "v"), "exact": (ORANGE, "*"), "untrained": (VERMILION, "x"),
}  # fmt: skip
"""Colour and marker of each kind of filter with a cost."""
LEVELS = {"prior": (0, (1, 1.5)), "reference": (0, (4, 2)), "ceiling": (0, (6, 2, 1, 2))}
"""Line style of each kind that is a level, whatever it costs."""


def comparison_figure(
    kinds: Sequence[str],
    calls: Sequence[float | None],
    microseconds: Sequence[float | None],
    scores: Sequence[float],
    errors: Sequence[float],
    *,
    label: str,
    title: str = "",
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw scores against simulator calls and, where times are known, against time.

    Args:
        kinds: What each row is, as `nbf.Comparison` has it.
        calls: Simulator calls per update of each row; None for a level.
        microseconds: Time of an update of each row; None if it is not known.
        scores: Of each row.
        errors: Standard errors of the scores.
        label: What the scores are.
        title: Of the whole figure.
        path: A PNG file to write as well.

    Returns:
        The figure.
    """
    if not len(kinds) == len(calls) == len(microseconds) == len(scores) == len(errors) or not kinds:
        raise InputError(
            "Kinds, calls, times, scores and errors must be of one length, at least 1; got "
            f"{[len(part) for part in (kinds, calls, microseconds, scores, errors)]}."
        )
    if not np.all(np.isfinite([*scores, *errors])):
        raise InputError("Only finite numbers can be drawn; a score or an error is NaN or infinite.")
    panels = [("simulator calls per update", calls)]
    if any(time is not None for time in microseconds):
        panels.append(("µs per update", microseconds))
    figure = Figure(figsize=(0.6 + 4.4 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (below, costs) in zip(axes, panels, strict=True):
        _draw(axis, kinds, costs, scores, errors)
        frame(axis, "", below, label if axis is axes[0] else "")
        axis.set_xscale("log")
    return _finished(figure, axes[0], title, path)


def _finished(figure: Figure, axis: Axes, title: str, path: str | os.PathLike[str] | None) -> Figure:
    legend(figure, axis)
    if title:
        characters = int(10 * figure.get_figwidth())  # of one line at this size
        figure.suptitle(textwrap.fill(title, characters), fontsize=11.5, color=INK)
    if path is not None:
        write_figure(figure, path)
    return figure


def _draw(
    axis: Axes, kinds: Sequence[str], costs: Sequence[float | None], scores: Sequence[float], errors: Sequence[float]
) -> None:
    """Draw one panel: a line through the filters of each kind, and levels."""
    for kind, (colour, marker) in STYLES.items():
        chosen = [place for place, each in enumerate(kinds) if each == kind and costs[place]]
        chosen.sort(key=lambda place: costs[place] or 0.0)
        if chosen:
            axis.errorbar(
                [float(costs[place] or 0.0) for place in chosen], [scores[place] for place in chosen],
                [errors[place] for place in chosen], color=colour, marker=marker, markersize=5, linewidth=1.4,
                elinewidth=0.8, linestyle="none" if kind in ("untrained", "kalman") else "-", label=kind,
            )  # fmt: skip
    for kind, style in LEVELS.items():
        for place in (place for place, each in enumerate(kinds) if each == kind):
            axis.axhline(scores[place], color=FAINT, linestyle=style, linewidth=1.2, label=kind, zorder=0)
