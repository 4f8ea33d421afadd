"""The HTML page in a real browser: nothing to complain about, every picture shown, no wider than a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser
from pages import record_some, undrawn
from paths import RESULTS

from nbf_paper.report.html import page_text
from nbf_paper.report.pages import write_html

PHONE, DESK = 360, 1280
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def broken_pictures(browser: Browser) -> int:
    return browser.tell("[...document.images].filter(image => !image.complete || image.naturalWidth === 0).length")


def overflow(browser: Browser) -> int:
    """How many pixels of the page lie to the right of the window."""
    return browser.tell("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.usefixtures("unchecked")  # it parses tens of thousands of records
def test_the_page_of_the_committed_records(browser: Browser, tmp_path: Path):
    page = tmp_path / "report.html"
    write_html(RESULTS, page)
    for width in (DESK, PHONE):
        browser.open(page, width)
        assert browser.complaints() == []
        assert browser.tell("document.images.length") == page.read_text().count("<img ") > 0
        assert broken_pictures(browser) == 0
        assert browser.tell("document.documentElement.clientWidth") == width
        assert overflow(browser) == 0
    scrolling = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
    assert browser.tell(f"{scrolling}.length") > 0
    assert browser.tell(f"{scrolling}.every(box => (box.scrollLeft = 9, box.scrollLeft > 0))")
    for link in browser.tell("[...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))"):
        browser.tell(f"document.querySelector('nav a[href=\"{link}\"]').click()")
        assert browser.tell("location.hash") == link
    assert browser.complaints() == []


def test_a_broken_page_is_caught(browser: Browser, tmp_path: Path):
    record_some(tmp_path, "triangulation", "triangulation")
    whole, page = page_text(undrawn(tmp_path)), tmp_path / "spoilt.html"

    def opened(addition: str, *, policy: bool = True) -> None:
        page.write_text((whole if policy else POLICY.sub("", whole)).replace("</main>", f"{addition}</main>"))
        browser.open(page, PHONE)

    opened("")
    assert (browser.complaints(), broken_pictures(browser), overflow(browser)) == ([], 0, 0)
    opened("<script>nowhere.at.all()</script>", policy=False)
    assert any("nowhere is not defined" in text for text in browser.complaints())
    opened("<script>document.title = 'taken over'</script>")
    assert any("Content Security Policy" in text for text in browser.complaints())
    assert browser.tell("document.title").startswith("Neural Bayesian Filtering")
    opened("<img src='data:image/png;base64,AAAA' alt=''>")
    assert broken_pictures(browser) == 1
    opened("<div style='width: 900px'>wide</div>")
    assert overflow(browser) > 0
