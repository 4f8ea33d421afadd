"""Colours of all figures, and how a figure becomes a file. matplotlib's global state is left alone."""

from __future__ import annotations

import io
import os

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from nbf.files.atomic import write_atomically

INK, FAINT = "#222222", "#8a8a8a"
# The palette of Okabe and Ito, which is safe for all kinds of colour blindness.
BLUE, VERMILION, GREEN, PINK, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
CYCLE = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)
"""Colours of lines, in order."""
BELIEF = LinearSegmentedColormap.from_list("belief", ["#ffffff", "#bfdaee", "#6aaed6", "#1f6cb0", "#0a2f66"])
WALL, AGENT, GOAL = "#c9c9c9", "#D55E00", "#F0C419"


def png(figure: Figure, *, dpi: int = 160) -> bytes:
    """Render a figure as PNG.

    Args:
        figure: The figure.
        dpi: Dots per inch.

    Returns:
        The content of a PNG file.
    """
    FigureCanvasAgg(figure)
    with io.BytesIO() as buffer:
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
        return buffer.getvalue()


def write_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 160) -> None:
    """Write a figure to a PNG file, atomically.

    Args:
        figure: The figure.
        path: The file; its folder is made if need be.
        dpi: Dots per inch.
    """
    write_atomically(path, png(figure, dpi=dpi))


def begun(figure: Figure | None, size: tuple[float, float], title: str) -> Figure:
    """Begin a figure.

    Args:
        figure: One to draw into; None for a new one.
        size: Width and height of a new one, in inches.
        title: Of the whole figure.

    Returns:
        The figure.
    """
    figure = Figure(figsize=size, layout="constrained") if figure is None else figure
    if title:
        figure.suptitle(title, fontsize=11.5, color=INK)
    return figure


def legend(figure: Figure, axis: Axes) -> None:
    """Put the legend of one panel below a figure.

    Args:
        figure: The figure.
        axis: The panel whose labels it has.
    """
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False, fontsize=8.5)


def frame(axis: Axes, title: str, below: str, beside: str) -> None:
    """Label a panel, and take away what no reader needs.

    Args:
        axis: The panel.
        title: Above it.
        below: Of the horizontal axis.
        beside: Of the vertical axis.
    """
    axis.set_title(title, fontsize=10.5, color=INK)
    axis.set_xlabel(below, fontsize=9.5, color=INK)
    axis.set_ylabel(beside, fontsize=9.5, color=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(colors=INK, labelsize=8.5, length=3, color=FAINT)
