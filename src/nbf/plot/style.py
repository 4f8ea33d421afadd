"""What all figures share: their colours, and how they become files. Nothing here touches matplotlib's global state."""

from __future__ import annotations

import io
import os

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from nbf.files.atomic import write_atomically

INK, FAINT = "#222222", "#8a8a8a"
# Okabe and Ito's palette, told apart by readers with any kind of colour blindness.
BLUE, VERMILION, GREEN, PINK, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
BELIEF = LinearSegmentedColormap.from_list("belief", ["#ffffff", "#bfdaee", "#6aaed6", "#1f6cb0", "#0a2f66"])
WALL, AGENT, GOAL = "#c9c9c9", "#D55E00", "#F0C419"


def png(figure: Figure, *, dpi: int = 160) -> bytes:
    """A figure as PNG."""
    FigureCanvasAgg(figure)
    with io.BytesIO() as buffer:
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
        return buffer.getvalue()


def write_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 160) -> None:
    """A figure as a PNG file, which appears whole or not at all."""
    write_atomically(path, png(figure, dpi=dpi))
