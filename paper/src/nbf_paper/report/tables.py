"""Markdown tables made from records: the paper's figures of Jensen-Shannon divergence as numbers.

Rows are filters, columns are configurations, cells are `mean ± standard error`. A document holds the
place of a table between two markers, so that no number in the documentation is typed by hand:

    <!-- nbf:table gridworld-random -->
    <!-- /nbf:table -->
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbf.files.atomic import write_atomically
from nbf.files.regular import read_regular
from nbf_paper.records import ALL, Over, Record, RecordError, Row, Summary, summary
from nbf_paper.report.labels import label as label  # for those who make tables of their own
from nbf_paper.report.labels import row_labels, row_order

MISSING = "–"
"""The text of a cell without a record."""
ONE_SEED, EXACT = "†", "‡"
"""Marks of cells."""
ERROR = (
    "± is one standard error over training seeds and {unit}: the larger of √(variance of the seeds' means / seeds) and "
    "√(sum of the seeds' squared errors over {unit}) / seeds."
)
LEGENDS = {
    "seeds": "± is one standard error over training seeds.",
    "episodes": "± is one standard error over {unit} of one training seed, and does not cover other seeds.",
}
MARKS = {
    ONE_SEED: "one training seed, so the error is over its {unit} alone.",
    EXACT: "*exact: the model is not used*; an untrained one gives the same.",
}


@dataclass(frozen=True)
class Page:
    """The tables and figures of an experiment."""

    tables: dict[str, str]
    """Markdown, by the name that a marker asks for."""
    figures: dict[str, Callable[[], Any]]
    """Functions that draw the figures, by file name."""
    title: str = ""
    """Title of the section in the HTML page; by default the experiment's name."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """Captions of the tables and figures, by the same names; also the alternative texts of the figures."""
    claims: Sequence[tuple[str, str]] = ()
    """Claims of the paper, and the recorded numbers."""


def config_order(config: str) -> tuple[str, int, int, str]:
    """Sort key of configurations, as in the paper: fixed, then random; 5-2D, 8-2D, 5-3D, 8-3D."""
    grid = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})D-(.+)", config)
    return (grid[3], int(grid[2]), int(grid[1]), config) if grid else ("", 0, 0, config)


def markdown_table(
    records: Iterable[Record],
    *,
    configs: Sequence[str] | None = None,
    metric: str = "js",
    step: int | Literal["all"] = ALL,
    digits: int = 3,
    calls: bool = False,
    exact: Collection[tuple[Row, str]] = (),
) -> str:
    """One metric of every filter (rows) in every configuration (columns, all recorded ones by default), and a legend.

    The last row is the amount of data of each column: `2 × 500` is two training seeds with 500 episodes each. `calls`
    adds a column of simulator calls per update. `exact` are the cells to be marked as such.
    """
    found = summary(record for record in records if record.metric == metric and record.step == step)
    columns = list(configs) if configs is not None else sorted({entry.config for entry in found}, key=config_order)
    cells = {(entry.row, entry.config): entry for entry in found if entry.config in columns}
    if not cells:
        where = f" in {', '.join(columns)}" if columns else ""
        raise RecordError(f"No record has metric {metric!r} at step {step!r}{where}: there is nothing to tabulate.")
    names, mixed = row_labels(cells.values()), one_among_several(entry.over for entry in cells.values())
    lines = [["Filter", *(["Calls"] if calls else []), *columns]]
    for row in sorted({row for row, _ in cells}, key=row_order):
        entries = [cells.get((row, config)) for config in columns]
        spent = [_span(entry.calls for entry in entries if entry)] if calls else []
        texts = [
            cell(entry, digits, mixed=mixed, exact=(row, entry.config) in exact if entry else False)
            for entry in entries
        ]
        lines.append([names[row], *spent, *texts])
    behind = [_behind([entry for (_, config), entry in cells.items() if config == column]) for column in columns]
    lines.append(["*seeds × episodes*", *([""] if calls else []), *behind])
    return layout(lines, legend((entry.over for entry in cells.values()), exact=any(place in exact for place in cells)))


def one_among_several(covered: Iterable[Over]) -> bool:
    """Whether some errors of a table cover several seeds, and some a single one: those are marked."""
    return {"episodes", "seeds and episodes"} <= set(covered)


def cell(entry: Summary | None, digits: int, *, mixed: bool = False, exact: bool = False) -> str:
    """`mean ± standard error`, with its marks; in a `mixed` table the error of a single seed has one."""
    if entry is None:
        return MISSING
    error = "" if entry.se is None else f" ± {entry.se:.{digits}f}"
    return f"{entry.value:z.{digits}f}{error}{marks(entry.over, mixed=mixed, exact=exact)}"


def marks(over: Over, *, mixed: bool = False, exact: bool = False) -> str:
    """What stands behind a number."""
    one = f" {ONE_SEED}" if mixed and over == "episodes" else ""
    return f"{one}{f' {EXACT}' if exact else ''}"


def legend(covered: Iterable[Over], *, unit: str = "episodes", exact: bool = False) -> str:
    """What ± is in a table whose errors cover these, and what its marks say."""
    kinds, said = set(covered), []
    if "seeds and episodes" in kinds:
        said.append(ERROR)
        said += [f"{ONE_SEED} {MARKS[ONE_SEED]}"] if one_among_several(kinds) else []
    else:
        said += [text for over, text in LEGENDS.items() if over in kinds]
    said += [f"{EXACT} {MARKS[EXACT]}"] if exact else []
    return " ".join(said).replace("{unit}", unit)


def _behind(entries: list[Summary]) -> str:
    if not entries:
        return MISSING
    return f"{_span(e.seeds for e in entries)} × {_span(e.episodes for e in entries)}"


def _span(numbers: Iterable[int]) -> str:
    ends = sorted(set(numbers))
    return str(ends[0]) if len(ends) == 1 else f"{ends[0]}–{ends[-1]}"


def layout(lines: list[list[str]], legend: str = "") -> str:
    """A Markdown table with aligned source: the first column to the left, numbers to the right. Its legend, if there
    is one, is a paragraph below it."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]

    def padded(line: list[str]) -> str:
        first, *rest = zip(line, widths, strict=True)
        return f"| {' | '.join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])} |"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    below = ["", *textwrap.wrap(legend, 120)] if legend else []
    return "\n".join([padded(lines[0]), f"|{rule}|", *map(padded, lines[1:]), *below])


def insert_table(path: str | os.PathLike[str], name: str, table: str) -> bool:
    """Put a table between its markers in a Markdown file; returns whether the file changed."""
    file = Path(path)
    opening, closing = f"<!-- nbf:table {name} -->", "<!-- /nbf:table -->"
    try:
        before = read_regular(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{file} cannot be read, so table {name!r} has no place: {error}.") from None
    if before.count(opening) != 1:
        raise RecordError(
            f"{file} holds the marker {opening} {before.count(opening)} times instead of once. "
            f"Write it and {closing}, each on a line of its own, where the table belongs."
        )
    head, rest = before.split(opening)
    old, closed, tail = rest.partition(closing)
    if not closed or "<!-- nbf:table " in old:
        raise RecordError(
            f"{file}: the marker {opening} is never closed. Write {closing} on a line of its own below it."
        )
    after = f"{head}{opening}\n\n{table.strip()}\n\n{closing}{tail}"
    if after == before:
        return False
    write_atomically(file, after)
    return True
