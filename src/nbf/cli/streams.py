"""What reaches the terminal, and what happens when that is no longer there, for `nbf` and `nbf-paper` alike.

Text of a file (names, metadata, records) may hold anything. It is printed without control characters, which could move
the cursor or recolour the screen, and without rich's markup.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

FAILED, ERROR, INTERRUPTED, CLOSED = 1, 2, 130, 141
"""Exit codes; the last two are those of a program that SIGINT or SIGPIPE has ended."""

NARROWEST = 40
"""Columns of the help, at least."""


def visible(text: str, *, keep: str = "") -> str:
    r"""Write characters that are no print as escapes, such as `\x1b`.

    Args:
        text: Any text, also with characters that stand for undecodable bytes.
        keep: Characters to leave as they are.

    Returns:
        Text that a terminal shows and does not obey.
    """
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


def visible_answer(answer: Any) -> Any:
    """Make every text in an answer visible; lines stay lines.

    Args:
        answer: What JSON can hold.

    Returns:
        The same with the text of all keys and values made visible.
    """
    if isinstance(answer, str):
        return visible(answer, keep="\n")
    if isinstance(answer, dict):
        return {visible_answer(name): visible_answer(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [visible_answer(value) for value in answer]
    return answer


def say(text: str) -> None:
    """Print one line of progress, or an error, to stderr. A full disk behind stderr is no error.

    Args:
        text: The line; line breaks become blanks.
    """
    try:
        print(visible(" ".join(text.splitlines())), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # there is nobody left to tell; the exit code does
        _discard(sys.stderr)


class AnswersConsole(Console):
    """The console that answers are printed to: stdout, with brackets and colons as they are."""

    def __init__(self):
        super().__init__(markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Leave a reader that has gone to `guarded`; rich would end the program with exit code 1."""
        raise


@contextlib.contextmanager
def wide_enough() -> Iterator[None]:
    """Let the help be wrapped at `NARROWEST` columns in a terminal that has fewer: tyro would never end.

    Yields:
        Nothing; the arguments are parsed inside the `with` block.
    """
    narrow, before = shutil.get_terminal_size().columns < NARROWEST, os.environ.get("COLUMNS")
    if narrow:
        os.environ["COLUMNS"] = str(NARROWEST)
    try:
        yield
    finally:
        if narrow and before is None:
            del os.environ["COLUMNS"]
        elif narrow:
            os.environ["COLUMNS"] = str(before)


def guarded(work: Callable[[], int], prog: str) -> int:
    """Run a program; end quietly when its reader has gone, and in a sentence when its answer cannot be written.

    Args:
        work: The program; returns its exit code.
        prog: Its name.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        _lenient(stream)
    try:
        try:
            return work()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        with contextlib.suppress(BrokenPipeError):
            say(f"{prog}: stopped")
        return INTERRUPTED
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            _discard(stream)
        return CLOSED
    except OSError as error:
        _discard(sys.stdout)
        say(f"{prog}: the answer cannot be written: {error.strerror or error}. Choose another place for it.")
        return ERROR


def _lenient(stream: Any) -> None:
    """Print a question mark for what an encoding cannot hold."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and getattr(stream, "errors", None) in ("strict", "surrogateescape"):
        reconfigure(errors="replace")


def _discard(stream: Any) -> None:
    """Let Python's last flush of a broken stream go nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, stream.fileno())
        os.close(handle)
