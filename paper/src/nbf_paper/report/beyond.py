"""The page of the default filter: tables and figures by domain, beside the paper's algorithm and the baselines.

| table | columns | cells |
|---|---|---|
| `beyond-gridworld`, `beyond-goofspiel`, `beyond-triangulation` | configurations | mean JS to the truth |
| `beyond` | one or two configurations of each domain | mean JS of the default filter, the paper's and the baselines |
| `beyond-few` | three configurations | mean JS of the default filter and its baselines, with few calls; the README's |

Where particles suffice for every branch, the default filter draws nothing, and its model is never asked. Such cells are
marked; that they are such is decided by the records, in which the same filter with an untrained model is as exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from nbf_paper.names import EXAMPLE, TRIANGULATION, domain_of
from nbf_paper.records import ALL, Record, Row, Summary, read_records, summary
from nbf_paper.report.labels import UNTRAINED
from nbf_paper.report.plots import divergence_figure
from nbf_paper.report.tables import Page, config_order, markdown_table

HEADLINE = (EXAMPLE, "5-3D-random", "8-3D-random", "k=6", TRIANGULATION)
"""Configurations in which the default filter needs its model at one of its sizes at least."""
DOMAINS = ("gridworld", "goofspiel", TRIANGULATION)
FEW = (EXAMPLE, "8-3D-random", TRIANGULATION)
"""Configurations of the README's table."""
FEW_CALLS, MANY_CALLS = 32, 2048
"""Calls of its rows; the second of the particle filters alone."""
MOST_CALLS = 2048
"""Larger baselines are left out of the headline table."""
SHOWN = {
    ("nbf", "default"), ("nbf", "faithful"), ("branching", "branches chosen"), ("pf", ""), ("pf-kde", ""),
    ("pf-regularized", "look-ahead"),
}  # fmt: skip
"""The filters and arms of the figures; the headline table has the controls and the ceiling too."""
DEFAULT, BLIND = "default", f"{UNTRAINED}default"
"""The default filter's arms: with the trained model, and with one that was never trained."""
NOTHING = 0.0005
"""A mean JS below this is printed as 0.000."""
LARGER = (512, 1024)
"""Sizes of the larger particle filters that the figures show."""


def page(folder: Path) -> Page:
    """The tables and figures of the records in a folder."""
    records = read_records(folder)
    configs = sorted({record.config for record in records}, key=config_order)
    exact = exact_cells(summary(record for record in records if record.step == ALL))
    tables: dict[str, str] = {}
    figures: dict[str, Callable[[], Figure]] = {}
    for domain in DOMAINS:
        mine = [config for config in configs if domain_of(config) == domain]
        if mine:
            tables[f"beyond-{domain}"] = markdown_table(records, configs=mine, calls=True, exact=exact)
            figures[f"beyond-{domain}.png"] = functools.partial(figure, records, mine)
    shown = [config for config in HEADLINE if config in configs]
    if shown:
        named = SHOWN | {("nbf", BLIND), ("prior", ""), ("approx", DEFAULT)}
        few = [r for r in records if (r.filter, r.arm) in named and r.calls <= MOST_CALLS]
        tables["beyond"] = markdown_table(few, configs=shown, calls=True, exact=exact)
    shown = [config for config in FEW if config in configs]
    if shown:
        few = [record for record in records if _is_few(record)]
        tables["beyond-few"] = markdown_table(few, configs=shown, calls=True, exact=exact)
    captions = {
        "beyond-few": "JS to the truth, with few simulator calls per update",
        "beyond": "JS to the truth, by simulator calls per update",
        "beyond-gridworld": "Gridworld: JS to the truth of the default filter, its parts, and its baselines",
        "beyond-goofspiel": "Goofspiel: JS to the truth of the default filter, its parts, and its baselines",
        "beyond-triangulation": "Triangulation: JS to the truth of the default filter, its parts, and its baselines",
        **{f"beyond-{domain}.png": f"{domain.capitalize()}: JS by step of the default filter and its baselines"
           for domain in DOMAINS},
    }  # fmt: skip
    return Page(tables, figures, title="Beyond the paper", captions=captions)


def _is_few(record: Record) -> bool:
    """Whether a record is of the README's table: the default filter, its baselines, the prior and the ceiling."""
    if (record.filter, record.arm) in {("prior", ""), ("approx", DEFAULT)}:
        return True
    sizes = (FEW_CALLS, MANY_CALLS) if record.filter in ("pf", "pf-kde") else (FEW_CALLS,)
    return (record.filter, record.arm) in SHOWN - {("nbf", "faithful")} and record.calls in sizes


def exact_cells(entries: Iterable[Summary]) -> set[tuple[Row, str]]:
    """The rows and configurations in which the default filter is exact without its model: an untrained one, with as
    many calls, has no error either."""
    found: dict[tuple[str, int], dict[str, Summary]] = {}
    for entry in entries:
        if (entry.filter, entry.metric, entry.step) == ("nbf", "js", ALL) and entry.arm in (DEFAULT, BLIND):
            found.setdefault((entry.config, entry.calls), {})[entry.arm] = entry
    pairs = [arms for arms in found.values() if len(arms) == 2 and max(e.value for e in arms.values()) < NOTHING]
    return {(entry.row, entry.config) for arms in pairs for entry in arms.values()}


def figure(records: Sequence[Record], panels: Sequence[str]) -> Figure:
    """JS by step, one panel for each configuration. It shows the baselines with as many calls and one larger particle
    filter; more lines would hide each other."""
    calls = {(record.config, record.calls) for record in records if (record.filter, record.arm) == ("nbf", "default")}

    def drawn(record: Record) -> bool:
        alike = (record.config, record.calls) in calls
        larger = record.filter in ("pf", "pf-kde") and record.particles in LARGER
        return (record.filter, record.arm) in SHOWN and (alike or larger)

    return divergence_figure([record for record in records if drawn(record)], panels)
