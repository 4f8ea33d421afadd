"""The rows of a comparison: what one filter scored, episode by episode, and at what cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error

Kind = Literal[
    "prior", "reference", "ceiling", "untrained", "exact", "kalman", "branching", "particle", "regularised", "neural"
]
"""What a row is. The first four only say how good the others are; the rest may be recommended."""
YARDSTICKS: tuple[Kind, ...] = ("prior", "reference", "ceiling", "untrained")
Score = Literal["divergence", "log score"]
"""By which rows are ranked."""
SURE = 2.0
"""Standard errors of a paired difference from which one row is better than another."""

Values = tuple[tuple[float, ...], ...]
"""One number for each model (rows without one have a single entry) and each episode."""


@dataclass(frozen=True)
class Row:
    """One filter on all episodes."""

    name: str
    """As it is printed."""
    kind: Kind
    """What it is."""
    particles: int | None
    """Its particles; None for a filter without."""
    calls: float | None
    """Simulator calls per update, repeated attempts included; None where they do not matter."""
    microseconds: float | None
    """Time of one update on one core, with the simulator as it is here; None if it was not measured."""
    log_scores: Values
    """Mean log score of the true state in each episode, in nats; higher is better."""
    divergences: Values
    """Mean divergence to the reference belief in each episode; lower is better."""

    @property
    def log_score(self) -> float:
        """The mean log score."""
        return float(np.mean(self.log_scores))

    @property
    def log_score_error(self) -> float:
        """Its standard error over episodes and models."""
        return _error(np.asarray(self.log_scores))

    @property
    def divergence(self) -> float:
        """The mean divergence."""
        return float(np.mean(self.divergences))

    @property
    def divergence_error(self) -> float:
        """Its standard error over episodes and models."""
        return _error(np.asarray(self.divergences))

    @property
    def recommendable(self) -> bool:
        """Whether this is a filter to take, not a yardstick."""
        return self.kind not in YARDSTICKS

    def loss(self, by: Score) -> float:
        """What is to be small.

        Args:
            by: The score.

        Returns:
            The mean divergence, or minus the mean log score.
        """
        return self.divergence if by == "divergence" else -self.log_score

    def time(self, call_cost: float) -> float:
        """How long an update takes where a call of the simulator costs more than here.

        Args:
            call_cost: By how many microseconds it does.

        Returns:
            Microseconds; infinite if the time was not measured.
        """
        if self.microseconds is None or self.calls is None:
            return math.inf
        return self.microseconds + self.calls * call_cost

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON can hold it."""
        means = ("log_score", "log_score_error", "divergence", "divergence_error")
        return {
            "name": self.name, "kind": self.kind, "particles": self.particles, "calls": self.calls,
            "microseconds": self.microseconds, **{name: getattr(self, name) for name in means},
            "log_scores": [list(part) for part in self.log_scores],
            "divergences": [list(part) for part in self.divergences],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Row:
        """Read what `to_dict` gave.

        Args:
            told: The fields by name; means are computed anew.

        Returns:
            The row.
        """
        try:
            numbers: dict[str, Any] = {name: _number(told[name], float) for name in ("calls", "microseconds")}
            numbers["particles"] = _number(told["particles"], int)
            values: dict[str, Any] = {name: _values(told[name]) for name in ("log_scores", "divergences")}
            kind = told["kind"]
            if kind not in get_args(Kind):
                raise ValueError(f"{kind!r} is no kind of row")
            return cls(name=str(told["name"]), kind=kind, **numbers, **values)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"A row of this comparison cannot be read ({error}). Compare again.") from error


def _number(value: Any, kind: type) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | kind) or not 0 <= value < math.inf:
        raise ValueError(f"{str(value)[:40]!r} is no finite number of 0 or more")
    return kind(value)


def _values(told: Any) -> Values:
    found = np.asarray(told, np.float64)
    if found.ndim != 2 or found.shape[0] < 1 or found.shape[1] < 2 or not np.all(np.isfinite(found)):
        raise ValueError(f"scores of shape {found.shape} are not finite numbers of models x episodes")
    return tuple(tuple(part) for part in found.tolist())


def _error(values: Float[np.ndarray, "models episodes"]) -> float:
    """The larger of the standard errors over episodes and, of several models, over models."""
    over_episodes = float(mean_and_error(values.mean(axis=0))[1])
    if len(values) == 1:
        return over_episodes
    return max(over_episodes, float(mean_and_error(values.mean(axis=1))[1]))


def advantage(one: Row, other: Row, by: Score) -> tuple[float, float]:
    """How much better one row is than another, paired by episode.

    Args:
        one: A row.
        other: Another, of the same episodes.
        by: The score.

    Returns:
        The mean difference, positive if `one` is better, and its standard error.
    """
    if by == "divergence":
        difference = np.asarray(other.divergences) - np.asarray(one.divergences)
    else:
        difference = np.asarray(one.log_scores) - np.asarray(other.log_scores)
    return float(difference.mean()), _error(difference)


def is_better(one: Row, other: Row, by: Score) -> bool:
    """Whether one row is better than another by more than `SURE` standard errors of the paired difference.

    Args:
        one: A row.
        other: Another, of the same episodes.
        by: The score.

    Returns:
        True if it is.
    """
    mean, error = advantage(one, other, by)
    return mean > SURE * error
