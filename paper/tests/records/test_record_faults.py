"""Records survive a disk that is full, and a recorder that is killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from disk import NoRoom, filled, kill_soon, small_disk
from tolerances import SEED

from nbf.errors import InputError
from nbf_paper.records import Record, Run, add, completed, read_records, read_runs

KILLS = 20
RECORDER = textwrap.dedent("""
    import sys
    from nbf_paper.records import Record, Run, add, completed
    for seed in range(2000):
        if not completed(sys.argv[1], str(seed)):
            records = [Record("e", "c", "pf", "", 8, 8, seed, step, "js", seed / 7, None, 1) for step in range(3)]
            add(sys.argv[1], records, Run(str(seed), seed, "", 1.0, {"seed": seed}, {}, date=None))
        if (seed + 1) % int(sys.argv[2]) == 0:
            break
""")


def recorder(folder, last):
    command = [sys.executable, "-c", RECORDER, str(folder), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def recorded(folder):
    """Which runs are claimed; each of them must have its records, and no record may be half there."""
    runs = {run.seed for run in read_runs(folder)}
    records = read_records(folder) if (folder / "records.csv").exists() else []
    steps = {seed: sum(record.seed == seed for record in records) for seed in {record.seed for record in records}}
    assert set(steps.values()) <= {3}
    assert runs <= set(steps)
    return runs


@pytest.mark.slow
def test_records_written_under_twenty_kills_lose_nothing(tmp_path):
    rng = np.random.default_rng(SEED)
    size = 150
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    folder.mkdir()
    whole.mkdir()
    done, alive = set(), 0
    for _ in range(KILLS):
        process = recorder(folder, 2000)
        alive += kill_soon(process, lambda done=done: recorded(folder) > done, rng.uniform(0, 0.05))
        assert recorded(folder) >= done, "a run that was recorded is lost"
        done = recorded(folder)
    size = max(size, len(done) + 1)
    for where in (folder, whole):
        process = recorder(where, size)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert all(completed(folder, str(seed)) for seed in range(size))
    for name in ("records.csv", "runs.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert {file.name for file in folder.iterdir() if file.suffix != ".tmp"} == {"records.csv", "runs.json"}
    print(f"records: killed {alive} times of {KILLS}, at last after {len(done)} runs; same files")
    assert alive == KILLS


# A full disk

RECORDS = [Record("e", "c", "pf", "", 8, 8, 0, step, "js", 0.5, None, 1) for step in range(50)]


def add_when_full(folder, full):
    """Records that were added, then others that do not fit: the old ones stay, whole."""
    add(folder, RECORDS[:1], Run("run", 0, "", 1.0, {}, {}))
    names = {file.name for file in folder.iterdir()}
    with full, pytest.raises(InputError, match="cannot be written"):
        add(folder, RECORDS, Run("another", 0, "x" * 20_000, 1.0, {}, {}))
    assert {file.name for file in folder.iterdir()} == names, "a half-written file was left"
    assert not completed(folder, "another")
    assert {record.key for record in read_records(folder)} >= {RECORDS[0].key}


def test_records_that_do_not_fit_leave_the_old_ones(tmp_path: Path):
    add_when_full(tmp_path, NoRoom(4096))


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_the_old_records(tmp_path: Path):
    with small_disk(tmp_path / "disk") as disk:
        (disk / "work").mkdir()
        add_when_full(disk / "work", filled(disk))
