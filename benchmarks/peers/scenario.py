"""The bad day that every package goes through: one observation that no particle can explain.

A slow random walk is seen through uniform noise. Ten observations are possible; the one in the middle is
a hundred widths away, so that its likelihood is zero for every particle.

    x_0 ~ N(0, START²),  x_t ~ N(x_t-1, STEP²),  y_t ~ U(x_t - WIDTH, x_t + WIDTH)

Each module beside this one filters it with one package, as that package's documentation would have it.
It runs in an environment of its own, which need not have nbf: only NumPy and the standard library here.
"""

from __future__ import annotations

import json
import math
import platform
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

PARTICLES = 100
SEEDS = 20
START, STEP, WIDTH = 1.0, 0.1, 1.0
FIRST = math.hypot(START, STEP)
"""Standard deviation of x_1, for packages that start at the first observation."""
OBSERVATIONS = (0.3, -0.2, 0.4, 0.1, -0.3, 100.0, 0.2, -0.1, 0.3, 0.0, -0.2)
BAD = OBSERVATIONS.index(100.0)


class Step(NamedTuple):
    """What a package tells after one observation; None where it tells nothing."""

    mean: float
    """Of the belief."""
    spread: float
    """Standard deviation of the belief."""
    ess: float | None
    log_evidence: float | None
    """Of this observation alone."""
    parents: int
    """From how many particles of the step before this set descends."""
    flag: str | None = None
    """A field of its own that tells of the bad day."""


Run = Callable[[int], Iterator[Step]]
"""Filters `OBSERVATIONS` with this seed, one `Step` after the other."""


def weighted(values: Any, weights: Any) -> tuple[float, float]:
    """Mean and standard deviation of a weighted set."""
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    mean = np.sum(weights * values)
    return float(mean), float(np.sqrt(np.sum(weights * (values - mean) ** 2)))


def distinct(ancestors: Any) -> int:
    return len(np.unique(np.asarray(ancestors)))


def exact() -> tuple[float, float]:
    """Mean and standard deviation of p(x | y) after the last observation, the impossible one being taken as
    missing: quadrature on a grid 20 times as fine as a step."""
    grid = np.arange(-6.0, 6.0, STEP / 20)
    density = np.exp(-0.5 * (grid / START) ** 2)
    reach = np.arange(-8.0 * STEP, 8.0 * STEP + STEP / 40, STEP / 20)
    kernel = np.exp(-0.5 * (reach / STEP) ** 2)
    for number, y in enumerate(OBSERVATIONS):
        density = np.convolve(density, kernel, mode="same")
        density *= 1.0 if number == BAD else np.abs(grid - y) <= WIDTH
        density /= density.sum()
    return weighted(grid, density)


def facts(run: Run) -> dict[str, Any]:
    """What happened in `SEEDS` runs, in numbers that JSON can hold."""
    mean, deviation = exact()
    runs, raised, warned = [], set(), set()
    for seed in range(SEEDS):
        steps: list[Step] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                for step in run(seed):
                    steps.append(step)  # one by one: what came before an exception counts
            except Exception as error:
                if len(steps) < BAD:  # the fault is in how we use it
                    raise
                raised.add(f"{type(error).__name__}: {error}")
        warned |= {warning.category.__name__ for warning in caught}
        runs.append(steps)
    finished = [steps for steps in runs if len(steps) == len(OBSERVATIONS)]
    errors = np.asarray([steps[-1].mean - mean for steps in finished])
    # A sound particle filter's mean is about deviation/√n off; four times that is once in thousands of runs.
    right = np.abs(errors) <= 4.0 * deviation / math.sqrt(PARTICLES)
    return {
        "raised": sorted(raised),
        "finished": len(finished),
        "signs": sorted(warned | {steps[BAD].flag for steps in finished if steps[BAD].flag}),
        "nan_at_bad_step": sum(math.isnan(steps[BAD].mean) for steps in finished),
        "nan_at_the_end": int(np.sum(np.isnan(errors))),
        "ess": _range(steps[BAD].ess for steps in finished),
        "log_evidence": _range(steps[BAD].log_evidence for steps in finished),
        "go_on": _range(steps[BAD + 1].parents for steps in finished),
        "error": _number(np.sqrt(np.mean(errors**2))) if finished else None,
        "spread": _number(np.mean([steps[-1].spread for steps in finished])) if finished else None,
        "right": int(np.sum(right)),
    }


def _number(value: Any) -> float | str | None:
    """A number, or the name of one that JSON lacks."""
    return None if value is None else round(float(value), 3) if math.isfinite(value) else str(float(value))


def _range(values: Any) -> list[float | str | None]:
    """The one value of all runs, or the smallest and the largest."""
    found = [None if value is None else float(value) for value in values]
    known = [value for value in found if value is not None]
    if not known or len(known) < len(found) or any(map(math.isnan, known)):
        return sorted({_number(value) for value in found}, key=str)
    return [_number(value) for value in sorted({min(known), max(known)})]


def report(package: str, ways: dict[str, Run], also: tuple[str, ...] = ("numpy",)) -> None:
    """Print the row of a package for every way to use it, one line of JSON each."""
    versions = {name: metadata.version(name) for name in (package, *also)}
    for way, run in ways.items():
        row = {"package": package, "way": way, "versions": {"python": platform.python_version(), **versions}}
        print(json.dumps({**row, "facts": facts(run)}), flush=True)
