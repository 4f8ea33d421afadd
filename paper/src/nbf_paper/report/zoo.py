"""The page of the zoo: for each kind of problem, the score of the true state and the distance to the reference.

| table | numbers |
|---|---|
| `zoo-<kind>` | mean log score of the true state, in nats: higher is better |
| `zoo-<kind>-distance` | mean energy distance (real vectors) or Jensen-Shannon divergence (listed states) |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import ZOO, ZOO_KINDS
from nbf_paper.records import Record, read_records
from nbf_paper.report.tables import Page, markdown_table

ABOUT = {
    "smooth": "Problems with smooth beliefs", "curved": "Problems with curved beliefs",
    "many-moded": "Problems with beliefs of many modes", "constrained": "Problems with constrained states",
    "discrete": "Problems with discrete states",
}  # fmt: skip
ROWS = (
    "The prior sees no observation; Approx Beliefs is the ceiling: the fitted model on samples of the reference's "
    "posterior."
)


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    tables, captions = {}, {}
    for kind in ZOO_KINDS:
        names = [name for name in ZOO if ZOO[name].kind == kind and any(record.config == name for record in records)]
        if not names:
            continue
        distance = "js" if kind == "discrete" else "energy"
        told = "Jensen-Shannon divergence, in nats" if distance == "js" else "energy distance"
        tables[f"zoo-{kind}"] = _table(records, names, "log_score", 2)
        tables[f"zoo-{kind}-distance"] = _table(records, names, distance, 3)
        captions[f"zoo-{kind}"] = (
            f"{ABOUT[kind]} ({_splits(names)}): log score of the true state in nats, mean over the steps; "
            f"higher is better. {ROWS}"
        )
        captions[f"zoo-{kind}-distance"] = (
            f"{ABOUT[kind]} ({_splits(names)}): {told}, between a belief and the reference's posterior, mean over the "
            f"steps; the reference's own row compares two of its runs. {ROWS}"
        )
    return Page(tables, {}, "A zoo of problems", captions)


def _table(records: list[Record], names: list[str], metric: str, digits: int) -> str:
    return markdown_table(records, configs=names, metric=metric, digits=digits, calls=True)


def _splits(names: list[str]) -> str:
    """`terrain for exploration; rooms, switching for confirmation`."""
    found = {split: [name for name in names if ZOO[name].split == split] for split in ("exploration", "confirmation")}
    return "; ".join(f"{', '.join(some)} for {split}" for split, some in found.items() if some)
