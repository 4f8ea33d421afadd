"""Output on a terminal: progress, and beliefs as animated heat maps.

A heat map is drawn with half blocks, two square pixels to a character. It has its own palette, because most terminals
are dark and the figures' background is white.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np
from rich.align import Align
from rich.console import Console, ConsoleOptions, Group
from rich.live import Live
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from nbf.plot.episode import ARROWS, Episode

GAP = 3
"""Empty columns between two heat maps."""
LINES = 8
"""Lines of a frame besides the heat maps, and one for the prompt."""
MAX_CELL = 5
"""Pixels along the side of a cell, at most."""
SHADES = np.array([(23, 27, 43), (28, 55, 108), (33, 113, 171), (65, 190, 196), (190, 236, 190), (255, 255, 217)])
"""Colours of probability, from zero to the largest."""
WALL, WALL_STRIPE = (62, 64, 72), (84, 87, 97)
AGENT, GOAL = (255, 112, 52), (250, 204, 50)
MAX_JS = float(np.log(2))


class Meter:
    """Progress of some work, on stderr: a bar on a terminal, elsewhere one line for each part of the work.

    A context manager. The bar appears with the first `describe`, so that another one may run before.

    Args:
        total: Units of work in each part, for `advance`; None shows a spinner without a bar.
    """

    def __init__(self, total: int | None = None):
        self.total, self.console = total, Console(stderr=True)
        columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()]
        if total is not None:
            columns[2:2] = [BarColumn(), MofNCompleteColumn()]
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.progress.stop()

    def describe(self, text: str) -> None:
        """Begin another part of the work.

        Args:
            text: What the part does.
        """
        if not self.console.is_terminal:
            print(text, file=sys.stderr, flush=True)
        for task in self.progress.task_ids:
            self.progress.remove_task(task)
        self.progress.add_task(text, total=self.total)
        self.progress.start()

    def advance(self, done: int) -> None:
        """Report progress within the part.

        Args:
            done: Units of work done since the last call.
        """
        for task in self.progress.task_ids:
            self.progress.advance(task, done)


# --- heat maps -----------------------------------------------------------------------------------


class Pixels:
    """An image that rich can print.

    Args:
        image: uint8[height, width, 3] of even height.
    """

    def __init__(self, image: np.ndarray):
        self.image = image

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.image.shape[1], self.image.shape[1])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for upper, lower in zip(self.image[::2].tolist(), self.image[1::2].tolist(), strict=True):
            for above, below in zip(upper, lower, strict=True):
                yield Segment("▀", Style.parse(f"{_hex(above)} on {_hex(below)}"))
            yield Segment.line()


def _hex(colour: Sequence[int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def heat_map(episode: Episode, name: str, step: int, cell: int) -> np.ndarray:
    """Draw the belief of a filter with the walls, the goal, and the true position of the agent.

    Args:
        episode: The episode.
        name: The filter.
        step: The step, from 0.
        cell: Pixels along the side of a cell.

    Returns:
        The image, uint8[height, width, 3] of even height.
    """
    most = max(float(np.max(belief)) for belief in episode.beliefs.values()) or 1.0
    level = np.sqrt(np.clip(episode.beliefs[name][step] / most, 0, 1))  # keeps a uniform belief visible
    stops = np.linspace(0, 1, len(SHADES))
    image = np.stack([np.interp(level, stops, SHADES[:, part]) for part in range(3)], axis=-1)
    image, walls = (array.repeat(cell, axis=0).repeat(cell, axis=1) for array in (image, episode.walls))
    row, column = np.indices(walls.shape)
    striped = (row + column) % 4 < 2
    image[walls] = WALL
    image[walls & striped] = WALL_STRIPE
    offset = np.abs(np.arange(cell) - (cell - 1) / 2)
    cross = offset[:, None] == offset
    disc = np.hypot(offset[:, None], offset) <= max(0.34 * cell, 0.75)
    for (row, column), mark, colour in ((episode.goal, cross, GOAL), (episode.path[step], disc, AGENT)):
        image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell][mark] = colour
    return np.rint(image[: len(image) // 2 * 2]).astype(np.uint8)


def frame(episode: Episode, step: int, names: Sequence[str], cell: int) -> Group:
    """Compose the view of one step: the observation, the filters side by side, and a legend.

    Args:
        episode: The episode.
        step: The step, from 0.
        names: The filters to show.
        cell: Pixels along the side of a cell.

    Returns:
        What rich prints.
    """
    width = episode.walls.shape[1] * cell
    maps = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    for _ in names:
        maps.add_column(width=width)
    maps.add_row(*(Align.center(Text(name, style="bold")) for name in names))
    maps.add_row(*(Pixels(heat_map(episode, name, step, cell)) for name in names))
    maps.add_row(*(_divergence(episode, name, step, width) for name in names))
    legend = Text.assemble(
        ("■", _hex(AGENT)), " agent   ", ("✕", _hex(GOAL)), " goal   ", ("▨", _hex(WALL_STRIPE)), " obstacle   ",
        *(("█", _hex(shade)) for shade in SHADES.tolist()), " probability",
    )  # fmt: skip
    return Group(_head(episode, step), Text(), maps, Text(), legend)


def _head(episode: Episode, step: int) -> Text:
    if step == 0:
        return Text(f"step  0 of {episode.steps}   the agent may be anywhere", style="bold")
    seen = ARROWS[int(episode.symbols[step - 1])]
    text = Text.assemble((f"step {step:2d} of {episode.steps}   observed {seen}", "bold"))
    return text.append("   (wrong)", style=_hex(AGENT)) if episode.misread(step) else text


def _divergence(episode: Episode, name: str, step: int, width: int) -> Text:
    """The divergence as a number and as a bar, which is full at log 2."""
    if name not in episode.js:
        return Text("the truth", style="dim", justify="center")
    js = float(episode.js[name][step])
    text = f"JS {js:.3f} "
    full = max(width - len(text), 0)
    filled = min(round(full * js / MAX_JS), full)
    return Text.assemble(text, ("━" * filled, _hex(AGENT)), ("━" * (full - filled), "dim"))


def layout(episode: Episode, width: int, height: int) -> tuple[list[str], int] | None:
    """Choose which filters fit side by side into a terminal.

    In a narrow window the filters in the middle are left out first; the first one, the truth, is left out last.

    Args:
        episode: The episode.
        width: Columns of the terminal.
        height: Lines of the terminal.

    Returns:
        Names of the filters, and pixels along the side of a cell; None if not even one filter fits.
    """
    rows, columns = episode.walls.shape
    names = list(episode.beliefs)
    while names:
        across = (width - GAP * (len(names) - 1)) // (columns * len(names))
        cell = min(across, 2 * (height - LINES) // rows, MAX_CELL)
        if cell >= 3 or (cell == 2 and len(names) == 1):
            return names, cell
        names.pop(1 if len(names) > 2 else -1)
    return None


def play(episode: Episode, console: Console, *, seconds: float = 0.25) -> bool:
    """Play an episode on a terminal, step by step.

    Args:
        episode: The episode.
        console: The terminal.
        seconds: Time of a step.

    Returns:
        Whether it was shown: False if the terminal is too small or has no colours.
    """
    fit = layout(episode, *console.size) if console.color_system else None
    if fit is None:
        return False
    with Live(console=console, auto_refresh=False) as live:
        for step in range(episode.steps + 1):
            live.update(frame(episode, step, *fit), refresh=True)
            time.sleep(seconds)
    return True
