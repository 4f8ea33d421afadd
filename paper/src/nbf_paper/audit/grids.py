"""Tables of one metric: filters in the rows, configurations in the columns."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nbf_paper.audit.arithmetic import MISSING, Derived, is_mixed, mean_cell, span, with_complaint
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.meaning import key_of, models_of, trained_model
from nbf_paper.audit.sources import Book, Key, Line
from nbf_paper.names import EXAMPLE, GRIDWORLDS, TRIANGULATION

AMOUNT = "*seeds × episodes*"
HEADLINE = (EXAMPLE, "5-3D-random", "8-3D-random", "k=6", TRIANGULATION)
"""The columns of the table `beyond`, said again here on purpose: what the page's own list lost would be missed."""
HEADLINE_FILTERS = {
    ("nbf", "default"), ("nbf", "untrained, default"), ("nbf", "faithful"), ("branching", "branches chosen"),
    ("pf", ""), ("pf-kde", ""), ("pf-regularized", "look-ahead"), ("prior", ""), ("approx", "default"),
}  # fmt: skip
NOTHING = 0.0005
"""A mean divergence below this is printed as 0.000."""

Place = tuple[int, int]
"""A row and a column of a table, from 0."""


@dataclass
class Answer:
    """What a table should say."""

    cells: dict[Place, Derived] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    """What is wrong with the table as a whole, such as a row that it lacks."""


class MetricTable(NamedTuple):
    """A table of one metric."""

    experiment: str
    metric: str = "js"
    digits: int = 3
    keep: Callable[[Line], bool] = lambda line: True
    """Which lines the table is made of."""


def _paper(line: Line) -> bool:
    return line.config in GRIDWORLDS and line.arm in ("", "faithful")


def _headline(line: Line) -> bool:
    named = (line.filter, line.arm) in HEADLINE_FILTERS
    return line.config in HEADLINE and named and line.calls <= 2048


def _few(line: Line) -> bool:
    if line.config not in (EXAMPLE, "8-3D-random", TRIANGULATION) or not _headline(line):
        return False
    if "untrained" in line.arm or line.arm == "faithful":
        return False
    return line.calls in (0, 32) or (line.calls == 2048 and line.filter in ("pf", "pf-kde"))


def _of(domain: Callable[[str], bool]) -> Callable[[Line], bool]:
    return lambda line: domain(line.config)


def _fits(ending: str) -> Callable[[Line], bool]:
    return lambda line: line.config.endswith("-run") == bool(ending)


GRIDS: Mapping[str, MetricTable] = {
    "gridworld": MetricTable("gridworld", keep=_paper),
    "gridworld-fixed": MetricTable("gridworld", keep=lambda line: _paper(line) and line.config.endswith("-fixed")),
    "gridworld-random": MetricTable("gridworld", keep=lambda line: _paper(line) and line.config.endswith("-random")),
    "goofspiel": MetricTable("goofspiel", keep=_fits("")),
    "goofspiel-run": MetricTable("goofspiel", keep=_fits("-run")),
    "goofspiel-legality": MetricTable("goofspiel", "legality"),
    "goofspiel-zero-weight": MetricTable("goofspiel", "zero_weight"),
    "goofspiel-time": MetricTable("goofspiel", "us_per_update", 0),
    "fine-tuned": MetricTable("fine-tuned"),
    "beyond": MetricTable("beyond", keep=_headline),
    "beyond-few": MetricTable("beyond", keep=_few),
    "beyond-gridworld": MetricTable("beyond", keep=_of(lambda config: "D-" in config)),
    "beyond-goofspiel": MetricTable("beyond", keep=_of(lambda config: config.startswith("k="))),
    "beyond-triangulation": MetricTable("beyond", keep=_of(lambda config: config == TRIANGULATION)),
}


def grid_of(name: str, book: Book) -> MetricTable | None:
    """The rule of a table; None if it is no grid."""
    if name != "gridworld-extra":
        return GRIDS.get(name)
    # All rows of the configurations in which there is anything that the paper has not.
    more = {line.config for line in book.lines("gridworld") if not _paper(line)}
    return MetricTable("gridworld", keep=lambda line: line.config in more)


def check_grid(book: Book, table: Printed, grid: MetricTable) -> Answer:
    """What a table of one metric should say."""
    answer = Answer()
    kept = [line for line in book.lines(grid.experiment) if line.metric == grid.metric and grid.keep(line)]
    columns = list(table.columns("Filter", "Calls"))
    rows = {place: key_of(row[0], grid.experiment) for place, row in enumerate(table.rows) if row[0] != AMOUNT}
    shown = {
        (row, column): [line for line in book.group(grid.experiment, key, head, grid.metric) if grid.keep(line)]
        for row, key in rows.items()
        for column, head in columns
    }
    exact = exact_cells(book) if grid.experiment == "beyond" else set()
    mixed = is_mixed(list(shown.values()))
    for place, lines in shown.items():
        row, head = place[0], table.heads[place[1]]
        cell = mean_cell(lines, grid.digits, mixed=mixed, exact=(rows[row], head) in exact)
        answer.cells[place] = with_complaint(cell, wrong_model(book, table.rows[row][0], lines))
    _sums(answer, table, shown, columns)
    answer.complaints += [f"two rows are of {key}" for key, count in Counter(rows.values()).items() if count > 1]
    answer.complaints += missing({line.key for line in kept}, rows.values(), "row")
    answer.complaints += missing({line.config for line in kept}, (head for _, head in columns), "column")
    return answer


def _sums(answer: Answer, table: Printed, shown: Mapping[Place, list[Line]], columns: list[tuple[int, str]]) -> None:
    """The column of calls, and the row that says how many seeds and episodes there are."""
    for row, cells in enumerate(table.rows):
        mine = [lines for (place, _), lines in shown.items() if place == row and lines]
        if "Calls" in table.heads:
            calls = [round(statistics.fmean(line.calls for line in lines)) for lines in mine]
            text = "" if cells[0] == AMOUNT else span(calls) if calls else MISSING
            answer.cells[row, table.heads.index("Calls")] = Derived(
                text, formula="simulator calls, rounded mean over seeds"
            )
        if cells[0] == AMOUNT:
            for column, _ in columns:
                answer.cells[row, column] = _amount([lines for (_, c), lines in shown.items() if c == column and lines])


def _amount(groups: list[list[Line]]) -> Derived:
    if not groups:
        return Derived(MISSING)
    seeds, episodes = [len(lines) for lines in groups], [min(line.episodes for line in lines) for lines in groups]
    return Derived(f"{span(seeds)} × {span(episodes)}", formula="seeds × the fewest episodes of a seed")


def missing(recorded: Iterable[object], shown: Iterable[object], what: str) -> list[str]:
    """What was recorded and is not in the table."""
    return [f"there is no {what} of {each}, which is on record" for each in sorted(set(recorded) - set(shown), key=str)]


def exact_cells(book: Book) -> set[tuple[Key, str]]:
    """Rows and configurations of `beyond` in which the default filter errs by nothing with a trained model and with an
    untrained one, at as many calls."""
    means: dict[tuple[str, str, int], tuple[Key, float]] = {}
    for line in book.lines("beyond"):
        if (line.filter, line.metric) == ("nbf", "js"):
            lines = book.group("beyond", line.key, line.config, "js")
            calls = round(statistics.fmean(each.calls for each in lines))
            means[line.config, line.arm, calls] = (line.key, statistics.fmean(each.value for each in lines))
    found = set()
    for (config, arm, calls), (key, mean) in means.items():
        other = means.get((config, "untrained, default", calls))
        if arm == "default" and other is not None and max(mean, other[1]) < NOTHING:
            found |= {(key, config), (other[0], config)}
    return found


def wrong_model(book: Book, label: str, lines: list[Line]) -> str:
    """A complaint if the runs of some lines of `beyond` trained another model than the label names."""
    if not lines or lines[0].filter not in ("nbf", "approx") or lines[0].file.parent.name != "beyond":
        return ""
    trained = {trained_model(run) for run in book.makers(lines)} - {None}
    wrong = sorted(str(model) for model in trained - set(models_of(label)))
    return f"its runs trained the model {', '.join(wrong)}" if wrong else ""
