"""Summaries of records over the training seeds.

The error of a mean over S seeds, whose own means m_s have standard errors e_s over episodes, is the larger of

    sqrt(var(m_s) / S)    and    sqrt(Σ_s e_s²) / S.

The first contains both seeds and episodes in expectation, but with two or three seeds it is often far too small by
chance; the second is what the episodes alone contribute, and is known well.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from nbf_paper.records.schema import Record, Row, record_order

Over = Literal["", "seeds", "episodes", "seeds and episodes"]


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
    """Standard error."""
    over: Over
    """What `se` covers; empty if there is none."""
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


def standard_error(values: Sequence[float], errors: Sequence[float | None]) -> tuple[float | None, Over]:
    """The error of the mean of the seeds' values, and what it covers; `errors` are those over each seed's episodes."""
    within = [error for error in errors if error is not None]
    by_episodes = math.hypot(*within) / len(values)
    if len(values) == 1:
        return (by_episodes, "episodes") if within else (None, "")
    by_seeds = statistics.stdev(values) / math.sqrt(len(values))
    return (max(by_seeds, by_episodes), "seeds and episodes") if within else (by_seeds, "seeds")


def _summarise(group: list[Record]) -> Summary:
    first, values = group[0], [record.value for record in group]
    error, over = standard_error(values, [record.se for record in group])
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
        se=error,
        over=over,
        seeds=len(group),
        episodes=min(record.episodes for record in group),
    )
