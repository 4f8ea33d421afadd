"""Beliefs over real vectors, drawn from weighted samples: one, two, or more coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nbf.errors import InputError
from nbf.plot.style import AGENT, BELIEF, CYCLE, INK, begun, frame, legend

BINS_1D, BINS_2D = 60, 44
MAX_COORDINATES = 6
"""Of a figure with all pairs of coordinates."""
MAX_POINTS = 500
"""Drawn in a panel of two coordinates among several."""


def marginals_figure(
    samples: Mapping[str, ArrayLike],
    *,
    weights: Mapping[str, ArrayLike] | None = None,
    truth: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    bounds: tuple[ArrayLike | float, ArrayLike | float] | None = None,
    title: str = "",
    figure: Figure | None = None,
) -> Figure:
    """Draw beliefs over real vectors: histograms of one coordinate, heat maps of two, all pairs of three to six.

    Args:
        samples: For each belief its samples, float[n, d], such as `belief.sample(key, 2000)`; 1 <= d <= 6.
        weights: Of the samples, float[n], for the beliefs that have any; they need not add up to one.
        truth: The true state, float[d].
        names: Of the coordinates.
        bounds: Lowest and highest value of each coordinate, float[d] each; by default those of the samples.
        title: Of the whole figure.
        figure: Where to draw, as in an `animation`; by default a new figure.

    Returns:
        The figure.
    """
    drawn = {name: np.asarray(values, np.float64) for name, values in samples.items()}
    heavy = {name: _weights(name, values, (weights or {}).get(name)) for name, values in drawn.items()}
    d = _dimension(drawn, weights or {})
    labels = [f"coordinate {place + 1}" for place in range(d)] if names is None else list(names)
    low, high = _bounds(drawn, bounds, d)
    true = None if truth is None else np.asarray(truth, np.float64).reshape(-1)
    if len(labels) != d or (true is not None and true.shape != (d,)):
        raise InputError(f"States have {d} coordinates; got {len(labels)} names, and as the truth {truth}.")
    panels = (1, 1) if d == 1 else (1, len(drawn)) if d == 2 else (d, d)
    size = (5.6, 3.2) if d == 1 else (0.6 + 3.1 * len(drawn), 3.5) if d == 2 else (1.0 + 1.9 * d, 0.8 + 1.9 * d)
    figure = begun(figure, size, title)
    axes = figure.subplots(*panels, squeeze=False)
    if d == 1:
        _draw_line(axes[0, 0], drawn, heavy, 0, (low, high), true)
        frame(axes[0, 0], "", labels[0], "density")
        legend(figure, axes[0, 0])
    elif d == 2:
        _draw_maps(axes[0], drawn, heavy, (low, high), true, labels)
    else:
        _draw_pairs(axes, drawn, heavy, (low, high), true, labels)
        legend(figure, axes[0, 0])
    return figure


def _weights(name: str, values: np.ndarray, given: ArrayLike | None) -> np.ndarray:
    found = np.ones(len(values)) if given is None else np.asarray(given, np.float64)
    if found.shape != values.shape[:1] or not np.all(np.isfinite(found)) or np.any(found < 0) or found.sum() <= 0:
        raise InputError(
            f"The weights of {name} must be {len(values)} finite numbers, none below 0 and not all 0, one for each "
            f"sample; got an array of shape {found.shape}. Of log weights, pass the exponentials."
        )
    return found / found.sum()


def _dimension(samples: dict[str, np.ndarray], weights: Mapping[str, ArrayLike]) -> int:
    shapes = {name: values.shape for name, values in samples.items()}
    sizes = {shape[1] for shape in shapes.values() if len(shape) == 2 and shape[0] > 0}
    if len(sizes) != 1 or any(len(shape) != 2 or shape[0] == 0 for shape in shapes.values()):
        raise InputError(f"Samples of beliefs must be float[n, d] with one d for all; got {shapes or 'no belief'}.")
    (d,) = sizes
    if not 1 <= d <= MAX_COORDINATES:
        raise InputError(f"A figure shows 1 to {MAX_COORDINATES} coordinates; states have {d}. Choose some of them.")
    if not all(np.all(np.isfinite(values)) for values in samples.values()):
        raise InputError("Only finite numbers can be drawn; samples of a belief have NaN or infinity.")
    if set(weights) - set(samples):
        raise InputError(f"There are weights of {sorted(set(weights) - set(samples))}, which have no samples.")
    return d


def _bounds(
    samples: dict[str, np.ndarray], bounds: tuple[ArrayLike | float, ArrayLike | float] | None, d: int
) -> tuple[np.ndarray, np.ndarray]:
    if bounds is None:
        pooled = np.concatenate(list(samples.values()))
        low, high = pooled.min(axis=0), pooled.max(axis=0)
        margin = np.where(high > low, 0.04 * (high - low), 0.5)
        return low - margin, high + margin
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), (d,)) for bound in bounds)
    if not np.all(low < high):
        raise InputError(f"Each lowest value must be below the highest; got {low.tolist()} and {high.tolist()}.")
    return low, high


def _draw_line(
    axis: Axes, samples: dict[str, np.ndarray], weights: dict[str, np.ndarray], place: int,
    bounds: tuple[np.ndarray, np.ndarray], truth: np.ndarray | None,
) -> None:  # fmt: skip
    """Histograms of one coordinate, as densities."""
    edges = np.linspace(bounds[0][place], bounds[1][place], BINS_1D + 1)
    for number, (name, values) in enumerate(samples.items()):
        heights = np.histogram(values[:, place], edges, weights=weights[name])[0] / np.diff(edges)
        axis.stairs(heights, edges, color=CYCLE[number % len(CYCLE)], linewidth=1.5, label=name, baseline=None)
    if truth is not None:
        axis.axvline(truth[place], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="truth")
    axis.set_xlim(bounds[0][place], bounds[1][place])
    axis.set_ylim(bottom=0)


def _draw_maps(
    axes: np.ndarray, samples: dict[str, np.ndarray], weights: dict[str, np.ndarray],
    bounds: tuple[np.ndarray, np.ndarray], truth: np.ndarray | None, labels: list[str],
) -> None:  # fmt: skip
    """One heat map for each belief, with one colour scale."""
    edges = [np.linspace(low, high, BINS_2D + 1) for low, high in zip(*bounds, strict=True)]
    maps = {
        name: np.histogram2d(values[:, 0], values[:, 1], edges, weights=weights[name])[0]
        for name, values in samples.items()
    }
    norm = PowerNorm(0.5, vmin=0, vmax=max(float(found.max()) for found in maps.values()) or 1.0)
    for axis, (name, found) in zip(axes, maps.items(), strict=True):
        axis.pcolormesh(edges[0], edges[1], found.T, cmap=BELIEF, norm=norm, linewidth=0, rasterized=True)
        if truth is not None:
            axis.plot(*truth, "o", color=AGENT, markersize=8, markeredgecolor="white", markeredgewidth=1.2)
        frame(axis, name, labels[0], labels[1] if axis is axes[0] else "")


def _draw_pairs(
    axes: np.ndarray, samples: dict[str, np.ndarray], weights: dict[str, np.ndarray],
    bounds: tuple[np.ndarray, np.ndarray], truth: np.ndarray | None, labels: list[str],
) -> None:  # fmt: skip
    """Histograms on the diagonal, points below it."""
    d = len(labels)
    for row in range(d):
        for column in range(d):
            axis = axes[row, column]
            if column > row:
                axis.set_visible(False)
                continue
            if row == column:
                _draw_line(axis, samples, weights, row, bounds, truth)
            else:
                _draw_points(axis, samples, weights, (column, row), bounds, truth)
            frame(axis, "", labels[column] if row == d - 1 else "", labels[row] if column == 0 < row else "")
            axis.tick_params(labelbottom=row == d - 1, labelleft=column == 0 < row)


def _draw_points(
    axis: Axes, samples: dict[str, np.ndarray], weights: dict[str, np.ndarray], places: tuple[int, int],
    bounds: tuple[np.ndarray, np.ndarray], truth: np.ndarray | None,
) -> None:  # fmt: skip
    """Samples in two coordinates; the area of a point is its weight."""
    first, second = places
    for number, (name, values) in enumerate(samples.items()):
        some = np.linspace(0, len(values) - 1, min(len(values), MAX_POINTS)).astype(int)
        areas = np.clip(6.0 * weights[name][some] * len(values), 0.0, 60.0)
        colour = CYCLE[number % len(CYCLE)]
        axis.scatter(values[some, first], values[some, second], s=areas, color=colour, alpha=0.35, linewidths=0)
    if truth is not None:
        axis.axvline(truth[first], color=INK, linewidth=0.7, linestyle=(0, (4, 2)))
        axis.axhline(truth[second], color=INK, linewidth=0.7, linestyle=(0, (4, 2)))
    low, high = bounds
    axis.set(xlim=(low[first], high[first]), ylim=(low[second], high[second]))
