"""Colours of all figures, and how a figure becomes a file. matplotlib's global state is left alone."""

from __future__ import annotations

import io
import os

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from nbf.files.atomic import write_atomically

INK, FAINT = "#222222", "#8a8a8a"
# The palette of Okabe and Ito, which is safe for all kinds of colour blindness.
BLUE, VERMILION, GREEN, PINK, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
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
