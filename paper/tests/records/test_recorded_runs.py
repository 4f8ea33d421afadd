"""`nbf-paper reproduce` finds every committed run as recorded: the command of a run asks for the run's key."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import Any

import pytest
from paths import RESULTS

from nbf_paper.cli.main import main
from nbf_paper.cli.reproduce import Reproduce
from nbf_paper.experiments import choices, simulation_cost
from nbf_paper.records import Record, run_key, store

pytestmark = pytest.mark.usefixtures("untyped")

FOLDERS = sorted(path.parent for path in RESULTS.glob("*/runs.json"))
BENCHMARKS = {"peers": "python -m benchmarks.peers"}
"""Records that no experiment makes, and the command that does."""


READ: dict[str, Any] = {}
"""Readers that read each folder once for all tests of this file."""


def one_of_each_group(folder: Path) -> list[Record]:
    """A record of each series: what `completed` looks at."""
    return list({record.group: record for record in READ["read_records"](folder)}.values())


class Parsed(Exception):  # noqa: N818
    """A command that was understood, and is not run."""


def understood(command: str) -> Reproduce:
    """What the command line makes of a recorded command; versions before the split had it in `nbf`."""
    program, *argv = shlex.split(command)
    assert program in ("nbf", "nbf-paper")

    def stop(self: Reproduce) -> None:
        raise Parsed(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reproduce, "answer", stop)
        with pytest.raises(Parsed) as parsed:
            main(argv)
    return parsed.value.args[0]


@functools.cache
def keys(command: str, folder: Path) -> set[str]:
    """Of the runs that a command asks for and that a folder of records is for."""
    reproduce = understood(command)
    if isinstance(reproduce.experiment, choices.All):
        asked = [job for name, job in reproduce._planned(reproduce.experiment, []) if name == folder.name]
    else:
        asked = reproduce._jobs(choices.Part(reproduce.experiment))
        assert reproduce.experiment.name == folder.name
    return {run_key(job.label, job.settings_in(folder)) for job in asked}


@pytest.mark.usefixtures("unchecked")  # it parses tens of thousands of records
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_committed_run_is_found_as_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for read in (store.read_runs, store.read_records):  # once for all runs
        READ.setdefault(read.__name__, functools.cache(read))
    monkeypatch.setattr(store, "read_runs", READ["read_runs"])
    monkeypatch.setattr(store, "read_records", READ.setdefault("groups", functools.cache(one_of_each_group)))
    monkeypatch.setattr(simulation_cost, "read_records", READ["read_records"])
    runs = store.read_runs(folder)
    assert runs
    for run in runs:
        assert store.completed(folder, run.key)
        if folder.name in BENCHMARKS:
            assert run.command == BENCHMARKS[folder.name]
        else:
            assert run.key in keys(run.command, folder), run.command
