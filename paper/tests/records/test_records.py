"""Laws of the records: what is written is read back, adding twice is adding once."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from example_records import EXAMPLE, TABLES, series
from hypothesis import given

from nbf.errors import InputError
from nbf.files.atomic import check_writable, write_atomically
from nbf_paper.records import (
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
    write_records,
)

RUN = Run("8-2D-random/faithful/0", 0, "nbf-paper reproduce gridworld", 12.5, {"steps": 100_000})


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
