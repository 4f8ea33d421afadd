"""Markdown tables made from records: the paper's figures of Jensen-Shannon divergence as numbers.

Rows are filters, columns are configurations, cells are `mean ± standard error`. A document holds the
place of a table between two markers, so that no number in the documentation is typed by hand:

    <!-- nbf:table gridworld-random -->
    <!-- /nbf:table -->
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nbf.files.atomic import write_atomically
from nbf_paper.records import ALL, Record, RecordError, Row, Summary, summary

FILTERS = {
    "exact": "Exact",
    "approx": "Approx Beliefs",
    "nbf": "NBF",
    "fine-tuned": "Fine-tuned",
    "recurrent": "Recurrent",
    "kalman": "Kalman",
    "ekf": "EKF",
    "ukf": "UKF",
    "ckf": "CKF",
    "enkf": "EnKF",
    "emp": "Exact samples",
    "branching": "Fearnhead–Clifford",
    "pf-kde": "PF + KDE",
    "pf": "PF",
}
"""The names of the filters in a report, in the order of the rows."""
MISSING = "–"
"""The text of a cell without a record."""


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


def label(filter: str, arm: str = "", particles: int = 0) -> str:
    """`NBF (16)`, `Approx Beliefs`, or `NBF (16), enumerated` for an arm that is not the paper's."""
    name = FILTERS.get(filter, filter)
    count = f" ({particles})" if particles else ""
    variant = "" if arm in ("", "faithful") else f", {arm}"
    return f"{name}{count}{variant}"


def row_order(row: Row) -> tuple[int, str, bool, str, int]:
    """Sort key of rows: exact, the ceiling, NBF and then its baselines; the paper's arm first; few particles first."""
    names = list(FILTERS)
    filter, arm, particles = row
    place = names.index(filter) if filter in names else len(names)
    return (place, filter, arm not in ("", "faithful"), arm, particles)


def config_order(config: str) -> tuple[str, int, int, str]:
    """Sort key of configurations, as in the paper: fixed, then random; 5-2D, 8-2D, 5-3D, 8-3D."""
    grid = re.fullmatch(r"(\d+)-(\d+)D-(.+)", config)
    return (grid[3], int(grid[2]), int(grid[1]), config) if grid else ("", 0, 0, config)


def markdown_table(
    records: Iterable[Record],
    *,
    configs: Sequence[str] | None = None,
    metric: str = "js",
    step: int | Literal["all"] = ALL,
    digits: int = 3,
    calls: bool = False,
) -> str:
    """One metric of every filter (rows) in every configuration (columns, all recorded ones by default).

    The last row is the amount of data of each column: `2 × 500` is two training seeds with 500 episodes each. The
    error is over seeds where there are two or more, else over episodes. `calls` adds a column of simulator calls per
    update.
    """
    found = [entry for entry in summary(records) if entry.metric == metric and entry.step == step]
    columns = list(configs) if configs is not None else sorted({entry.config for entry in found}, key=config_order)
    cells = {(entry.row, entry.config): entry for entry in found if entry.config in columns}
    if not cells:
        where = f" in {', '.join(columns)}" if columns else ""
        raise RecordError(f"No record has metric {metric!r} at step {step!r}{where}: there is nothing to tabulate.")
    lines = [["Filter", *(["Calls"] if calls else []), *columns]]
    for row in sorted({row for row, _ in cells}, key=row_order):
        entries = [cells.get((row, config)) for config in columns]
        spent = [_span(entry.calls for entry in entries if entry)] if calls else []
        lines.append([label(*row), *spent, *(cell(entry, digits) for entry in entries)])
    behind = [_behind([entry for (_, config), entry in cells.items() if config == column]) for column in columns]
    lines.append(["*seeds × episodes*", *([""] if calls else []), *behind])
    return layout(lines)


def cell(entry: Summary | None, digits: int) -> str:
    """`mean ± standard error`."""
    if entry is None:
        return MISSING
    error = "" if entry.se is None else f" ± {entry.se:.{digits}f}"
    return f"{entry.value:.{digits}f}{error}"


def _behind(entries: list[Summary]) -> str:
    if not entries:
        return MISSING
    return f"{_span(e.seeds for e in entries)} × {_span(e.episodes for e in entries)}"


def _span(numbers: Iterable[int]) -> str:
    ends = sorted(set(numbers))
    return str(ends[0]) if len(ends) == 1 else f"{ends[0]}–{ends[-1]}"


def layout(lines: list[list[str]]) -> str:
    """A Markdown table with aligned source: the first column to the left, numbers to the right."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]

    def padded(line: list[str]) -> str:
        first, *rest = zip(line, widths, strict=True)
        return f"| {' | '.join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])} |"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([padded(lines[0]), f"|{rule}|", *map(padded, lines[1:])])


def insert_table(path: str | os.PathLike[str], name: str, table: str) -> bool:
    """Put a table between its markers in a Markdown file; returns whether the file changed."""
    file = Path(path)
    opening, closing = f"<!-- nbf:table {name} -->", "<!-- /nbf:table -->"
    try:
        before = file.read_bytes().decode()
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
