"""Beliefs in a 2-D grid, drawn from plain arrays without JAX: the paper's figure "gridworld-example".

`belief_figure` draws one row of heat maps for each filter; `write_animation` shows the filters of the same episode
side by side as a GIF.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from nbf.errors import InputError
from nbf.files.atomic import check_writable, write_atomically
from nbf.plot.moving import animation
from nbf.plot.style import AGENT, BELIEF, FAINT, GOAL, INK, WALL, write_figure

ARROWS = ("↑", "↓", "←", "→", "bump")


@dataclass(frozen=True)
class Episode:
    """One episode in a 2-D grid with the beliefs of several filters, as plain arrays.

    Index 0 of a time axis is before any observation. A position is (row, column), with row 0 on top.
    """

    walls: np.ndarray
    """Obstacles, bool[h, w]."""
    goal: np.ndarray
    """Position of the goal, int[2]."""
    path: np.ndarray
    """True positions of the agent, int[steps + 1, 2]."""
    symbols: np.ndarray
    """Observations, int[steps]; `symbols[t]` is that of the move from `path[t]` to `path[t + 1]`: 0 up, 1 down, 2 left,
    3 right, 4 bump."""
    beliefs: Mapping[str, np.ndarray]
    """Probabilities of the cells for each filter, float[steps + 1, h, w]."""
    js: Mapping[str, np.ndarray]
    """Divergence from the exact posterior, float[steps + 1], for each filter that has one."""

    def __post_init__(self) -> None:
        if self.walls.ndim != 2:
            raise InputError(f"Only beliefs in a 2-D grid are drawn; this grid is {self.walls.ndim}-D.")
        if not self.beliefs:
            raise InputError("An episode without beliefs cannot be drawn: give those of at least one filter.")
        steps = len(self.symbols)
        shapes = [("goal", self.goal, (2,)), ("path", self.path, (steps + 1, 2)), ("symbols", self.symbols, (steps,))]
        shapes += [(f"belief of {name}", b, (steps + 1, *self.walls.shape)) for name, b in self.beliefs.items()]
        shapes += [(f"js of {name}", js, (steps + 1,)) for name, js in self.js.items()]
        for name, array, shape in shapes:
            if np.shape(array) != shape:
                raise InputError(f"The {name} of an episode has shape {np.shape(array)}; it must be {shape}.")
        if steps and not (np.min(self.symbols) >= 0 and np.max(self.symbols) < len(ARROWS)):
            raise InputError(f"The symbols of a 2-D episode are 0 to {len(ARROWS) - 1}; got {self.symbols}.")

    @property
    def steps(self) -> int:
        """Number of observations."""
        return len(self.symbols)

    def misread(self, step: int) -> bool:
        """Whether the observation that led to a step was wrong.

        Args:
            step: The step, from 1.

        Returns:
            True if the symbol is not that of the move made.
        """
        down, right = (self.path[step] - self.path[step - 1]).tolist()
        return int(self.symbols[step - 1]) != {(-1, 0): 0, (1, 0): 1, (0, -1): 2, (0, 1): 3}.get((down, right), 4)


def belief_figure(episode: Episode, steps: Sequence[int] | None = None) -> Figure:
    """Draw beliefs as heat maps: one row for each filter, one column for each step.

    Args:
        episode: The episode; a wrong observation is written in the agent's colour.
        steps: The steps to draw; by default up to six of them, dense at first.

    Returns:
        The figure.
    """
    chosen = list(steps) if steps is not None else _default_steps(episode.steps)
    if not chosen or min(chosen) < 0 or max(chosen) > episode.steps:
        raise InputError(f"Steps to draw must be between 0 and {episode.steps}, at least one; got {chosen}.")
    names = list(episode.beliefs)
    figure = Figure(figsize=(1.0 + 1.45 * len(chosen), 0.75 + 1.56 * len(names)))
    figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03))
    axes = figure.subplots(len(names), len(chosen), squeeze=False)
    norm = _norm(episode)
    for column, step in enumerate(chosen):
        _title_step(axes[0, column], episode, step)
        for row, name in enumerate(names):
            axis = axes[row, column]
            _draw_belief(axis, episode, name, step, norm)
            if column == 0:
                axis.set_ylabel(name, fontsize=10.5, color=INK)
            if name in episode.js:
                axis.set_xlabel(f"JS {episode.js[name][step]:.3f}", fontsize=8, color=INK, labelpad=2)
    _colour_bar(figure, norm, axes)
    _legend(figure, misread=any(episode.misread(step) for step in chosen if step))
    return figure


def _default_steps(steps: int) -> list[int]:
    """Six steps at most, dense at first, where beliefs change most."""
    return sorted({round(steps * part) for part in (0, 0.05, 0.15, 0.3, 0.5, 1)})


def _norm(episode: Episode) -> PowerNorm:
    """One colour scale for the whole episode. The square root keeps a uniform belief visible beside a sharp one."""
    return PowerNorm(0.5, vmin=0, vmax=max(float(np.max(belief)) for belief in episode.beliefs.values()) or 1.0)


def _title_step(axis: Axes, episode: Episode, step: int) -> None:
    text, colour = "start", INK
    if step:
        text = f"step {step}   {ARROWS[int(episode.symbols[step - 1])]}"
        colour = AGENT if episode.misread(step) else INK
    axis.set_title(text, fontsize=10, color=colour, pad=5)


def _draw_belief(axis: Axes, episode: Episode, name: str, step: int, norm: PowerNorm, inches: float = 1.4) -> None:
    """Draw one panel, about `inches` wide: the belief of a filter, and the true position of the agent."""
    height, width = episode.walls.shape
    cell = 72 * inches / max(height, width)  # in points, as the markers are
    axis.imshow(episode.beliefs[name][step], cmap=BELIEF, norm=norm, interpolation="nearest")
    axis.hlines(np.arange(height + 1) - 0.5, -0.5, width - 0.5, color="#e2e2e2", linewidth=0.5)
    axis.vlines(np.arange(width + 1) - 0.5, -0.5, height - 0.5, color="#e2e2e2", linewidth=0.5)
    for row, column in np.argwhere(episode.walls):
        corner = (column - 0.5, row - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, facecolor=WALL, edgecolor="#a8a8a8", hatch="////", linewidth=0))
    row, column = episode.goal
    axis.plot(column, row, "*", color=GOAL, markersize=0.75 * cell, markeredgecolor=INK, markeredgewidth=0.6, zorder=4)
    row, column = episode.path[step]
    axis.plot(
        column, row, "o", color=AGENT, markersize=0.45 * cell, markeredgecolor="white", markeredgewidth=1, zorder=5
    )
    axis.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    for spine in axis.spines.values():
        spine.set(color=FAINT, linewidth=0.8)


def _colour_bar(figure: Figure, norm: PowerNorm, axes: np.ndarray) -> None:
    ticks = [tick for tick in (0, 0.01, 0.05, 0.2, 0.5, 1) if norm(tick) <= 1]
    bar = figure.colorbar(ScalarMappable(norm, BELIEF), ax=axes, shrink=0.7, aspect=24, pad=0.015, ticks=ticks)
    bar.ax.set_yticklabels([f"{tick:g}" for tick in ticks])
    bar.ax.tick_params(labelsize=8, colors=INK, color=FAINT, length=3)
    bar.outline.set(edgecolor=FAINT, linewidth=0.6)  # pyright: ignore[reportCallIssue]
    bar.set_label("probability", fontsize=9, color=INK)


def _legend(figure: Figure, misread: bool) -> None:
    handles: list[Any] = [
        Line2D([], [], marker="o", color=AGENT, markeredgecolor="white", markersize=7, linestyle="", label="agent"),
        Line2D([], [], marker="*", color=GOAL, markeredgecolor=INK, markeredgewidth=0.6, markersize=10, linestyle="",
               label="goal"),
        Rectangle((0, 0), 1, 1, facecolor=WALL, edgecolor="#a8a8a8", hatch="////", linewidth=0, label="obstacle"),
    ]  # fmt: skip
    if misread:
        handles.append(Line2D([], [], marker="$→$", color=AGENT, markersize=9, linestyle="", label="wrong observation"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9, handletextpad=0.4)


def write_animation(episode: Episode, path: str | os.PathLike[str], *, milliseconds: int = 700, dpi: int = 90) -> None:
    """Write an animated GIF of the filters side by side, one frame for each step.

    Args:
        episode: The episode.
        path: The file; its folder is made if need be.
        milliseconds: Time of a frame; the last one stays four times as long.
        dpi: Dots per inch.
    """
    figure = Figure(figsize=_frame_size(episode), dpi=dpi, facecolor="white", layout="constrained")
    canvas, frames = FigureCanvasAgg(figure), []
    for step in range(episode.steps + 1):
        figure.clear()
        _draw_frame(figure, episode, step)
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    write_atomically(path, _gif(frames, milliseconds))


def episode_animation(episode: Episode, *, milliseconds: int = 700) -> FuncAnimation:
    """Animate the filters side by side, one frame for each step.

    Args:
        episode: The episode.
        milliseconds: Time of a frame.

    Returns:
        The animation, for a notebook (`to_jshtml`) or a film (`save`); `write_animation` makes a smaller GIF.
    """
    size = _frame_size(episode)
    return animation(
        lambda step, figure: _draw_frame(figure, episode, step), episode.steps + 1, size=size, milliseconds=milliseconds
    )


def _frame_size(episode: Episode) -> tuple[float, float]:
    return 2.75 * len(episode.beliefs) + 0.2, 3.9


def _draw_frame(figure: Figure, episode: Episode, step: int) -> None:
    names, norm = list(episode.beliefs), _norm(episode)
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        _draw_belief(axis, episode, name, step, norm, inches=2.7)
        score = f"JS {episode.js[name][step]:.3f}" if name in episode.js else " "
        axis.set_title(name, fontsize=12, color=INK, pad=5)
        axis.set_xlabel(score, fontsize=10.5, color=INK, family="monospace", labelpad=5)
    _head(figure, episode, step)
    _legend(figure, misread=False)


def _head(figure: Figure, episode: Episode, step: int) -> None:
    text, colour = "start: the agent may be anywhere", INK
    if step:
        wrong = episode.misread(step)
        text = f"step {step} of {episode.steps}   observed {ARROWS[int(episode.symbols[step - 1])]}"
        text, colour = (f"{text}   (wrong)", AGENT) if wrong else (text, INK)
    figure.suptitle(text, fontsize=12.5, color=colour)


def _gif(frames: list[Image.Image], milliseconds: int) -> bytes:
    """Encode the frames with one palette of the colours that are drawn: no flicker, and a small file."""
    palette = _palette()
    reduced = []
    for frame in frames:
        pixels = np.asarray(frame, np.int32) @ (1 << 16, 1 << 8, 1)
        seen, place = np.unique(pixels, return_inverse=True)
        colours = np.stack([seen >> 16, seen >> 8 & 255, seen & 255], axis=-1)
        nearest = np.argmin(np.sum((colours[:, None] - palette) ** 2, axis=-1), axis=-1)
        image = Image.fromarray(nearest.astype(np.uint8)[place].reshape(pixels.shape))
        image.putpalette(palette.astype(np.uint8).tobytes())
        reduced.append(image)
    durations = [milliseconds] * (len(frames) - 1) + [4 * milliseconds]
    with io.BytesIO() as buffer:
        reduced[0].save(
            buffer, "GIF", save_all=True, append_images=reduced[1:], duration=durations, loop=0, optimize=True
        )
        return buffer.getvalue()


def _palette() -> np.ndarray:
    """Colours, int[at most 256, 3]: shades of belief and grey, and the mixtures at antialiased edges of the marks."""
    mixes = [("#ffffff", AGENT), (AGENT, "#6aaed6"), (INK, GOAL), (GOAL, "#ffffff")]
    ramps = [BELIEF(np.linspace(0, 1, 96))[:, :3], np.linspace(0, 1, 52)[:, None] * np.ones(3)]
    ramps += [np.linspace(to_rgb(start), to_rgb(end), 26) for start, end in mixes]
    return np.unique(np.rint(255 * np.concatenate(ramps)).astype(np.int32), axis=0)


def write_beliefs(episode: Episode, folder: Path) -> list[Path]:
    """Write the beliefs of one episode as a picture and as an animation.

    Args:
        episode: The episode.
        folder: Where `belief.png` and `belief.gif` go.

    Returns:
        The two files.
    """
    check_writable(folder)
    picture, animation = folder / "belief.png", folder / "belief.gif"
    write_figure(belief_figure(episode), picture)
    write_animation(episode, animation)
    return [picture, animation]
