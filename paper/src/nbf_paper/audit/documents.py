"""The tables as they stand in the documents, between their markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbf.errors import InputError
from nbf.files.regular import read_regular

BLOCK = re.compile(r"<!-- nbf:table (\S+) -->\n(.*?)<!-- /nbf:table -->", re.DOTALL)


@dataclass(frozen=True)
class Printed:
    """A table of a document."""

    document: Path
    line: int
    """On which its head stands, from 1."""
    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: str

    def columns(self, *labels: str) -> Iterator[tuple[int, str]]:
        """Places and heads of the columns that hold numbers: all but those of the labels."""
        return ((place, head) for place, head in enumerate(self.heads) if head not in labels)


def tables(documents: Iterable[Path]) -> list[Printed]:
    """All generated tables of some documents."""
    found = []
    for document in documents:
        try:
            text = read_regular(document).decode().replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{document} cannot be read: {error}.") from None
        for block in BLOCK.finditer(text):
            found.append(_table(document, text[: block.start(2)].count("\n") + 1, block[1], block[2]))
    return found


def _table(document: Path, first: int, name: str, text: str) -> Printed:
    lines = text.split("\n")
    grid = [line for line in lines if line.startswith("|")]
    legend = " ".join(line.strip() for line in lines if line.strip() and not line.startswith("|"))
    cells = [tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]) for row in grid]
    if len(cells) < 3 or len({len(row) for row in cells}) != 1:
        raise InputError(f"{document}, line {first}: table {name!r} is none. Fill it with `nbf-paper report`.")
    head = first + next(place for place, line in enumerate(lines) if line.startswith("|"))
    return Printed(document, head, name, cells[0], tuple(cells[2:]), legend)
