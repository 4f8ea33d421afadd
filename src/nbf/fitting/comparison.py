"""The result of `nbf.compare`: rows, a recommendation, a table, a figure, a file."""

from __future__ import annotations

import functools
import json
import os
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbf.errors import InputError
from nbf.evaluation.belief_scores import PRIOR_SHARE
from nbf.files.atomic import write_atomically
from nbf.files.regular import read_regular
from nbf.fitting.recommendation import recommendation
from nbf.fitting.rows import Row, Score, advantage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 100
"""Columns of what is printed."""
LARGEST_FILE = 50_000_000
"""Bytes of the largest file that is read."""


@dataclass(frozen=True)
class Comparison:
    """Filters side by side on fresh episodes; `print` shows a table and a recommendation."""

    problem: str
    """What was filtered."""
    measure: str
    """Of the divergence: `JS` (Jensen-Shannon, nats) or `energy`."""
    reference: str
    """The filter whose beliefs are the reference, and how good it is."""
    reference_sound: bool
    """Whether rows are ranked by their divergence to it; otherwise by log score."""
    episodes: int
    horizon: int
    """Steps of an episode."""
    models: int
    """Trained models behind each neural row."""
    budgets: tuple[int, ...]
    """Simulator calls at which filters are compared."""
    call_cost: float
    """Of a call beyond what it costs here, in microseconds."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    unfinished: tuple[str, ...] = ()
    """Rows that were to come when the comparison was stopped."""

    @property
    def ranked_by(self) -> Score:
        """The score that the recommendation goes by."""
        return "divergence" if self.reference_sound else "log score"

    @property
    def recommendation(self) -> tuple[str, ...]:
        """Which filter to take, in sentences."""
        return tuple(recommendation(self.rows, self.call_cost, self.ranked_by, self.budgets))

    def row(self, name: str) -> Row:
        """Find a row.

        Args:
            name: As it is printed.

        Returns:
            The row.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"There is no row {name!r}; there are {', '.join(row.name for row in self.rows) or 'none'}.")

    def __str__(self) -> str:
        of_models = f", {self.models} models" if self.models > 1 else ""
        head = (
            f"{self.problem}: {self.episodes} episodes of {self.horizon} steps{of_models}. Reference: {self.reference}."
        )
        lines = [*_wrapped(head), "", *_table(self), "", *_wrapped(_legend(self)), "", *self._recommended()]
        for note in self.notes:
            lines += textwrap.wrap(note, WIDTH, initial_indent="! ", subsequent_indent="  ")
        if self.unfinished:
            lines += _wrapped(f"Stopped; these rows were still to come: {', '.join(self.unfinished)}.")
        return "\n".join(lines)

    @property
    def brief(self) -> str:
        """The table and the recommendation alone."""
        head = f"{self.episodes} episodes of {self.horizon} steps. Reference: {self.reference}."
        return "\n".join([*_wrapped(head), "", *_table(self), "", *self._recommended()])

    def _recommended(self) -> list[str]:
        wrap = functools.partial(textwrap.wrap, width=WIDTH, initial_indent="- ", subsequent_indent="  ")
        return [line for sentence in self.recommendation for line in wrap(sentence)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it, the recommendation included."""
        told = {name: getattr(self, name) for name in _PLAIN}
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        rows = [row.to_dict() for row in self.rows]
        return {**told, **lists, "rows": rows, "recommendation": list(self.recommendation)}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Comparison:
        """Read what `to_dict` gave.

        Args:
            told: The fields by name; the recommendation is made anew.

        Returns:
            The comparison.
        """
        try:
            plain: dict[str, Any] = {name: _typed(name, told[name], kind) for name, kind in _PLAIN.items()}
            lists: dict[str, Any] = {
                name: tuple(_typed(name, part, kind) for part in _typed(name, told[name], list))
                for name, kind in _LISTS.items()
            }
            rows = tuple(Row.from_dict(row) for row in _typed("rows", told["rows"], list))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"This is no comparison that nbf.compare has made ({error}). Compare again.") from error
        return cls(**plain, **lists, rows=rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a JSON file.

        Args:
            path: The file.
        """
        write_atomically(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            The comparison.
        """
        try:
            told = json.loads(read_regular(path, LARGEST_FILE))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{os.fspath(path)} cannot be read as a comparison: {error}.") from error
        if not isinstance(told, dict):
            raise InputError(f"{os.fspath(path)} holds no comparison, which is a JSON object.")
        return cls.from_dict(told)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the divergence against simulator calls and, where it was measured, against time. Needs the extra `plot`.

        Args:
            path: A PNG file to write as well.

        Returns:
            The figure.
        """
        from nbf.plot import comparison_figure

        label = self.measure if self.reference_sound else "log score of the true state"
        field = "divergence" if self.reference_sound else "log_score"
        return comparison_figure(
            [row.kind for row in self.rows],
            [row.calls for row in self.rows],
            [None if row.microseconds is None else row.time(self.call_cost) for row in self.rows],
            [getattr(row, field) for row in self.rows],
            [getattr(row, f"{field}_error") for row in self.rows],
            label=label,
            title=self.problem,
            path=path,
        )


_PLAIN = {
    "problem": str, "measure": str, "reference": str, "reference_sound": bool, "episodes": int, "horizon": int,
    "models": int, "call_cost": float,
}  # fmt: skip
_LISTS = {"budgets": int, "notes": str, "unfinished": str}


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{name} is {str(value)[:40]!r}")
    return value


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)


def _legend(comparison: Comparison) -> str:
    measure = (
        "JS: Jensen-Shannon divergence from the reference, 0 to 0.693 nats."
        if comparison.measure == "JS"
        else "energy: energy distance from the reference, in units of its typical width; noise may make it negative."
    )
    over = "episodes and models" if comparison.models > 1 else "episodes"
    return (
        f"{measure} log score: of the true state, in nats, of a belief with a share of {PRIOR_SHARE:g} of the prior in "
        "it. gain: log score over that of the prior. calls: of the simulator, per update. µs: of one update on one "
        f"core, with the simulator as it is here. ± one standard error over {over}."
    )


def _table(comparison: Comparison) -> list[str]:
    prior = next((row for row in comparison.rows if row.kind == "prior"), None)
    head = ("filter", "calls", "µs", comparison.measure, "log score", "gain")
    cells: list[tuple[str, ...]] = [head]
    for row in comparison.rows:
        gain = "–" if prior is None or row is prior else f"{advantage(row, prior, 'log score')[0]:+.2f}"
        cells.append(
            (
                row.name,
                "–" if row.calls is None else f"{row.calls:,.0f}",
                "–" if row.microseconds is None else f"{row.microseconds:,.{0 if row.microseconds >= 10 else 1}f}",
                f"{row.divergence:.3f} ± {row.divergence_error:.3f}",
                f"{row.log_score:.2f} ± {row.log_score_error:.2f}",
                gain,
            )
        )
    widths = [max(len(line[place]) for line in cells) for place in range(len(head))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
