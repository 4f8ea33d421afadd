"""A run says which code made it: found where the code lies, without running what a repository names."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nbf_paper.records import Record, RecordError, Run, add, completed, provenance, read_runs, run_key
from nbf_paper.records.provenance import CodeVersion, code_version

EXAMPLE = Record("e", "c", "pf", "", 8, 8, 0, 0, "js", 0.5, None, 1)
UNKNOWN = CodeVersion(None, None)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def packages(tmp_path: Path) -> tuple[Path, Path]:
    """Two packages of one checkout, beside other files."""
    git(tmp_path, "init")
    found = tmp_path / "paper" / "src" / "one", tmp_path / "src" / "two"
    for package in found:
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    (tmp_path / "notes.md").write_text("")
    (tmp_path / ".gitignore").write_text(".venv\n__pycache__\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "both")
    return found


def seen(packages: tuple[Path, ...]) -> CodeVersion:
    code_version.cache_clear()
    return code_version(packages)


def test_the_commit_of_the_code_and_whether_it_is_clean(packages: tuple[Path, Path], tmp_path: Path) -> None:
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert seen(packages) == CodeVersion(commit, True)
    (tmp_path / "notes.md").write_text("records, notes and figures are no code")
    (packages[0] / "__pycache__").mkdir()
    (packages[0] / "__pycache__" / "one.pyc").write_text("")
    assert seen(packages) == CodeVersion(commit, True)
    for package in packages:
        (package / "__init__.py").write_text("changed")
        assert seen(packages) == CodeVersion(commit, False)
        git(tmp_path, "checkout", "--", ".")
        (package / "new.py").write_text("")
        assert seen(packages) == CodeVersion(commit, False)
        (package / "new.py").unlink()
    assert seen(packages) == CodeVersion(commit, True)


def test_code_outside_a_checkout_has_no_commit(packages: tuple[Path, Path], tmp_path: Path) -> None:
    installed = tmp_path / ".venv" / "site-packages" / "one"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert seen((installed, installed)) == UNKNOWN, "a checkout of another project is around it"
    assert seen((packages[0], installed)).clean is False, "not all that ran is of that commit"
    (tmp_path / ".git").rename(tmp_path / "elsewhere")
    assert seen(packages) == UNKNOWN


def test_no_program_of_a_configuration_is_run_and_no_variable_obeyed(
    packages: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path.parent / f"{tmp_path.name}-program"
    program.write_text(f"#!/bin/sh\ntouch '{program}.run'\n")
    program.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(program))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    assert seen(packages).clean is True
    monkeypatch.delenv("GIT_DIR")
    assert not Path(f"{program}.run").exists()
    git(tmp_path, "status")
    assert Path(f"{program}.run").exists(), "the trap works"


def test_without_git_nothing_is_known(packages: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert seen(packages) == UNKNOWN


def test_a_run_records_the_code_and_its_time_whatever_the_folder(
    packages: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data and working folder are in a checkout of their own, which is not looked at."""
    monkeypatch.chdir(tmp_path)
    code_version.cache_clear()
    before = datetime.now(UTC)
    add(tmp_path / "results", [EXAMPLE], Run("a", 0, "", 0.0, {}))
    (run,) = read_runs(tmp_path / "results")
    assert (run.commit, run.clean) == (code_version().commit, code_version().clean)
    assert run.commit != git(tmp_path, "rev-parse", "HEAD")
    assert run.date is not None
    assert abs(datetime.fromisoformat(run.date) - before) < timedelta(minutes=1)
    assert run.date.endswith("Z")
    root = provenance.PACKAGES[0]
    assert all((package / "py.typed").exists() for package in provenance.PACKAGES)
    if (root.parents[2] / ".git").exists():
        assert run.commit == git(root, "rev-parse", "HEAD")


def test_the_code_is_looked_up_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while a run lasts did not make its numbers."""
    code_version.cache_clear()
    answers = iter(["1" * 40, "/", "__init__.py", "__init__.py", "/", "", "__init__.py", "/", ""])
    monkeypatch.setattr(provenance, "_git", lambda folder, *words: next(answers))
    assert not completed(tmp_path, "a")
    assert next(answers, None) is None
    assert Run("a", 0, "", 0.0, {}).commit == "1" * 40
    code_version.cache_clear()


def test_runs_from_before_are_read_and_kept_as_unknown(tmp_path: Path) -> None:
    add(tmp_path, [EXAMPLE], Run("old", 0, "", 0.0, {}, {}))
    (entry,) = json.loads((tmp_path / "runs.json").read_text())
    for name in ("commit", "clean", "date"):
        del entry[name]
    (tmp_path / "runs.json").write_text(json.dumps([entry]))
    (run,) = read_runs(tmp_path)
    assert (run.commit, run.clean, run.date) == (None, None, None)
    assert completed(tmp_path, "old")
    add(tmp_path, [Record("e", "c", "pf", "", 8, 8, 1, 0, "js", 0.5, None, 1)], Run("new", 1, "", 0.0, {}, {}))
    kept = {run.key: run.date for run in read_runs(tmp_path)}
    assert kept["old"] is None
    assert kept["new"] is not None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "change",
    [{"commit": 1}, {"clean": "yes"}, {"clean": 1}, {"date": 2026}, {"date": "today"}, {"date": "2026-01-01"}],
    ids=str,
)
def test_code_and_time_of_wrong_kinds_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    add(tmp_path, [EXAMPLE], Run("a", 0, "", 0.0, {}, {}))
    (entry,) = json.loads((tmp_path / "runs.json").read_text())
    (tmp_path / "runs.json").write_text(json.dumps([{**entry, **change}]))
    with pytest.raises(RecordError):
        read_runs(tmp_path)


def test_run_keys_are_those_of_old() -> None:
    assert run_key("a", {"x": 1, "y": [2.5, None]}) == "a/4c16fbb48959"
