"""What a job takes, estimated from counts before it starts: the one place for such estimates. Never imports jax.

They are meant to be right within a factor of a few. The rates are those of the recorded runs, on one core. What needs
more memory than the machine has, or more than `LONGEST`, is refused with the largest amount that can be done; what
takes longer than `LONG` is announced.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from nbf.errors import InputError

HOUR, DAY = 3600.0, 24 * 3600.0
LONG, LONGEST = HOUR, 30 * DAY
"""Seconds of a job that is announced, and of the longest that is begun."""
NUMBER = 4
"""Bytes of a float32."""
LARGEST_AMOUNT = 10**18
"""Amounts beyond are taken for this one: every estimate of it is beyond its limit."""


@dataclass(frozen=True)
class Demand:
    """What some work takes."""

    memory: float = 0.0
    """Bytes at once."""
    seconds: float = 0.0

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.memory + other.memory, self.seconds + other.seconds)


class Size(NamedTuple):
    """An amount that was asked for, and what the work takes that grows with it."""

    what: str
    """An option, or the beginning of a sentence: `--steps`."""
    amount: int
    demand: Callable[[int], Demand]


# --- estimates -----------------------------------------------------------------------------------


def seeds(count: int) -> Demand:
    """Of training seeds: each is a run of its own, of ten minutes or more."""
    return Demand(seconds=600.0 * count)


def steps(count: int) -> Demand:
    """Of gradient steps of any model: 3 ms each, and 32 bytes of every loss."""
    return Demand(32.0 * count, 3e-3 * count)


def episodes(count: int) -> Demand:
    """Of episodes, beliefs or timed updates of any experiment: 10 ms and a kilobyte each, at least."""
    return Demand(1e3 * count, 1e-2 * count)


def grid_steps(cells: int, dimension: int, horizon: int, batch: int, count: int) -> Demand:
    """Of gradient steps on exact posteriors of grids.

    A step filters `batch` episodes exactly: batch · horizon · cells numbers for each of some 8 · dimension moves and
    products of them, at 1.5 · 10⁹ a second.
    """
    numbers = float(batch) * horizon * cells * 8 * dimension
    return Demand(NUMBER * numbers, count * numbers / 1.5e9) + steps(count)


def grid_episodes(cells: int, dimension: int, horizon: int, points: int, count: int) -> Demand:
    """Of evaluated episodes in grids.

    All true posteriors are kept, and filtered at once: count · cells · (horizon + 8 · dimension) numbers. A flow is
    integrated over `points` places of every cell, 6 µs each for all filters; one episode at a time, 64 numbers a place.
    """
    kept = float(count) * cells * (horizon + 8 * dimension)
    places = float(cells) * points
    return Demand(NUMBER * (kept + 64 * places), count * (0.2 + 6e-6 * horizon * places))


def plane_episodes(resolution: int, horizon: int, count: int) -> Demand:
    """Of evaluated episodes on a plane: their true densities are kept on a grid, and a second goes into each."""
    return Demand(NUMBER * float(count) * horizon * resolution**2, 1.0 * count)


def games(cards: int, count: int) -> Demand:
    """Of evaluated games of Goofspiel whose k! sequences are listed: k! · (k - 1) numbers, 40 µs each."""
    listed = float(math.factorial(min(cards, 20))) * max(cards - 1, 1)
    return Demand(NUMBER * listed * count, count * (0.3 + 4e-5 * listed))


def policies(cards: int, width: int, bids: int, count: int) -> Demand:
    """Of policies of self-play: each is kept twice, and learns from its bids at 10¹⁰ products a second."""
    parameters = float(width) * (6 * cards + width)
    kept, seen = 2 * NUMBER * parameters * count, NUMBER * 5.0 * cards * bids
    return Demand(kept + seen, count * (0.05 + 6e-10 * parameters * bids))


def particles(most: int, total: int, horizon: int, count: int) -> Demand:
    """Of particle filters: 64 numbers of each particle at once, and 0.6 µs for a step of one."""
    return Demand(64.0 * NUMBER * most, 6e-7 * total * horizon * count)


# --- limits --------------------------------------------------------------------------------------


def machine_memory() -> float:
    """Bytes of memory that this machine has; infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def require(size: Size) -> Demand:
    """The demand of an amount; raises `InputError` if it cannot be met, with the largest amount whose demand can."""

    def possible(amount: int) -> bool:
        demand = size.demand(min(amount, LARGEST_AMOUNT))
        return demand.memory <= memory and demand.seconds <= LONGEST

    memory = machine_memory()
    if possible(size.amount):
        return size.demand(min(size.amount, LARGEST_AMOUNT))
    low, high = 0, min(size.amount, LARGEST_AMOUNT)
    while high - low > 1:  # the largest that is possible is in [low, high)
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    demand = size.demand(min(size.amount, LARGEST_AMOUNT))
    takes = f"{amount_of_memory(demand.memory)} of memory, and this machine has {amount_of_memory(memory)}"
    if demand.memory <= memory:
        takes = f"{duration(demand.seconds)}, and {duration(LONGEST)} are the limit"
    digits = str(size.amount)
    asked = digits if size.amount <= LARGEST_AMOUNT else f"{digits[:3]}... ({len(digits)} digits)"
    advice = f"The most that can be done is {low}." if low else "Not even 1 can be done: ask for less of the rest."
    raise InputError(f"{size.what} {asked} would take about {takes}. {advice}")


def announcement(seconds: float) -> str | None:
    """What to say before work that takes long; None if it does not."""
    if seconds <= LONG:
        return None
    return f"this takes about {duration(seconds)}; stopped at any time, it goes on with the same command"


def duration(seconds: float) -> str:
    """Seconds in words, rounded."""
    for unit, name in ((365.25 * DAY, "years"), (DAY, "days"), (HOUR, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{_rounded(seconds / unit)} {name}"
    return f"{_rounded(seconds)} seconds"


def amount_of_memory(count: float) -> str:
    """Bytes in words, rounded."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{_rounded(count / unit)} {name}"
    return f"{_rounded(count)} bytes"


def _rounded(number: float) -> str:
    return f"{number:.2g}" if number < 10 or number >= 1e6 else f"{number:.0f}"
