"""Pages with code whose output and figures `docs/run_tutorial.py` writes: they run, and print what they show."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from run_tutorial import PAGE, PAGES, blocks, execute, words

OTHERS = [page for page in PAGES if page != PAGE]
LEAST_PICTURE = 5_000
"""Bytes: an empty figure of this size has fewer."""


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_a_page_prints_what_it_shows_and_draws_its_figures(page: Path, tmp_path: Path):
    text = page.read_text(encoding="utf-8")
    _, printed = execute(text, tmp_path, page)
    plt.close("all")
    for block, told in zip(blocks(text), printed, strict=True):
        assert words(block.output or "") == words(told)
    for figure in PAGES[page]:
        assert (tmp_path / figure.name).stat().st_size > LEAST_PICTURE


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_a_page_shows_the_figures_that_it_makes(page: Path):
    text = page.read_text(encoding="utf-8")
    code = "".join(block.code for block in blocks(text))
    compile(code, str(page), "exec", dont_inherit=True)
    for figure in PAGES[page]:
        assert f'"{figure.name}"' in code
        assert f"(figures/{figure.name})" in text
        assert figure.stat().st_size > LEAST_PICTURE


def test_the_diagnostics_of_the_page_are_what_its_text_says():
    """Of what the page shows, which the slow test compares with what its code prints."""
    good, compared, bad, known, wrong = [
        block.output for block in blocks((PAGE.parent / "diagnostics.md").read_text(encoding="utf-8")) if block.output
    ]
    assert "alarm: none" in good
    assert "alarm: none" in known
    assert "alarm: from step" in bad
    neural, median, worst = (float(number) for number in re.findall(r"-\d+\.\d", compared))
    assert neural > median > worst
    particles, ours = wrong.splitlines()
    assert "log-evidence -inf" in particles
    assert "recovered True" in particles
    assert "recovered False" in ours
