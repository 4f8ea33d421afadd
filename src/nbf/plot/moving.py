"""Figures in motion: any drawing, one frame for each step."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.animation import FuncAnimation
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nbf.errors import InputError


def animation(
    draw: Callable[[int, Figure], object],
    frames: int,
    *,
    size: tuple[float, float] = (7.0, 4.0),
    milliseconds: int = 500,
) -> FuncAnimation:
    """Animate a drawing: `animation(...).save("episode.gif", writer="pillow")`, or `.to_jshtml()` in a notebook.

    Args:
        draw: Draws one frame into an empty figure, given its number and the figure, such as `lambda t, figure:
            nbf.plot.marginals_figure(samples[t], figure=figure)`.
        frames: How many.
        size: Width and height in inches.
        milliseconds: Time of a frame.

    Returns:
        The animation; nothing is drawn before it is saved or shown.
    """
    if frames < 1 or milliseconds < 1:
        raise InputError(f"An animation has at least 1 frame of at least 1 ms; got {frames} of {milliseconds} ms.")
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)

    def frame(number: int) -> list[object]:
        figure.clear()
        draw(number, figure)
        return []

    return FuncAnimation(figure, frame, frames, init_func=list, interval=milliseconds, cache_frame_data=False)  # pyright: ignore
