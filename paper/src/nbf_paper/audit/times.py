"""Tables of times: the paper's of wall-clock time, and the steps of other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nbf_paper.audit import paper_numbers
from nbf_paper.audit.arithmetic import MISSING, Derived
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.grids import Answer, missing
from nbf_paper.audit.meaning import key_of
from nbf_paper.audit.sources import Book, Key, Line, only

REFERENCE: Key = ("pf", "", 32)
GRADIENT: Key = ("recurrent", "gradient", 0)
PACKAGES = {"**nbf**": "nbf", "FilterPy": "filterpy", "Stone Soup": "stonesoup", "NumPy by hand": "plain"}
"""Packages that tables call otherwise than records do."""
COMPILED = ("cuthbert", "blackjax")
"""Packages in JAX."""


def _time(book: Book, key: Key, grid: str, metric: str) -> Line | None:
    return only(book.group("wall-clock", key, f"{grid}-fixed", metric))


def _spread(book: Book, key: Key, grid: str, metric: str) -> Derived:
    mean, deviation = _time(book, key, grid, metric), _time(book, key, grid, f"{metric}_std")
    if mean is None or deviation is None:
        return Derived(MISSING)
    numbers = (mean.value / 1e3, ".3f"), (deviation.value / 1e3, ".3f")
    return Derived("{} ± {}", numbers, "µs / 1000: mean ± standard deviation of the measurements", (mean, deviation))


def _multiple(book: Book, key: Key, grid: str, metric: str, paper: float | None, kind: str) -> Derived:
    mean, reference = _time(book, key, grid, metric), _time(book, REFERENCE, grid, "us_per_update")
    if mean is None or reference is None:
        return Derived(MISSING)
    told = ((paper / paper_numbers.UPDATES[REFERENCE][grid], kind),) if paper is not None else ()
    numbers = ((mean.value / reference.value, kind), *told)
    return Derived(
        "{} ({})" if told else "{}", numbers, "µs / µs of PF (32); in brackets the paper's", (mean, reference)
    )


def wall_clock(book: Book, table: Printed) -> Answer:
    """Milliseconds of an update."""
    return _by_filter(book, table, lambda key, grid: _spread(book, key, grid, "us_per_update"))


def wall_clock_ratios(book: Book, table: Printed) -> Answer:
    """The same as multiples of PF (32)."""

    def cell(key: Key, grid: str) -> Derived:
        paper = paper_numbers.UPDATES.get(key, {}).get(grid)
        return _multiple(book, key, grid, "us_per_update", paper, ".2f")

    return _by_filter(book, table, cell)


def _by_filter(book: Book, table: Printed, cell: Callable[[Key, str], Derived]) -> Answer:
    rows = {place: key_of(row[0], "wall-clock") for place, row in enumerate(table.rows)}
    cells = {(row, column): cell(key, grid) for row, key in rows.items() for column, grid in table.columns("Filter")}
    recorded = {line.key for line in book.lines("wall-clock") if line.metric == "us_per_update"}
    return Answer(cells, missing(recorded, rows.values(), "row"))


def wall_clock_gradient(book: Book, table: Printed) -> Answer:
    """Milliseconds of a gradient step."""
    answer = Answer()
    for row, cells in enumerate(table.rows):
        for column, grid in table.columns("Gradient step"):
            paper = paper_numbers.GRADIENT[grid]
            answer.cells[row, column] = {
                "here": lambda grid=grid: _spread(book, GRADIENT, grid, "us_per_gradient"),
                "the paper": lambda paper=paper: Derived("{}", ((paper, ".3f"),), "the paper's table"),
                "ratio to PF (32)": lambda grid=grid, paper=paper: _multiple(
                    book, GRADIENT, grid, "us_per_gradient", paper, ".1f"
                ),
            }[cells[0]]()
    return answer


# --- other packages ------------------------------------------------------------------------------


def _significant(value: float) -> str:
    """The format of a number with three significant digits."""
    return ".0f" if value >= 100 else ".1f" if value >= 10 else ".2f"


def _sizes(head: str) -> tuple[int, int]:
    """Filters and particles, from `n = 1 000` or `256 x 1 000`."""
    filters, _, particles = head.replace("n = ", "1 x ").partition(" x ")
    return int(filters), int(particles.replace(" ", ""))


def peers(book: Book, table: Printed) -> Answer:
    """The tenth percentile and the median of a step; of batches in milliseconds."""
    answer, scale = Answer(), 1e-3 if table.name == "peers-batches" else 1.0
    ways = [(PACKAGES.get(cells[0], cells[0]), cells[1]) for cells in table.rows]
    sizes = {column: _sizes(head) for column, head in table.columns("Package", "called")}
    for row, way in enumerate(ways):
        for column, (filters, particles) in sizes.items():
            lines = [_step(book, way, filters, particles, metric) for metric in ("us_p10", "us_median")]
            found = [line for line in lines if line is not None]
            numbers = tuple((scale * line.value, _significant(scale * line.value)) for line in found)
            whole = len(found) == 2
            answer.cells[row, column] = Derived(
                "{} / {}" if whole else MISSING,
                numbers if whole else (),
                f"tenth percentile / median, x {scale:g}",
                tuple(found),
            )
    recorded = {(e.filter, e.arm) for e in book.lines("peers") if (e.config, e.particles) in _asked(sizes.values())}
    answer.complaints += missing(recorded, ways, "row")
    return answer


def _asked(sizes: Iterable[tuple[int, int]]) -> set[tuple[str, int]]:
    return {(f"filters={filters}", particles) for filters, particles in sizes}


def _step(book: Book, way: tuple[str, str], filters: int, particles: int, metric: str) -> Line | None:
    return only(book.group("peers", (*way, particles), f"filters={filters}", metric))


def peers_ratios(book: Book, table: Printed) -> Answer:
    """Our time as a multiple of the fastest other package's, in JAX and of all."""
    answer = Answer()
    for row, cells in enumerate(table.rows):
        filters, particles = _sizes(cells[0])
        size = (f"filters={filters}", particles, "us_p10")
        times = [line for line in book.lines("peers") if (line.config, line.particles, line.metric) == size]
        ours = [line for line in times if line.filter == "nbf"]
        for first, chosen in ((1, COMPILED), (3, tuple({line.filter for line in times} - {"nbf"}))):
            theirs = [line for line in times if line.filter in chosen]
            for column, cell in enumerate(_against(ours, theirs), start=first):
                answer.cells[row, column] = cell
    return answer


def _against(ours: list[Line], theirs: list[Line]) -> tuple[Derived, Derived]:
    compiled, stepped = ([line for line in ours if ("step" in line.arm) == loop] for loop in (False, True))
    if not compiled or not theirs:
        return Derived(MISSING), Derived(MISSING)
    best = min(theirs, key=lambda line: line.value)
    name = {own: printed for printed, own in PACKAGES.items()}.get(best.filter, best.filter)
    parts = [compiled[0], *stepped[:1]]
    numbers = tuple((line.value / best.value, ".2f") for line in parts)
    text = "{} ({})" if stepped else "{}"
    return Derived(name, lines=(best,)), Derived(text, numbers, "our µs / theirs, tenth percentiles", (*parts, best))


TABLES = {
    "wall-clock": wall_clock, "wall-clock-ratios": wall_clock_ratios, "wall-clock-gradient": wall_clock_gradient,
    "peers": peers, "peers-batches": peers, "peers-ratios": peers_ratios,
}  # fmt: skip
"""What derives each table."""
