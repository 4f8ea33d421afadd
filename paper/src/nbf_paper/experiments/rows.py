"""The rows of an evaluation: filters with the names of their records, and records by step."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Array, Key

from nbf.contracts import Filter
from nbf.evaluation.batches import mean_and_error
from nbf_paper.records import Record

FILTERS = zlib.crc32(b"filters")
"""Names the stream of the filters among those of an episode."""


def filter_keys(episodes: Key[Array, " episodes"]) -> Key[Array, " episodes"]:
    """The key of the filters in each episode, given the key that made it: of a stream of their own.

    A filter with the key of the episode would draw the episode's own numbers: in a random grid one of its first
    particles was the goal, every time.
    """
    return jax.vmap(lambda key: jax.random.fold_in(key, FILTERS))(episodes)


@dataclass(frozen=True)
class FilterRow:
    """A filter with the names that its records have."""

    filter: Filter
    name: str
    arm: str
    particles: int
    calls: int
    smooth: bool = False
    """Whether its particles are scored as a kernel density."""

    @property
    def label(self) -> str:
        """The filter as progress names it."""
        return f"{self.name}({self.particles})" if self.particles else self.name


def records_by_step(base: Record, metric: str, values: np.ndarray) -> list[Record]:
    """One record for the mean over the steps and one for each step."""
    total, total_error = mean_and_error(values.mean(axis=1))
    mean, error = mean_and_error(values)
    rows = [replace(base, metric=metric, value=float(total), se=float(total_error))]
    return rows + [
        replace(base, metric=metric, step=step, value=float(mean[step - 1]), se=float(error[step - 1]))
        for step in range(1, len(mean) + 1)
    ]


def with_training_seconds(records: list[Record], seconds: float) -> list[Record]:
    """The records of a model, and one more that says how long its training took."""
    return [*records, replace(records[0], metric="training_seconds", value=seconds, se=None)]
