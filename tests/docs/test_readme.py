"""The README's example runs as it stands there, and says what the README promises."""

from __future__ import annotations

import re
from typing import Any

import jax
import pytest
from paths import ROOT

import nbf
from nbf.errors import InputError
from nbf.testing import check_model


def test_the_example_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert len([line for line in block.splitlines() if line.strip()]) <= 15
    exec(compile(blocks[0], "README.md", "exec", dont_inherit=True), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21
    probability = float(lines[-1].split(":")[1])
    assert 0.0 < probability <= 1.0
    names: dict[str, Any] = {}
    exec(compile(blocks[1], "README.md", "exec", dont_inherit=True), names)
    belief = names["tracker"].belief(names["state"], names["world"])
    sides = [float(belief.expectation(lambda x, side=side: (side * x[0] > 0.0).astype(float))) for side in (-1, 1)]
    assert min(sides) > 0.2  # two modes, as the page says


def test_a_picture_comes_first():
    """Within a screen, and the first code within two."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert next(place for place, line in enumerate(lines) if line.startswith("![")) < 12
    assert next(place for place, line in enumerate(lines) if line == "```python") < 30
    assert len(lines) < 130


def test_the_recipe_for_a_decoder_makes_a_sound_model():
    """Every block of the page on models runs, and the model of its last one keeps the contract."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    pages: list[dict[str, Any]] = [{"__name__": "models_page"} for _ in blocks]
    for block, names in zip(blocks, pages, strict=True):
        exec(compile(block, "models.md", "exec", dont_inherit=True), names)
    names = pages[-1]
    report = check_model(names["model"], names["model"].space)
    assert report.passed, str(report)
    with pytest.raises(InputError, match="lattice"):
        nbf.ModelConfig(nbf.LatticeConfig((3, 3)), names["GaussianConfig"]()).build(jax.random.key(0))


def test_the_comparison_of_the_page_on_filters_runs(tmp_path, monkeypatch, capsys):
    """With less of everything; its words are those that the page shows."""
    page = (ROOT / "docs" / "when-to-use.md").read_text()
    ((code, shown),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    compare, less = nbf.compare, {"budgets": (16,), "particles": (), "episodes": 2, "horizon": 2}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        nbf, "compare", lambda family, **options: compare(family, **(options | less), quick=True, progress=False)
    )
    names: dict[str, Any] = {}
    exec(compile(code, "when-to-use.md", "exec", dont_inherit=True), names)
    head = ("filter", "calls", "µs", "JS", "log score", "gain")
    for text in (shown, capsys.readouterr().out):
        assert all(word in text for word in (*head, "ExactFilter()", "At equal calls"))
    assert nbf.Comparison.load("compared.json") == names["found"]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"] + [
    page for folder in ("docs", "paper/docs") for page in sorted((ROOT / folder).rglob("*.md"))
]


def test_links_point_at_files():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}, which is not there"


def test_paths_that_pages_and_sources_name_exist():
    """Such as tests/docs/test_readme.py, from the root of the repository."""
    named = re.compile(
        r"(?<![\w./-])(?:src|tests|benchmarks|docs|paper|results)/[\w./-]+\.(?:py|md|json|csv|png|css)\b"
    )
    folders = ("src", "paper/src", "benchmarks", "docs")  # tests name files of their own folders
    sources = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    wrong, found = [], set()
    for page in (*PAGES, *sources):
        paths = set(named.findall(page.read_text(encoding="utf-8")))
        found |= paths
        wrong += [f"{page.relative_to(ROOT)} names {path}" for path in sorted(paths) if not (ROOT / path).exists()]
    assert len(found) > 20
    assert wrong == []
