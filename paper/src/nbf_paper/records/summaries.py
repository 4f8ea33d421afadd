"""Summaries of records over the training seeds."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nbf_paper.records.schema import Record, Row, record_order


@dataclass(frozen=True)
class Summary:
    """The same measurement over all training seeds."""

    experiment: str
    config: str
    filter: str
    arm: str
    particles: int
    calls: int
    step: int | Literal["all"]
    metric: str
    value: float
    """The mean over the seeds."""
    se: float | None
    """Standard error over seeds if there are two or more, else over episodes."""
    seeds: int
    episodes: int
    """Per seed; the fewest, where seeds differ."""

    @property
    def row(self) -> Row:
        """The filter, its arm and its number of particles."""
        return (self.filter, self.arm, self.particles)


def summary(records: Iterable[Record]) -> list[Summary]:
    """Mean and standard error over the training seeds, in the order of `records.csv`."""
    groups: dict[tuple[str | int, ...], list[Record]] = defaultdict(list)
    for record in sorted(records, key=record_order):
        groups[(*record.group[:-1], record.step, record.metric)].append(record)
    return [_summarise(group) for group in groups.values()]


def _summarise(group: list[Record]) -> Summary:
    first, values = group[0], [record.value for record in group]
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else first.se
    return Summary(
        experiment=first.experiment,
        config=first.config,
        filter=first.filter,
        arm=first.arm,
        particles=first.particles,
        calls=round(statistics.fmean(record.calls for record in group)),
        step=first.step,
        metric=first.metric,
        value=statistics.fmean(values),
        se=spread,
        seeds=len(group),
        episodes=min(record.episodes for record in group),
    )
