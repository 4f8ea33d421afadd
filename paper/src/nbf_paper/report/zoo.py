"""The page of the zoo: for each kind of problem, the score of the true state and the distance to the reference.

| table | numbers |
|---|---|
| `zoo-summary` | mean log score of the filters of 32 calls in every problem, and the network's share of the gain |
| `zoo-leads` | by how much NBF's log score is above those of other filters, with the error of the differences |
| `zoo-<kind>` | mean log score of the true state, in nats: higher is better |
| `zoo-<kind>-distance` | mean energy distance (real vectors) or Jensen-Shannon divergence (listed states) |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nbf_paper.names import ZOO, ZOO_KINDS
from nbf_paper.records import ALL, Record, Summary, read_records, summary
from nbf_paper.report.tables import MISSING, Page, cell, layout, legend, markdown_table, one_among_several

ABOUT = {
    "smooth": "Problems with smooth beliefs", "curved": "Problems with curved beliefs",
    "many-moded": "Problems with beliefs of many modes", "constrained": "Problems with constrained states",
    "discrete": "Problems with discrete states",
}  # fmt: skip
ROWS = (
    "The prior sees no observation; Approx Beliefs is the ceiling: the fitted model on samples of the reference's "
    "posterior."
)
HEADS = ("Problem", "beliefs", "split")
"""What is said of a problem."""
COLUMNS = {
    "Reference": ("reference", "", 0), "Prior": ("prior", "", 0), "PF (32)": ("pf", "", 32),
    "PF (1024)": ("pf", "", 1024), "Regularized PF (32)": ("pf-regularized", "", 32),
    "Fearnhead–Clifford (32)": ("branching", "", 32), "NBF (32), untrained": ("nbf", "untrained", 32),
    "NBF (32), fitted": ("nbf", "", 32), "Ceiling": ("approx", "", 0),
}  # fmt: skip
"""Filter, arm and particles of the columns of the summary."""
WITHOUT = ("PF (32)", "Regularized PF (32)", "Fearnhead–Clifford (32)", "NBF (32), untrained")
"""What the same number of calls reaches without a trained network."""
SUMMARY = (
    "Log score of the true state in nats, mean over the steps; higher is better. Gain: of NBF (32) over the prior. "
    "Network: the part of that gain that NBF (32) has over the best filter of 32 calls without a trained network. "
    "Ceiling: the fitted model on samples of the reference's posterior."
)
LEADS = {f"NBF ({n}), fitted, over no network": (n, "lead_over_equal_calls") for n in (16, 32, 128, 512)} | {
    "NBF (32), fitted, over PF (1024)": (32, "lead_over_pf1024"),
    "NBF (32), fitted, over the prior": (32, "lead_over_prior"),
    "NBF (32), fitted, over its ceiling": (32, "lead_over_ceiling"),
}
"""Particles and metric of the columns of the leads."""
ABOUT_LEADS = (
    "Log score of NBF, fitted, less that of another filter on the same episodes, in nats; above zero, NBF is better. "
    "No network: the regularized particle filter, or Fearnhead–Clifford where states are listed, with as many calls. "
    "The error is that of the differences."
)


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    tables, captions = {"zoo-summary": _summary(records)}, {"zoo-summary": SUMMARY}
    if any(record.metric.startswith("lead_") for record in records):
        names = [name for name in ZOO if any(record.config == name for record in records)]
        rows = {name: (name, ZOO[name].kind, ZOO[name].split) for name in names}
        tables["zoo-leads"], captions["zoo-leads"] = lead_table(records, rows, HEADS), ABOUT_LEADS
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


def _summary(records: list[Record]) -> str:
    """Problems as rows."""
    scored = summary(record for record in records if record.metric == "log_score" and record.step == ALL)
    entries = {(entry.config, entry.row): entry for entry in scored}
    mixed = one_among_several(entry.over for entry in scored)
    lines = [[*HEADS, *COLUMNS, "gain", "network"]]
    for name in (name for name in ZOO if any(entry.config == name for entry in scored)):
        found = {column: entries.get((name, row)) for column, row in COLUMNS.items()}
        texts = [cell(entry, 2, mixed=mixed) for entry in found.values()]
        lines.append([name, ZOO[name].kind, ZOO[name].split, *texts, *_gain(found)])
    return layout(lines, legend(entry.over for entry in scored))


def lead_table(
    records: Sequence[Record],
    rows: Mapping[str, tuple[str, ...]],
    heads: tuple[str, ...],
    sizes: Sequence[int] = (16, 32, 128, 512),
) -> str:
    """The leads of each configuration; `rows` are what stands before them, under `heads`. `sizes` are NBF's."""
    columns = {head: wanted for head, wanted in LEADS.items() if wanted[0] in sizes}
    found = summary(record for record in records if record.metric.startswith("lead_"))
    entries = {(entry.config, entry.particles, entry.metric): entry for entry in found if entry.arm == ""}
    mixed = one_among_several(entry.over for entry in found)
    lines = [[*heads, *columns]]
    for name, said in rows.items():
        texts = [cell(entries.get((name, *wanted)), 2, mixed=mixed) for wanted in columns.values()]
        lines.append([*said, *texts])
    return layout(lines, legend(entry.over for entry in found))


def _gain(found: dict[str, Summary | None]) -> tuple[str, str]:
    """The gain of the default filter over the prior, and the network's part of it."""
    prior, ours = found["Prior"], found["NBF (32), fitted"]
    others = [entry.value for column in WITHOUT if (entry := found[column]) is not None]
    if prior is None or ours is None or not others:
        return MISSING, MISSING
    gain = ours.value - prior.value
    part = ours.value - max(prior.value, *others)
    return f"{gain:+.2f}", f"{max(part, 0.0) / gain:.0%}" if gain > 0 else MISSING


def _table(records: list[Record], names: list[str], metric: str, digits: int) -> str:
    return markdown_table(records, configs=names, metric=metric, digits=digits, calls=True)


def _splits(names: list[str]) -> str:
    """`terrain for exploration; rooms, switching for confirmation`."""
    found = {split: [name for name in names if ZOO[name].split == split] for split in ("exploration", "confirmation")}
    return "; ".join(f"{', '.join(some)} for {split}" for split, some in found.items() if some)
