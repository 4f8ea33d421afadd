"""Files that are replaced atomically: a program killed at any moment leaves the old content or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from nbf.errors import InputError


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file: whatever happens, a reader finds the old content or the new one.

    Args:
        path: File to write; its folder is made if need be.
        content: What to write; text is encoded as UTF-8.
    """
    target = Path(path).resolve()
    temporary = _temporary(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Raise `InputError` unless files can be written to a folder. Call it before long work starts.

    Args:
        folder: Folder, made if need be.
    """
    probe = _temporary(Path(folder).resolve() / "records.csv")
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def _unwritable(path: str | os.PathLike[str], error: OSError) -> InputError:
    return InputError(f"{path} cannot be written: {error}. Choose a folder that you may write to.")
