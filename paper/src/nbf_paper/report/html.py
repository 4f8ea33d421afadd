"""All records as one HTML page: every figure and table, the paper's claims, and the commands that made the records.

The page is one file that needs no server, no network and no script; its content security policy forbids all of them.
Text from a record is escaped, never markup.
"""

from __future__ import annotations

import base64
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from html import escape
from importlib.resources import files
from pathlib import Path

from nbf_paper.records import Run, read_runs, records_path
from nbf_paper.report.tables import Page

CSS_PIXEL = 96 / 160
"""Pixels of the page per pixel of a picture."""
WIDE, TALLEST = 700, 1000
"""A picture wider than this scrolls on a phone, instead of becoming too small to read; none is taller than that."""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MARKED = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\*(?P<em>[^*]+)\*")
"""Words that Markdown marks."""


@dataclass(frozen=True)
class Opening:
    """The picture that the page begins with."""

    image: bytes
    caption: str


@dataclass(frozen=True)
class HtmlReport:
    """The contents of the page."""

    results: Path
    pages: Mapping[str, Page]
    """By experiment."""
    images: Mapping[str, bytes]
    """The figures of all pages, as PNG."""
    missing: Sequence[str] = ()
    """Experiments without records."""
    opening: Opening | None = None
    written: date = field(default_factory=date.today)


def page_text(report: HtmlReport) -> str:
    """The page."""
    titles = {name: page.title or name.replace("-", " ").capitalize() for name, page in report.pages.items()}
    links = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in titles.items())
    sections = "".join(_section(report, name, titles[name]) for name in report.pages)
    style = files("nbf_paper.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>Neural Bayesian Filtering: all records</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the results</a>
<header>
<h1>Neural Bayesian Filtering</h1>
<p>Every experiment on record: figures, tables, what the paper says of them, and the command that made each.
Divergences are Jensen-Shannon divergences in nats, from 0 (the same belief) to 0.693; ± is one standard error.</p>
</header>
<nav aria-label="Experiments"><ul>{links}</ul></nav>
<main id="content">
{_opening(report.opening)}{_missing(report.missing)}{sections}</main>
<footer><p>Written by <code>nbf-paper report</code> on {report.written.isoformat()} from the records in
<code>{escape(str(report.results))}</code>.</p></footer>
</body>
</html>
"""


def _opening(opening: Opening | None) -> str:
    return "" if opening is None else _figure(opening.image, opening.caption)


def _missing(names: Sequence[str]) -> str:
    if not names:
        return ""
    commands = ", ".join(f"<code>nbf-paper reproduce {escape(name)}</code>" for name in names)
    return f'<p class="faint block">Not on record yet: {commands}.</p>\n'


def _section(report: HtmlReport, name: str, title: str) -> str:
    page, folder = report.pages[name], report.results / name
    captions = {**dict.fromkeys((*page.tables, *page.figures), title), **page.captions}
    runs = read_runs(folder)
    facts = f"{len(runs)} run{'' if len(runs) == 1 else 's'}, {recorded(runs, records_path(folder))}"
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{escape(title)}</h2>\n',
        f'<p class="faint">{facts} · <code>{escape(str(folder))}</code></p>\n',
    ]
    for shown in sorted((*page.figures, *page.tables), key=_order(page)):
        if shown in page.figures:
            parts.append(_figure(report.images[shown], captions[shown]))
        else:
            rows, right, legend = read_markdown(page.tables[shown])
            parts.append(_table(f"table-{shown}", " ".join(filter(None, (captions[shown], legend))), rows, right))
    if page.claims:
        rows = [["The paper says", "On record here"], *map(list, page.claims)]
        parts.append(_table(f"claims-{name}", "The paper's claims, and the numbers that speak to them.", rows))
    if runs:
        caption = f"The commands that made the records, with {versions(runs)}; code of {code(runs)}."
        parts.append(_table(f"made-{name}", caption, made(runs), code=True))
    return "".join((*parts, "</section>\n"))


def _order(page: Page) -> Callable[[str], tuple[int, bool]]:
    """Sorts figures, each followed by the table of its name; other tables come after them."""
    places = {Path(figure).stem: place for place, figure in enumerate(page.figures)}
    return lambda name: (places.get(Path(name).stem, len(places)), name in page.tables)


def _figure(image: bytes, caption: str) -> str:
    width, height = struct.unpack(">II", image[16:24])
    scale = min(CSS_PIXEL, TALLEST / height)
    width, height = round(width * scale), round(height * scale)
    kind, text = ("wide" if width > WIDE else "narrow"), escape(caption)
    data = base64.b64encode(image).decode()
    return (
        '<figure>\n<div class="scroll picture" tabindex="0" role="group" aria-label="Figure">'
        f'<img class="{kind}" width="{width}" height="{height}" alt="{text}" src="data:image/png;base64,{data}">'
        f"</div>\n<figcaption>{text}</figcaption>\n</figure>\n"
    )


def _table(
    name: str, caption: str, rows: Sequence[Sequence[str]], right: Sequence[bool] = (), *, code: bool = False
) -> str:
    """A table in a box that scrolls. `right` says which columns hold numbers; with `code` the first column is a
    command."""
    classes = [' class="right"' if number else "" for number in right] or [""] * len(rows[0])
    head = "".join(f'<th scope="col"{kind}>{markup(cell)}</th>' for kind, cell in zip(classes, rows[0], strict=True))
    body = []
    for first, *others in rows[1:]:
        title = f"<code>{escape(first)}</code>" if code else markup(first)
        cells = "".join(f"<td{kind}>{markup(cell)}</td>" for kind, cell in zip(classes[1:], others, strict=True))
        body.append(f'<tr><th scope="row"{classes[0]}>{title}</th>{cells}</tr>\n')
    return (
        f'<div class="scroll block" tabindex="0" role="region" aria-labelledby="{name}">\n'
        f'<table class="{"numbers" if right else "words"}">\n'
        f'<caption id="{name}"><span>{markup(caption)}</span></caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>\n</div>\n"
    )


def markup(text: str) -> str:
    """Text as HTML, with Markdown's `code`, **strong** and *emphasis*, not nested."""
    return MARKED.sub(_tagged, escape(text))


def _tagged(found: re.Match[str]) -> str:
    tag = str(found.lastgroup)
    return f"<{tag}>{found[tag]}</{tag}>"


def read_markdown(table: str) -> tuple[list[list[str]], list[bool], str]:
    """The rows of a table that `nbf_paper.report.tables.layout` wrote, which of its columns align right, its legend."""
    grid, _, legend = table.strip().partition("\n\n")
    lines = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        for line in grid.splitlines()
    ]
    head, rule, *body = lines
    return [head, *body], [cell.endswith(":") for cell in rule], " ".join(legend.split())


# --- how it was made -----------------------------------------------------------------------------


def made(runs: Iterable[Run]) -> list[list[str]]:
    """Each command with the number of its runs and their total time."""
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.command].append(run)
    rows = [["Command", "Runs", "Time"]]
    for command, some in sorted(found.items()):
        time = timedelta(seconds=round(sum(run.seconds for run in some)))
        rows.append([command, str(len(some)), str(time)])
    return rows


def versions(runs: Iterable[Run]) -> str:
    """The packages of all runs; where runs differ, every version."""
    found: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for package, number in run.versions.items():
            found[package].add(str(number))
    return ", ".join(f"{package} {' and '.join(sorted(numbers))}" for package, numbers in found.items())


def code(runs: Iterable[Run]) -> str:
    """The commits of the code of all runs."""
    found: dict[str | None, set[bool | None]] = defaultdict(set)
    for run in runs:
        found[run.commit].add(run.clean)
    names = [f"{commit[:12]}{'' if states == {True} else ' (changed)'}" for commit, states in found.items() if commit]
    return ", ".join([*sorted(names), *(["an unknown commit"] if None in found else [])])


def recorded(runs: Iterable[Run], path: Path) -> str:
    """When the last run ended; where runs do not say, when their file was written."""
    ends = [run.date for run in runs if run.date]
    if ends:
        return f"recorded {max(ends).partition('T')[0]}"
    return f"file of {date.fromtimestamp(path.stat().st_mtime).isoformat()}"
