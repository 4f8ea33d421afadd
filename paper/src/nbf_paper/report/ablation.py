"""The page of the ablation: what is lost when a part of the default filter is left out.

| table | numbers |
|---|---|
| `ablation` | log score less that of the default filter on the same episodes, in nats |
| `ablation-scores` | log score of the true state, in nats |
| `ablation-distance`, `ablation-divergence` | energy distance, or Jensen-Shannon divergence where states are listed |
"""

from __future__ import annotations

from pathlib import Path

from nbf_paper.names import ZOO
from nbf_paper.records import read_records
from nbf_paper.report.tables import Page, markdown_table

ROWS = (
    "All filters make 32 calls. The prior sees no observation; Approx Beliefs is the ceiling: a model on samples of "
    "the reference's posterior."
)


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    records = read_records(folder)
    names = [name for name in ZOO if any(record.config == name for record in records)]
    listed = [name for name in names if ZOO[name].kind == "discrete"]
    real = [name for name in names if name not in listed]
    wanted = {
        "ablation": (
            names, "lead_over_default", 2,
            "Log score less that of the default filter with the same model on the same episodes, in nats; below zero, "
            "the default filter is better. The error is that of the differences.",
        ),
        "ablation-scores": (names, "log_score", 2, "Log score of the true state in nats; higher is better."),
        "ablation-distance": (real, "energy", 3, "Energy distance to the reference's posterior; lower is better."),
        "ablation-divergence": (
            listed, "js", 3, "Jensen-Shannon divergence to the reference's posterior, in nats; lower is better."
        ),
    }  # fmt: skip
    tables, captions = {}, {}
    for table, (configs, metric, digits, told) in wanted.items():
        if configs:
            tables[table] = markdown_table(records, configs=configs, metric=metric, digits=digits)
            captions[table] = f"{told} Mean over the steps. {ROWS}"
    return Page(tables, {}, "What each part of the filter is worth", captions)
