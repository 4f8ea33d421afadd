"""The paper's Gridworld pictures, made from records and episodes without jax.

`divergence_figure` is its figures "fixed-grids" and "random-grids": Jensen-Shannon divergence by step,
one panel per configuration. `belief_figure` is its figure "gridworld-example", with the beliefs of
several filters under one another; `write_animation` shows the same episode side by side as a GIF.

Every figure is an object of its own; nothing here touches matplotlib's global state.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image

from nbf.evaluation.records import ALL, Record, RecordError, Summary, summary, write_atomically
from nbf.report.tables import Row, config_order, label, row_of, row_order

PANELS = {kind: tuple(f"{grid}-{kind}" for grid in ("5-2D", "8-2D", "5-3D", "8-3D")) for kind in ("fixed", "random")}
"""The panels of the paper's two figures."""

INK, FAINT = "#222222", "#8a8a8a"
# Okabe and Ito's palette, told apart by readers with any kind of colour blindness.
COLOURS = {
    ("pf", ""): "#0072B2",
    ("nbf", ""): "#D55E00",
    ("approx", ""): "#009E73",
    ("exact", ""): INK,
    ("recurrent", ""): "#CC79A7",
    ("fine-tuned", ""): "#8C6D1F",
    ("pf-kde", ""): "#56B4E9",
    ("nbf", "enumerated"): "#E69F00",
    ("approx", "enumerated"): "#7FB800",
    ("nbf", "autoregressive"): "#E69F00",
    ("approx", "autoregressive"): "#7FB800",
    ("emp", ""): "#555555",
    ("branching", "branches chosen"): "#444444",
}
SPARE = ("#CC79A7", "#56B4E9", "#8C6D1F", "#6A51A3", "#555555")
ACROSS = 5
"""Panels beside each other."""
# The more particles, the heavier the line: dots, dashes, then unbroken.
DASHES = ((0, (1, 1.4)), (0, (4, 1.2, 1, 1.2)), (0, (5, 1.5)), "solid")
MARKERS = ("o", "s", "^", "D")

BELIEF = LinearSegmentedColormap.from_list("belief", ["#ffffff", "#bfdaee", "#6aaed6", "#1f6cb0", "#0a2f66"])
WALL, AGENT, GOAL = "#c9c9c9", "#D55E00", "#F0C419"
ARROWS = ("↑", "↓", "←", "→", "bump")


# --- divergence by step --------------------------------------------------------------------------


def divergence_figure(
    records: Iterable[Record], configs: Sequence[str] | None = None, *, metric: str = "js", logarithmic: bool = False
) -> Figure:
    """JS by step: one panel per configuration, one line per filter, ±1 standard error shaded.

    `configs` is one of `PANELS`, or any list; every recorded configuration by default. The exact
    filter, whose divergence is zero, is not drawn.
    """
    found = [entry for entry in summary(records) if entry.metric == metric and entry.step != ALL]
    found = [entry for entry in found if entry.filter != "exact"]
    panels = list(configs) if configs is not None else sorted({entry.config for entry in found}, key=config_order)
    found = [entry for entry in found if entry.config in panels]
    if not found:
        raise RecordError(f"No record has metric {metric!r} by step in {panels}: there is nothing to draw.")
    looks = _looks({row_of(entry) for entry in found})
    wide, across = len(panels) > 2, min(len(panels), ACROSS)
    down = math.ceil(len(panels) / across)
    size = (0.8 if wide else 2.9) + 2.8 * across, 0.9 + 2.6 * down
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(down, across, sharey=True, squeeze=False)
    axes = list(places.flat)[: len(panels)]
    for unused in list(places.flat)[len(panels) :]:
        unused.remove()
    for axis, config in zip(axes, panels, strict=True):
        axis.set_title(_plain(config), fontsize=10.5, color=INK)
        _draw_lines(axis, [entry for entry in found if entry.config == config], looks)
    _frame_panels(axes, logarithmic)
    for first in axes[::across]:
        first.set_ylabel("JS divergence (nats)" if metric == "js" else metric, fontsize=9.5, color=INK)
    _line_key(figure, looks, wide)
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
    """Text that is not taken for a formula."""
    return text.replace("$", r"\$")


def _tint(colour: str, whiteness: float) -> tuple[float, ...]:
    return tuple(part + (1 - part) * whiteness for part in to_rgb(colour))


def _line_key(figure: Figure, looks: Mapping[Row, dict[str, Any]], wide: bool) -> None:
    """The legend: above many panels, in columns that keep a filter's lines together; beside few."""
    handles = [(row[0], Line2D([], [], label=_plain(label(*row)), **look)) for row, look in looks.items()]
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "handlelength": 3.2, "labelcolor": INK}
    if not wide:
        figure.legend(handles=[handle for _, handle in handles], loc="outside right upper", **style)
        return
    columns: list[Any] = []
    for _, together in groupby(handles, key=lambda pair: pair[0]):
        columns += [handle for _, handle in together]
        columns += [Line2D([], [], linestyle="", label=" ")] * (len(columns) % 2)
    figure.legend(handles=columns, loc="outside upper center", ncols=len(columns) // 2, columnspacing=1.6, **style)


def _draw_lines(axis: Axes, entries: list[Summary], looks: Mapping[Row, dict[str, Any]]) -> None:
    if not entries:
        axis.text(0.5, 0.5, "not recorded", transform=axis.transAxes, ha="center", va="center", color=FAINT)
        axis.set_xticks([])
        axis.tick_params(left=False)
        return
    for row, look in looks.items():
        line = sorted((entry for entry in entries if row_of(entry) == row), key=lambda entry: entry.step)
        if not line:
            continue
        steps = np.array([entry.step for entry in line])
        mean = np.array([entry.value for entry in line])
        error = np.array([entry.se or 0.0 for entry in line])
        axis.fill_between(steps, mean - error, mean + error, color=look["color"], alpha=0.18, linewidth=0)
        every = max(1, len(steps) // 7)
        axis.plot(steps, mean, label=label(*row), markevery=every, zorder=4 if row[0] == "nbf" else 3, **look)


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


# --- beliefs in a grid ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Episode:
    """One episode in a 2-D grid and what each filter believed: plain arrays, nothing to compute.

    Index 0 is before any observation. A position is (row, column), row 0 on top; `symbols[t]` was seen
    on the way from `path[t]` to `path[t + 1]`: up, down, left, right, bump.
    """

    walls: np.ndarray
    """bool[h, w]"""
    goal: np.ndarray
    """int[2]"""
    path: np.ndarray
    """int[steps + 1, 2]: where the agent really was."""
    symbols: np.ndarray
    """int[steps]"""
    beliefs: Mapping[str, np.ndarray]
    """For each name of a filter, float[steps + 1, h, w]."""
    js: Mapping[str, np.ndarray]
    """For each name that has one, float[steps + 1]."""

    def __post_init__(self) -> None:
        if self.walls.ndim != 2:
            raise RecordError(f"Only beliefs in a 2-D grid are drawn; this grid is {self.walls.ndim}-D.")
        if not self.beliefs:
            raise RecordError("An episode without beliefs cannot be drawn.")
        steps = len(self.symbols)
        shapes = [("goal", self.goal, (2,)), ("path", self.path, (steps + 1, 2)), ("symbols", self.symbols, (steps,))]
        shapes += [(f"belief of {name}", b, (steps + 1, *self.walls.shape)) for name, b in self.beliefs.items()]
        shapes += [(f"js of {name}", js, (steps + 1,)) for name, js in self.js.items()]
        for name, array, shape in shapes:
            if np.shape(array) != shape:
                raise RecordError(f"The {name} of an episode has shape {np.shape(array)}; it must be {shape}.")
        if steps and not (np.min(self.symbols) >= 0 and np.max(self.symbols) < len(ARROWS)):
            raise RecordError(f"The symbols of a 2-D episode are 0 to {len(ARROWS) - 1}; got {self.symbols}.")

    @property
    def steps(self) -> int:
        """How many observations were made."""
        return len(self.symbols)

    def misread(self, step: int) -> bool:
        """Whether the observation that led to this step was wrong."""
        down, right = (self.path[step] - self.path[step - 1]).tolist()
        return int(self.symbols[step - 1]) != {(-1, 0): 0, (1, 0): 1, (0, -1): 2, (0, 1): 3}.get((down, right), 4)


def belief_figure(episode: Episode, steps: Sequence[int] | None = None) -> Figure:
    """Heat maps: one row per filter, one column per step. A wrong observation is in the agent's colour."""
    chosen = list(steps) if steps is not None else _spread(episode.steps)
    if not chosen or min(chosen) < 0 or max(chosen) > episode.steps:
        raise RecordError(f"Steps to draw lie in 0 to {episode.steps}; got {chosen}.")
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
    _key(figure, misread=any(episode.misread(step) for step in chosen if step))
    return figure


def _spread(steps: int) -> list[int]:
    """Six steps at most, dense at first, where beliefs change most."""
    return sorted({round(steps * part) for part in (0, 0.05, 0.15, 0.3, 0.5, 1)})


def _norm(episode: Episode) -> PowerNorm:
    """One scale for the whole episode. The square root keeps a uniform belief visible beside a sharp one."""
    return PowerNorm(0.5, vmin=0, vmax=max(float(np.max(belief)) for belief in episode.beliefs.values()) or 1.0)


def _title_step(axis: Axes, episode: Episode, step: int) -> None:
    text, colour = "start", INK
    if step:
        text = f"step {step}   {ARROWS[int(episode.symbols[step - 1])]}"
        colour = AGENT if episode.misread(step) else INK
    axis.set_title(text, fontsize=10, color=colour, pad=5)


def _draw_belief(axis: Axes, episode: Episode, name: str, step: int, norm: PowerNorm, inches: float = 1.4) -> None:
    """One panel, about `inches` wide: what a filter believes, and where the agent really is."""
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


def _key(figure: Figure, misread: bool) -> None:
    handles: list[Any] = [
        Line2D([], [], marker="o", color=AGENT, markeredgecolor="white", markersize=7, linestyle="", label="agent"),
        Line2D([], [], marker="*", color=GOAL, markeredgecolor=INK, markeredgewidth=0.6, markersize=10, linestyle="",
               label="goal"),
        Rectangle((0, 0), 1, 1, facecolor=WALL, edgecolor="#a8a8a8", hatch="////", linewidth=0, label="obstacle"),
    ]  # fmt: skip
    if misread:
        handles.append(Line2D([], [], marker="$→$", color=AGENT, markersize=9, linestyle="", label="wrong observation"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9, handletextpad=0.4)


# --- files ---------------------------------------------------------------------------------------


def png(figure: Figure, *, dpi: int = 160) -> bytes:
    """A figure as PNG."""
    FigureCanvasAgg(figure)
    with io.BytesIO() as buffer:
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
        return buffer.getvalue()


def write_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 160) -> None:
    """A figure as a PNG file, which appears whole or not at all."""
    write_atomically(path, png(figure, dpi=dpi))


def write_animation(episode: Episode, path: str | os.PathLike[str], *, milliseconds: int = 700, dpi: int = 90) -> None:
    """A GIF of the filters side by side, one frame per step; the last frame stays longer."""
    names = list(episode.beliefs)
    figure = Figure(figsize=(2.75 * len(names) + 0.2, 3.9), dpi=dpi, facecolor="white", layout="constrained")
    canvas = FigureCanvasAgg(figure)
    norm, frames = _norm(episode), []
    for step in range(episode.steps + 1):
        figure.clear()
        for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            _draw_belief(axis, episode, name, step, norm, inches=2.7)
            score = f"JS {episode.js[name][step]:.3f}" if name in episode.js else " "
            axis.set_title(name, fontsize=12, color=INK, pad=5)
            axis.set_xlabel(score, fontsize=10.5, color=INK, family="monospace", labelpad=5)
        _head(figure, episode, step)
        _key(figure, misread=False)
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    write_atomically(path, _gif(frames, milliseconds))


def _head(figure: Figure, episode: Episode, step: int) -> None:
    text, colour = "start: the agent may be anywhere", INK
    if step:
        wrong = episode.misread(step)
        text = f"step {step} of {episode.steps}   observed {ARROWS[int(episode.symbols[step - 1])]}"
        text, colour = (f"{text}   (wrong)", AGENT) if wrong else (text, INK)
    figure.suptitle(text, fontsize=12.5, color=colour)


def _gif(frames: list[Image.Image], milliseconds: int) -> bytes:
    """One palette for all frames, of the colours that are drawn: no flicker, a small file."""
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
    """int[at most 256, 3]: the shades of belief and grey, and what smooth edges mix of the marks."""
    mixes = [("#ffffff", AGENT), (AGENT, "#6aaed6"), (INK, GOAL), (GOAL, "#ffffff")]
    ramps = [BELIEF(np.linspace(0, 1, 96))[:, :3], np.linspace(0, 1, 52)[:, None] * np.ones(3)]
    ramps += [np.linspace(to_rgb(start), to_rgb(end), 26) for start, end in mixes]
    return np.unique(np.rint(255 * np.concatenate(ramps)).astype(np.int32), axis=0)
