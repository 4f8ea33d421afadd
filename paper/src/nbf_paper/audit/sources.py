"""The records as they lie on disk, line by line, and the runs that made them."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbf.errors import InputError

Key = tuple[str, str, int]
"""A filter, its arm and its number of particles."""


@dataclass(frozen=True)
class Line:
    """A line of `records.csv` that is a mean over all steps."""

    file: Path
    number: int
    """Of the line in its file, from 1."""
    config: str
    filter: str
    arm: str
    particles: int
    calls: int
    seed: int
    metric: str
    value: float
    se: float | None
    episodes: int

    @property
    def key(self) -> Key:
        """The filter, its arm and its number of particles."""
        return (self.filter, self.arm, self.particles)

    @property
    def series(self) -> str:
        """As `runs.json` names what a run has made."""
        return f"{self.config}/{self.filter}/{self.arm}/{self.particles}/{self.seed}"


@dataclass
class Book:
    """All records of a folder of results; each file is read once, when it is asked for."""

    results: Path
    _lines: dict[str, list[Line]] = field(default_factory=dict)
    _groups: dict[str, dict[tuple[Key, str, str], list[Line]]] = field(default_factory=dict)
    _runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _makers: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def lines(self, experiment: str) -> list[Line]:
        """The means over all steps that an experiment has recorded; none without a file."""
        if experiment not in self._lines:
            file = self.results / experiment / "records.csv"
            self._lines[experiment] = _read(file) if file.exists() else []
        return self._lines[experiment]

    def group(self, experiment: str, key: Key, config: str, metric: str) -> list[Line]:
        """The lines of one measurement, one for each seed."""
        if experiment not in self._groups:
            groups = self._groups[experiment] = defaultdict(list)
            for line in self.lines(experiment):
                groups[line.key, line.config, line.metric].append(line)
        return self._groups[experiment].get((key, config, metric), [])

    def runs(self, experiment: str) -> list[dict[str, Any]]:
        """The entries of `runs.json`; none without a file."""
        if experiment not in self._runs:
            file = self.results / experiment / "runs.json"
            try:
                self._runs[experiment] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
            except ValueError as error:
                raise InputError(f"{file} is no list of runs: {error}. Restore it from git.") from None
        return self._runs[experiment]

    def maker(self, line: Line) -> dict[str, Any] | None:
        """The run that made a line; None if no run says so."""
        experiment = line.file.parent.name
        if experiment not in self._makers:
            self._makers[experiment] = {series: run for run in self.runs(experiment) for series in run["made"]}
        return self._makers[experiment].get(line.series)

    def makers(self, lines: Iterable[Line]) -> list[dict[str, Any]]:
        """The runs that made some lines."""
        found = [run for run in map(self.maker, lines) if run is not None]
        return list({run["key"]: run for run in found}.values())


def _read(file: Path) -> list[Line]:
    found = []
    with file.open(encoding="utf-8", newline="") as text:
        reader = csv.DictReader(text)
        for row in reader:
            if row["step"] != "all":
                continue
            try:
                found.append(_line(file, reader.line_num, row))
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{file}, line {reader.line_num} is no record: {error}. Restore it from git."
                ) from None
    return found


def _line(file: Path, number: int, row: dict[str, str]) -> Line:
    return Line(
        file, number, row["config"], row["filter"], row["arm"], int(row["particles"]), int(row["calls"]),
        int(row["seed"]), row["metric"], float(row["value"]), float(row["se"]) if row["se"] else None,
        int(row["episodes"]),
    )  # fmt: skip


def only(lines: Sequence[Line]) -> Line | None:
    """The line of a measurement that was made once; None if there is none."""
    if len(lines) > 1:
        raise InputError(
            f"{lines[0].file}: {lines[0].series}, {lines[0].metric} was to be recorded once, not for several seeds."
        )
    return lines[0] if lines else None
