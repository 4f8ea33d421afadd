"""The long fault tests: 10 000 steps, a million particles, twenty kills, a disk that is really full."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import test_resume
from constructors import FILTERS
from faults import MILLIONS, check_bad_days, check_million, save_when_full
from test_resume import chunks, finish
from tolerances import SEED

from nbf_paper.records import completed, read_records, read_runs

pytestmark = pytest.mark.slow
KILLS = 20


@pytest.mark.parametrize("name", FILTERS)
def test_ten_thousand_steps(name, key):
    """Days of 10 000 steps on which the first, all, one in ten or none of the observations are impossible."""
    check_bad_days(name, key, 10_000)


@pytest.mark.parametrize("name", MILLIONS)
def test_a_million_particles(name, key):
    check_million(name, key)


# Kills


def kill_soon(process, changed, delay):
    """Kill a process some time after `changed()`, or after its start where that is None; whether it lived till then."""
    while changed is not None and not changed() and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    return alive


@pytest.fixture
def long_training(monkeypatch):
    monkeypatch.setattr(test_resume, "PROGRAM", test_resume.PROGRAM.replace("steps=1200", "steps=8000"))


@pytest.mark.usefixtures("long_training")
def test_a_training_killed_twenty_times_ends_the_same(tmp_path):
    """Nothing that was saved is lost, and the result is bit for bit that of the training that nobody killed."""
    rng = np.random.default_rng(SEED)
    whole = finish(make(tmp_path / "whole"))
    folder = make(tmp_path / "killed")
    path, done, alive = folder / "run.safetensors", 0, 0
    for number in range(KILLS):
        process = test_resume.start(folder)
        # One in four is killed somewhere on its way to the first step, the others while they train and save.
        wanted = done + int(rng.integers(1, 15))
        changed = None if number % 4 == 3 else lambda wanted=wanted: chunks(path) >= wanted
        alive += kill_soon(process, changed, rng.uniform(0, 3.0 if changed is None else 0.02))
        assert not (folder / "model.safetensors").exists(), "it was over before it could be killed"
        assert chunks(path) >= done, "something that was saved is lost"
        done = chunks(path)
    for resumed, reference in zip(finish(folder), whole, strict=True):
        assert resumed.keys() == reference.keys()
        for name in reference:
            np.testing.assert_array_equal(resumed[name], reference[name], err_msg=name)
    left = sorted(file.name for file in folder.iterdir())
    print(f"training: killed {alive} times of {KILLS}, at last after {done} of 400 chunks; same result")
    assert alive == KILLS
    assert left == ["model.safetensors", "run.safetensors"], "what a kill left was not cleared away"


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


RECORDER = textwrap.dedent("""
    import sys
    from nbf_paper.records import Record, Run, add, completed
    for seed in range(2000):
        if not completed(sys.argv[1], str(seed)):
            records = [Record("e", "c", "pf", "", 8, 8, seed, step, "js", seed / 7, None, 1) for step in range(3)]
            add(sys.argv[1], records, Run(str(seed), seed, "", 1.0, {"seed": seed}, {}))
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


def test_records_written_under_twenty_kills_lose_nothing(tmp_path):
    rng = np.random.default_rng(SEED)
    size = 150
    folder, whole = make(tmp_path / "killed"), make(tmp_path / "whole")
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
    assert sorted(file.name for file in folder.iterdir()) == ["records.csv", "runs.json"]
    print(f"records: killed {alive} times of {KILLS}, at last after {len(done)} runs; same files")
    assert alive == KILLS


# A full disk


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 256 kB."""
    place = make(tmp_path / "disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk can only be mounted by root on Linux; test_faults has a limit on files instead")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def filled(disk):
    """Not a byte is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def test_a_disk_that_is_full_leaves_the_old_files(small_disk):
    save_when_full(make(small_disk / "work"), filled(small_disk), large=20_000)
