"""Laws of the HTML page: well-formed, complete, closed to the outside, and free of markup that comes from records."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages import picture, record_some, undrawn
from paths import RESULTS

from nbf_paper.experiments.choices import EXPERIMENTS
from nbf_paper.records import read_runs
from nbf_paper.report.html import HtmlReport, Opening, code, page_text, read_markdown, recorded
from nbf_paper.report.pages import present, write_html
from nbf_paper.report.tables import MISSING, Page, layout

VOID = {"meta", "img", "br", "link", "input", "hr", "base", "source", "embed"}
WAITING: dict[str, str] = {}
"""Experiments that wait for their first record, and the pages that say so."""
DOCUMENTS = RESULTS.parent / "paper" / "docs"
HOSTILE = "</td><script>a()</script>\"'&amp;<$\\frac$|b"


class Reader(HTMLParser):
    """Reads a page, and notes what is wrong with it."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.wrong: list[str] = []
        self.feed(page)
        self.close()
        self.wrong += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.wrong.append(f"an attribute of <{tag}> stands twice")
        if tag not in VOID:
            self.open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.text[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Records of two experiments."""
    record_some(tmp_path, "gridworld", "8-2D-random")
    record_some(tmp_path, "gridworld", "5-2D-fixed", command="nbf-paper reproduce gridworld --config 5-2D-fixed")
    record_some(tmp_path, "triangulation", "triangulation")
    return tmp_path


def check(page: str) -> Reader:
    """What every page must be."""
    assert page.startswith("<!DOCTYPE html>")
    read = Reader(page)
    assert read.wrong == []
    (root,) = read.all("html")
    assert root["lang"] == "en"
    names = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(set(names)) == len(names)
    assert all(name and not re.search(r"\s", name) for name in names)
    for kind in ("href", "aria-labelledby"):
        targets = [attributes[kind] for _, attributes in read.elements if kind in attributes]
        assert {str(target).removeprefix("#") for target in targets} <= set(names)
    assert not {"script", "iframe", "object", "link", "form"} & {tag for tag, _ in read.elements}
    assert not [a for _, attributes in read.elements for a in attributes if a.startswith("on")]
    images = read.all("img")
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in images)
    assert all(image["alt"] and int(str(image["width"])) > 0 < int(str(image["height"])) for image in images)
    assert len(read.all("table")) == len(read.all("caption")) == len(read.text.get("caption", []))
    assert all(caption.strip() for caption in read.text.get("caption", []))
    assert len(read.all("main")) == len(read.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    assert "http://" not in page
    assert "https://" not in page
    return read


def test_a_page_is_well_formed_and_says_what_is_missing(results: Path):
    text = page_text(undrawn(results))
    read = check(text)
    assert [section["id"] for section in read.all("section")] == ["gridworld", "triangulation"]
    assert [link["href"] for link in read.all("a")] == ["#content", "#gridworld", "#triangulation"]
    empty = HtmlReport(results, {}, {}, missing=["donuts"], opening=Opening(picture(), "a picture"))
    assert "nbf-paper reproduce donuts" in text or "nbf-paper reproduce donuts" in page_text(empty)
    assert [image["alt"] for image in check(page_text(empty)).all("img")] == ["a picture"]


def test_every_number_of_a_table_every_claim_and_every_command_stands_on_the_page(results: Path):
    report = undrawn(results)
    read = check(page_text(report))
    cells = {cell.strip() for tag in ("th", "td") for cell in read.text[tag]}
    for page in report.pages.values():
        for table in page.tables.values():
            grid, _, legend = table.partition("\n\n")
            shown = [cell.strip(" *") for line in grid.splitlines()[2:] for cell in line.strip("|").split(" | ")]
            assert set(shown) <= cells
            assert any(caption.endswith(" ".join(legend.split())) for caption in read.text["caption"])
        for claim, numbers in page.claims:
            assert {claim, numbers} <= cells
    assert "0.459 ± 0.002" in cells, "the paper's number"
    assert "0.016 ± 0.001" in cells, "ours"
    assert "8-2D-random: NBF (16), paper's flow 0.016, NBF (32), paper's flow 0.032, PF (512) 0.512" in " ".join(cells)
    commands = [run.command for name in report.pages for run in read_runs(results / name)]
    assert {*commands, *(str(results / name) for name in report.pages)} <= set(read.text["code"])
    assert all("jax 0.9.0, python 3.11.9" in text for text in read.text["caption"] if "commands" in text)


def test_records_are_text_and_never_markup(tmp_path: Path):
    command = f"{HOSTILE} `a *b` c*"
    record_some(tmp_path, "gridworld", "8-2D-random", arm=HOSTILE, command=command)
    record_some(tmp_path, "donuts", HOSTILE, arm=HOSTILE)
    read = check(page_text(undrawn(tmp_path)))
    assert any(cell == f"NBF (16), {HOSTILE}" for cell in read.text["th"])
    assert command in read.text["code"]
    record_some(tmp_path, "gridworld", "5-2D-fixed", arm="*a `b* c` **d")
    check(page_text(undrawn(tmp_path)))
    write_html(tmp_path, tmp_path / "page.html")  # matplotlib must not take it for a formula either
    check((tmp_path / "page.html").read_text())


@pytest.mark.usefixtures("unchecked")  # it parses tens of thousands of records
def test_the_committed_records_make_a_page_in_which_all_has_a_caption_of_its_own():
    report = undrawn(RESULTS)
    check(page_text(report))
    assert set(EXPERIMENTS) - set(report.pages) == set(WAITING)
    for page in WAITING.values():
        text = " ".join((DOCUMENTS / page).read_text(encoding="utf-8").split())
        assert "No run of it is on record yet" in text
    for name, page in report.pages.items():
        assert page.tables, name
        shown = {*page.tables, *page.figures}
        assert shown <= page.captions.keys(), name
        assert len({page.captions[one] for one in shown}) == len(shown), name
        assert page.title


def test_a_table_is_read_as_it_was_laid_out():
    lines = [["Filter", "a|b", "c"], ["x\\y", MISSING, "1 ± 2"], ["", "*a*", "`b`"]]
    assert read_markdown(layout(lines)) == (lines, [False, True, True], "")
    words = "of " * 100 + "errors"
    assert read_markdown(layout(lines, words)) == (lines, [False, True, True], words)


def test_pictures_keep_their_shape_and_are_not_too_tall(results: Path):
    page = Page({}, {"wide.png": picture, "tall.png": picture}, "Two pictures")
    images = {"wide.png": picture(2000, 400), "tall.png": picture(100, 4000)}
    shown = check(page_text(HtmlReport(results, {"gridworld": page}, images))).all("img")
    sizes = [(int(str(image["width"])), int(str(image["height"])), image["class"]) for image in shown]
    assert sizes == [(1200, 240, "wide"), (25, 1000, "narrow")]


def test_a_page_says_when_its_records_were_made(results: Path):
    """By the last run that says so; where none does, by the file. Dates of a checkout are nobody's business."""
    runs = read_runs(results / "gridworld")
    file = results / "gridworld" / "records.csv"
    dates = [None, "2020-02-03T23:59:59Z", "2020-02-03T12:00:00Z", "2019-12-31T00:00:00Z"]
    dated = [dataclasses.replace(runs[0], date=date) for date in dates]
    assert recorded(dated, file) == "recorded 2020-02-03"
    os.utime(file, (0, 86400 * 365))
    assert recorded(dated[:1], file) == recorded([], file) == "file of 1971-01-01"


def test_a_page_says_which_code_made_its_records(results: Path):
    (run, *_) = read_runs(results / "gridworld")
    some = [("a" * 40, True), ("a" * 40, True), ("b" * 40, True), ("b" * 40, False), (None, None)]
    runs = [dataclasses.replace(run, commit=commit, clean=clean) for commit, clean in some]
    assert code(runs) == "aaaaaaaaaaaa, bbbbbbbbbbbb (changed), an unknown commit"
    assert code(runs[:2]) == "aaaaaaaaaaaa"


@pytest.mark.parametrize("bare", [False, True], ids=["repository", "bare repository inside"])
def test_nothing_in_a_folder_of_records_is_run(results: Path, tmp_path_factory: pytest.TempPathFactory, bare: bool):
    """A folder of records that is a repository whose configuration names a program."""
    trap, place = tmp_path_factory.mktemp("trap"), results / "gridworld"
    (trap / "program").write_text(f"#!/bin/sh\ntouch '{trap}/run'\n")
    (trap / "program").chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-C", str(place)]
    for words in (["init"], ["add", "."], ["commit", "-m", "records"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    for name in ("core.fsmonitor", "core.pager", "core.sshCommand", "diff.external"):
        subprocess.run([*git, "config", name, str(trap / "program")], check=True)
    subprocess.run([*git, "status"], check=True, capture_output=True)
    assert (trap / "run").exists(), "the trap works"
    (trap / "run").unlink()
    if bare:
        for inside in (place / ".git").iterdir():
            inside.rename(place / inside.name)
        (place / ".git").rmdir()
        subprocess.run([*git, "config", "core.worktree", str(place)], check=True)
    check(page_text(undrawn(results)))
    assert not (trap / "run").exists()


def test_a_page_needs_records(tmp_path: Path):
    from nbf_paper.records import RecordError

    with pytest.raises(RecordError, match="There are no records"):
        present(tmp_path)
    assert list(EXPERIMENTS)[:2] == ["gridworld", "donuts"]
