"""The records as they lie on disk, line by line, and the runs that made them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbf.errors import InputError
from nbf.files.regular import read_regular

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
                self._runs[experiment] = _entries(json.loads(_text(file))) if file.exists() else []
            except (ValueError, RecursionError) as error:
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


def _text(file: Path) -> str:
    try:
        return read_regular(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}. Restore it from git.") from None


def _entries(runs: Any) -> list[dict[str, Any]]:
    """The runs of a file, if each has what the audit shows of it."""
    kinds = {"key": str, "command": str, "versions": dict, "config": dict, "made": list}
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise ValueError("it holds something else")
    for run in runs:
        wrong = [name for name, kind in kinds.items() if not isinstance(run.get(name), kind)]
        wrong += [name for name in ("commit", "date") if not isinstance(run.get(name), str | None)]
        wrong += [] if isinstance(run.get("clean"), bool | None) else ["clean"]
        wrong += ["made"] if not wrong and not all(isinstance(name, str) for name in run["made"]) else []
        if wrong:
            raise ValueError(f"the {wrong[0]} of a run is none")
    return runs


def _read(file: Path) -> list[Line]:
    found = []
    with io.StringIO(_text(file), newline="") as text:
        reader = csv.DictReader(text)
        try:
            for row in reader:
                if row["step"] == "all":
                    found.append(_line(file, reader.line_num, row))
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise InputError(f"{file}, line {reader.line_num} is no record: {error}. Restore it from git.") from None
    return found


def _line(file: Path, number: int, row: dict[str, str]) -> Line:
    words = {name: row[name] for name in ("config", "filter", "arm", "metric")}
    if not all(word.isprintable() for word in words.values()):
        raise ValueError(f"{words} are not all printable")
    counts: dict[str, Any] = {name: int(row[name]) for name in ("particles", "calls", "seed", "episodes")}
    value, se = float(row["value"]), float(row["se"]) if row["se"] else None
    if not math.isfinite(value) or not math.isfinite(se or 0.0):
        raise ValueError(f"the value {value} or its error {se} is not finite")
    return Line(file, number, **words, **counts, value=value, se=se)


def only(lines: Sequence[Line]) -> Line | None:
    """The line of a measurement that was made once; None if there is none."""
    if len(lines) > 1:
        raise InputError(
            f"{lines[0].file}: {lines[0].series}, {lines[0].metric} was to be recorded once, not for several seeds."
        )
    return lines[0] if lines else None
