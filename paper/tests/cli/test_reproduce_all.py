"""Laws of `nbf-paper reproduce all`: it runs what the documentation shows, loses nothing by a failure, and goes on
where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pages import picture, record_some
from paths import RESULTS

from nbf.errors import InputError
from nbf_paper.cli.main import main
from nbf_paper.experiments import choices
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.records import Record, completed, read_runs
from nbf_paper.report import pages

ALL = ["reproduce", "all"]


@dataclass(frozen=True)
class Recording(Job):
    """A job that takes no time; what happens before it records is looked up by its title."""

    experiment: str
    config: str
    amount: choices.Amount
    before: ClassVar[dict[str, Callable[[], None]]] = {}
    ran: ClassVar[list[str]] = []

    @property
    def evaluated(self) -> int:
        return 1

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    @property
    def title(self) -> str:
        return self.config

    @property
    def label(self) -> str:
        return self.config

    @property
    def key(self) -> str:
        return f"{self.config}/"

    def is_recorded(self, results: Path) -> bool:
        return completed(results, self.key)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        raise NotImplementedError

    def run(self, results: Path, runs: Path, *, command: str, bar: Counter) -> bool:
        if self.is_recorded(results):
            return False
        self.ran.append(self.config)
        self.before.get(self.config, lambda: None)()
        record_some(results.parent, self.experiment, self.config, command=command)
        return True


@dataclass(frozen=True, kw_only=True)
class Grids(choices.Gridworld):
    def jobs(self, amount: choices.Amount) -> Sequence[Job]:
        return [Recording("gridworld", config, amount) for config in ("5-2D-fixed", "8-2D-random")]

    @classmethod
    def parts(cls) -> tuple[choices.Part, ...]:
        return (choices.Part(cls()),)

    quick_parts = parts


@dataclass(frozen=True, kw_only=True)
class Planes(choices.Triangulation):
    quick = choices.Amount(steps=7, episodes=3, few=True)

    def jobs(self, amount: choices.Amount) -> Sequence[Job]:
        return [Recording("triangulation", "triangulation", amount)]

    @classmethod
    def parts(cls) -> tuple[choices.Part, ...]:
        return (choices.Part(cls(), seeds=2, steps=50),)

    @classmethod
    def quick_parts(cls) -> tuple[choices.Part, ...]:
        return (choices.Part(cls()),)


@pytest.fixture(autouse=True)
def two_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choices, "EXPERIMENTS", {kind.name: kind for kind in (Grids, Planes)})
    monkeypatch.setattr(pages, "png", lambda figure: picture())
    monkeypatch.setattr(Recording, "before", {})
    monkeypatch.setattr(Recording, "ran", [])


def fails(error: BaseException) -> Callable[[], None]:
    def raised() -> None:
        raise error

    return raised


def test_all_runs_everything_once_and_ends_with_a_page(capsys: pytest.CaptureFixture[str]):
    assert main(ALL) == 0
    printed = capsys.readouterr()
    assert Recording.ran == ["5-2D-fixed", "8-2D-random", "triangulation"]
    assert [line.split("]")[0] for line in printed.err.splitlines() if line.startswith("[")] == ["[1/3", "[2/3", "[3/3"]
    assert "nbf-report.html" in printed.out
    page = Path("nbf-report.html").read_text()
    assert all(part in page for part in ('id="gridworld"', 'id="triangulation"', "nbf-paper reproduce all"))

    assert main([*ALL, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(Recording.ran) == 3, "what is recorded is not run again"
    assert [(run["experiment"], run["new"]) for run in told["runs"]] == [
        ("gridworld", False), ("gridworld", False), ("triangulation", False),
    ]  # fmt: skip
    assert told["failed"] == []


@pytest.mark.parametrize("error", [InputError("a mistake"), ZeroDivisionError("a fault")])
def test_a_failure_costs_only_itself_and_is_told_at_the_end(error: Exception, capsys: pytest.CaptureFixture[str]):
    Recording.before["5-2D-fixed"] = fails(error)
    assert main(ALL) == 1
    printed = capsys.readouterr()
    assert Recording.ran == ["5-2D-fixed", "8-2D-random", "triangulation"]
    assert printed.err.splitlines()[-1] == f"nbf-paper: gridworld: 5-2D-fixed failed: {error}"
    assert ("Traceback" in printed.err) == isinstance(error, ZeroDivisionError)
    assert [run.key for run in read_runs("results/gridworld")] == ["8-2D-random/"]
    assert 'id="triangulation"' in Path("nbf-report.html").read_text()

    Recording.before.clear()
    assert main(ALL) == 0
    assert Recording.ran[3:] == ["5-2D-fixed"], "only what failed is tried again"


def test_an_experiment_that_cannot_even_be_planned_costs_only_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Grids, "jobs", lambda self, amount: fails(ImportError("no such package"))())
    assert main(ALL) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "nbf-paper: gridworld failed: no such package"
    assert Recording.ran == ["triangulation"]


def test_an_interrupted_run_goes_on_with_the_same_command(capsys: pytest.CaptureFixture[str]):
    Recording.before["8-2D-random"] = fails(KeyboardInterrupt())
    assert main([*ALL, "--quick"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("Go on with: nbf-paper reproduce all --quick")
    assert [run.key for run in read_runs("results-quick/gridworld")] == ["5-2D-fixed/"]
    Recording.before.clear()
    assert main([*ALL, "--quick"]) == 0
    assert Recording.ran == ["5-2D-fixed", "8-2D-random", "8-2D-random", "triangulation"]
    assert Path("nbf-report-quick.html").exists()
    assert not Path("results").exists()


def test_how_much_is_done_follows_the_experiment_and_the_options(monkeypatch: pytest.MonkeyPatch):
    amounts: list[choices.Amount] = []
    monkeypatch.setattr(Planes, "jobs", lambda self, amount: amounts.append(amount) or [])
    monkeypatch.setattr(choices, "EXPERIMENTS", {"triangulation": Planes})
    monkeypatch.setattr("nbf_paper.report.pages.write_html", lambda *arguments: None)
    for options in ([], ["--quick"], ["--quick", "--steps", "9", "--first-seed", "4", "--seeds", "3"]):
        assert main([*ALL, *options]) == 0
    wanted = [(range(2), 50, None, False), (range(1), 7, 3, True), (range(4, 7), 9, 3, True)]
    assert [(a.seeds, a.steps, a.episodes, a.few) for a in amounts] == wanted


# --- the list itself -----------------------------------------------------------------------------

LISTED = dict(choices.EXPERIMENTS)


@pytest.mark.parametrize("name", LISTED)
def test_every_experiment_has_one_name(name: str):
    assert LISTED[name].name == name


@pytest.mark.parametrize("name", LISTED)
def test_all_runs_whatever_is_on_record_and_quick_every_experiment(name: str):
    def keys(*, quick: bool) -> list[str]:
        found = []
        kind = LISTED[name]
        for part in kind.quick_parts() if quick else kind.parts():
            usual = kind.quick if quick else choices.Amount(steps=part.steps, episodes=part.episodes)
            amount = choices.Amount(range(part.seeds), usual.steps, usual.episodes, usual.few)
            found += [job.key for job in part.experiment.jobs(amount)]
        return found

    full, quick = keys(quick=False), keys(quick=True)
    assert len(set(full)) == len(full) > 0
    assert len(set(quick)) == len(quick) > 0
    recorded = {run.key for run in read_runs(RESULTS / name)}
    if name == "simulation-cost":  # the rest of its keys depends on the filters that were on record then
        recorded, full = ({key.rpartition("/")[0] for key in some} for some in (recorded, full))
    assert recorded <= set(full), "enter what is new on record into the experiment's `parts`"
