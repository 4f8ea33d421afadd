"""What `nbf report` writes: for each experiment with records its figures, and its tables between their markers.

A document asks for a table by its markers (see `nbf.report.tables`); one without markers stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from nbf.evaluation.records import RecordError, check_writable, records_path
from nbf.report import donuts, goofspiel, gridworld, triangulation
from nbf.report.plots import Episode, belief_figure, write_animation, write_figure
from nbf.report.tables import Page, insert_table

EXPERIMENTS = {
    "gridworld": gridworld.page,
    "donuts": donuts.page,
    "goofspiel": goofspiel.page,
    "triangulation": triangulation.page,
}
"""What makes a page of the records in an experiment's folder."""
MARKER = re.compile(r"<!-- nbf:table (\S+) -->")


def pages(results: Path) -> Page:
    """The tables and figures of every experiment that has records."""
    present = {name: page for name, page in EXPERIMENTS.items() if records_path(results / name).exists()}
    if not present:
        raise RecordError(f"There are no records in {results}: make some with `nbf reproduce`, or name another folder.")
    found = [page(results / name) for name, page in present.items()]
    return Page(
        {name: table for page in found for name, table in page.tables.items()},
        {name: figure for page in found for name, figure in page.figures.items()},
    )


def write_pages(results: Path, docs: Path, documents: Sequence[Path]) -> list[Path]:
    """Draw the figures into `docs/figures` and fill the tables of the documents; the files that were written.

    Everything that can be wrong with a document is found before the first file is written.
    """
    page = pages(results)
    places = [(document, name) for document in documents for name in _asked(document, page.tables)]
    folder = docs / "figures"
    check_writable(folder)
    for name, figure in page.figures.items():
        write_figure(figure(), folder / name)
    changed = [document for document, name in places if insert_table(document, name, page.tables[name])]
    return [folder / name for name in page.figures] + list(dict.fromkeys(changed))


def _asked(document: Path, tables: Iterable[str]) -> list[str]:
    """The tables whose markers stand in a document, in their order."""
    try:
        text = document.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{document} cannot be read: {error}.") from None
    asked = list(dict.fromkeys(MARKER.findall(text)))
    for name in asked:
        if name not in tables:
            raise RecordError(
                f"{document} asks for a table {name!r}; the records can fill {', '.join(tables) or 'none'}. "
                "Correct the marker, or record what it needs with `nbf reproduce`."
            )
    return asked


def write_beliefs(episode: Episode, folder: Path) -> list[Path]:
    """The beliefs of one episode as a picture and as an animation; the two files."""
    check_writable(folder)
    picture, animation = folder / "belief.png", folder / "belief.gif"
    write_figure(belief_figure(episode), picture)
    write_animation(episode, animation)
    return [picture, animation]
