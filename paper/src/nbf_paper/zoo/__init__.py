"""A zoo of small problems of users' kinds, each with a reference: what a filter is worth outside of the paper.

| problem | hidden | beliefs are | split | reference |
|---|---|---|---|---|
| `clutter` | position, velocity (4) | smooth | exploration | Gaussian sum of 128 hypotheses |
| `volatility` | log-variance, persistence (2) | smooth | exploration | grid, 160 x 32 |
| `bearings` | position, velocity (4) | curved | exploration | 32768 particles |
| `terrain` | position (2) | many-moded | exploration | grid, 100 x 100 |
| `search` | cell, never moves (576) | discrete | exploration | exact |
| `cards` | deal, never moves (1680) | discrete | exploration | exact |
| `epidemic` | shares, rates (4) | smooth | confirmation | 32768 particles, Liu-West |
| `pendulum` | angle, velocity, length (3) | smooth | confirmation | 32768 particles, Liu-West |
| `rooms` | position (2); the map is an input | many-moded | confirmation | grid, 96 x 64 |
| `switching` | regime, position, velocity (3) | many-moded | confirmation | Gaussian sum of 1024 hypotheses |
| `ring` | position (2) on a thin ring | constrained | confirmation | grid, 256 x 12 |
| `mazes` | cell (64); the maze is an input | discrete | confirmation | exact |

The split was fixed before anything was measured: filters, training and defaults may be tuned on the problems for
exploration; those for confirmation are only ever reported. Kind and split are `nbf_paper.names.ZOO`.
"""

from __future__ import annotations

from collections.abc import Callable

from nbf.errors import InputError
from nbf_paper.names import ZOO
from nbf_paper.zoo import (
    bearings,
    cards,
    clutter,
    epidemic,
    mazes,
    pendulum,
    ring,
    rooms,
    search,
    switching,
    terrain,
    volatility,
)
from nbf_paper.zoo.problem import Problem

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "clutter": clutter.problem, "terrain": terrain.problem, "rooms": rooms.problem, "volatility": volatility.problem,
    "epidemic": epidemic.problem, "pendulum": pendulum.problem, "search": search.problem, "mazes": mazes.problem,
    "cards": cards.problem, "bearings": bearings.problem, "ring": ring.problem, "switching": switching.problem,
}  # fmt: skip
"""What makes each problem."""


def check_name(name: str) -> None:
    """Raise unless there is a problem of this name."""
    if name not in PROBLEMS:
        raise InputError(f"The zoo has no problem {name!r}; choose from {', '.join(ZOO)}.")


def problem(name: str) -> Problem:
    """The problem of this name."""
    check_name(name)
    return PROBLEMS[name]()
