"""What every command of `nbf` is, and what several of them need.

A command is a frozen dataclass: its fields are the options, its docstrings the help. `answer` does the
work and returns what `--json` prints; `show` prints the same for a reader. The answer goes to stdout,
progress and errors to stderr. JAX is imported by the commands that need it, when they run.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import rich.box
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from nbf.evaluation.records import RecordError

Flag = Annotated[bool, arg(help_behavior_hint="")]
FAILED, ERROR, INTERRUPTED = 1, 2, 130


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every command does."""

    json: Flag = False
    """Print the answer as JSON."""

    def answer(self) -> dict[str, Any]:
        """Do the work."""
        raise NotImplementedError

    def show(self, answer: dict[str, Any], console: Console) -> None:
        """Print an answer for a reader."""
        raise NotImplementedError

    def code(self, answer: dict[str, Any]) -> int:
        """The exit code."""
        return 0


def say(text: str) -> None:
    """A line of progress, or an error."""
    print(text, file=sys.stderr, flush=True)


def table_of(first: str, *others: str) -> Table:
    """An empty table: names to the left, numbers to the right."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def is_mistake(error: BaseException) -> bool:
    """Whether an error tells the caller what to do, rather than that the library is wrong."""
    from nbf.contracts import InputError

    return isinstance(error, InputError | RecordError | FloatingPointError)
