"""The page of policies and values on beliefs.

| table | numbers |
|---|---|
| `values-walk` | mean distance from the origin at the end of the walk: lower is better |
| `values-chase` | share of chases in which the runner was caught: higher is better |
| `values-error-walk`, `values-error-chase` | mean squared error of V against the return that followed |
| `values-search` | mean return of the policy on θ, and of searches with and without its V |
| `values-calls` | simulator calls of such a search for a decision |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import VALUE_CHANGES
from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table

ROWS = (
    "The same network, trained by PPO for as many steps, on what each row sees. The columns after the first are tasks "
    "that were changed after training."
)
CAPTIONS = {
    "values-walk": f"Distance from the origin at the end of the walk; lower is better. {ROWS}",
    "values-chase": f"Share of chases in which the runner is caught within 24 steps; higher is better. {ROWS}",
    "values-error-walk": "The walk: mean squared error of V against the return that followed, over the steps.",
    "values-error-chase": "The chase: mean squared error of V against the return that followed, over the steps.",
    "values-search": (
        "Mean return of the policy on θ, and of tree searches from the neural filter's belief: with V of the simulated "
        "belief at the leaves, and with random rollouts."
    ),
    "values-calls": "Simulator calls of each search for a decision, those of the filter's updates inside it counted.",
}


def configs(task: str) -> list[str]:
    """The configurations of a task: as it was trained, and its changes."""
    return [task, *(f"{task}-{change}" for change in VALUE_CHANGES[task])]


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    recorded = {(record.config, record.metric) for record in records}
    tables = {}
    for task, metric, digits in (("walk", "distance", 2), ("chase", "caught", 2)):
        if (task, metric) in recorded:
            asked = configs(task)
            tables[f"values-{task}"] = markdown_table(records, configs=asked, metric=metric, digits=digits)
            tables[f"values-error-{task}"] = markdown_table(records, configs=asked, metric="value_error", digits=3)
    for name, metric, digits in (("values-search", "search_return", 2), ("values-calls", "search_calls", 0)):
        asked = [task for task in VALUE_CHANGES if (task, metric) in recorded]
        if asked:
            tables[name] = markdown_table(records, configs=asked, metric=metric, digits=digits)
    return Page(tables, {}, "Policies and values on beliefs", {name: CAPTIONS[name] for name in tables})
