"""The playground's page in a real browser: steering, redrawing walls, a server that is started again, a phone, keys
alone, dark and light. Nothing to complain about.

With NBF_WRITE_FIGURES=1 the slow test of the whole playground also writes docs/figures/play.png and play-cards.png.
"""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from paths import ROOT
from PIL import Image
from playing import KEY, Running, running

from nbf.files.atomic import write_atomically
from nbf.play.programs import Programs

PHONE, DESK = 360, 1280
WALKS = {
    "1": ["a"] * 9, "3": ["a"] * 16, "4": ["a"] * 9, "2": [*("s", "ArrowUp") * 3, "s", *("ArrowRight", "s") * 2],
}  # fmt: skip
"""Keys for each problem of the slow test."""
FIGURES = {"2": "play.png", "4": "play-cards.png"}
"""Of the docs."""


@pytest.fixture(autouse=True)
def cheap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("nbf.play.session.carried", lambda key, filter, state, environment: state)


def visit(browser: Browser, server: Running, width: int = DESK, height: int = 900) -> None:
    # The page draws the seed of an episode: always this one, or the agent may stand where a wall is to be drawn.
    browser.call("Page.addScriptToEvaluateOnNewDocument", source="Math.random = () => 0.5")
    browser.open(server.playground.address, width, height)
    browser.wait("document.querySelectorAll('.panel').length === 3")
    assert browser.tell("location.href") == f"http://127.0.0.1:{server.port}/"  # the token is gone


def step(browser: Browser) -> int:
    return browser.tell("Number(document.getElementById('step').textContent.split(' ')[1])")


def arrive(browser: Browser, number: int) -> None:
    browser.wait(f"document.getElementById('step').textContent.startsWith('step {number} ')")


def recipe(browser: Browser) -> dict:
    return browser.tell("JSON.parse(sessionStorage.getItem('nbf-recipe'))")


def cell(browser: Browser, row: int, column: int, side: int = 8) -> tuple[float, float]:
    """Where a cell of the first picture is in the window."""
    box = browser.tell(
        "(() => { const c = document.querySelector('canvas.belief'); c.scrollIntoView({block: 'center'}); "
        "const b = c.getBoundingClientRect(); return [b.left, b.top, b.width]; })()"
    )
    return box[0] + box[2] * (column + 0.5) / side, box[1] + box[2] * (row + 0.5) / side


def click(browser: Browser, selector: str) -> None:
    x, y = browser.tell(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}}); "
        "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    browser.drag((x, y))


def test_steering_walls_settings_and_time_with_a_mouse(browser: Browser):
    with running() as server:
        visit(browser, server)
        for number, action in enumerate(("up", "right", "down", "left"), 1):
            click(browser, f"[data-action='{action}']")
            arrive(browser, number)
        assert [each[1] for each in recipe(browser)["steps"]] == ["up", "right", "down", "left"]
        click(browser, "[data-tool='walls']")
        before = recipe(browser)["settings"][0]["walls"]
        browser.drag(*(cell(browser, 7, column) for column in (0, 1, 2)))
        browser.wait("JSON.parse(sessionStorage.getItem('nbf-recipe')).settings.length === 2")
        after = recipe(browser)["settings"][1]["walls"]
        assert (after[:7], before[7], after[7]) == (before[:7], "........", "###.....")
        browser.tell(
            "(() => { const s = document.querySelector('[data-setting=particle]'); s.value = '512'; "
            "s.dispatchEvent(new Event('change')); })()"
        )
        browser.wait("document.getElementById('settings').querySelector('[data-setting=particle]').value === '512'")
        click(browser, "#auto")
        arrive(browser, 5)
        assert "512 particles" in browser.tell("document.querySelector('[data-role=particle] span').textContent")
        click(browser, "#back")
        arrive(browser, 4)
        click(browser, "#forward")
        arrive(browser, 5)
        browser.tell(
            "(() => { const s = document.getElementById('slider'); s.value = '2'; "
            "s.dispatchEvent(new Event('input')); })()"
        )
        arrive(browser, 2)
        assert browser.complaints() == []


def test_keys_alone_do_everything(browser: Browser):
    with running() as server:
        visit(browser, server)
        for number, key in enumerate(("ArrowUp", "ArrowRight", "a"), 1):
            browser.press(key)
            arrive(browser, number)
        browser.press(" ")
        arrive(browser, 4)
        browser.press(",")
        arrive(browser, 3)
        browser.press(".")
        arrive(browser, 4)
        for key in ("t", *["ArrowDown"] * 7, "Enter"):  # the tool for walls; its cursor begins in the upper left corner
            browser.press(key)
        browser.wait("JSON.parse(sessionStorage.getItem('nbf-recipe')).settings.length === 2")
        assert recipe(browser)["settings"][1]["walls"][7] == "#......."
        assert step(browser) == 4
        browser.press("Escape")
        browser.press("ArrowLeft")
        arrive(browser, 5)
        browser.press("2")
        browser.wait("document.querySelector('[data-tool=beacons]') !== null")
        browser.press("s")
        arrive(browser, 1)
        for key in ("t", "Enter", "ArrowUp"):
            browser.press(key)
        browser.wait("JSON.parse(sessionStorage.getItem('nbf-recipe')).settings.length === 2")
        one, other = (np.asarray(settings["beacons"]) for settings in recipe(browser)["settings"])
        np.testing.assert_allclose(other - one, [[0, 0], [0, 0.5], [0, 0]], atol=1e-5)
        for _ in range(12):  # every control can be reached
            browser.press("Tab")
        assert browser.tell("document.activeElement !== document.body")
        assert browser.complaints() == []


@pytest.mark.slow
def test_a_hand_of_cards_by_keys_alone(browser: Browser):
    """Every card and bid of the user is chosen with arrows and Enter; the deal is hidden until it is asked for."""
    marks = "document.querySelectorAll('td.truth').length"
    with running() as server:
        visit(browser, server)
        browser.press("4")
        browser.wait("document.querySelectorAll('table.belief').length === 3")
        number, chosen = 0, 0
        while not browser.tell("document.getElementById('auto').disabled"):
            choices = browser.tell(
                "[...document.querySelectorAll('#cards button:not(:disabled)')].map(b => b.dataset.action)"
            )
            if choices:
                for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
                    browser.press(key)
                assert browser.tell("document.activeElement.dataset.action") == choices[0]
                browser.press("Enter")
                chosen += 1
            else:
                browser.press(" ")
            number += 1
            arrive(browser, number)
            if choices:
                assert recipe(browser)["steps"][-1][1] == choices[0]
        assert (number, chosen) == (15, 5)
        assert "points" in browser.tell("document.querySelector('.seats').textContent")
        assert browser.tell(marks) == 0
        browser.press("t")
        browser.wait(f"{marks} > 0")
        assert browser.tell(marks) == 3 * 5  # the cards that stayed in the deck, in each of the tables
        browser.press("Escape")
        assert browser.tell(marks) == 0
        browser.press(",")
        arrive(browser, 14)
        rows = "[...document.querySelectorAll('[data-role=exact] tbody tr')].map(row => row.innerText)"
        assert len(browser.tell(rows)) == 13
        browser.tell(
            "(() => { const s = document.querySelector('[data-setting=plays]'); s.value = 'random'; "
            "s.dispatchEvent(new Event('change')); })()"
        )
        browser.wait("JSON.parse(sessionStorage.getItem('nbf-recipe')).settings.length === 2")
        assert browser.complaints() == []


def test_the_page_goes_on_with_a_server_that_was_started_again(browser: Browser):
    with running() as server:
        visit(browser, server)
        for number in (1, 2, 3):
            browser.press("a")
            arrive(browser, number)
        before, port = recipe(browser), server.port
    browser.wait("document.getElementById('connection').textContent !== 'connected'")
    with running(key=KEY, port=port):
        browser.wait("document.getElementById('connection').textContent === 'connected'")
        browser.press("a")
        arrive(browser, 4)
        after = recipe(browser)
        assert (after["seed"], after["steps"][:3]) == (before["seed"], before["steps"])
        assert browser.tell("document.getElementById('notice').hidden")
    # That a server does not answer is told by the browser itself, not by the page.
    assert [text for text in browser.complaints() if "WebSocket" not in text] == []


def test_without_a_token_the_page_says_where_it_comes_from(browser: Browser):
    with running() as server:
        browser.open(f"http://127.0.0.1:{server.port}/?token=wrong", DESK)
        browser.wait("!document.getElementById('notice').hidden")
        assert "nbf play" in browser.tell("document.getElementById('notice').textContent")
        assert browser.tell("document.querySelectorAll('.panel').length") == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_and_a_desk_in_both_themes(browser: Browser, theme: str):
    with running() as server:
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        for width in (PHONE, DESK):
            visit(browser, server, width)
            for problem in ("1", "2", "3", "4"):
                browser.press(problem)
                browser.wait(f"document.querySelectorAll('nav button')[{problem} - 1].getAttribute('aria-current')")
                browser.press("a")
                arrive(browser, 1)
                wide = browser.tell("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert (browser.tell("document.documentElement.clientWidth"), wide) == (width, 0)
                assert contrast(browser) >= 4.5
            paper = np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("L"))
            assert (paper.mean() > 128) == (theme == "light")
            assert browser.complaints() == []


def contrast(browser: Browser) -> float:
    """The least contrast of a number or a name with what is behind it (WCAG asks for 4.5)."""
    pairs = browser.tell(
        "[...document.querySelectorAll('dt, dd, figcaption, button, legend, label, h2, #said, td, th, .seat *, .card')]"
        ".filter(e => e.checkVisibility() && !e.disabled).map(e => { let b = e; "
        "while (getComputedStyle(b).backgroundColor === 'rgba(0, 0, 0, 0)') b = b.parentElement; "
        "return [getComputedStyle(e).color, getComputedStyle(b).backgroundColor]; })"
    )
    return min(_ratio(*pair) for pair in {tuple(pair) for pair in pairs})


def _ratio(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = np.asarray([float(part) for part in colour[4:-1].split(",")[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
def test_the_whole_playground_in_time(browser: Browser, tmp_path: Path):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    with running(Programs()) as server:
        visit(browser, server)
        for problem, keys in WALKS.items():
            browser.press(problem)
            browser.wait(f"document.querySelectorAll('nav button')[{problem} - 1].getAttribute('aria-current')", 300)
            arrive(browser, 0)
            times = []
            for number, key in enumerate(keys, 1):
                begin = time.perf_counter()
                browser.press(key)
                arrive(browser, number)
                times.append(time.perf_counter() - begin)
            (tmp_path / f"{problem}.png").write_bytes(browser.screenshot())
            print(f"problem {problem}: {1e3 * np.median(times):.0f} ms from a key to the page")
            if problem in FIGURES and os.environ.get("NBF_WRITE_FIGURES"):
                if problem == "4":
                    browser.press("t")
                    browser.wait("document.querySelector('td.truth') !== null")
                write_atomically(ROOT / "docs" / "figures" / FIGURES[problem], browser.screenshot())
        assert browser.complaints() == []
    print(tmp_path)
