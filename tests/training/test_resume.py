"""A training that was killed or stopped, and went on, is bit for bit the training that was not."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest
import resuming
from disk import kill_soon
from resuming import chunks, finish, start
from tolerances import SEED

KILLS = 20


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("sent", [signal.SIGKILL])
def test_a_stopped_run_goes_on_to_the_same_result(sent, tmp_path):
    folder, never_stopped = made(tmp_path / "stopped"), made(tmp_path / "whole")
    process = start(folder)
    path = folder / "run.safetensors"
    while chunks(path) < 5:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.send_signal(sent)
    process.communicate(timeout=60)
    stopped_at = chunks(path)
    assert 5 <= stopped_at < 30, "it was not stopped on its way"
    assert not (folder / "model.safetensors").exists()
    parts = finish(folder, never_stopped)
    for resumed, whole in zip(parts[:2], parts[2:], strict=True):
        assert resumed.keys() == whole.keys()
        for name in whole:
            np.testing.assert_array_equal(resumed[name], whole[name], err_msg=name)


@pytest.fixture
def long_training(monkeypatch):
    monkeypatch.setattr(resuming, "PROGRAM", resuming.PROGRAM.replace("steps=600", "steps=8000"))


@pytest.mark.slow
@pytest.mark.usefixtures("long_training")
def test_a_training_killed_twenty_times_ends_the_same(tmp_path):
    """Nothing that was saved is lost, and the result is bit for bit that of the training that nobody killed."""
    rng = np.random.default_rng(SEED)
    whole = finish(made(tmp_path / "whole"))
    folder = made(tmp_path / "killed")
    path, done, alive = folder / "run.safetensors", 0, 0
    for number in range(KILLS):
        process = resuming.start(folder)
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
