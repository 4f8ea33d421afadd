"""Records that several programs write at once, or that a kill interrupts: nothing is lost, nothing is half there."""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from nbf.errors import InputError
from nbf.files.atomic import ABANDONED, check_writable
from nbf_paper.records import Record, Run, add, locks, read_records, read_runs, write_records

EXAMPLE = Record("e", "c", "pf", "", 8, 8, 0, 0, "js", 0.5, None, 1)

# Forked from a program of its own, because this one runs the threads of jax.
KILLED_AT_EVERY_LINE = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from nbf.files import atomic
    from nbf_paper.records import locks, store
    from nbf_paper.records import Record, Run, add, read_records, read_runs

    FILES, PURE = {store.__file__, locks.__file__, atomic.__file__}, {"_parse"}  # which touches no file

    def write(value):
        records = [Record("e", "c", "pf", "", 8, 8, 0, step, "js", value, None, 1) for step in range(2)]
        add(folder, records, Run(f"run {value}", value, "", 0.0, {}, {}))

    def write_until(line):
        def trace(frame, event, argument):
            nonlocal line
            if frame.f_code.co_filename not in FILES or frame.f_code.co_name in PURE:
                return None
            line -= event == "line"
            if line < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        write(2)
        os._exit(0)

    folder, killed, seen, left = Path(sys.argv[1]), 0, set(), 0
    write(1)
    old = {file: file.read_bytes() for file in folder.iterdir()}
    while True:
        for file, content in old.items():
            file.write_bytes(content)
        child = os.fork() or write_until(killed)
        _, status = os.waitpid(child, 0)
        values = {record.value for record in read_records(folder)}
        runs = {run.seed for run in read_runs(folder)}
        assert len(read_records(folder)) == 2 and len(values) == 1, f"kill {killed}: half-written, {values}"
        assert runs <= values, f"kill {killed}: claims {runs}, holds {values}"
        seen.add((*values, *runs))
        for file in folder.glob(".*.tmp"):
            left += 1
            file.unlink()
        if not os.WIFSIGNALED(status):
            break
        killed += 1
    assert status == 0
    print(killed, sorted(seen), left, sorted(file.name for file in folder.iterdir()), sep=";")
""")


def test_a_writer_killed_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    program = [sys.executable, "-c", KILLED_AT_EVERY_LINE, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    killed, seen, left, files = done.stdout.strip().split(";")
    assert int(killed) > 100
    # Each holds the records, then the run that is claimed to have made them, if any.
    assert seen == "[(1.0,), (1.0, 1), (2.0,), (2.0, 2)]", "some moment was never hit"
    assert int(left) > 3, "temporary files of killed writers"
    assert files == "['records.csv', 'runs.json']"


def test_what_kills_left_is_cleared_away_when_it_is_old(tmp_path: Path) -> None:
    left = [tmp_path / f".{name}.{age}.tmp" for name in ("records.csv", "runs.json", "probe") for age in ("old", "new")]
    others = [tmp_path / ".model.safetensors.old.tmp", tmp_path / "notes.tmp"]
    for file in (*left, *others):
        file.touch()
        if "new" not in file.name:
            os.utime(file, (0, time.time() - 1.01 * ABANDONED))
    add(tmp_path, [EXAMPLE], Run("a", 0, "", 0.0, {}, {}))
    assert {file for file in (*left, *others) if file.exists()} == {*left[1::2], *others}


WRITER = textwrap.dedent("""
    import os, sys
    from nbf_paper.records import Record, Run, add
    folder, number, count = sys.argv[1], *map(int, sys.argv[2:4])
    if sys.argv[4:]:
        os.getpid = lambda: int(sys.argv[4])
    for turn in range(count):
        seed = 1000 * number + turn
        record = Record("e", "c", "pf", "", 8, 8, seed, 0, "js", 0.0, None, 1)
        add(folder, [record], Run(str(seed), seed, "", 0.0, {}, {}))
""")


def check_all_kept(folder: Path, writers: int, count: int) -> None:
    wanted = {1000 * n + turn for n in range(writers) for turn in range(count)}
    assert {record.seed for record in read_records(folder)} == wanted
    assert {run.seed for run in read_runs(folder)} == wanted
    assert sorted(file.name for file in folder.iterdir()) == ["records.csv", "runs.json"]


@pytest.mark.parametrize(
    ("writers", "count", "pid"), [(3, 10, ()), (2, 150, ("7",))], ids=["processes", "processes of one id"]
)
def test_runs_that_end_together_lose_nothing(tmp_path: Path, writers: int, count: int, pid: tuple[str, ...]) -> None:
    """Two containers with one volume may have one process id."""
    commands = [[sys.executable, "-c", WRITER, str(tmp_path), str(n), str(count), *pid] for n in range(writers)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * writers, errors
    check_all_kept(tmp_path, writers, count)


def test_threads_that_record_together_lose_nothing(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for turn in range(40):
            seed = 1000 * number + turn
            record = Record("e", "c", "pf", "", 8, 8, seed, 0, "js", 0.0, None, 1)
            add(tmp_path, [record], Run(str(seed), seed, "", 0.0, {}, {}))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    check_all_kept(tmp_path, 4, 40)


def test_a_folder_that_cannot_be_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    abandoned = tmp_path / ".records.csv.0.tmp"
    abandoned.touch()
    os.utime(abandoned, (0, 0))
    for missing in (False, True):
        found = None if missing else SimpleNamespace(flock=no_locks, LOCK_EX=2, LOCK_NB=4)
        monkeypatch.setattr(locks, "fcntl", found)
        with pytest.warns(UserWarning, match=r"cannot be locked.*one program at a time"):
            add(tmp_path, [EXAMPLE], Run(str(missing), 0, "", 0.0, {}, {}))
    assert read_records(tmp_path) == [EXAMPLE]
    assert abandoned.exists(), "without a lock it may be someone's"
    monkeypatch.undo()
    add(tmp_path, [EXAMPLE], Run("locked", 0, "", 0.0, {}, {}))
    assert not abandoned.exists()


def test_a_temporary_file_of_someone_else_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one of the very name: it is refused, not truncated."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "same")
    for name, action in (("records.csv", lambda: write_records(tmp_path / "records.csv", [EXAMPLE])),
                         ("probe", lambda: check_writable(tmp_path))):  # fmt: skip
        file = tmp_path / f".{name}.same.tmp"
        file.write_text("of another writer")
        with pytest.raises(InputError, match="cannot be written"):
            action()
        assert file.read_text() == "of another writer"
