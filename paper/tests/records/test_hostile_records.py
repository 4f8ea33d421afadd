"""Records from someone else: they are refused in words or sound, and never run."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from mutations import damaged_bytes, damaged_value
from tolerances import SEED
from watching import Watched

from nbf_paper.records import Record, RecordError, Run, add, completed, read_records, read_runs, write_records

pytestmark = pytest.mark.usefixtures("unchecked")


EXAMPLE = Record("gridworld", "8-2D-random", "nbf", "faithful", 16, 16, 0, 3, "js", 0.125, 0.01, 500)
RECORDS = [dataclasses.replace(EXAMPLE, seed=seed, step=step) for seed in range(2) for step in (0, 1, "all")]
RUN = Run("8-2D-random/faithful/0", 0, "nbf-paper reproduce", 12.5, {"steps": 100, "more": {"list": [1, 2.5, None]}})


def damaged_records(rng, name, whole):
    if name == "runs.json" and rng.random() < 0.7:
        return json.dumps(damaged_value(rng, json.loads(whole))).encode()
    if name == "records.csv" and rng.random() < 0.5:
        rows = [line.split(",") for line in whole.decode().splitlines()]
        row = rows[rng.integers(len(rows))]
        row[rng.integers(len(row))] = str(damaged_value(rng, ["x"]))
        return "".join(",".join(row) + "\n" for row in rows).encode(errors="replace")
    return damaged_bytes(rng, whole)


def mutate_records(folder, count):
    """What is read can be used: written again, merged with more, and asked whether a run is complete."""
    add(folder, RECORDS, RUN)
    whole = {name: (folder / name).read_bytes() for name in ("records.csv", "runs.json")}
    rng = np.random.default_rng(SEED)
    refused = dict.fromkeys(whole, 0)
    for turn in range(count):
        for name, content in whole.items():
            (folder / name).write_bytes(content)
        name = ("records.csv", "runs.json")[turn % 2]
        (folder / name).write_bytes(damaged_records(rng, name, whole[name]))
        try:
            with Watched():
                records, runs = read_records(folder), read_runs(folder)
        except RecordError:
            refused[name] += 1
            continue
        write_records(folder / "again.csv", records)
        assert sorted(map(str, read_records(folder / "again.csv"))) == sorted(map(str, records))
        assert all(isinstance(completed(folder, run.key), bool) for run in runs)
        if turn % 10 < 2:
            add(folder, RECORDS[:1], dataclasses.replace(RUN, key="another"))
            assert completed(folder, "another")
    for name, number in refused.items():
        print(f"{name}: {count // 2} damaged, {number} refused, {count // 2 - number} read and sound")
        assert 0 < number < count // 2


def test_damaged_records_are_refused_or_sound(tmp_path):
    mutate_records(tmp_path, 300)


@pytest.mark.slow
def test_ten_thousand_damaged_records_are_refused_or_sound(tmp_path):
    mutate_records(tmp_path, 10_000)


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, "1" * 5000, "[" + "1" * 5000 + "]", "NaN", "[NaN]", "null", '{"a": 1}', "[[]]", '["text"]',
     '[{"key": "k"}]', "[{}]", "\ufeff[]"],
    ids=lambda content: content[:12],
)  # fmt: skip
def test_runs_that_are_none_are_refused(content, tmp_path):
    add(tmp_path, RECORDS, RUN)
    (tmp_path / "runs.json").write_text(content)
    with pytest.raises(RecordError, match=r"runs\.json is not a list of runs"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"seed": "0"}, {"seed": True}, {"made": [["a"]]}, {"made": "text"}, {"made": [1]}, {"key": 1}, {"seconds": "1"},
     {"seconds": float("nan")}, {"seconds": 10**400}, {"config": []}, {"versions": None}, {"more": 1},
     {"config": {"x": float("inf")}}],
    ids=str,
)  # fmt: skip
def test_a_run_of_wrong_kinds_is_refused(change, tmp_path):
    add(tmp_path, RECORDS, RUN)
    (entry,) = json.loads((tmp_path / "runs.json").read_text())
    (tmp_path / "runs.json").write_text(json.dumps([{**entry, **change}]))
    with pytest.raises(RecordError):
        read_runs(tmp_path)


def test_a_folder_where_a_file_should_be_is_refused(tmp_path):
    for name, read in (("records.csv", read_records), ("runs.json", read_runs)):
        (tmp_path / name).mkdir()
        with pytest.raises(RecordError, match="cannot be read"):
            read(tmp_path)
