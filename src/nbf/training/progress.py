"""A progress bar with the pace, the time left and, where there is one, the loss."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from nbf import compiling


class Progress:
    """A context manager. On a terminal a live bar; elsewhere a line now and then, so that logs stay short. Before the
    first unit is done a program is compiled: if that takes more than `compiling.SLOW` seconds, it is said."""

    def __init__(self, title: str, total: int, done: int, *, enabled: bool = True, unit: str = "step"):
        """Prepare a bar; entering the context shows it.

        Args:
            title: Text before the bar.
            total: Units of work in all.
            done: Units that are done already.
            enabled: Whether to show anything.
            unit: Name of one unit.
        """
        self.enabled, self.total, self.title, self.unit = enabled, total, title, unit
        self.live = enabled and sys.stderr.isatty()
        self.bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True, markup=False, emoji=False),
            disable=not self.live,
        )
        self.task = self.bar.add_task(title, total=total, completed=done, state="")
        self.printed = done
        self.waiting = contextlib.ExitStack()

    def __enter__(self) -> Progress:
        self.bar.start()
        if self.enabled:
            self.waiting.enter_context(compiling.after_a_while(self._compiling))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.waiting.close()
        self.bar.stop()

    def _compiling(self) -> None:
        if self.live:
            self.bar.update(self.task, state="compiling")
        else:
            self.say(f"compiling the program of one {self.unit}; the first is counted when that is done")

    def update(self, done: int, loss: float | None = None) -> None:
        """Show how much is done.

        Args:
            done: Units done so far.
            loss: Loss to show beside the bar.
        """
        self.waiting.close()
        pace = self.bar.tasks[self.task].speed or 0.0
        state = [] if loss is None else [f"loss {loss:.3f}"]
        self.bar.update(self.task, completed=done, state="  ".join([*state, f"{pace:.0f} {self.unit}s/s"]))
        if self.enabled and not self.live and (done - self.printed >= self.total / 10 or done == self.total):
            print(", ".join([f"{self.title}: {self.unit} {done} of {self.total}", *state]), file=sys.stderr, flush=True)
            self.printed = done

    def advance(self, more: int) -> None:
        """Show that more is done.

        Args:
            more: Units done since the last call.
        """
        self.update(int(self.bar.tasks[self.task].completed) + more)

    def say(self, text: str) -> None:
        """Print a line that stays above the bar.

        Args:
            text: What to print after the title.
        """
        if self.enabled:
            self.bar.console.print(f"{self.title}: {text}", highlight=False, soft_wrap=True)
