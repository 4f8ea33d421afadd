"""The paper's protocol: that its jobs are the paper's, and what they take by hand-made records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nbf import InputError
from nbf_paper.cli.cost import Cost, makespan
from nbf_paper.cli.reproduce import Reproduce
from nbf_paper.experiments.choices import All, Amount
from nbf_paper.experiments.job import Job
from nbf_paper.protocol.stages import PROTOCOL, Stage
from nbf_paper.protocol.tables import scale
from nbf_paper.records import Record, Run, add

JOBS = 2 * 8 * 100 + 2 * 4 * 5 + 20 + 3
"""Gridworld's eight configurations, NBF and Recurrent; Goofspiel's four sizes; Triangulation; three donuts."""


def jobs_of(stage: Stage) -> Sequence[Job]:
    """The jobs of its first seed."""
    return stage.part.experiment.jobs(Amount((0,), stage.part.steps, stage.part.episodes))


def record(folder: Path, label: str, *, training: float, steps: int, evaluation: float, episodes: int) -> None:
    """One run with its times."""
    config: dict[str, Any] = {"seconds": {"training": training, "evaluation": evaluation}}
    config |= {"training": {"steps": steps}, "evaluation": {"episodes": episodes}}
    name, arm, seed = label.split("/")
    measured = Record("x", name, "approx", arm, 0, 0, int(seed), "all", "js", 0.1, 0.01, episodes)
    add(folder, [measured], Run(f"{label}/0123456789ab", 0, "nbf-paper reproduce", training + evaluation, config))


@pytest.mark.usefixtures("unchecked")
def test_the_jobs_of_a_stage_are_those_it_names():
    for stage in PROTOCOL:
        assert [job.label for job in jobs_of(stage)] == [f"{config}/{stage.arm}/0" for config in stage.configs]
    assert sum(stage.seeds * len(stage.configs) for stage in PROTOCOL) == JOBS


@pytest.mark.usefixtures("unchecked")
def test_steps_and_episodes_are_the_papers_and_so_are_the_defaults():
    for stage in PROTOCOL:
        for job, usual in zip(jobs_of(stage), stage.experiment.jobs(Amount()), strict=True):
            assert job.settings["training"]["steps"] == stage.steps
            assert job.evaluated == stage.episodes or stage.episodes in job.settings["evaluation"].values()
            assert usual.settings["training"] == job.settings["training"]


@pytest.mark.usefixtures("unchecked")
def test_all_of_it_is_what_reproduce_plans():
    everything = All(protocol="paper")
    one = Reproduce(experiment=everything, seeds=1)._planned(everything, [])
    assert [job.key for _, job in one] == [job.key for stage in PROTOCOL for job in jobs_of(stage)]
    assert len({job.key for _, job in one}) == len(one)
    assert [stage.part.seeds for stage in PROTOCOL] == [100, 100, 5, 5, 20, 1, 1, 1]


def test_little_and_all_are_not_asked_for_at_once(tmp_path: Path):
    command = Reproduce(experiment=All(protocol="paper"), quick=True, results=tmp_path / "a", runs=tmp_path / "b")
    with pytest.raises(InputError, match="Leave out one of them"):
        command.answer()
    assert not list(tmp_path.iterdir())


def test_a_price_is_that_of_the_papers_steps_and_episodes(tmp_path: Path):
    folder = tmp_path / "gridworld"
    record(folder, "5-2D-fixed/faithful/0", training=10.0, steps=1000, evaluation=5.0, episodes=100)
    record(folder, "5-2D-fixed/faithful/1", training=40.0, steps=2000, evaluation=5.0, episodes=50)
    record(tmp_path / "goofspiel", "k=4/faithful/0", training=3.0, steps=100, evaluation=1.0, episodes=50)
    answer = Cost(results=tmp_path, cores=2).answer()
    grid, cards = answer["models"]
    assert (grid["config"], grid["runs"], grid["seeds"]) == ("5-2D-fixed", 2, 100)
    assert grid["seconds"] == pytest.approx(0.015 * 100_000 + 0.075 * 500, abs=0.1)
    assert (cards["config"], cards["arm"], cards["runs"]) == ("k=4", "paper", 1)  # timed by the network of its size
    assert cards["seconds"] == pytest.approx(0.03 * 150_000 + 0.02 * 5000, abs=0.1)
    assert answer["jobs"] == 105
    assert answer["serial_hours"] == pytest.approx((100 * grid["seconds"] + 5 * cards["seconds"]) / 3600, abs=0.1)
    assert {(row["config"], row["arm"]) for row in answer["unknown"]} >= {("k=4", "recurrent"), ("k=5", "paper")}
    table = scale(tmp_path)["scale-paper"]
    assert "| k=4, paper's flow to the letter § |" in table
    assert "| 5-2D-fixed, paper's flow          |          2 |          15.0 |             7.5 |        0.43 |" in table


def test_no_records_have_no_price(tmp_path: Path):
    with pytest.raises(InputError, match="No run of the paper's models is on record"):
        Cost(results=tmp_path).answer()


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"seeds": 0}])
def test_nobody_cannot_do_it(tmp_path: Path, wrong: dict[str, int]):
    with pytest.raises(InputError, match="must be at least 1; got 0"):
        Cost(results=tmp_path, **wrong).answer()  # pyright: ignore[reportArgumentType]


def test_the_last_of_many_jobs_ends_when_workers_take_them_in_order() -> None:
    assert makespan([3.0, 1.0, 1.0, 1.0], 1) == 6.0
    assert makespan([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert makespan([1.0, 1.0, 1.0, 3.0], 2) == 4.0  # the long one comes last
    assert makespan([2.0], 5) == 2.0
