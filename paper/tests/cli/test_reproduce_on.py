"""`nbf-paper reproduce --on`: workers do the jobs, the driver records, and the records are those of a serial run."""

from __future__ import annotations

import json
import os
import pickle
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from extras import extra
from plain_jobs import Plain

from nbf.errors import InputError
from nbf_paper.cli.reproduce import Reproduce
from nbf_paper.experiments import elsewhere
from nbf_paper.experiments.choices import EXPERIMENTS, Amount, Experiment
from nbf_paper.records import alone, read_records
from nbf_paper.records.provenance import CodeVersion

pytestmark = pytest.mark.usefixtures("unchecked")  # `Reproduce` is made for the experiments of the registry
WHEN = ("command", "seconds", "date")
"""What two runs of one job may differ in."""


def reproduced(folder: str, experiment: Experiment, on: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"results": Path(folder, "results"), "runs": Path(folder, "runs")}
    return Reproduce(experiment=cast(Any, experiment), on=on, command=f"on {on}", **options).answer()


def runs_of(folder: Path) -> list[dict[str, Any]]:
    runs = json.loads((folder / "runs.json").read_text())
    for run in runs:
        del run["config"]["seconds"]
    return [{name: value for name, value in run.items() if name not in WHEN} for run in runs]


@pytest.mark.parametrize("on", ["processes:2", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_run_on_workers_of_which_one_is_killed_equals_a_serial_one(
    on: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if on == "ray":
        extra("ray", "ray")
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    reproduced("here", Plain(), None)
    capfd.readouterr()
    answer = reproduced("there", Plain(fate="killed once", timed_job=True), on)
    printed = capfd.readouterr()
    here, there = Path("here/results/plain"), Path("there/results/plain")
    (process,) = [record for record in read_records(there) if record.metric == "process"]
    assert process.value == os.getpid()  # what measures times runs here
    assert [record for record in read_records(there) if record != process] == read_records(here)
    assert runs_of(there)[:4] == runs_of(here)
    assert (there / "drawn.npz").read_bytes() == (here / "drawn.npz").read_bytes()
    assert Path("there/runs/1 was here").exists()  # so that it was tried twice
    assert [run["run"] for run in answer["runs"]] == [f"plain {seed}" for seed in range(5)]
    assert all(run["new"] for run in answer["runs"])
    assert printed.err.count("s of work") == 4  # one line for each job
    assert "what a job prints" not in printed.out
    again = reproduced("there", Plain(timed_job=True), on)
    assert not any(run["new"] for run in again["runs"])


def test_a_job_that_fails_does_not_stop_the_others() -> None:
    with pytest.raises(InputError, match=r"^the seed is odd$"):
        reproduced(".", Plain(fate="mistake"), "processes:1")
    assert {record.seed for record in read_records(Path("results/plain"))} == {0, 2, 3}
    assert [run["new"] for run in reproduced(".", Plain(), None)["runs"]] == [False, True, False, False]


def test_a_bad_place_is_an_error_before_any_work() -> None:
    with pytest.raises(InputError, match="possible are: here, processes"):
        reproduced(".", Plain(), "process")
    assert not Path("results").exists()


def test_a_worker_with_other_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = elsewhere.work(Plain().jobs(Amount())[0], Path("results/plain"), Path("runs"), False)
    assert elsewhere.received(sent).records
    monkeypatch.setattr(elsewhere, "code_version", lambda: CodeVersion("another", True))
    with pytest.raises(InputError, match=r"ran other code .* Check out one commit on all machines"):
        elsewhere.received(sent)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_job_can_be_sent_to_a_worker(name: str) -> None:
    kind = EXPERIMENTS[name]
    jobs = [job for part in kind.parts() for job in part.experiment.jobs(Amount())]
    assert jobs
    assert [job.settings for job in pickle.loads(pickle.dumps(jobs))] == [job.settings for job in jobs]


def test_what_two_make_at_once_is_made_once(capfd: pytest.CaptureFixture[str]) -> None:
    folder, made = Path("runs/model"), list[int]()

    def make(number: int) -> None:
        with alone(folder):
            if not made:
                waiting.wait(5)  # the other one is at the lock by then, or will find it taken
                made.append(number)

    waiting = threading.Event()
    threads = [threading.Thread(target=make, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    while "waiting for it" not in capfd.readouterr().err:
        assert any(thread.is_alive() for thread in threads)
    waiting.set()
    for thread in threads:
        thread.join()
    assert len(made) == 1
