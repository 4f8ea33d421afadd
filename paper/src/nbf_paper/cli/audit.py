"""`nbf-paper audit`: the cells of the documentation's tables, computed again from the records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from nbf.cli.command import FAILED, Command
from nbf.errors import InputError

if TYPE_CHECKING:
    from nbf_paper.audit.check import Audit as Found
    from nbf_paper.audit.check import Cell


@dataclass(frozen=True, kw_only=True)
class Audit(Command):
    """Compute the documentation's tables again from the records, by another route, and show how a cell comes about."""

    table: Annotated[Positional[str | None], arg(metavar="TABLE", help_behavior_hint="(default: all)")] = None
    """A table by its name between the markers, such as gridworld: its cells are shown with their records."""
    row: Annotated[str | None, arg(help_behavior_hint="(default: all)")] = None
    """Only rows whose label has this in it, such as "NBF (32)"."""
    column: Annotated[str | None, arg(help_behavior_hint="(default: all)")] = None
    """Only columns whose head has this in it."""
    results: Path = Path("results")
    """Folder of the records."""
    docs: Path = Path("docs")
    """Folder of Markdown files with tables."""
    paper: Path = Path("paper/docs")
    """Another one."""
    readme: Path = Path("README.md")
    """Another Markdown file with tables."""

    def answer(self) -> dict[str, Any]:
        from nbf_paper.audit.check import audit

        pages = (self.readme, *sorted(self.docs.glob("*.md")), *sorted(self.paper.glob("*.md")))
        found = audit(self.results, [page for page in pages if page.exists()], self.table)
        chosen = [cell for cell in found.cells if _has(cell.row, self.row) and _has(cell.column, self.column)]
        if not chosen:
            rows, columns = (sorted({getattr(cell, name) for cell in found.cells}) for name in ("row", "column"))
            raise InputError(
                f"No cell is in such a row and column. Rows: {'; '.join(rows)}. Columns: {'; '.join(columns)}."
            )
        alone = (self.table, self.row, self.column) != (None, None, None)
        return {
            "documents": len({cell.table.document for cell in found.cells}),
            "tables": len({(cell.table.document, cell.table.name) for cell in found.cells}),
            "cells": len(found.cells),
            "mismatches": found.mismatches,
            "shown": [_shown(found, cell) for cell in chosen] if alone else [],
        }

    def show(self, answer: dict[str, Any], console: Console) -> None:
        for cell in answer["shown"]:
            print("\n".join(_lines(cell)), end="\n\n")
        for mismatch in answer["mismatches"]:
            print(mismatch)
        amount = f"{answer['cells']} cells of {answer['tables']} tables in {answer['documents']} documents"
        wrong = len(answer["mismatches"])
        print(f"{amount}: {f'{wrong} mismatches' if wrong else 'all as the records have it'}")

    def code(self, answer: dict[str, Any]) -> int:
        return FAILED if answer["mismatches"] else 0


def _has(text: str, part: str | None) -> bool:
    return part is None or part.casefold() in text.casefold()


def _shown(found: Found, cell: Cell) -> dict[str, Any]:
    """A cell with its formula, its records and their runs."""
    records = [
        {"file": str(line.file), "line": line.number, "series": line.series, "metric": line.metric, "value": line.value,
         "se": line.se, "episodes": line.episodes}
        for line in cell.derived.lines
    ]  # fmt: skip
    names = ("key", "command", "date", "commit", "clean", "versions")
    runs = [{name: run.get(name) for name in names} for run in found.book.makers(cell.derived.lines)]
    return {
        "place": cell.place, "printed": cell.printed, "derived": cell.derived.precise, "agrees": cell.agrees,
        "formula": cell.derived.formula, "records": records, "runs": runs,
    }  # fmt: skip


def _lines(cell: dict[str, Any]) -> list[str]:
    """A cell as text."""
    verdict = "" if cell["agrees"] else "   DIFFERS"
    said = [cell["place"], f"  printed  {cell['printed']}", f"  derived  {cell['derived']}{verdict}"]
    said += [f"  formula  {cell['formula']}"] if cell["formula"] else []
    for record in cell["records"]:
        error = "" if record["se"] is None else f" ± {record['se']:g}"
        amount = f"{record['metric']} {record['value']:g}{error}, {record['episodes']} episodes"
        said.append(f"  record   {record['file']}, line {record['line']}: {record['series']}, {amount}")
    for run in cell["runs"]:
        state = {True: "clean", False: "changed", None: "unknown whether clean"}[run["clean"]]
        code = f"commit {run['commit']}, {state}" if run["commit"] else "commit unknown"
        versions = ", ".join(f"{name} {number}" for name, number in sorted(run["versions"].items()))
        said.append(f"  run      {run['key']}: {run['command']}")
        said.append(f"           {run['date'] or 'date unknown'}; {code}; {versions}")
    return said
