"""Claims of the paper, each with the recorded numbers that bear on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nbf_paper.records import ALL, Record, Row, summary
from nbf_paper.report.labels import label


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the filters and configurations that it is about."""

    text: str
    rows: tuple[Row, ...]
    configs: tuple[str, ...]
    metric: str = "js"


def beside(claims: Iterable[Claim], records: Iterable[Record]) -> Sequence[tuple[str, str]]:
    """Each claim with its recorded numbers, a line for each configuration: `8-2D-fixed: PF (32) 0.025, ...`."""
    found = {(e.row, e.config, e.metric): e for e in summary(records) if e.step == ALL}
    lines = []
    for claim in claims:
        told = []
        for config in claim.configs:
            entries = [found.get((row, config, claim.metric)) for row in claim.rows]
            numbers = [f"{label(*e.row, e.experiment, [config])} {e.value:.3f}" for e in entries if e is not None]
            told += [f"{config}: {', '.join(numbers)}"] if numbers else []
        lines.append((claim.text, "\n".join(told) or "not recorded"))
    return lines
