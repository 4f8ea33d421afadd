"""Reading of files from someone else: regular ones alone, and none larger than memory should hold.

A pipe or a device in place of a file would be waited for, or never end. It is refused before anything is read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_FILE = 2**30
"""Bytes of the largest file that is read whole."""


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` unless a path is a regular file.

    Args:
        path: File to read.
    """
    _check(os.stat(path).st_mode, path)


def read_regular(path: str | os.PathLike[str], largest: int = LARGEST_FILE) -> bytes:
    """Read a regular file whole; anything else is an `OSError`, at once.

    Args:
        path: File to read.
        largest: The most bytes that are read.

    Returns:
        Its content.
    """
    # A pipe is opened without waiting for its other end; a regular file does not care.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        _check(about.st_mode, path)
        if about.st_size > largest:
            raise OSError(
                errno.EFBIG, f"it has {about.st_size} bytes, and files of up to {largest} are read", os.fspath(path)
            )
        return file.read(largest + 1)


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether something stands at a path that is neither a regular file nor a folder: a pipe, a device, a socket.

    Args:
        path: Where to look.

    Returns:
        False also if nothing stands there.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _check(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, and only regular files are read", os.fspath(path))
