"""Records on disk: reading, and adding what a run measured.

Both files of a folder are only ever replaced whole, so that killing a run at any moment leaves the old file or the new
one. `runs.json` never claims a run whose records are not on disk.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import math
import operator
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from nbf.files.atomic import check_writable, remove_abandoned, write_atomically
from nbf.files.regular import read_regular
from nbf_paper.records.locks import flock
from nbf_paper.records.provenance import TIME_FORMAT, code_version
from nbf_paper.records.schema import ALL, COLUMNS, Record, RecordError, Run, record_order, to_json

LATER = ("commit", "clean", "date")
"""What runs were recorded without at first; there it is unknown."""


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
                key = record.key
                if key in records:
                    raise RecordError(f"the same record stands twice: {key}")
                records[key] = record
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
    run = Run(**{**dict.fromkeys(LATER), **entry, "made": tuple(entry["made"])})
    nothing = type(None)
    kinds = {"key": (str,), "seed": (int,), "command": (str,), "seconds": (int, float), "config": (dict,),
             "versions": (dict,), "made": (list,), "commit": (str, nothing), "clean": (bool, nothing),
             "date": (str, nothing)}  # fmt: skip
    for name, kind in kinds.items():
        if type(entry.get(name)) not in kind:
            raise TypeError(f"the {name} of a run is {str(entry.get(name))[:40]!r}")
    if not all(isinstance(series, str) for series in run.made) or not math.isfinite(run.seconds):
        raise TypeError(f"the made or the seconds of run {run.key!r} are none")
    if run.date is not None and datetime.fromisoformat(run.date).strftime(TIME_FORMAT) != run.date:
        raise ValueError(f"the date {run.date[:40]!r} is not of the form {TIME_FORMAT}")
    to_json(entry, indent=None)
    return run


def _read_text(file: Path) -> str:
    try:
        return read_regular(file).decode()
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
    """Write a `records.csv`, always in the same order."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(operator.attrgetter(*COLUMNS), sorted(records, key=record_order)))
        write_atomically(path, text.getvalue())


def add(folder: str | os.PathLike[str], records: Iterable[Record], run: Run) -> None:
    """Merge what a run measured into a folder; repeating it changes nothing."""
    home, new = Path(folder), {record.key: record for record in records}
    run = Run(**dataclasses.asdict(run))  # with dictionaries alone in it, as the runs on disk
    to_json(vars(run), indent=None)  # what JSON cannot hold is refused before anything is written
    check_writable(home)
    made = {_series(record.group) for record in new.values()}
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
    """Whether the run of this key is recorded, and every series of it is still on disk.

    Also notes which code is running, since what is asked for here is about to be run if it is not recorded.
    """
    code_version()
    run = next((run for run in read_runs(folder) if run.key == key), None)
    if run is None or not (Path(folder) / "records.csv").exists():
        return False
    groups = {record.group for record in read_records(folder)}
    return set(run.made) <= {_series(group) for group in groups}


def _series(group: tuple[str | int, ...]) -> str:
    return "/".join(str(part) for part in group[1:])


def _write_runs(folder: Path, runs: Iterable[Run]) -> None:
    entries = [vars(run) for run in sorted(runs, key=lambda run: run.key)]
    write_atomically(folder / "runs.json", to_json(entries, indent=1) + "\n")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that runs that end together do not lose each other's records: other processes and other threads
    wait. Where the disk has no such locks, a warning says so."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(flock(folder))
            remove_abandoned(folder, "records.csv", "runs.json")
        except OSError as error:
            warnings.warn(
                f"{folder} cannot be locked ({error}). Let only one program at a time record there, or choose a folder "
                "on another disk: of two that record at once, one may lose its records.",
                stacklevel=4,
            )
        yield
