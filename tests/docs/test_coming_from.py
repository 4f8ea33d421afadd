"""The pages for users of other packages: our code gives the right answer, and theirs the same where it is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess

import numpy as np
import pytest
from paths import ROOT
from tolerances import FLOAT, monte_carlo

FOLDER = ROOT / "docs" / "coming-from"
MODULES = {
    "filterpy": "filterpy",
    "particles": "particles",
    "cuthbert": "cuthbert",
    "pomdp-py": "pomdp_py",
    "openspiel": "pyspiel",
}
DRAWS = 20_000


def kalman(F, Q, H, R, mean, cov, seen):  # noqa: N803
    """The mean of a linear system's state after some observations, by the textbook."""
    F, Q, H, R, mean, cov = (np.asarray(part, float) for part in (F, Q, H, R, mean, cov))  # noqa: N806
    for y in seen:
        mean, cov = F @ mean, F @ cov @ F.T + Q
        gain = cov @ H.T @ np.linalg.inv(H @ cov @ H.T + R)
        mean, cov = mean + gain @ (np.atleast_1d(y) - H @ mean), cov - gain @ H @ cov
    return mean


LEVEL = kalman([[1]], [[1]], [[1]], [[0.25]], [0], [[1]], (0.3, 1.1, 0.8))[0]
CART = kalman([[1, 1], [0, 1]], 0.1 * np.eye(2), [[1, 0]], [[0.5]], [0, 0], np.eye(2), (0.9, 2.1, 2.8))
LEFT = 0.85**3 * 0.15 / (0.85**3 * 0.15 + 0.15**3 * 0.85)
SAMPLED = {"atol": monte_carlo(0.5, DRAWS // 4)}  # the belief's deviation; weights leave some draws
ANSWERS = {  # theirs, ours, and how exact both are
    "filterpy": (CART, CART, FLOAT),
    "particles": (LEVEL, LEVEL, SAMPLED),
    "cuthbert": (LEVEL, LEVEL, SAMPLED),
    "pomdp-py": (LEFT, LEFT, FLOAT),
    "openspiel": (0.5, 1 / 3, {"atol": monte_carlo(0.5, 2000)}),
}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (FOLDER / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)


def answer(code: str, page: str) -> np.ndarray:
    names: dict = {"__name__": "page"}
    exec(compile(code, f"docs/coming-from/{page}.md", "exec", dont_inherit=True), names)
    return np.asarray(names["answer"], float)


def test_every_page_has_their_code_and_ours():
    assert {path.stem for path in FOLDER.glob("*.md")} == {"index", *MODULES}
    for page, module in MODULES.items():
        theirs, ours = blocks(page)
        assert re.search(rf"^(import|from) {module}\b", theirs, re.MULTILINE)
        assert "nbf" not in theirs
        assert "nbf" in ours


LONGER = ("filterpy", "particles")
"""Whose programs take seconds to compile."""


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow) if p in LONGER else p for p in MODULES])
def test_our_code_gives_the_right_answer(page):
    if page == "openspiel" and importlib.util.find_spec("pyspiel") is None:
        pytest.skip("OpenSpiel is not installed; it comes with the extra [openspiel]")
    _, right, near = ANSWERS[page]
    np.testing.assert_allclose(answer(blocks(page)[1], page), right, **near)


@pytest.mark.parametrize("page", MODULES)
def test_their_code_gives_the_same_answer(page):
    """In this environment, or in the one that `make bench-peers` has made for the package."""
    right, _, near = ANSWERS[page]
    own = ROOT / ".peers" / page / "bin" / "python"
    if importlib.util.find_spec(MODULES[page]) is not None:
        found = answer(blocks(page)[0], page)
    elif own.exists():
        code = blocks(page)[0] + "\nimport numpy\nprint(*numpy.ravel(answer))\n"
        done = subprocess.run([own, "-c", code], capture_output=True, text=True, check=True)
        found = np.array([float(number) for number in done.stdout.split()]).reshape(np.shape(right))
    else:
        pytest.skip(f"{page} is not installed")
    np.testing.assert_allclose(found, right, **near)
