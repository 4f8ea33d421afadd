"""Locks of folders: who comes second waits, in another process or another thread. They end with their process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None


@contextlib.contextmanager
def flock(folder: Path, *, waiting: str = "") -> Iterator[None]:
    """Lock a folder; raises `OSError` where that cannot be done. `waiting` is printed if another has the lock."""
    if fcntl is None:
        raise OSError("this system has no locks of folders")
    # A handle of its own for every lock: threads that shared one would not exclude each other.
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                print(waiting, file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else makes the model or the pool of a folder; it is made if there is none.

    Where folders cannot be locked two may do the same work; each replaces files as a whole, so none is spoilt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(flock(folder, waiting=f"{folder}: another process is at work there; waiting for it"))
        yield
