"""Data of figures: named arrays in one `.npz` file beside the records. Never imports jax."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from nbf.files.atomic import write_atomically
from nbf_paper.records import RecordError


def write_picture(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of a figure, replacing the file as a whole."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def read_picture(path: str | os.PathLike[str], names: Iterable[str], command: str) -> dict[str, np.ndarray]:
    """The arrays of a file that `command` wrote; nothing in it is executed."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RecordError(f"{path} cannot be read ({error}): make it anew with `{command}`.") from None
