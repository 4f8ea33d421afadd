"""The system that every package filters against the clock, and the other end of the line to `benchmarks.peers`.

    x_0 ~ N(0, I),  x_t ~ N(DECAY x_t-1, I),  y_t ~ N(x_t, I),  all in the plane

A bootstrap filter with systematic resampling at every step. Each module beside this one steps it with one package, as
that package's documentation would have it, and serves: it reads what to do from stdin, one line of JSON each, and
answers on stdout. It runs in an environment of its own, which need not have nbf: only NumPy and the standard library.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

DECAY = 0.9
OBSERVATIONS = np.random.default_rng(2026).normal(scale=2.0, size=(64, 2))
"""As wide as the system's own: sqrt(1 / (1 - DECAY²) + 1) = 2.5. They come round again."""
LEAST = 5
"""Calls that a measurement has at the least ..."""
LONGEST = 20.0
"""... and seconds that these may take; what is slower is left out."""
MOST = 2**22
"""Particles in all filters together; more would not fit into the memory of small machines."""

Call = Callable[[], Any]
"""One step of every filter, done when it returns."""
Way = Callable[[int, int], Call]
"""(particles, filters) -> the call that steps them."""


class Loop:
    """Many filters by stepping one after the other: what is left where a package has no batches."""

    def __init__(self, make: Callable[[int], Call]):
        self.make = make

    def __call__(self, particles: int, filters: int) -> Call:
        ones = [self.make(particles) for _ in range(filters)]
        if filters == 1:
            return ones[0]

        def call() -> None:
            for one in ones:
                one()

        return call


def prepared(way: Way, particles: int, filters: int) -> Call | None:
    """The call, made and warmed up; None if `LEAST` of them would take longer than `LONGEST`, or do not fit."""
    if particles * filters > MOST:
        return None
    if isinstance(way, Loop) and _seconds(way(particles, 1)) * filters * LEAST > LONGEST:
        return None
    call = way(particles, filters)
    return None if _seconds(call) * LEAST > LONGEST else call


def _seconds(call: Call) -> float:
    """Of the third call: the first one compiles, and so may the second, the first to resample in some packages."""
    call()
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def block(call: Call, seconds: float) -> list[float]:
    """Microseconds of each call of a block that is at least so long."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def serve(package: str, ways: dict[str, Way], also: tuple[str, ...] = ("numpy",)) -> None:
    """Say who this is, and then do as told: `prepare` a way for so many particles and filters, `measure` a block of
    one, or `forget` all that is prepared."""
    versions = {name: metadata.version(name) for name in (package, *also)}
    _say({"ways": list(ways), "versions": {"python": platform.python_version(), **versions}})
    calls: dict[str, Call] = {}
    for line in sys.stdin:
        told = json.loads(line)
        if told["do"] == "prepare":
            call = prepared(ways[told["way"]], told["particles"], told["filters"])
            if call is not None:
                calls[told["way"]] = call
            _say({"ready": call is not None})
        elif told["do"] == "measure":
            _say({"microseconds": block(calls[told["way"]], told["seconds"])})
        else:
            calls.clear()
            _say({})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
