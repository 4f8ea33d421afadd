"""Diagnostic figures of belief models and filters, drawn from plain arrays without JAX.

`calibration_figure` shows the calibration of a belief model: PIT histograms, and the coverage of its highest-density
regions. `steps_figure` shows what a filter reported at each step of an episode.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from nbf.errors import InputError
from nbf.plot.style import BLUE, FAINT, INK, VERMILION, frame, write_figure

MODEL, OFF = BLUE, VERMILION
SHADE = "#e3e3e3"
MAX_COLUMNS = 4
"""Panels in a row, at most."""
MAX_COORDINATES = 11
"""Coordinates that are drawn, at most: those whose histograms leave their band furthest."""


def calibration_figure(
    pit: np.ndarray,
    pit_band: np.ndarray,
    levels: np.ndarray,
    coverage: np.ndarray,
    coverage_band: np.ndarray,
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw the PIT histogram of each coordinate, and the coverage against the nominal level.

    A shaded band shows what a calibrated model would give; bars and points outside it have another colour. The arrays
    are the fields of `nbf.Calibration`.

    Args:
        pit: Heights of the PIT histograms, float[coordinates, bins].
        pit_band: Half-width of the band around the mean height, float[coordinates, bins].
        levels: Nominal levels of the highest-density regions, float[levels].
        coverage: Share of states inside each region, float[levels].
        coverage_band: Half-width of the band around the nominal level, float[levels].
        names: One for each coordinate; by default they are numbered.
        title: Of the whole figure.
        path: A PNG file to write as well.

    Returns:
        The figure.
    """
    pit, pit_band, levels, coverage, coverage_band = (
        np.asarray(array, np.float64) for array in (pit, pit_band, levels, coverage, coverage_band)
    )
    labels = [f"coordinate {place + 1}" for place in range(len(pit))] if names is None else list(names)
    _check(pit, pit_band, levels, coverage, coverage_band, labels)
    shown = _furthest(pit, pit_band)
    rows = math.ceil((len(shown) + 1) / MAX_COLUMNS)
    columns = math.ceil((len(shown) + 1) / rows)
    figure = Figure(figsize=(0.4 + 2.7 * columns, 0.4 + 2.6 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, place in zip(axes, shown, strict=False):
        _draw_histogram(axis, pit[place], pit_band[place], labels[place])
    _draw_coverage(axes[len(shown)], levels, coverage, coverage_band)
    for axis in axes[len(shown) + 1 :]:
        axis.set_visible(False)
    left_out = f"the {len(shown)} least flat of {len(pit)} coordinates" if len(shown) < len(pit) else ""
    return _finished(figure, " – ".join(filter(None, (title, left_out))), path)


def _check(
    pit: np.ndarray, pit_band: np.ndarray, levels: np.ndarray, coverage: np.ndarray, coverage_band: np.ndarray,
    names: Sequence[str],
) -> None:  # fmt: skip
    if pit.ndim != 2 or pit.size == 0 or pit_band.shape != pit.shape:
        raise InputError(
            f"PIT histograms and bands must both be float[coordinates, bins]; got {pit.shape} and {pit_band.shape}."
        )
    if levels.ndim != 1 or levels.size == 0 or not levels.shape == coverage.shape == coverage_band.shape:
        raise InputError(
            "Levels, coverage and its band must all be float[levels]; "
            f"got {levels.shape}, {coverage.shape} and {coverage_band.shape}."
        )
    if len(names) != len(pit):
        raise InputError(f"There are {len(pit)} coordinates to name; got {len(names)} names: {list(names)}.")
    if not all(np.all(np.isfinite(array)) for array in (pit, pit_band, levels, coverage, coverage_band)):
        raise InputError("Only finite numbers can be drawn; an array of the calibration has NaN or infinity.")


def _furthest(pit: np.ndarray, band: np.ndarray) -> list[int]:
    """The coordinates whose histograms leave their band furthest, in order."""
    excess = np.max(np.abs(pit - pit.mean(axis=1, keepdims=True)) - band, axis=1)
    return sorted(np.argsort(-excess, kind="stable")[:MAX_COORDINATES].tolist())


def _draw_histogram(axis: Axes, bars: np.ndarray, band: np.ndarray, name: str) -> None:
    """Draw one panel of heights relative to their mean."""
    heights, margin = bars / bars.mean(), band / bars.mean()
    edges = np.linspace(0, 1, len(bars) + 1)
    axis.stairs(1 + margin, edges, baseline=np.maximum(1 - margin, 0.0), fill=True, color=SHADE, zorder=1)
    colours = [OFF if off else MODEL for off in np.abs(heights - 1) > margin]
    axis.bar(edges[:-1], heights, 1 / len(bars), align="edge", color=colours, alpha=0.55, linewidth=0, zorder=2)
    axis.stairs(heights, edges, color=MODEL, linewidth=1.0, baseline=None, zorder=3)
    axis.axhline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=4)
    axis.set(xlim=(0, 1), ylim=(0, 1.15 * max(heights.max(), (1 + margin).max())))
    frame(axis, name, "PIT", "relative frequency")


def _draw_coverage(axis: Axes, levels: np.ndarray, coverage: np.ndarray, band: np.ndarray) -> None:
    axis.fill_between(levels, levels - band, levels + band, color=SHADE, linewidth=0, zorder=1)
    axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=2)
    axis.plot(levels, coverage, color=MODEL, linewidth=1.6, zorder=3)
    colours = [OFF if off else MODEL for off in np.abs(coverage - levels) > band]
    axis.scatter(levels, coverage, s=12, c=colours, linewidths=0, zorder=4)
    axis.text(0.04, 0.96, "underconfident", va="top", fontsize=8, color=FAINT, transform=axis.transAxes)
    axis.text(0.96, 0.04, "overconfident", ha="right", fontsize=8, color=FAINT, transform=axis.transAxes)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    frame(axis, "highest-density regions", "nominal level", "coverage")


def steps_figure(
    ess: ArrayLike,
    log_evidence: ArrayLike,
    attempts: ArrayLike,
    recovered: ArrayLike,
    p: ArrayLike | None = None,
    log_e: ArrayLike | None = None,
    *,
    rate: float = 0.001,
    title: str = "",
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw what a filter reported at each step of one episode, one panel for each quantity.

    Steps in which every weight was zero (`recovered`) are shaded in all panels.

    Args:
        ess: Effective sample size, float[steps]; this and the next three are the fields of `nbf.FilterInfo`.
        log_evidence: Estimate of log p(y_t | y_1:t-1), float[steps]; may be -inf.
        attempts: How often each step was simulated, int[steps].
        recovered: Whether the belief is a prediction without the observation, bool[steps].
        p: Predictive p-values of `nbf.Surprise`, float[steps].
        log_e: Log of its test martingale, the evidence against the model, float[steps].
        rate: False-alarm rate; the alarm is raised where `log_e` reaches -log `rate`.
        title: Of the whole figure.
        path: A PNG file to write as well.

    Returns:
        The figure.
    """
    told = {"ess": ess, "log_evidence": log_evidence, "attempts": attempts, "recovered": recovered}
    told |= {name: array for name, array in (("p", p), ("log_e", log_e)) if array is not None}
    series = {name: np.asarray(array, np.float64) for name, array in told.items()}
    _check_steps(series, rate)
    panels = [name for name in series if name != "recovered"]
    figure = Figure(figsize=(7.0, 0.6 + 1.35 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    steps = np.arange(1, len(series["ess"]) + 1)
    bad = steps[series["recovered"] > 0]
    for axis, name in zip(axes, panels, strict=True):
        for step in bad:
            axis.axvspan(step - 0.5, step + 0.5, color=SHADE, linewidth=0, zorder=0)
        _draw_series(axis, name, steps, series[name], rate)
    axes[-1].set_xlabel("step", fontsize=9.5, color=INK)
    axes[-1].set_xlim(0.5, len(steps) + 0.5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return _finished(figure, title, path)


def _check_steps(series: dict[str, np.ndarray], rate: float) -> None:
    shapes = {name: array.shape for name, array in series.items()}
    if len(set(shapes.values())) > 1 or series["ess"].ndim != 1 or series["ess"].size == 0:
        raise InputError(f"All series of an episode must be float[steps] of one length, at least 1; got {shapes}.")
    for name, array in series.items():
        # An impossible observation has a log-evidence of -inf, which is drawn as a mark.
        if np.any(np.isnan(array)) or np.any(array == np.inf) or (name != "log_evidence" and np.any(array == -np.inf)):
            raise InputError(f"Only finite numbers can be drawn; {name} has NaN or infinity.")
    if not 0 < rate < 1:
        raise InputError(f"A false-alarm rate must be above 0 and below 1; got {rate}.")


def _draw_series(axis: Axes, name: str, steps: np.ndarray, values: np.ndarray, rate: float) -> None:
    """Draw one panel; values that call for attention have another colour."""
    label = {"ess": "ESS", "log_evidence": "log-evidence", "attempts": "attempts", "p": "p", "log_e": "log E"}[name]
    finite = np.isfinite(values)
    if name == "attempts":
        axis.bar(steps, values, 0.8, color=[OFF if value > 1 else MODEL for value in values], alpha=0.55, linewidth=0)
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    elif name == "p":
        axis.scatter(steps, values, s=14, color=MODEL, linewidths=0)
        axis.set_ylim(0, 1)
    else:
        axis.plot(steps, np.where(finite, values, np.nan), color=MODEL, linewidth=1.4, marker="o", markersize=2.5)
    if name == "ess":
        axis.set_ylim(bottom=0)
    if name == "log_evidence" and not finite.all():
        axis.scatter(steps[~finite], np.full(np.sum(~finite), 0.04), s=28, marker="v", color=OFF, linewidths=0,
                     transform=axis.get_xaxis_transform(), clip_on=False)  # fmt: skip
    if name == "log_e":
        alarm = -math.log(rate)
        axis.axhline(alarm, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        axis.text(0.005, alarm, f"alarm, false at most {rate:g} of the time", ha="left", va="bottom", fontsize=8,
                  color=FAINT, transform=axis.get_yaxis_transform())  # fmt: skip
        axis.scatter(steps[values >= alarm], values[values >= alarm], s=14, color=OFF, linewidths=0, zorder=3)
    frame(axis, "", "", label)


def _finished(figure: Figure, title: str, path: str | os.PathLike[str] | None) -> Figure:
    if title:
        figure.suptitle(title, fontsize=11.5, color=INK)
    if path is not None:
        write_figure(figure, path)
    return figure
