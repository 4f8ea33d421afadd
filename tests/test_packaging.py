"""What is published: the source distribution is whole, and says truly what it runs on."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from paths import ROOT

import nbf

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHIPPED = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def ships(path: str) -> bool:
    return any(Path(path).is_relative_to(each) for each in SHIPPED)


def test_what_is_shipped_exists_and_has_the_package():
    assert [each for each in SHIPPED if not (ROOT / each).exists()] == []
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert all(map(ships, [*packages, PROJECT["project"]["readme"], PROJECT["tool"]["hatch"]["version"]["path"]]))


def test_tests_are_shipped_with_all_they_need_or_not_at_all():
    needs = ("tests", "conftest.py", "paper", "results", "docs", "benchmarks", "CONTRIBUTING.md", "Makefile")
    assert {ships(each) for each in needs} in ({True}, {False})


def test_the_versions_of_python_are_those_that_are_tested():
    (matrix,) = re.findall(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    told = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: Python :: 3." in line]
    assert told == re.findall(r"3\.\d+", matrix)
    assert PROJECT["project"]["requires-python"] == f">={told[0]}"


def test_one_version_stands_everywhere():
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    newest = re.search(r"^## \[(\d\S*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    paper = tomllib.loads((ROOT / "paper" / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert citation is not None
    assert newest is not None
    assert {citation[1], newest[1], paper} == {nbf.__version__}


def test_forms_for_issues_can_be_read():
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) >= 2
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form.keys() >= {"name", "description", "body"}
        assert all(part["attributes"]["label"] for part in form["body"])


@pytest.mark.slow
def test_the_readme_runs_from_the_wheel():
    """Core dependencies alone; it needs a package index."""
    done = subprocess.run([ROOT / ".ci" / "check-release", sys.executable], capture_output=True, text=True)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("there is no package index")
    assert done.returncode == 0, done.stderr
    assert f"nbf {nbf.__version__}" in done.stdout
