"""Files that are only ever replaced whole: killing a program at any moment leaves the old content or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from nbf.errors import InputError


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file whole: whatever happens, a reader finds the old content or the new one."""
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
    """Raise unless files can be written to a folder (made if need be). Call it before the work starts."""
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
