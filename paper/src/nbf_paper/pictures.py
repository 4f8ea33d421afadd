"""Data of figures: named arrays in one `.npz` file beside the records. Never imports jax."""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from nbf.files.atomic import write_atomically
from nbf.files.regular import read_regular
from nbf_paper.records import RecordError

_KEPT: ContextVar[dict[str, bytes] | None] = ContextVar("pictures that are kept", default=None)
LARGEST = 2**28
"""Bytes of the largest picture, packed or unpacked."""
UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error
)  # fmt: skip
"""What reading a damaged file raises."""


def write_picture(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of a figure, replacing the file as a whole; the folder is made if there is none.

    Within `kept_pictures` it is kept for later.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    if (kept := _KEPT.get()) is not None:
        kept[Path(path).name] = buffer.getvalue()
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


@contextlib.contextmanager
def kept_pictures() -> Iterator[dict[str, bytes]]:
    """Keep the pictures that are written within, by the names of their files: who records a run writes them."""
    kept: dict[str, bytes] = {}
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def read_picture(path: str | os.PathLike[str], shapes: Mapping[str, str], command: str) -> dict[str, np.ndarray]:
    """The arrays of a file that `command` wrote; nothing in it is executed.

    `shapes` names the arrays and their axes, such as `{"axis": "x", "density": "donuts x x"}`: a word is the same size
    wherever it stands, a number is itself. A file that declares more than `LARGEST` is refused before it is unpacked.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(read_regular(path, LARGEST))) as file:
            if (declared := sum(part.file_size for part in file.infolist())) > LARGEST:
                raise ValueError(f"it declares {declared} bytes; pictures have up to {LARGEST}")
            arrays = {name: _array(file.read(f"{name}.npy"), name) for name in shapes}
        _check_shapes(arrays, shapes)
        return arrays
    except UNREADABLE as error:
        raise RecordError(f"{path} cannot be read ({error}): make it anew with `{command}`.") from None


def _array(content: bytes, name: str) -> np.ndarray:
    """The array of an `.npy` file, of numbers, all of which are there."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, _, kind = read(file)
    if kind.kind not in "biuf" or math.prod(shape) * kind.itemsize != len(content) - file.tell():
        raise ValueError(f"the array {name} is not {math.prod(shape)} numbers, as it says")
    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    if not np.isfinite(array).all():
        raise ValueError(f"the array {name} holds NaN or infinity")
    return array


def _check_shapes(arrays: Mapping[str, np.ndarray], shapes: Mapping[str, str]) -> None:
    sizes: dict[str, int] = {}
    for name, wanted in shapes.items():
        found, axes = arrays[name].shape, wanted.split()
        known = [
            int(axis) if axis.isdigit() else sizes.setdefault(axis, n) for axis, n in zip(axes, found, strict=False)
        ]
        if len(axes) != len(found) or tuple(known) != found or 0 in found:
            raise ValueError(f"the array {name} has shape {found}; expected {wanted}")
