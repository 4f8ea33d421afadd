"""What `nbf report` writes from the records of Gridworld: figures, and tables between their markers.

| table | configurations | rows |
|---|---|---|
| `gridworld` | the paper's eight | the paper's model |
| `gridworld-fixed`, `gridworld-random` | four of them | the paper's model |
| `gridworld-extra` | those that go beyond the paper, or that another arm was trained for | every arm |

A document asks for a table by its markers (see `nbf.report.tables`); one without markers stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from nbf.evaluation.records import Record, RecordError, check_writable
from nbf.report.plots import PANELS, Episode, belief_figure, divergence_figure, write_animation, write_figure
from nbf.report.tables import config_order, insert_table, markdown_table

PAPER = (*PANELS["fixed"], *PANELS["random"])
"""The paper's eight configurations."""
MARKER = re.compile(r"<!-- nbf:table (\S+) -->")


def selections(records: Iterable[Record]) -> dict[str, tuple[list[str], list[Record]]]:
    """For each table and figure of which something is recorded, its configurations and its records."""
    records = list(records)
    paper = [record for record in records if record.arm in ("", "faithful")]
    beyond = {record.config for record in records if record.config not in PAPER or record not in paper}
    wanted = {
        "gridworld": (list(PAPER), paper),
        **{f"gridworld-{kind}": (list(panels), paper) for kind, panels in PANELS.items()},
        "gridworld-extra": (sorted(beyond, key=config_order), records),
    }
    recorded = {name: {record.config for record in chosen} for name, (_, chosen) in wanted.items()}
    present = {name: [c for c in configs if c in recorded[name]] for name, (configs, _) in wanted.items()}
    return {name: (present[name], chosen) for name, (_, chosen) in wanted.items() if present[name]}


def write_pages(records: Iterable[Record], docs: Path, documents: Sequence[Path]) -> list[Path]:
    """Draw the figures into `docs/figures` and fill the tables of the documents; the files that were written.

    Everything that can be wrong with a document is found before the first file is written.
    """
    chosen = selections(records)
    tables = {name: markdown_table(rows, configs=configs) for name, (configs, rows) in chosen.items()}
    places = [(document, name) for document in documents for name in _asked(document, tables)]
    figures = docs / "figures"
    check_writable(figures)
    written = []
    for name in ("gridworld-fixed", "gridworld-random", "gridworld-extra"):
        if name in chosen:
            configs, rows = chosen[name]
            panels = PANELS.get(name.removeprefix("gridworld-"), configs)
            write_figure(divergence_figure(rows, panels), figures / f"{name}.png")
            written.append(figures / f"{name}.png")
    changed = [document for document, name in places if insert_table(document, name, tables[name])]
    return written + list(dict.fromkeys(changed))


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
