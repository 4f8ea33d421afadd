"""Beliefs over states that can be listed, drawn from probabilities: lattices, and sequences of symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from nbf.errors import InputError
from nbf.plot.style import AGENT, BELIEF, CYCLE, FAINT, INK, WALL, begun, frame, legend

MAX_SLICES = 12
"""Layers of a lattice in three dimensions that fit into a row."""


def lattice_figure(
    probs: Mapping[str, ArrayLike],
    *,
    truth: ArrayLike | None = None,
    walls: ArrayLike | None = None,
    title: str = "",
    figure: Figure | None = None,
) -> Figure:
    """Draw beliefs over a lattice: steps over a line, heat maps of a grid, the layers of a block one beside the other.

    Args:
        probs: For each belief the probabilities of all cells, float[h], float[h, w] or float[layers, h, w].
        truth: The true cell, int[1 to 3].
        walls: Cells that no state can be in, bool of the same shape as the probabilities.
        title: Of the whole figure.
        figure: Where to draw, as in an `animation`; by default a new figure.

    Returns:
        The figure.
    """
    found = {name: np.asarray(values, np.float64) for name, values in probs.items()}
    shape = _checked(found, "the cells of a lattice")
    cell = None if truth is None else np.asarray(truth).reshape(-1)
    blocked = np.zeros(shape, bool) if walls is None else np.asarray(walls, bool)
    layers = shape[0] if len(shape) == 3 else 1
    if not 1 <= len(shape) <= 3 or layers > MAX_SLICES:
        raise InputError(f"A lattice of 1 to 3 dimensions, of at most {MAX_SLICES} layers, can be drawn; got {shape}.")
    if blocked.shape != shape or (cell is not None and not _inside(cell, shape)):
        raise InputError(f"Walls and truth must fit a lattice of shape {shape}; got {blocked.shape} and {truth}.")
    if len(shape) == 1:
        figure = begun(figure, (5.6, 3.0), title)
        _draw_steps(figure, found, cell)
    elif len(shape) == 2:
        figure = begun(figure, (0.7 + 2.8 * len(found), 3.5), title)
        _draw_grids(figure, found, blocked, cell)
    else:
        figure = begun(figure, (0.7 + 1.6 * layers, 0.6 + 1.6 * len(found)), title)
        _draw_layers(figure, found, blocked, cell)
    return figure


def tokens_figure(
    probs: Mapping[str, ArrayLike],
    *,
    truth: ArrayLike | None = None,
    symbols: Sequence[str] | None = None,
    title: str = "",
    figure: Figure | None = None,
) -> Figure:
    """Draw beliefs over sequences of symbols: for each place, how likely each symbol stands there.

    Args:
        probs: For each belief the probabilities, float[places, symbols], such as `token_marginals` gives.
        truth: The true sequence, int[places].
        symbols: Their names.
        title: Of the whole figure.
        figure: Where to draw, as in an `animation`; by default a new figure.

    Returns:
        The figure.
    """
    found = {name: np.asarray(values, np.float64) for name, values in probs.items()}
    shape = _checked(found, "places and symbols")
    labels = [str(number) for number in range(shape[-1])] if symbols is None else list(symbols)
    true = None if truth is None else np.asarray(truth).reshape(-1)
    if len(shape) != 2 or len(labels) != shape[1]:
        raise InputError(
            f"Probabilities must be float[places, symbols], one name a symbol; got {shape}, {len(labels)}."
        )
    if true is not None and not (true.shape == shape[:1] and np.all((true >= 0) & (true < shape[1]))):
        raise InputError(f"The truth must be {shape[0]} symbols from 0 to {shape[1] - 1}; got {truth}.")
    places, count = shape
    figure = begun(figure, (0.8 + len(found) * max(1.8, 0.42 * places), 0.9 + max(1.6, 0.3 * count)), title)
    norm = _scale(found)
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, (name, values) in zip(axes, found.items(), strict=True):
        axis.imshow(values.T, cmap=BELIEF, norm=norm, interpolation="nearest", aspect="auto")
        if true is not None:
            axis.scatter(np.arange(places), true, s=42, facecolors="none", edgecolors=AGENT, linewidths=1.6)
        frame(axis, name, "place", "symbol" if axis is axes[0] else "")
        axis.set(xticks=range(places), yticks=range(count))
        axis.set_xticklabels([str(place + 1) for place in range(places)])
        axis.set_yticklabels(labels if axis is axes[0] else [])
    return figure


def token_marginals(samples: ArrayLike, symbols: int, weights: ArrayLike | None = None) -> np.ndarray:
    """Count how likely each symbol is at each place of a sequence.

    Args:
        samples: Sequences, int[n, places].
        symbols: How many symbols there are.
        weights: Of the sequences, float[n]; by default all are alike.

    Returns:
        Probabilities, float[places, symbols].
    """
    drawn = np.asarray(samples)
    heavy = np.ones(len(drawn)) if weights is None else np.asarray(weights, np.float64)
    if drawn.ndim != 2 or heavy.shape != drawn.shape[:1] or not heavy.sum() > 0:
        raise InputError(
            f"Sequences must be int[n, places] with a weight for each, not all 0; got {drawn.shape}, {heavy.shape}."
        )
    if drawn.size and not (drawn.min() >= 0 and drawn.max() < symbols):
        raise InputError(f"Symbols are 0 to {symbols - 1}; the sequences have {drawn.min()} to {drawn.max()}.")
    return np.stack([np.bincount(column, heavy, symbols) for column in drawn.T]) / heavy.sum()


def _checked(probs: dict[str, np.ndarray], what: str) -> tuple[int, ...]:
    shapes = {name: values.shape for name, values in probs.items()}
    if len(set(shapes.values())) != 1:
        raise InputError(f"Probabilities of {what} must have one shape for all beliefs; got {shapes or 'no belief'}.")
    for name, values in probs.items():
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            raise InputError(f"The probabilities of {name} have NaN, infinity or numbers below 0.")
    return next(iter(shapes.values()))


def _inside(cell: np.ndarray, shape: tuple[int, ...]) -> bool:
    return cell.shape == (len(shape),) and bool(np.all((cell >= 0) & (cell < shape)))


def _scale(probs: dict[str, np.ndarray]) -> PowerNorm:
    """One colour scale for all beliefs. The square root keeps a broad one visible beside a sharp one."""
    return PowerNorm(0.5, vmin=0, vmax=max(float(values.max()) for values in probs.values()) or 1.0)


def _draw_steps(figure: Figure, probs: dict[str, np.ndarray], cell: np.ndarray | None) -> None:
    axis = figure.subplots()
    for number, (name, values) in enumerate(probs.items()):
        edges = np.arange(len(values) + 1) - 0.5
        axis.stairs(values, edges, color=CYCLE[number % len(CYCLE)], linewidth=1.5, label=name, baseline=None)
    if cell is not None:
        axis.axvline(float(cell[0]), color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="truth")
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    frame(axis, "", "cell", "probability")
    legend(figure, axis)


def _draw_grids(figure: Figure, probs: dict[str, np.ndarray], walls: np.ndarray, cell: np.ndarray | None) -> None:
    axes, norm = figure.subplots(1, len(probs), squeeze=False)[0], _scale(probs)
    for axis, (name, values) in zip(axes, probs.items(), strict=True):
        _draw_cells(axis, values, walls, cell, norm)
        axis.set_title(name, fontsize=10.5, color=INK)


def _draw_layers(figure: Figure, probs: dict[str, np.ndarray], walls: np.ndarray, cell: np.ndarray | None) -> None:
    """One row for each belief, one column for each layer."""
    axes, norm = figure.subplots(len(probs), len(walls), squeeze=False), _scale(probs)
    for row, (name, values) in zip(axes, probs.items(), strict=True):
        for layer, axis in enumerate(row):
            here = cell[1:] if cell is not None and cell[0] == layer else None
            _draw_cells(axis, values[layer], walls[layer], here, norm)
        row[0].set_ylabel(name, fontsize=10, color=INK)
    for layer, axis in enumerate(axes[0]):
        axis.set_title(f"layer {layer}", fontsize=10, color=INK)


def _draw_cells(axis: Axes, values: np.ndarray, walls: np.ndarray, cell: np.ndarray | None, norm: PowerNorm) -> None:
    axis.imshow(values, cmap=BELIEF, norm=norm, interpolation="nearest")
    for row, column in np.argwhere(walls):
        axis.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=WALL, edgecolor="#a8a8a8", hatch="////", linewidth=0)
        )
    if cell is not None:
        axis.plot(cell[1], cell[0], "o", color=AGENT, markersize=8, markeredgecolor="white", markeredgewidth=1.2)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color=FAINT, linewidth=0.8)
