"""Records: what every experiment leaves behind, and all that tables and plots read.

A folder `results/<experiment>/` holds `records.csv`, one measured number per line in the columns
`COLUMNS`, and `runs.json`, how those numbers were made. One schema serves every figure and table of
the paper. This module never imports jax, so a report is made without it.

Both files are only ever replaced whole, so that killing a run at any moment leaves the old file or
the new one. `runs.json` never claims a run whose records are not on disk.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import math
import operator
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from nbf.errors import InputError
from nbf.files.atomic import check_writable, write_atomically

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, one run per folder at a time.
    fcntl = None

ALL: Literal["all"] = "all"
"""The step of a record that is the mean over the steps."""
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "neural-bayesian-filtering")
"""The packages whose versions a run records."""
DIGITS = 7
"""Significant digits that a record keeps: those of float32."""


class RecordError(InputError):
    """A record, or a report made from records, cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Record:
    """One measured number. Its fields are the columns of `records.csv`, in that order."""

    experiment: str
    config: str
    """As the paper names it, for example `8-2D-random`."""
    filter: str
    """exact, pf, nbf, approx ..."""
    arm: str
    """The model or variant, for example `faithful`; empty where there is none."""
    particles: int
    """0 where there are none."""
    calls: int
    """Simulator calls per update."""
    seed: int
    """The training seed."""
    step: int | Literal["all"]
    metric: str
    value: float
    se: float | None
    """Standard error over episodes; None (an empty cell) where there is none."""
    episodes: int

    def __post_init__(self) -> None:
        for name in ("experiment", "config", "filter", "arm", "metric"):
            text = getattr(self, name)
            if not isinstance(text, str) or text != text.strip() or len(text.splitlines()) > 1:
                raise RecordError(f"The {name} of a record is one line of text without outer blanks; got {text!r}.")
            if not text and name != "arm":
                raise RecordError(f"The {name} of a record is empty.")
        for name in ("particles", "calls", "seed", "step", "episodes"):
            if name != "step" or self.step != ALL:
                object.__setattr__(self, name, _count(name, getattr(self, name)))
        object.__setattr__(self, "value", _finite("value", self.value))
        if self.se is not None:
            object.__setattr__(self, "se", _finite("se", self.se))
            if self.se < 0:
                raise RecordError(f"The se of a record is a standard error, 0 or more; got {self.se}.")

    @property
    def key(self) -> tuple[str | int, ...]:
        """What is unique in a file: a new record replaces an old one with the same key."""
        return (*self.group, self.step, self.metric)

    @property
    def group(self) -> tuple[str | int, ...]:
        """The series that a record belongs to: one filter, measured for one training seed."""
        return (self.experiment, self.config, self.filter, self.arm, self.particles, self.seed)


COLUMNS = tuple(f.name for f in dataclasses.fields(Record))
"""The header of `records.csv`."""


def _count(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise RecordError(f"The {name} of a record is a whole number; got {value!r}.") from None
    if number < 0:
        raise RecordError(f"The {name} of a record is 0 or more; got {number}.")
    return number


def _finite(name: str, value: Any) -> float:
    if not math.isfinite(value):
        raise RecordError(f"The {name} of a record is a finite number; got {value!r}.")
    return float(f"{float(value):.{DIGITS}g}")


def package_versions() -> dict[str, str]:
    """The versions of Python and of each of `PACKAGES` that is installed."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def run_key(label: str, config: Mapping[str, Any]) -> str:
    """A name for a run: the label and a digest of every setting, so that other settings are another run."""
    digest = hashlib.sha256(_json(config, indent=None).encode()).hexdigest()[:12]
    return f"{label}/{digest}"


@dataclass(frozen=True)
class Run:
    """How some records were made. `key` comes from `run_key`; a run replaces an earlier one with its key."""

    key: str
    seed: int
    command: str
    seconds: float
    """Wall time."""
    config: Mapping[str, Any]
    """Every setting; anything that JSON can hold."""
    versions: Mapping[str, str] = field(default_factory=package_versions)
    made: tuple[str, ...] = ()
    """The series it made and that still stand, as `config/filter/arm/particles/seed`; `add` fills this in."""


# --- reading -------------------------------------------------------------------------------------


def records_path(path: str | os.PathLike[str]) -> Path:
    """The file of a folder of records; a file stays itself."""
    return Path(path) / "records.csv" if Path(path).is_dir() else Path(path)


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """The records of a folder or file; a line that is not a record is an error that names it."""
    file = records_path(path)
    content = _read_text(file)
    records: dict[tuple[str | int, ...], Record] = {}
    with io.StringIO(content, newline="") as text:
        rows = csv.reader(text, strict=True)
        try:
            if (header := next(rows, None)) != list(COLUMNS):
                wanted = ",".join(COLUMNS)
                raise RecordError(f"the header is {','.join(header or []) or 'missing'}, but must be {wanted}")
            for row in rows:
                record = _parse(row)
                if record.key in records:
                    raise RecordError(f"the same record stands twice: {record.key}")
                records[record.key] = record
            if not content.endswith("\n"):
                raise RecordError("the file ends within this line, so it may be cut short")
        except (RecordError, csv.Error) as error:
            hint = "Mend or delete this line, or restore the file from git; then run again."
            raise RecordError(f"{file}, line {max(rows.line_num, 1)}: {error}. {hint}") from None
    return list(records.values())


def read_runs(folder: str | os.PathLike[str]) -> list[Run]:
    """The runs behind a folder's records; none if it has no `runs.json`."""
    file = Path(folder) / "runs.json"
    if not file.exists():
        return []
    try:
        return [_run(entry) for entry in json.loads(_read_text(file))]
    except RecordError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise RecordError(f"{file} is not a list of runs ({error}). Restore it from git, or delete it.") from None


def _run(entry: Mapping[str, Any]) -> Run:
    run = Run(**{**entry, "made": tuple(entry["made"])})
    kinds = {"key": (str,), "seed": (int,), "command": (str,), "seconds": (int, float), "config": (dict,),
             "versions": (dict,), "made": (list,)}  # fmt: skip
    for name, kind in kinds.items():
        if type(entry.get(name)) not in kind:
            raise TypeError(f"the {name} of a run is {str(entry.get(name))[:40]!r}")
    if not all(isinstance(series, str) for series in run.made) or not math.isfinite(run.seconds):
        raise TypeError(f"the made or the seconds of run {run.key!r} are none")
    _json(entry, indent=None)
    return run


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        raise RecordError(f"There are no records at {file}. Make them with `nbf-paper reproduce` first.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{file} cannot be read: {error}.") from None


def _parse(row: list[str]) -> Record:
    if len(row) != len(COLUMNS):
        raise RecordError(f"{len(row)} columns instead of {len(COLUMNS)}")
    cells: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    for name in ("particles", "calls", "seed", "step", "episodes", "value", "se"):
        cell = cells[name]
        if (name, cell) in (("step", ALL), ("se", "")):
            cells[name] = cell or None
            continue
        kind = float if name in ("value", "se") else int
        try:
            cells[name] = kind(cell)
        except ValueError:
            raise RecordError(f"the {name} {cell!r} is not a {kind.__name__}") from None
    return Record(**cells)


# --- writing -------------------------------------------------------------------------------------


def write_records(path: str | os.PathLike[str], records: Iterable[Record]) -> None:
    """Write a `records.csv`, in one order whatever the order given."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(dataclasses.astuple(record) for record in sorted(records, key=_order))
        write_atomically(path, text.getvalue())


def add(folder: str | os.PathLike[str], records: Iterable[Record], run: Run) -> None:
    """Merge what a run measured into a folder. Doing it twice is doing it once."""
    home, new = Path(folder), {record.key: record for record in records}
    _json(dataclasses.asdict(run), indent=None)  # what JSON cannot hold is refused before anything is written
    check_writable(home)
    made = {_series(record) for record in new.values()}
    with _locked(home):
        kept = read_records(home) if (home / "records.csv").exists() else []
        before = read_runs(home)
        runs = [dataclasses.replace(old, made=tuple(sorted(set(old.made) - made))) for old in before]
        runs = [old for old in runs if old.made and old.key != run.key]
        if [old.made for old in runs] != [old.made for old in before]:
            _write_runs(home, runs)
        write_records(home / "records.csv", {**{record.key: record for record in kept}, **new}.values())
        _write_runs(home, [*runs, dataclasses.replace(run, made=tuple(sorted(made)))])


def completed(folder: str | os.PathLike[str], key: str) -> bool:
    """Whether the run of this key is recorded, with every series that it made still on disk."""
    run = next((run for run in read_runs(folder) if run.key == key), None)
    if run is None or not (Path(folder) / "records.csv").exists():
        return False
    return set(run.made) <= {_series(record) for record in read_records(folder)}


def _series(record: Record) -> str:
    return "/".join(str(part) for part in record.group[1:])


def _order(record: Record) -> tuple[Any, ...]:
    step = math.inf if record.step == ALL else record.step
    return (*record.group, record.metric, step)


def _write_runs(folder: Path, runs: Iterable[Run]) -> None:
    entries = [dataclasses.asdict(run) for run in sorted(runs, key=lambda run: run.key)]
    write_atomically(folder / "runs.json", _json(entries, indent=1) + "\n")


def _json(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(value, indent=indent, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(f"The config of a run holds something that JSON cannot: {error}.") from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder, so that two runs that end together do not lose each other's records."""
    handle = os.open(folder, os.O_RDONLY) if fcntl else None
    try:
        if fcntl and handle is not None:
            with contextlib.suppress(OSError):  # some network disks cannot lock a folder
                fcntl.flock(handle, fcntl.LOCK_EX)
        for name in ("records.csv", "runs.json"):
            for left_by_a_kill in folder.glob(f".{name}.*.tmp"):
                left_by_a_kill.unlink(missing_ok=True)
        yield
    finally:
        if handle is not None:
            os.close(handle)


# --- summarising ---------------------------------------------------------------------------------


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


def summary(records: Iterable[Record]) -> list[Summary]:
    """Mean and standard error over the training seeds, in the order of `records.csv`."""
    groups: dict[tuple[str | int, ...], list[Record]] = defaultdict(list)
    for record in sorted(records, key=_order):
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
