"""Files that are replaced atomically: a program killed at any moment leaves the old content or the new one.

What is written goes to a temporary file beside the target first. Its name is drawn at random and the file is created,
never opened: two writers have two files, whatever their process ids are.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from nbf.errors import InputError
from nbf.files.regular import is_special

ABANDONED = 24 * 3600.0
"""Seconds after which a temporary file is taken to be left by a killed program. No write takes as long, and clocks of
computers that share a disk differ by less."""


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file: whatever happens, a reader finds the old content or the new one.

    Args:
        path: File to write; its folder is made if need be.
        content: What to write; text is encoded as UTF-8.
    """
    try:
        target = Path(path).resolve()
        check_replaceable(target)
        temporary = _temporary(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file, _removed(temporary):
            # undecodable bytes of a path, in a text that shows it, become escapes
            file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            file.close()  # some systems replace no open file
            temporary.replace(target)
    except OSError as error:
        raise _unwritable(path, error) from None


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise `InputError` if a file would take the place of a pipe or a device.

    Args:
        path: File to write.
    """
    if is_special(path):
        raise InputError(f"{path} is a pipe or a device, which no file may replace. Choose the path of a file.")


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Raise `InputError` unless files can be written to a folder. Call it before long work starts.

    Args:
        folder: Folder, made if need be.
    """
    try:
        probe = _temporary(Path(folder).resolve() / "probe")
        probe.parent.mkdir(parents=True, exist_ok=True)
        with probe.open("xb") as file, _removed(probe):
            file.close()
    except OSError as error:
        raise _unwritable(folder, error) from None


def remove_abandoned(folder: str | os.PathLike[str], *names: str, seconds: float = ABANDONED) -> None:
    """Remove temporary files that programs which were killed have left in a folder.

    Call it while no other program writes these files, that is under their lock.

    Args:
        folder: Folder to clear.
        names: Names of the files that were being written.
        seconds: How old a temporary file must be. 0 is for files that have one writer at a time: this program.
    """
    for name in (*names, "probe"):
        for left in Path(folder).glob(f".{glob.escape(name)}.*.tmp"):
            with contextlib.suppress(OSError):
                if not seconds or time.time() - left.lstat().st_mtime > seconds:
                    left.unlink()


@contextlib.contextmanager
def _removed(temporary: Path) -> Iterator[None]:
    """Remove a file of our own at the end, if it is still there."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def _unwritable(path: str | os.PathLike[str], error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be written: {error}. What was there is unchanged. Choose a folder that you may write to."
    )
