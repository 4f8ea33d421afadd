"""What `nbf-paper report` writes: the figures of each experiment with records, its tables between their markers in the
documents, and one HTML page of all of them.

A document asks for a table by its markers (see `nbf_paper.report.tables`); one without markers stays as it is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nbf.errors import InputError
from nbf.files.atomic import check_replaceable, check_writable, write_atomically
from nbf.files.regular import read_regular
from nbf.plot.episode import Episode, write_beliefs
from nbf.plot.style import png
from nbf_paper.experiments import choices
from nbf_paper.protocol.tables import scale
from nbf_paper.records import RecordError, records_path
from nbf_paper.report import peers
from nbf_paper.report.html import HtmlReport, Opening, page_text
from nbf_paper.report.tables import Page, insert_table

BENCHMARKS = {"peers": peers.page}
"""What makes the pages of records that are not an experiment's."""
BELIEFS = (
    "An agent walks through an 8 x 8 grid, and only its moves are heard, some of them wrongly. What each filter "
    "believes about its place, step by step: the exact posterior, a particle filter, the neural Bayesian filter."
)
"""What the picture of beliefs shows."""
MARKER = re.compile(r"<!-- nbf:table (\S+) -->")


def present(results: Path) -> dict[str, Page]:
    """The tables and figures of every experiment that has records."""
    pages = {**{name: kind.page for name, kind in choices.EXPERIMENTS.items()}, **BENCHMARKS}
    found = {name: page for name, page in pages.items() if records_path(results / name).exists()}
    if not found:
        raise RecordError(
            f"There are no records in {results}: make some with `nbf-paper reproduce`, or name another folder."
        )
    made = {}
    for name, page in found.items():
        with _of_records(results / name):
            made[name] = page(results / name)
    return made


@contextlib.contextmanager
def _of_records(folder: Path) -> Iterator[None]:
    """Records and pictures that are sound one by one may still lack what a page needs, or hold what it cannot draw."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise RecordError(
            f"The records in {folder} do not hold what their page needs ({error!r}). Restore them from git, or make "
            "them anew with `nbf-paper reproduce`."
        ) from error


def write_pages(
    results: Path, docs: Path, documents: Sequence[Path], html: Path, beliefs: Callable[[], Episode] | None = None
) -> list[Path]:
    """Draw the figures into `docs/figures`, beliefs among them if there are any to draw, fill the tables of the
    documents, and write all of it as one HTML page too; the files that were written.

    Everything that can be wrong with a document is found before the first file is written.
    """
    found = present(results)
    tables = {name: table for page in found.values() for name, table in page.tables.items()}
    with _of_records(results):
        tables |= scale(results)
    places = [(document, name) for document in documents for name in _asked(document, tables)]
    folder = docs / "figures"
    check_replaceable(html)
    check_writable(html.parent)
    check_writable(folder)
    images = _drawn(found, results)
    for name, image in images.items():
        write_atomically(folder / name, image)
    written = [folder / name for name in images]
    written += write_beliefs(beliefs(), folder) if beliefs else []
    written += dict.fromkeys(document for document, name in places if insert_table(document, name, tables[name]))
    _write_html(html, results, found, images, folder / "belief.png")
    return [*written, html]


def write_html(results: Path, path: Path) -> None:
    """All figures and tables of a folder of records as one HTML page."""
    found = present(results)
    _write_html(path, results, found, _drawn(found, results))


def _drawn(found: Mapping[str, Page], results: Path) -> dict[str, bytes]:
    images = {}
    for folder, page in found.items():
        with _of_records(results / folder):
            images |= {name: png(figure()) for name, figure in page.figures.items()}
    return images


def _write_html(
    path: Path, results: Path, found: Mapping[str, Page], images: Mapping[str, bytes], beliefs: Path | None = None
) -> None:
    opening = Opening(read_regular(beliefs), BELIEFS) if beliefs and beliefs.exists() else None
    missing = [name for name in choices.EXPERIMENTS if name not in found]
    write_atomically(path, page_text(HtmlReport(results, found, images, missing, opening)))


def _asked(document: Path, tables: Iterable[str]) -> list[str]:
    """The tables whose markers stand in a document, in their order."""
    try:
        text = read_regular(document).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{document} cannot be read: {error}.") from None
    asked = list(dict.fromkeys(MARKER.findall(text)))
    for name in asked:
        if name not in tables:
            raise RecordError(
                f"{document} asks for a table {name!r}; the records can fill {', '.join(tables) or 'none'}. "
                "Correct the marker, or record what it needs with `nbf-paper reproduce`."
            )
    return asked
