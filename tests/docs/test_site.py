"""The site: built strictly, whole, with nothing to fetch and no link that leads nowhere."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import site_pages
from browser import Browser
from mkdocs.exceptions import PluginError
from paths import ROOT
from PIL import Image
from run_screenshots import SHOTS, opened, screenshots, served

import nbf

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
FOLDERS = ROOT / "docs", ROOT / "paper" / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
PACKAGES: list[Any] = [part for part in (getattr(nbf, name) for name in dir(nbf)) if isinstance(part, ModuleType)]


class Read(HTMLParser):
    """What of a page refers to something: anchors, links, what a browser loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.anchors |= {have[name] for name in ("id", "name") if name in have}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        if tag in FETCHED and FETCHED[tag] in have:
            self.loaded.append(have[FETCHED[tag]])
        if tag == "link" and have.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(have.get("href", ""))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it, in a process without a way out to the network."""
    folder = tmp_path_factory.mktemp("site")
    blocked = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT, env=os.environ | blocked | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Read]:
    return {path: Read(path.read_text(encoding="utf-8")) for path in sorted(built.rglob("*.html"))}


def place(built: Path, page: Path) -> Path:
    """Where a page of the repository stands on the site."""
    inner = page.relative_to(ROOT).with_suffix("")
    return built / inner.parent / ("" if inner.name in ("README", "index") else inner.name) / "index.html"


def test_every_page_is_on_the_site(built: Path):
    for page in PAGES:
        assert place(built, page).exists(), f"{page.relative_to(ROOT)} is not on the site"
    assert {page.relative_to(ROOT).as_posix() for page in PAGES} <= set(site_pages.listed(site_pages.navigation()))


def test_every_public_name_is_in_the_reference(built: Path, pages: dict[Path, Read]):
    names = {f"nbf.{name}" for name in dir(nbf) if not name.startswith("__")} - {part.__name__ for part in PACKAGES}
    names |= {f"{part.__name__}.{name}" for part in PACKAGES for name in part.__all__}
    shown = {anchor for path, page in pages.items() if built / "reference" in path.parents for anchor in page.anchors}
    assert len(names) > 130
    assert names - shown == set()
    documented = {anchor for anchor in shown if anchor.count(".") >= 2}
    assert {name for name in names if not any(each.endswith("." + name.split(".")[-1]) for each in documented)} == set()


def test_nothing_is_fetched(built: Path, pages: dict[Path, Read]):
    for path, page in pages.items():
        for address in page.loaded:
            assert not urlsplit(address).netloc, f"{path.relative_to(built)} loads {address}"
    for sheet in built.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_every_link_leads_somewhere(built: Path, pages: dict[Path, Read]):
    checked = 0
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(built)} links to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.relative_to(built)} links to {link}"
            checked += 1
    assert checked > 2000


def test_equations_are_mathml(built: Path):
    for page in (ROOT / "docs" / "mathematics").glob("*.md"):
        source, text = page.read_text(encoding="utf-8"), place(built, page).read_text(encoding="utf-8")
        assert text.count("<math") == len(re.findall(r"\$\$.+?\$\$|\$[^$\n]+?\$", source, re.DOTALL)) > 5
        assert "arithmatex" not in text
        assert "$" not in re.sub(r"<code.*?</code>|<script.*?</script>|<pre.*?</pre>", "", text, flags=re.DOTALL)


def test_primes_and_names_of_functions_are_set_well():
    assert "<mi>𝑥′</mi>" in site_pages.equation("span", r"\(x'\)", "page")
    assert "<msub><mi>𝜃′</mi><mi>i</mi></msub>" in site_pages.equation("span", r"\(\theta_i'\)", "page")
    assert '<mi>log</mi><mspace width="0.17em" /><mi>p</mi>' in site_pages.equation("span", r"\(\log p\)", "page")


@pytest.mark.parametrize("latex", [r"\(\nosuchcommand x\)", r"\(a & b\)"])
def test_an_equation_that_is_not_understood_stops_the_build(latex: str):
    with pytest.raises(PluginError, match="the equation"):
        site_pages.equation("span", latex, "page")


def test_links_to_sources_become_text_and_broken_ones_stay():
    known = {"docs/models.md"}
    text = "[a](models.md#x) [b](../src/nbf/contracts.py) [c](nowhere.md) ![d](figures/lake.png)"
    assert site_pages.without_sources(text, "docs/trust.md", known) == text.replace("[b](../src/nbf/contracts.py)", "b")


# In a browser

DESK, PHONE = 1280, 390
SOME = ("", "docs/mathematics/proposals/", "reference/filters/", "paper/docs/beyond/")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BROKEN = "[...document.images].filter(image => image.complete && image.naturalWidth === 0).length"
CUT = """[...document.querySelectorAll('article table, article pre, article math')].filter(part => {
  let right = part.getBoundingClientRect().right, box = part.parentElement;
  for (; box && right > document.documentElement.clientWidth; box = box.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)) return false;
  return right > document.documentElement.clientWidth + 1;
}).length"""


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """Of the site on this machine."""
    with served(built) as address:
        yield address


def looked_at(browser: Browser, page: str) -> None:
    """Nothing is wider than the window, or it scrolls in its box; every picture is there, and nothing complains."""
    for width in (DESK, PHONE):
        opened(browser, page, width)
        assert browser.tell(OVERFLOW) == 0, (page, width)
        assert browser.tell(BROKEN) == 0, (page, width)
        assert browser.tell(CUT) == 0, (page, width)
        assert browser.complaints() == [], (page, width)


@pytest.mark.parametrize("page", SOME)
def test_a_page_fits_a_desk_and_a_phone(address: str, browser: Browser, page: str):
    looked_at(browser, f"{address}/{page}")


@pytest.mark.slow
def test_every_page_fits_a_desk_and_a_phone(built: Path, address: str, browser: Browser):
    for page in sorted(built.rglob("index.html")):
        looked_at(browser, f"{address}/{page.parent.relative_to(built).as_posix()}/")


def test_a_page_that_is_too_wide_is_caught(built: Path, browser: Browser, address: str):
    text = (built / "docs" / "glossary" / "index.html").read_text(encoding="utf-8")
    spoilt = text.replace("</article>", "<p style='width: 3000px'>wide</p></article>")
    (built / "docs" / "glossary" / "spoilt.html").write_text(spoilt, encoding="utf-8")
    with pytest.raises(AssertionError):
        looked_at(browser, f"{address}/docs/glossary/spoilt.html")


def test_screenshots_have_something_on_them(address: str, browser: Browser):
    """A wrong address, or a style that is not found, gives a picture with next to no dark ink or no colour."""
    taken = screenshots(browser, address)
    assert taken.keys() == SHOTS.keys()
    for name, (_, width, height) in SHOTS.items():
        with Image.open(io.BytesIO(taken[name])) as picture:
            assert picture.size == (width, height)
            colours = np.asarray(picture.convert("RGB"), int)
        dark = np.mean(colours.max(axis=-1) < 96)
        blue = np.mean(colours[..., 2] - colours[..., 0] > 60)
        assert 0.004 < dark < 0.5, name
        assert blue > 0.02, name
        assert (ROOT / "docs" / "figures" / name).exists()
