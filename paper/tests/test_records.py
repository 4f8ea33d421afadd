"""Laws of the records: what is written is read back, adding twice is adding once, a kill breaks nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from tolerances import EXACT

from nbf.errors import InputError
from nbf.files.atomic import check_writable, write_atomically
from nbf_paper.records import (
    ALL,
    COLUMNS,
    Record,
    RecordError,
    Run,
    add,
    completed,
    package_versions,
    read_records,
    read_runs,
    run_key,
    summary,
    write_records,
)

EXAMPLE = Record("gridworld", "8-2D-random", "nbf", "faithful", 16, 16, 0, 3, "js", 0.125, 0.01, 500)
RUN = Run("8-2D-random/faithful/0", 0, "nbf-paper reproduce gridworld", 12.5, {"steps": 100_000})

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1) | st.sampled_from(
    ["a,b", 'a"b', "a b"]
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 10**9)
FIELDS = st.tuples(
    *(WORDS, WORDS, WORDS, WORDS | st.just("")),
    *(COUNTS, COUNTS, COUNTS, COUNTS | st.just("all"), WORDS, NUMBERS, st.none() | NUMBERS.map(abs), COUNTS),
)


def key_of(cells: tuple) -> tuple:
    return cells[:5] + cells[6:9]


# Records are made in the tests: beartype draws at random, which a strategy must not.
TABLES = st.lists(FIELDS, unique_by=key_of, max_size=20)


def series(seed: int = 0, value: float = 0.1, **changes: object) -> list[Record]:
    steps = [*range(4), ALL]
    return [dataclasses.replace(EXAMPLE, seed=seed, step=step, value=value, **changes) for step in steps]


def test_columns_are_the_schema() -> None:
    assert ",".join(COLUMNS) == "experiment,config,filter,arm,particles,calls,seed,step,metric,value,se,episodes"


@given(table=TABLES)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, table: list[tuple]) -> None:
    records = [Record(*cells) for cells in table]
    folder = tmp_path_factory.mktemp("records")
    write_records(folder / "records.csv", records)
    once = (folder / "records.csv").read_bytes()
    read = read_records(folder)
    assert sorted(read, key=str) == sorted(records, key=str)
    write_records(folder / "records.csv", reversed(read))
    assert (folder / "records.csv").read_bytes() == once


def test_numbers_keep_the_digits_of_float32() -> None:
    record = dataclasses.replace(EXAMPLE, value=float(np.float32(0.1)), se=np.float64(1 / 3))
    assert (record.value, record.se) == (0.1, 0.3333333)
    assert type(record.se) is float


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": float("nan")},
        {"value": float("inf")},
        {"se": float("inf")},
        {"se": -0.1},
        {"particles": -1},
        {"metric": ""},
        {"config": "a\nb"},
        {"filter": " pf"},
    ],
)
def test_an_impossible_record_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(RecordError, match=next(iter(wrong))):
        dataclasses.replace(EXAMPLE, **wrong)


GOOD = "gridworld,8-2D-random,nbf,faithful,16,16,0,3,js,0.125,0.01,500"


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ([], 1, "header is missing"),
        (["experiment,config"], 1, "header"),
        ([",".join(COLUMNS), GOOD, GOOD + ",1"], 3, "13 columns"),
        ([",".join(COLUMNS), ""], 2, "0 columns"),
        ([",".join(COLUMNS), GOOD, GOOD], 3, "twice"),
        ([",".join(COLUMNS), GOOD.replace("0.125", "nan")], 2, "finite"),
        ([",".join(COLUMNS), GOOD.replace("0.125", "")], 2, "not a float"),
        ([",".join(COLUMNS), GOOD.replace(",3,", ",three,")], 2, "'three' is not a int"),
        ([",".join(COLUMNS), GOOD.replace(",16,16,", ",16.5,16,")], 2, "particles"),
        ([",".join(COLUMNS), GOOD.replace("nbf", '"nbf')], 2, "end of data"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path, lines: list[str], line: int, words: str) -> None:
    file = tmp_path / "records.csv"
    file.write_text("".join(f"{text}\n" for text in lines))
    with pytest.raises(RecordError, match=words) as caught:
        read_records(tmp_path)
    assert f"{file}, line {line}:" in str(caught.value)


def test_a_file_that_is_cut_short_or_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "records.csv"
    with pytest.raises(RecordError, match="no records at"):
        read_records(tmp_path)
    file.write_text(",".join(COLUMNS) + "\n" + GOOD[:-1])  # 50 episodes instead of 500, were it accepted
    with pytest.raises(RecordError, match=r"line 2: .* cut short"):
        read_records(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RecordError, match="cannot be read"):
        read_records(file)


def test_adding_twice_is_adding_once(tmp_path: Path) -> None:
    add(tmp_path, series(), RUN)
    once = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(once) == {"records.csv", "runs.json"}
    add(tmp_path, series(), RUN)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == once


def test_adding_replaces_the_same_key_and_keeps_the_rest(tmp_path: Path) -> None:
    add(tmp_path, series(seed=0), RUN)
    add(tmp_path, series(seed=1), dataclasses.replace(RUN, key="other", seed=1))
    # `calls` and `episodes` are no part of the key.
    add(tmp_path, series(seed=1, value=0.7, calls=64, episodes=9), dataclasses.replace(RUN, key="other", seed=1))
    found = {(record.seed, record.step): (record.value, record.calls) for record in read_records(tmp_path)}
    assert len(found) == 10
    assert all(found[seed, step] == ((0.1, 16), (0.7, 64))[seed] for seed, step in found)
    assert [(run.key, run.seed) for run in read_runs(tmp_path)] == [(RUN.key, 0), ("other", 1)]


def test_completed_means_recorded_under_the_same_settings_and_still_there(tmp_path: Path) -> None:
    assert not completed(tmp_path, RUN.key)
    add(tmp_path, series(), RUN)
    assert completed(tmp_path, RUN.key)
    assert not completed(tmp_path, "another")
    # Another run that measures the same again takes the place of the first.
    add(tmp_path, series(value=0.3), dataclasses.replace(RUN, key="quick"))
    assert completed(tmp_path, "quick")
    assert not completed(tmp_path, RUN.key)
    (tmp_path / "records.csv").unlink()
    assert not completed(tmp_path, "quick")


def test_a_run_that_lost_one_of_its_series_keeps_the_others(tmp_path: Path) -> None:
    add(tmp_path, [*series(seed=0), *series(seed=1)], RUN)
    add(tmp_path, series(seed=1), dataclasses.replace(RUN, key="other"))
    made = {run.key: run.made for run in read_runs(tmp_path)}
    assert made == {
        RUN.key: ("8-2D-random/nbf/faithful/16/0",),
        "other": ("8-2D-random/nbf/faithful/16/1",),
    }


def test_run_key_depends_on_every_setting_and_not_on_their_order() -> None:
    assert run_key("a", {"x": 1, "y": 2}) == run_key("a", {"y": 2, "x": 1})
    assert run_key("a", {"x": 1}) != run_key("a", {"x": 2})
    assert run_key("a", {"x": 1}) != run_key("b", {"x": 1})
    with pytest.raises(RecordError, match="JSON"):
        run_key("a", {"x": object()})


def test_a_run_says_what_made_it(tmp_path: Path) -> None:
    add(tmp_path, series(), RUN)
    (entry,) = json.loads((tmp_path / "runs.json").read_text())
    assert entry["command"] == "nbf-paper reproduce gridworld"
    assert entry["config"] == {"steps": 100_000}
    assert entry["seconds"] == 12.5
    assert entry["versions"] == package_versions()
    assert {"python", "jax", "equinox", "numpy"} <= set(entry["versions"])
    (tmp_path / "runs.json").write_text('{"key": 1}')
    with pytest.raises(RecordError, match="not a list of runs"):
        read_runs(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    # A file where a folder should be: refused whoever runs the tests, root included.
    (tmp_path / "file").write_text("kept")
    for action in (
        lambda folder: check_writable(folder),
        lambda folder: add(folder, series(), RUN),
        lambda folder: write_atomically(folder / "records.csv", "x"),
    ):
        with pytest.raises(InputError, match=r"cannot be written.*Choose a folder"):
            action(tmp_path / "file" / "results")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    add(tmp_path, series(), RUN)
    before = (tmp_path / "records.csv").read_bytes()
    with pytest.raises(RecordError, match="JSON"):
        add(tmp_path, series(seed=5), dataclasses.replace(RUN, key="bad", config={"x": float("nan")}))
    assert not completed(tmp_path, "bad")
    assert (tmp_path / "records.csv").read_bytes() == before
    assert [file for file in tmp_path.iterdir() if file.suffix == ".tmp"] == []


# Forked from a program of its own, because this one runs the threads of jax.
KILLED_AT_EVERY_LINE = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from nbf.files import atomic
    from nbf_paper.records import store
    from nbf_paper.records import Record, Run, add, read_records, read_runs

    FILES, PURE = {store.__file__, atomic.__file__}, {"_parse"}  # which touches no file

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

    folder, killed, seen = Path(sys.argv[1]), 0, set()
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
        if not os.WIFSIGNALED(status):
            break
        killed += 1
    assert status == 0
    print(killed, sorted(seen), sorted(file.name for file in folder.iterdir()), sep=";")
""")


def test_a_writer_killed_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    program = [sys.executable, "-c", KILLED_AT_EVERY_LINE, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    killed, seen, files = done.stdout.strip().split(";")
    assert int(killed) > 100
    # Each holds the records, then the run that is claimed to have made them, if any.
    assert seen == "[(1.0,), (1.0, 1), (2.0,), (2.0, 2)]", "some moment was never hit"
    assert files == "['records.csv', 'runs.json']", "what a kill left is cleared away by the next run"


def test_runs_that_end_together_lose_nothing(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys
        from nbf_paper.records import Record, Run, add
        for turn in range(10):
            seed = 100 * int(sys.argv[2]) + turn
            add(sys.argv[1], [Record("e", "c", "pf", "", 8, 8, seed, 0, "js", 0.0, None, 1)],
                Run(str(seed), seed, "", 0.0, {}, {}))
    """)
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    wanted = {100 * n + turn for n in range(3) for turn in range(10)}
    assert {record.seed for record in read_records(tmp_path)} == wanted
    assert {run.seed for run in read_runs(tmp_path)} == wanted


def test_summary_over_seeds_and_over_episodes() -> None:
    values = [0.11, 0.17, 0.4]
    records = [dataclasses.replace(EXAMPLE, seed=seed, value=value) for seed, value in enumerate(values)]
    records += [dataclasses.replace(EXAMPLE, filter="pf", arm="", value=0.3, se=0.02, episodes=200)]
    by_filter = {entry.filter: entry for entry in summary(records)}
    nbf, pf = by_filter["nbf"], by_filter["pf"]
    np.testing.assert_allclose(nbf.value, np.mean(values), **EXACT)
    assert nbf.se is not None
    np.testing.assert_allclose(nbf.se, np.std(values, ddof=1) / np.sqrt(3), **EXACT)
    assert (nbf.seeds, nbf.episodes) == (3, 500)
    assert (pf.value, pf.se, pf.seeds, pf.episodes) == (0.3, 0.02, 1, 200)


@given(table=TABLES)
def test_summary_does_not_depend_on_the_order(table: list[tuple]) -> None:
    records = [Record(*cells) for cells in table]
    assert summary(records[::-1]) == summary(records)


def test_summary_keeps_steps_metrics_and_arms_apart() -> None:
    records = [*series(), *series(arm="enumerated"), *series(metric="nll"), *series(particles=32)]
    found = summary(records)
    assert len(found) == len(records)
    assert {entry.seeds for entry in found} == {1}
    assert [entry.step for entry in found[:5]] == [0, 1, 2, 3, ALL]
