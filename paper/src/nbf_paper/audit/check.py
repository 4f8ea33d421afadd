"""All tables of the documents against the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbf.errors import InputError
from nbf_paper.audit import crossing, pages, prices, scale, times, zoo
from nbf_paper.audit.arithmetic import EXACT, ONE_SEED, Derived
from nbf_paper.audit.documents import Printed, tables
from nbf_paper.audit.grids import Answer, check_grid, grid_of
from nbf_paper.audit.sources import Book

SPECIAL: Mapping[str, Callable[[Book, Printed], Answer]] = {
    **pages.TABLES,
    **prices.TABLES,
    **times.TABLES,
    **crossing.TABLES,
    **scale.TABLES,
    **zoo.TABLES,
}
LABELS = (
    "Filter", "Problem", "Site", "Opponents", "Decoder", "Model", "Package", "called", "Configuration", "Gradient step",
    "Filters x particles", "Simulator", "Measure",
    "Experiment",
)  # fmt: skip
"""Heads of columns that hold names, not numbers."""
STANDARD_DEVIATION = ("wall-clock", "wall-clock-gradient")
"""Tables in which ± is a standard deviation, as their captions say."""


@dataclass(frozen=True)
class Cell:
    """A cell of a document, and what it should say."""

    table: Printed
    row: str
    column: str
    line: int
    """Of the document."""
    printed: str
    derived: Derived

    @property
    def agrees(self) -> bool:
        """Whether it says what it should."""
        return self.derived.agrees(self.printed)

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.table.document}:{self.line}, table {self.table.name}, row {self.row!r}, column {self.column!r}"


@dataclass(frozen=True)
class Audit:
    """All cells of some documents, and what is wrong with tables as a whole."""

    book: Book
    cells: list[Cell]
    complaints: list[str]

    @property
    def mismatches(self) -> list[str]:
        """What does not agree with the records; empty if all does."""
        wrong = [
            f"{cell.place}: {cell.printed!r}, but the records give {cell.derived.text!r}"
            + (f"; {cell.derived.complaint}" if cell.derived.complaint else "")
            for cell in self.cells
            if not cell.agrees
        ]
        return [*wrong, *self.complaints]


def audit(results: Path, documents: Iterable[Path], name: str | None = None) -> Audit:
    """Compute every cell of every generated table again, or of one table alone."""
    book, found = Book(results), tables(documents)
    chosen = [table for table in found if name is None or table.name == name]
    if not chosen:
        known = ", ".join(sorted({table.name for table in found})) or "none"
        raise InputError(f"There is no table {name!r} in the documents; there are {known}." if name else
                         "There are no generated tables in the documents; name those that have some.")  # fmt: skip
    cells: list[Cell] = []
    complaints: list[str] = []
    for table in chosen:
        try:
            answer = _answer(book, table)
        except (LookupError, TypeError, ArithmeticError, AttributeError) as error:
            raise InputError(
                f"The records in {results} do not hold what table {table.name!r} needs ({error!r}). "
                "Restore them from git."
            ) from error
        where = f"{table.document}:{table.line}, table {table.name}"
        complaints += [f"{where}: {complaint}" for complaint in (*answer.complaints, *_form(table, answer))]
        for (row, column), derived in sorted(answer.cells.items()):
            label = ", ".join(cell for head, cell in zip(table.heads, table.rows[row], strict=True) if head in LABELS)
            printed = table.rows[row][column]
            cells.append(Cell(table, label, table.heads[column], table.line + 2 + row, printed, derived))
    lines = dict.fromkeys(line for cell in cells for line in cell.derived.lines)
    unclaimed = [
        f"{line.file}, line {line.number}: no run says that it made it" for line in lines if not book.maker(line)
    ]
    return Audit(book, cells, [*complaints, *unclaimed])


def _answer(book: Book, table: Printed) -> Answer:
    grid = zoo.GRIDS.get(table.name) or grid_of(table.name, book)
    if grid is not None:
        return check_grid(book, table, grid)
    if table.name not in SPECIAL:
        return Answer(complaints=["no rule says how this table is computed; write one in nbf_paper.audit"])
    return SPECIAL[table.name](book, table)


def _form(table: Printed, answer: Answer) -> list[str]:
    """Cells that nothing was computed for, rows of one name, and marks that the legend does not explain."""
    said = []
    for row, cells in enumerate(table.rows):
        for column, head in enumerate(table.heads):
            if head not in LABELS and (row, column) not in answer.cells:
                said.append(f"nothing on record gives row {cells[0]!r}, column {head!r}")
    named = [tuple(cell for head, cell in zip(table.heads, row, strict=True) if head in LABELS) for row in table.rows]
    if table.name != "simulation-cost-check":
        said += [f"two rows are named {', '.join(each)!r}" for each, count in Counter(named).items() if count > 1]
    printed = " ".join(cell for row in table.rows for cell in row)
    told = ("±" if table.name not in STANDARD_DEVIATION else "", ONE_SEED, EXACT)
    said += [
        f"{mark} is not explained below the table"
        for mark in told
        if mark and mark in printed and mark not in table.legend
    ]
    return said
