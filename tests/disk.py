"""Full disks and killed processes."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class NoRoom:
    """No file may grow beyond `size` bytes, as on a disk that is full; what Python then gets is an OSError."""

    def __init__(self, size: int):
        self.size = size

    def __enter__(self):
        assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A disk of 256 kB, mounted at a new folder."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk can only be mounted by root on Linux; `NoRoom` limits the size of files instead")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def kill_soon(process: subprocess.Popen, changed: Callable[[], bool] | None, delay: float) -> bool:
    """Kill a process some time after `changed()`, or after its start where that is None; whether it lived till then."""
    while changed is not None and not changed() and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    return alive
