"""Run the code of pages, and write its output into them.

    make tutorial                                        your-own-environment.md: training takes a few minutes
    python docs/run_tutorial.py diagnostics pictures     other pages, by name

All Python blocks of a page are executed in order in a temporary folder, like one file. What a block prints replaces the
text block that follows it; the figures go to `figures`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbf.files.atomic import write_atomically

PAGE = Path(__file__).resolve().with_name("your-own-environment.md")
FIGURES = (PAGE.parent / "figures" / "lake.png", PAGE.parent / "figures" / "comparison.png")
PAGES = {
    PAGE: FIGURES,
    PAGE.with_name("diagnostics.md"): (FIGURES[0].with_name("diagnostics.png"),),
    PAGE.with_name("pictures.md"): tuple(
        FIGURES[0].with_name(f"pictures-{name}") for name in ("vectors.png", "moving.gif", "cells.png", "code.png")
    ),
}
"""The pages, and the figures that each of them makes."""
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A Python block, and its output as the page shows it."""

    code: str
    line: int
    """The line of the page at which the code begins."""
    output: str | None
    """None if no text block follows."""


def blocks(page: str) -> list[Block]:
    """Find the Python blocks of a page.

    Args:
        page: The text of the page.

    Returns:
        The blocks, in order.
    """
    return [
        Block(found["code"], page.count("\n", 0, found.start("code")) + 1, found["output"])
        for found in BLOCK.finditer(page)
    ]


def with_constants(page: str, **constants: int) -> str:
    """Replace numbers in lines such as `STEPS = 3000`.

    Args:
        page: The text of the page.
        constants: The new numbers by name.

    Returns:
        The new text.
    """
    for name, value in constants.items():
        page, found = re.subn(rf"^{name} = \d+$", f"{name} = {value}", page, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"The page sets {name} {found} times.")
    return page


def execute(page: str, folder: Path, path: Path = PAGE) -> tuple[dict[str, Any], list[str]]:
    """Execute the Python blocks of a page.

    Args:
        page: The text of the page.
        folder: The current folder during execution.
        path: Of the page, as tracebacks name it.

    Returns:
        The variables that the blocks leave, and what each block prints.
    """
    names: dict[str, Any] = {"__name__": "lake"}
    printed = []
    for block in blocks(page):
        # Empty lines in front, so that a traceback shows the line of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(path), "exec", dont_inherit=True)
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, names)
        printed.append(output.getvalue())
    return names, printed


def filled(page: str, printed: list[str]) -> str:
    """Replace the outputs on a page.

    Args:
        page: The text of the page.
        printed: What each block prints.

    Returns:
        The new text.
    """
    remaining = iter(zip(blocks(page), printed, strict=True))

    def fill(found: re.Match[str]) -> str:
        block, output = next(remaining)
        if (block.output is None) != (output == ""):
            missing = "prints nothing" if output == "" else "has no block of text for what it prints"
            raise ValueError(f"The block at line {block.line} {missing}.")
        if block.output is None:
            return found[0]
        start = found.start("output") - found.start()
        return found[0][:start] + output + found[0][start + len(block.output) :]

    return BLOCK.sub(fill, page)


def words(text: str) -> list[str]:
    """Take the words of an output: numbers are of one machine, and the verdict depends on the steps.

    Args:
        text: What a block prints.

    Returns:
        The words, in order.
    """
    return re.findall(r"[A-Za-z]{3,}", re.sub(r"underconfident|overconfident|uneven|calibrated", "", text))


def main(names: Sequence[str]) -> None:
    """Execute pages, and write their outputs and their figures.

    Args:
        names: Of the pages, without their ending; by default the tutorial.
    """
    os.environ.setdefault("MPLBACKEND", "Agg")
    for path in (PAGE.with_name(f"{name}.md") for name in names or (PAGE.stem,)):
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            _, printed = execute(page, Path(folder), path)
            page = filled(page, printed)
            for figure in PAGES[path]:
                write_atomically(figure, (Path(folder) / figure.name).read_bytes())
        write_atomically(path, page)
        print(f"{path.name}: {sum(map(bool, printed))} outputs and {len(PAGES[path])} figures")


if __name__ == "__main__":
    main(sys.argv[1:])
