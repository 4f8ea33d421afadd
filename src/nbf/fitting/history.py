"""What `nbf.learn` did, round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

Measure = str
"""`log score` of the true states, or `log evidence` of the observations where true states are not known."""
MEASURES = ("log score", "log evidence")
SHOWN = 12
"""Rounds that are printed, at most."""


@dataclass(frozen=True)
class Round:
    """One round: episodes that were met, and what was concluded."""

    episodes: int
    """Met so far, in all rounds."""
    calls: int
    """Of the simulator so far, those of filters that were tried included; those that made the episodes are not."""
    particles: int
    """Calls of the simulator at each step, by the filter that met the episodes."""
    with_model: bool
    """Whether that was the neural filter; else one without a network."""
    score: float
    """Its mean score of a step, before anything was learned from these episodes."""
    score_error: float
    """Standard error of that over episodes."""
    fewer: int | None
    """Particles of the filter that was tried on the same episodes; None if none was."""
    lost: float | None
    """The mean score of a step that the fewer particles lost; below 0 they won."""
    doubted: bool
    """Whether the score had fallen, so that the episodes were met once more by many particles without a model."""
    loss: float
    """Mean training loss of the round, in nats per sample."""


@dataclass(frozen=True)
class History:
    """All rounds, and how good the filter was at the end. `print` shows a table."""

    measure: Measure
    """Which score: one of `MEASURES`."""
    rounds: tuple[Round, ...]
    """In their order."""
    particles: int
    """Of the filter at the end."""
    with_model: bool
    """Whether that is the neural filter: False if the model was never good enough for fewer particles."""
    score: float
    """Its mean score of a step, on episodes that were not learned from."""
    score_error: float
    """Standard error of that over episodes."""

    def __str__(self) -> str:
        """Format the rounds as a Markdown table."""
        rows = [("episodes", "simulator calls", "particles", self.measure, "fewer: lost", "loss")]
        rows += [_row(each) for each in _some(self.rounds)]
        rows.append(
            ("new ones", "", _named(self.particles, self.with_model), _pm(self.score, self.score_error), "", "")
        )
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])

    def to_dict(self) -> dict[str, Any]:
        """Turn into plain values.

        Returns:
            What `from_dict` reads.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> History:
        """Read what `to_dict` made.

        Args:
            values: Of a file; whatever does not fit is a `ValueError`.

        Returns:
            The history.
        """
        rounds = tuple(Round(**checked(Round, each)) for each in values["rounds"])
        known = checked(cls, {**values, "rounds": None}, apart=("rounds",))
        if known["measure"] not in MEASURES:
            raise ValueError(f"the measure is {str(known['measure'])[:40]!r}")
        return cls(**{**known, "rounds": rounds})


def checked(kind: type, values: Any, apart: Sequence[str] = ()) -> dict[str, Any]:
    """Check the fields of a dataclass that came from a file.

    Args:
        kind: The dataclass.
        values: Plain values by name.
        apart: Fields that are not checked.

    Returns:
        The values; raises `ValueError` if one is missing, unknown, or of another type.
    """
    wanted = {each.name: str(each.type) for each in fields(kind)}
    if set(values) != set(wanted):
        raise ValueError(f"expected {', '.join(wanted)}")
    for name, annotation in wanted.items():
        value = values[name]
        found = (
            name in apart
            or (value is None and annotation.endswith("None"))
            or (annotation.startswith("float") and isinstance(value, int | float) and math.isfinite(value))
            or (annotation.startswith("int") and type(value) is int)
            or (annotation == "bool" and type(value) is bool)
            or (annotation in ("str", "Measure") and type(value) is str)
        )
        if not found:
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    return dict(values)


def _some(rounds: Sequence[Round]) -> list[Round]:
    """The first and the last rounds, and those between them at equal distances."""
    if len(rounds) <= SHOWN:
        return list(rounds)
    return [rounds[round(place * (len(rounds) - 1) / (SHOWN - 1))] for place in range(SHOWN)]


def _row(each: Round) -> tuple[str, ...]:
    fewer = "" if each.fewer is None else f"{each.fewer}: {each.lost:+.3f}"
    named = _named(each.particles, each.with_model) + (", doubted" if each.doubted else "")
    return f"{each.episodes}", f"{each.calls:,}", named, _pm(each.score, each.score_error), fewer, f"{each.loss:.3f}"


def _named(particles: int, with_model: bool) -> str:
    return f"{particles}" if with_model else f"{particles}, no model"


def _pm(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"
