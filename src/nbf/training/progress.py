"""A progress bar with the loss, the pace and the time left."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """A context manager. On a terminal a live bar; elsewhere a line now and then, so that logs stay short."""

    def __init__(self, title: str, total: int, done: int, *, enabled: bool = True):
        self.enabled, self.total, self.title = enabled, total, title
        self.live = enabled and sys.stderr.isatty()
        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}  {task.fields[pace]:.0f} steps/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self.live,
        )
        self.task = self.bar.add_task(title, total=total, completed=done, loss=float("nan"), pace=0.0)
        self.printed = done

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.bar.stop()

    def update(self, done: int, loss: float) -> None:
        """Show that `done` steps are done."""
        task = self.bar.tasks[self.task]
        pace = task.speed or 0.0
        self.bar.update(self.task, completed=done, loss=loss, pace=pace)
        if self.enabled and not self.live and (done - self.printed >= self.total / 10 or done == self.total):
            print(f"{self.title}: step {done} of {self.total}, loss {loss:.3f}", file=sys.stderr, flush=True)
            self.printed = done
