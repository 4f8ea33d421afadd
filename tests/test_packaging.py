"""What is published: the source distribution is whole, and says truly what it runs on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from paths import ROOT

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
