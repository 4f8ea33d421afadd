"""The page of wall-clock time: the paper's two tables in milliseconds, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nbf_paper.names import WALL_CLOCK_GRIDS
from nbf_paper.records import RecordError, Row, Summary, read_records, summary
from nbf_paper.report.labels import label
from nbf_paper.report.tables import MISSING, Page, layout

GRIDS = tuple(name.removesuffix("-fixed") for name in WALL_CLOCK_GRIDS)
"""The paper's columns."""
PAPER: dict[Row, tuple[float, ...]] = {
    ("recurrent", "", 0): (0.1714, 0.1731, 0.1718, 0.1737),
    ("pf", "", 32): (0.2931, 0.3094, 0.2961, 0.3243),
    ("pf", "", 64): (0.4074, 0.4325, 0.4223, 0.4436),
    ("pf", "", 128): (0.7191, 0.7588, 0.7464, 0.7736),
    ("nbf", "faithful", 16): (0.5939, 0.6273, 0.6053, 0.6295),
    ("nbf", "faithful", 32): (0.8243, 0.7952, 0.8350, 0.7955),
}
"""Milliseconds of one update step, on an M4 Pro (its table "filter-updates")."""
PAPER_GRADIENT = (2.3056, 2.9947, 2.6437, 5.1424)
"""Milliseconds of one gradient step of the recurrent model (its table "gradient-updates")."""
TUNED, GRADIENT, REFERENCE = ("fine-tuned", "m=1", 0), ("recurrent", "gradient", 0), ("pf", "", 32)
OURS = (("nbf", "wide", 32), ("nbf", "default", 32))
"""The paper's update with the default filter's model, and the default filter."""
CAPTIONS = {
    "wall-clock": "Milliseconds of one update step, mean ± standard deviation of measurements without outliers.",
    "wall-clock-ratios": "The same as multiples of the particle filter with 32 particles: here, and in brackets in the "
    "paper, whose machine was another one.",
    "wall-clock-gradient": "Milliseconds of one gradient step of the recurrent model with a batch of 32 episodes, and "
    "how many updates of the particle filter with 32 particles that is: here, and in brackets in the paper.",
}

Found = Mapping[tuple[Row, str, str], Summary]
"""By row, grid and metric."""


def page(folder: Path) -> Page:
    """The tables of the records in a folder."""
    entries = summary(read_records(folder))
    found = {(entry.row, entry.config.removesuffix("-fixed"), entry.metric): entry for entry in entries}
    if not found:
        raise RecordError(f"There are no times in {folder}: make them with `nbf-paper reproduce wall-clock`.")
    rows = [*PAPER, *OURS, TUNED]
    head = ["Filter", *GRIDS]
    times = [[_name(row), *(_time(found, row, grid, "us_per_update") for grid in GRIDS)] for row in rows]
    ratios = [[_name(row), *(_ratio(found, row, column) for column in range(len(GRIDS)))] for row in rows]
    gradient = [
        ["here", *(_time(found, GRADIENT, grid, "us_per_gradient") for grid in GRIDS)],
        ["the paper", *(f"{value:.3f}" for value in PAPER_GRADIENT)],
        ["ratio to PF (32)", *(_gradient_ratio(found, column) for column in range(len(GRIDS)))],
    ]
    tables = {
        "wall-clock": layout([head, *times]),
        "wall-clock-ratios": layout([head, *ratios]),
        "wall-clock-gradient": layout([["Gradient step", *GRIDS], *gradient]),
    }
    return Page(tables, {}, title="Wall-clock time", captions=CAPTIONS, claims=_claims(found))


def _name(row: Row) -> str:
    return label(*row, "wall-clock", WALL_CLOCK_GRIDS)


def _time(found: Found, row: Row, grid: str, metric: str) -> str:
    mean, deviation = found.get((row, grid, metric)), found.get((row, grid, f"{metric}_std"))
    return MISSING if mean is None or deviation is None else f"{mean.value / 1e3:.3f} ± {deviation.value / 1e3:.3f}"


def _times_reference(found: Found, row: Row, grid: str, metric: str) -> float | None:
    """A time as a multiple of an update of PF (32)."""
    return _over(found, row, REFERENCE, grid, metric)


def _over(found: Found, row: Row, other: Row, grid: str, metric: str = "us_per_update") -> float | None:
    """A time as a multiple of an update of another filter."""
    mean, reference = found.get((row, grid, metric)), found.get((other, grid, "us_per_update"))
    return None if mean is None or reference is None else mean.value / reference.value


def _ratio(found: Found, row: Row, column: int) -> str:
    here = _times_reference(found, row, GRIDS[column], "us_per_update")
    paper = f" ({PAPER[row][column] / PAPER[REFERENCE][column]:.2f})" if row in PAPER else ""
    return MISSING if here is None else f"{here:.2f}{paper}"


def _gradient_ratio(found: Found, column: int) -> str:
    here = _times_reference(found, GRADIENT, GRIDS[column], "us_per_gradient")
    paper = PAPER_GRADIENT[column] / PAPER[REFERENCE][column]
    return MISSING if here is None else f"{here:.1f} ({paper:.1f})"


def _claims(found: Found) -> list[tuple[str, str]]:
    neural = [_times_reference(found, ("nbf", "faithful", 16), grid, "us_per_update") for grid in GRIDS]
    large = [_times_reference(found, ("pf", "", 128), grid, "us_per_update") for grid in GRIDS]
    step = [_times_reference(found, GRADIENT, grid, "us_per_gradient") for grid in GRIDS]
    claims = []
    if None not in neural and None not in large:
        claims.append((
            "An update of NBF can cost as much as one of a particle filter with more particles.",
            f"NBF (16) takes {_span(neural)} times as long as PF (32), PF (128) {_span(large)} times.",
        ))  # fmt: skip
    default = [_over(found, OURS[1], OURS[0], grid) for grid in GRIDS]
    if None not in default:
        claims.append((
            "The default filter takes at most twice as long as the paper's update (a promise of ours, n = 32).",
            f"It takes {_span(default)} times as long with the same model.",
        ))  # fmt: skip
    if None not in step:
        claims.append((
            "A single gradient step of a small recurrent network takes significantly longer than an update.",
            f"It takes {_span(step)} times as long as an update of PF (32).",
        ))  # fmt: skip
    return claims


def _span(ratios: list[float | None]) -> str:
    numbers = [ratio for ratio in ratios if ratio is not None]
    return f"{min(numbers):.1f} to {max(numbers):.1f}"
