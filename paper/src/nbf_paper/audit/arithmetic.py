"""What a cell should say: numbers with their formula, and whether a printed text agrees with them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nbf_paper.audit.sources import Line

MISSING = "–"
ONE_SEED, EXACT = "†", "‡"


@dataclass(frozen=True)
class Derived:
    """What a cell should say."""

    template: str
    """Its text, with `{}` for numbers."""
    numbers: tuple[tuple[float, str], ...] = ()
    """Numbers with the format in which they are printed, such as `.3f`."""
    formula: str = ""
    lines: tuple[Line, ...] = ()
    complaint: str = ""
    """What is wrong whatever the cell says."""

    @property
    def text(self) -> str:
        """The cell."""
        return self.template.format(*(format(value, kind) for value, kind in self.numbers))

    @property
    def precise(self) -> str:
        """The cell with more digits."""
        return self.template.format(*(f"{value:.7g}" for value, _ in self.numbers))

    def agrees(self, printed: str) -> bool:
        """Whether a printed cell says this. A number that lies halfway may be rounded either way."""
        if self.complaint:
            return False
        pattern = "".join(re.escape(part) if part != "{}" else r"(\S+)" for part in re.split(r"(\{\})", self.template))
        found = re.fullmatch(pattern, printed)
        return found is not None and all(
            _rounded(text, value, kind) for text, (value, kind) in zip(found.groups(), self.numbers, strict=True)
        )


def _rounded(text: str, value: float, kind: str) -> bool:
    wanted = format(value, kind)
    if text == wanted:
        return True
    try:
        number = float(text)
    except ValueError:
        return False
    decimals = len(wanted.partition(".")[2])
    return len(text.partition(".")[2]) == decimals and abs(number - value) <= 0.5 * 10**-decimals * (1 + 1e-9)


def covers(lines: Sequence[Line]) -> str:
    """What the error of a mean over these seeds covers: `e`pisodes, `s`eeds, both, or nothing."""
    within = any(line.se is not None for line in lines)
    return ("s" if len(lines) > 1 else "") + ("e" if within else "")


def mean_cell(lines: Sequence[Line], digits: int, *, mixed: bool = False, exact: bool = False) -> Derived:
    """`mean ± error` over seeds: the error is the larger of that of the seeds' means and that of the episodes."""
    if not lines:
        return Derived(MISSING, formula="not recorded")
    kind, seeds, values = f".{digits}f", len(lines), [line.value for line in lines]
    mean = statistics.fmean(values)
    marks = f" {EXACT}" if exact else ""
    if not covers(lines):
        return Derived("{}" + marks, ((mean, kind),), "the value of the only seed", tuple(lines))
    errors = [line.se for line in lines if line.se is not None]
    within = math.sqrt(sum(error * error for error in errors)) / seeds
    if seeds == 1:
        marks = (f" {ONE_SEED}" if mixed else "") + marks
        formula = "the mean of the only seed ± its standard error over episodes"
        return Derived("{} ± {}" + marks, ((mean, kind), (within, kind)), formula, tuple(lines))
    between = statistics.stdev(values) / math.sqrt(seeds)
    formula = f"mean of {seeds} seeds ± max(√(var(means)/{seeds}) = {between:.5g}, √(Σ se²)/{seeds} = {within:.5g})"
    return Derived("{} ± {}" + marks, ((mean, kind), (max(between, within), kind)), formula, tuple(lines))


def is_mixed(groups: Sequence[Sequence[Line]]) -> bool:
    """Whether a table has errors of several seeds and of single ones."""
    return {"e", "se"} <= {covers(group) for group in groups}


def with_complaint(derived: Derived, complaint: str) -> Derived:
    """The same cell, with what is wrong about it; an empty complaint changes nothing."""
    return replace(derived, complaint=complaint) if complaint else derived


def span(numbers: Sequence[int]) -> str:
    """`3`, or `1–3`."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def interpolated(place: float, places: Sequence[float], values: Sequence[float]) -> float:
    """The value at a place between those at increasing places; beyond them, that of the nearest."""
    if place <= places[0]:
        return values[0]
    for (left, low), (right, high) in zip(
        zip(places, values, strict=True), list(zip(places, values, strict=True))[1:], strict=False
    ):
        if place <= right:
            return low + (high - low) * (place - left) / (right - left)
    return values[-1]
