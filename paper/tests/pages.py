"""Pages of a few records, with pictures of one colour: quick to make."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.html import HtmlReport
from nbf_paper.report.pages import present

FILTERS = (("nbf", "faithful", 16), ("nbf", "faithful", 32), ("pf", "", 512))
VERSIONS = {"python": "3.11.9", "jax": "0.9.0"}


def picture(width: int = 40, height: int = 20) -> bytes:
    """A grey PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress((b"\0" + b"\x80" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def record_some(results: Path, experiment: str, config: str, arm: str = "", command: str = "") -> None:
    """A few records of an experiment, made by a run of half a minute."""
    records = [
        Record(experiment, config, name, arm or usual, n, n, 0, step, metric, n / 1000, 0.001, 500)
        for name, usual, n in FILTERS
        for step in (ALL, 0, 1)
        for metric in ("js", "js_pf1024")
    ]
    command = command or f"nbf-paper reproduce {experiment}"
    add(results / experiment, records, Run(f"{config}/{arm}", 0, command, 30.0, {}, VERSIONS))


def undrawn(results: Path) -> HtmlReport:
    """What the page of a folder of records is made of, with one picture for every figure."""
    found = present(results)
    return HtmlReport(results, found, {name: picture() for page in found.values() for name in page.figures})
