"""What the compiler is doing, said in a line; what it prints about that itself, kept from the terminal.

XLA writes "Very slow compile?" and "Constant folding an instruction is taking > 1s", a dozen lines with a piece of the
program, to the process's stderr from C++, and has no option against it. They tell a user nothing: `without_alarms`
drops them, and nothing else, while a function of this library runs. Importing the library changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

SLOW = 5.0
"""Seconds after which it is said what is being done."""
ALARM = b"slow_operation_alarm.cc"
"""The file whose log entries are dropped."""
HEADER = re.compile(rb"([IWEF]\d{4} |\d{4}-\d\d-\d\d )\d\d:\d\d:\d\d\.\d+.*?\] ?")
"""How a log entry of XLA begins."""
MAYBE = re.compile(rb"[IWEF](\d|$)|\d{1,3}$|\d{4}(-|$)")
"""The beginning of a line that may become the beginning of a log entry."""
LAST = b"attach the results."
"""How the text of an alarm ends; a line of stars may follow."""
STARS = b"*" * 32

_lock = threading.Lock()
_inside = 0
_undo: contextlib.ExitStack | None = None


@contextlib.contextmanager
def after_a_while(act: Callable[[], None], *, seconds: float | None = None) -> Iterator[None]:
    """Do something if a block takes long.

    Args:
        act: What to do, in another thread.
        seconds: After so many; None is `SLOW`.

    Yields:
        Nothing; what may take long goes inside the `with` block.
    """
    timer = threading.Timer(SLOW if seconds is None else seconds, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def without_alarms() -> Iterator[None]:
    """Keep XLA's alarms about slow compilations off stderr. Whatever else is written there passes.

    Yields:
        Nothing; what compiles goes inside the `with` block. Blocks may be nested, and run in several threads.
    """
    global _inside, _undo
    with _lock:
        if _inside == 0:
            _undo = _filtered()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            undo, _undo = (_undo, None) if _inside == 0 else (None, _undo)
            if undo is not None:
                undo.close()


def _filtered() -> contextlib.ExitStack:
    """Put a filter before descriptor 2; closing the stack takes it away."""
    undo = contextlib.ExitStack()
    try:
        terminal = os.dup(2)
    except OSError:  # a process without stderr
        return undo
    undo.callback(os.close, terminal)
    reader, writer = os.pipe()
    thread = threading.Thread(target=_forward, args=(reader, terminal), daemon=True)
    _flush(sys.stderr)
    os.dup2(writer, 2)
    os.close(writer)
    thread.start()
    # A process that was started meanwhile may still hold the pipe: it is not waited for.
    undo.callback(thread.join, 1.0)
    undo.callback(os.dup2, terminal, 2)
    undo.callback(_python_to(terminal))
    return undo


def _python_to(terminal: int) -> Callable[[], None]:
    """Let Python itself print past the filter, so that a terminal stays one; returns what takes that back."""
    before = sys.stderr
    try:
        if before.fileno() != 2:
            return lambda: None
        copy = open(os.dup(terminal), "w", buffering=1, encoding=before.encoding, errors=before.errors)  # noqa: SIM115
    except (OSError, ValueError, AttributeError):  # a notebook, or a test
        return lambda: None
    sys.stderr = copy

    def back() -> None:
        _flush(copy)
        if sys.stderr is copy:
            sys.stderr = before

    return back


def _flush(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream.flush()


def _forward(reader: int, terminal: int) -> None:
    """Copy what is written, but for alarms, until the last writer is gone."""
    alarms = Alarms()
    with contextlib.suppress(OSError):
        while data := os.read(reader, 65536):
            os.write(terminal, alarms.kept(data))
        os.write(terminal, alarms.rest)
    os.close(reader)


class Alarms:
    """Takes alarms out of a stream of bytes."""

    def __init__(self) -> None:
        self.rest, self.dropping, self.starred = b"", False, False

    def kept(self, data: bytes) -> bytes:
        """Take more bytes.

        Args:
            data: What was written.

        Returns:
            What may be shown so far; the beginning of a line that may become an alarm waits for the rest of it.
        """
        *lines, self.rest = (self.rest + data).split(b"\n")
        shown = b"".join(line + b"\n" for line in lines if not self._is_alarm(line))
        if not self.dropping and not self.starred and not MAYBE.match(self.rest):
            shown, self.rest = shown + self.rest, b""
        return shown

    def _is_alarm(self, line: bytes) -> bool:
        starred, self.starred = self.starred, False
        if HEADER.match(line):
            self.dropping = ALARM in line
        elif starred and line.strip(b"\r") in (b"", STARS):
            return True
        if self.dropping and LAST in line:
            self.dropping, self.starred = False, True
            return True
        return self.dropping
