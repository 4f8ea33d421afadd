"""Laws of the HTML page: well-formed, complete, closed to the outside, and free of markup that comes from records."""

from __future__ import annotations

import datetime
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
from nbf_paper.report.html import HtmlReport, Opening, changed, page_text, read_markdown
from nbf_paper.report.pages import present, write_html
from nbf_paper.report.tables import MISSING, Page, layout

VOID = {"meta", "img", "br", "link", "input", "hr", "base", "source", "embed"}
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
            shown = [cell.strip(" *") for line in table.splitlines()[2:] for cell in line.strip("|").split(" | ")]
            assert set(shown) <= cells
        for claim, numbers in page.claims:
            assert {claim, numbers} <= cells
    assert "0.459 ± 0.002" in cells, "the paper's number"
    assert "0.016 ± 0.001" in cells, "ours"
    assert "8-2D-random: NBF (16) 0.016, NBF (32) 0.032, PF (512) 0.512" in " ".join(cells)
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


def test_the_committed_records_make_a_page_in_which_all_has_a_caption_of_its_own():
    report = undrawn(RESULTS)
    check(page_text(report))
    for name, page in report.pages.items():
        shown = {*page.tables, *page.figures}
        assert shown <= page.captions.keys(), name
        assert len({page.captions[one] for one in shown}) == len(shown), name
        assert page.title


def test_a_table_is_read_as_it_was_laid_out():
    lines = [["Filter", "a|b", "c"], ["x\\y", MISSING, "1 ± 2"], ["", "*a*", "`b`"]]
    assert read_markdown(layout(lines)) == (lines, [False, True, True])


def test_pictures_keep_their_shape_and_are_not_too_tall(results: Path):
    page = Page({}, {"wide.png": picture, "tall.png": picture}, "Two pictures")
    images = {"wide.png": picture(2000, 400), "tall.png": picture(100, 4000)}
    shown = check(page_text(HtmlReport(results, {"gridworld": page}, images))).all("img")
    sizes = [(int(str(image["width"])), int(str(image["height"])), image["class"]) for image in shown]
    assert sizes == [(1200, 240, "wide"), (25, 1000, "narrow")]


def test_a_file_was_changed_when_git_says_so_or_else_when_it_was_written(tmp_path: Path):
    file = tmp_path / "records.csv"
    file.write_text("a")
    os.utime(file, (0, 86400 * 365))
    assert changed(file) == datetime.date(1971, 1, 1)

    def git(*words: str) -> None:
        date = {"GIT_COMMITTER_DATE": "2020-02-03T12:00:00Z", "GIT_AUTHOR_DATE": "2020-02-03T12:00:00Z"}
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, env=os.environ | date, check=True, capture_output=True)

    git("init")
    assert changed(file) == datetime.date(1971, 1, 1)
    git("add", "records.csv")
    git("commit", "-m", "record")
    assert changed(file) == datetime.date(2020, 2, 3)
    file.write_text("changed")
    os.utime(file, (0, 86400 * 365))
    assert changed(file) == datetime.date(1971, 1, 1)


def test_a_page_needs_records(tmp_path: Path):
    from nbf_paper.records import RecordError

    with pytest.raises(RecordError, match="There are no records"):
        present(tmp_path)
    assert list(EXPERIMENTS)[:2] == ["gridworld", "donuts"]
