"""Laws of `nbf compare`: what it hands to `nbf.compare`, what it prints, and how it refuses. The comparison itself has
tests of its own, in tests/fitting."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from commands import CommandLine
from paths import SHIPPED

import nbf
from nbf.cli.main import COMMANDS, main
from nbf.fitting import compare as comparing
from nbf.fitting.compare import ComparisonStopped
from nbf.fitting.rows import Row

NBF = CommandLine(main, COMMANDS, "nbf")
WORLD = "import nbf\nfamily = nbf.gridworld_family(8, 2)\nnumber = 3\n"
ROWS = (
    Row("prior", "prior", None, None, None, ((-2.0, -3.0),), ((0.3, 0.4),)),
    Row("ParticleFilter(16)", "particle", 16, 16.0, 10.0, ((-1.0, -2.0),), ((0.1, 0.2),)),
)
FOUND = nbf.Comparison(
    problem="Gridworld", measure="JS", reference="ExactFilter(), exact", reference_sound=True, episodes=2, horizon=3,
    models=1, budgets=(16,), call_cost=0.0, rows=ROWS,
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder_with_a_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unchecked: None) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "compared_world.py").write_text(WORLD)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list:
    """What `compare` is called with; it answers at once."""
    calls = []

    def answer(*arguments, **options):
        calls.append((arguments, options))
        return FOUND

    monkeypatch.setattr(comparing, "compare", answer)
    return calls


def test_options_reach_the_comparison_and_its_table_is_printed(asked, capsys):
    line = "compare compared_world:family --episodes 5 --horizon 7 --budgets 8 64 --call-cost 2.5 --seed 3 --quick"
    assert main(shlex.split(line)) == 0
    ((family, fitted), options), printed = asked[0], capsys.readouterr().out
    assert isinstance(family, nbf.RandomGridworlds)
    assert fitted is None
    wanted = {"episodes": 5, "horizon": 7, "budgets": (8, 64), "call_cost": 2.5, "seed": 3, "quick": True}
    assert {name: options[name] for name in wanted} == wanted
    assert str(FOUND) in printed


def test_the_answer_as_json_is_a_comparison(asked, capsys):
    told = NBF.answered(capsys, "compare", "compared_world:family", "--figure", "figure.png")
    assert nbf.Comparison.from_dict(told) == FOUND
    assert Path("figure.png").stat().st_size > 10_000


def test_a_model_file_is_read(asked, capsys):
    NBF.answered(capsys, "compare", "compared_world:family", "--model", str(SHIPPED))
    assert isinstance(asked[0][0][1], nbf.BeliefModel)


def test_after_ctrl_c_the_rows_so_far_are_printed(monkeypatch, capsys):
    def stops(*arguments, **options):
        raise ComparisonStopped(nbf.Comparison.from_dict({**FOUND.to_dict(), "unfinished": ["ParticleFilter(32)"]}))

    monkeypatch.setattr(comparing, "compare", stops)
    assert main(["compare", "compared_world:family"]) == 130
    printed = capsys.readouterr().out
    assert "ParticleFilter(16)" in printed
    assert "still to come: ParticleFilter(32)" in printed


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("compare compared_world", "module:object"),
        ("compare compared_world:nothing", "nothing"),
        ("compare compared_world:number", "family of environments"),
        ("compare compared_world:family --budgets 16 0", "budgets[1] of at least 1"),
        ("compare compared_world:family --budgets", "at least one"),
        ("compare compared_world:family --episodes 1", "episodes of at least 2"),
        ("compare compared_world:family --call-cost -1", "0 or more"),
        ("compare compared_world:family --model nowhere", "There is no checkpoint at nowhere"),
        ("compare compared_world:family --figure compared_world.py/below.png", "compared_world.py"),
    ],
)
def test_bad_input_is_refused(line: str, fragment: str, capsys):
    assert fragment in NBF.refused(capsys, *shlex.split(line))
