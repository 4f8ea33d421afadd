"""A job without a training: measured once, and recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nbf.files.atomic import check_writable
from nbf_paper.records import Record, Run, add, completed


@runtime_checkable
class Measured(Protocol):
    """A job that needs no model of its own."""

    @property
    def key(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        ...


def measure_and_record(job: Measured, results: Path, measure: Callable[[], list[Record]], command: str) -> bool:
    """Do what is not recorded yet of a job; whether anything was to do. Records and run are written together."""
    if completed(results, job.key):
        return False
    check_writable(results)
    start = time.monotonic()
    records = measure()
    seconds = round(time.monotonic() - start, 1)
    add(results, records, Run(job.key, job.seed, command, seconds, {**job.settings, "seconds": seconds}))
    return True
