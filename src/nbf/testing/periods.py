"""Which numbers of an observation are angles: those by whose period the likelihood does not change.

A likelihood that wraps has a density on the circle, and none on the line: it must be tested there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Shaped

from nbf.capabilities import ContinuousSpace
from nbf.capability import capability
from nbf.contracts import StateSpace

USUAL = (math.pi, 2.0 * math.pi, 180.0, 360.0)
"""Periods of angles, in radians and degrees; of lines, which have no direction, half as much."""
SAME = 0.05
"""How far the log likelihood of an angle may be from that of the same angle a period further, by rounding."""
MOST_COLUMNS = 16
"""Numbers of an observation that are looked at: more of them are an image or a scan, not angles."""


def periods_of(space: StateSpace) -> tuple[float, ...]:
    """List the periods of the circular coordinates of a space: those of its observations may be the same.

    Args:
        space: Space of the states.

    Returns:
        The periods.
    """
    continuous = capability(space, ContinuousSpace)
    if continuous is None:
        return ()
    return tuple(2.0 * float(continuous.scale[axis]) for axis in continuous.circular)


def find_periods(
    log_likelihood: Callable[[Float[np.ndarray, "cases n columns"]], Float[np.ndarray, "cases n"]],
    rows: Float[np.ndarray, "cases n columns"],
    real: Shaped[np.ndarray, " columns"],
    more: tuple[float, ...],
) -> Float[np.ndarray, " columns"]:
    """Find the periods of a likelihood in each number of an observation.

    Only a period within which all draws of a case lie counts: a flat density changes little along any distance.

    Args:
        log_likelihood: Of observations, as rows of numbers.
        rows: Draws of some cases.
        real: Which columns are real numbers.
        more: Periods to try besides the `USUAL` ones.

    Returns:
        The period of each column, infinite where there is none.
    """
    found = np.full(rows.shape[-1], np.inf)
    columns = np.flatnonzero(real)
    if len(columns) > MOST_COLUMNS:
        return found
    here = log_likelihood(rows)
    width = np.ptp(rows, axis=1).max(axis=0)
    for column in map(int, columns):
        for period in sorted({*USUAL, *more}):
            if width[column] <= period * (1.0 + 1e-5) and all(
                _same(log_likelihood(_moved(rows, column, way * period)), here) for way in (-1.0, 1.0)
            ):
                found[column] = period
                break
    return found


def hint(rows: Float[np.ndarray, "n columns"], known: Float[np.ndarray, " columns"]) -> str:
    """Say what may be wrong with a likelihood that has no period, where the draws look like angles.

    Args:
        rows: Draws of one case.
        known: The period of each column, infinite where there is none.

    Returns:
        A remark that ends a message; empty if no column without a period looks like an angle.
    """
    for column, (low, high) in enumerate(zip(rows.min(axis=0), rows.max(axis=0), strict=True)):
        if np.isfinite(known[column]):
            continue
        for period in (2.0 * math.pi, 360.0):
            starts = (-period / 2.0, 0.0)
            inside = any(low >= start - 1e-6 * period and high <= start + 1.000001 * period for start in starts)
            if inside and high - low > 0.95 * period:
                return (
                    f"; number {column} of an observation looks like an angle, drawn on both sides of where it wraps: "
                    "log_likelihood must then wrap the difference, and be the same a period further"
                )
    return ""


def _moved(rows: np.ndarray, column: int, distance: float) -> np.ndarray:
    moved = rows.copy()
    moved[..., column] += distance
    return moved


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether nearly all log likelihoods are the same up to rounding."""
    with np.errstate(invalid="ignore"):
        return bool(np.mean((one == other) | (np.abs(one - other) <= SAME)) > 0.99)
