"""The recordings of Plaza as episodes of `nbf_paper.zoo.plaza`. The files are those of the installed `gtsam` package,
which is not imported.

A file has four tables: `GT` (time, x, y, heading: the truth), `DR` (time, distance, turn: wheels and gyroscope), `TD`
(time, antenna, beacon, reading) and `TL` (beacon, x, y). One reading a second is used. The heading of a step is
that in the middle of its drive, so that a robot which turns while it drives ends where a straight drive does.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nbf.environments.functional import FunctionalEnvironment
from nbf.errors import InputError, MissingExtraError
from nbf_paper.names import SITES
from nbf_paper.zoo.plaza import HALF, HORIZON, world

SECONDS, LONGEST = 1.0, 3.0
"""Between two readings: at least, and at most within an episode."""
TABLES = {"GT": 4, "DR": 3, "TD": 4, "TL": 3}
"""Columns of the tables of a file."""


class Recordings(NamedTuple):
    """Episodes of a site, one after the other and none overlapping."""

    environment: FunctionalEnvironment
    """Its parameters are the places of the beacons, with axes of episodes and steps."""
    drives: Float[Array, "episodes steps 2"]
    """Distance and turn of each step."""
    readings: Float[Array, "episodes steps"]
    states: Float[Array, "episodes steps 3"]
    """The truth after each step."""


def check_site(site: str) -> None:
    """Raise unless there are recordings of this site."""
    if site not in SITES:
        raise InputError(f"The recordings are of {' and '.join(SITES)}; got {site!r}.")


def recordings(site: str) -> Recordings:
    """The episodes of a site."""
    check_site(site)
    return episodes(read_tables(_folder() / f"Plaza{site[-1]}_.mat"))


def _folder() -> Path:
    """Where the installed package keeps its data."""
    found = importlib.util.find_spec("gtsam")
    for place in found.submodule_search_locations or () if found else ():
        if (Path(place) / "Data").is_dir():
            return Path(place) / "Data"
    raise MissingExtraError("The recordings of Plaza are part of gtsam: pip install 'nbf-paper[plaza]'.")


def read_tables(path: Path) -> dict[str, np.ndarray]:
    """The tables of a file; raises `InputError` if it is not such a file."""
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ModuleNotFoundError:
        raise MissingExtraError("Recordings are read with scipy: pip install 'nbf-paper[plaza]'.") from None
    if not path.is_file():
        raise InputError(f"There is no file {path}; install gtsam again.")
    wrong = f"{path} is not a recording of Plaza"
    try:
        found: dict[str, Any] = loadmat(path, variable_names=list(TABLES))
    except (MatReadError, ValueError, TypeError, NotImplementedError, OSError) as error:
        raise InputError(f"{wrong}: {error}") from None
    for name, columns in TABLES.items():
        table = found.get(name)
        if table is None or table.ndim != 2 or table.shape[1] != columns or not np.all(np.isfinite(table)):
            raise InputError(f"{wrong}: it has no table {name} of {columns} columns of finite numbers.")
    return {name: np.asarray(found[name], np.float64) for name in TABLES}


def episodes(tables: dict[str, np.ndarray], horizon: int = HORIZON) -> Recordings:
    """All episodes of so many steps in the tables of a site."""
    truth, wheels, heard, beacons = (tables[name] for name in ("GT", "DR", "TD", "TL"))
    middle = beacons[:, 1:].mean(axis=0)
    place_of = {int(row[0]): row[1:] - middle for row in beacons}
    used = heard[_spaced(heard[:, 0])]
    times = used[:, 0]
    mids = (times[:-1] + times[1:]) / 2

    def interpolated(at: np.ndarray, column: np.ndarray) -> np.ndarray:
        return np.interp(at, truth[:, 0], column)

    distance = np.diff(np.interp(times, wheels[:, 0], np.cumsum(wheels[:, 1])))
    turn = np.diff(np.interp(mids, wheels[:, 0], np.cumsum(wheels[:, 2])), prepend=np.nan)
    heading = interpolated(mids, np.unwrap(truth[:, 3]) + _backwards(truth))
    # Row i of these is the step that ends with reading i + 1; the first step has no drive before it to turn from.
    place = np.stack([interpolated(times[1:], truth[:, 1 + axis]) - middle[axis] for axis in (0, 1)], axis=1)
    states = np.column_stack([place, (heading + np.pi) % (2 * np.pi) - np.pi])
    where = np.stack([place_of[int(beacon)] for beacon in used[1:, 2]])
    starts = _starts(np.diff(times), horizon)
    if not starts or np.max(np.abs(place)) > HALF:
        raise InputError(
            f"A recording must have {horizon} readings in a row and stay within {HALF:g} m of the beacons' middle."
        )

    def windows(values: np.ndarray) -> Array:
        return jnp.asarray(np.stack([values[start : start + horizon] for start in starts]), jnp.float32)

    return Recordings(
        replace(world(), parameters=windows(where)), windows(np.column_stack([distance, turn])),
        windows(used[1:, 3]), windows(states),
    )  # fmt: skip


def _spaced(times: np.ndarray) -> np.ndarray:
    """Indices of readings, of which none follows another within `SECONDS`."""
    chosen = [0]
    for index, time in enumerate(times):
        if time - times[chosen[-1]] >= SECONDS:
            chosen.append(index)
    return np.asarray(chosen)


def _backwards(truth: np.ndarray) -> float:
    """π where the recorded heading points to the rear: the angle from it to the direction of motion is then near π."""
    moved = np.diff(truth[:, 1:3], axis=0)
    direction = np.arctan2(moved[:, 1], moved[:, 0])
    far = np.hypot(*moved.T) > np.median(np.hypot(*moved.T)) / 2
    along = np.cos(direction - truth[:-1, 3])[far]
    return 0.0 if np.median(along) > 0 else np.pi


def _starts(gaps: np.ndarray, horizon: int) -> list[int]:
    """Where an episode may begin, so that neither it nor the step before it has a gap."""
    starts, at = [], 1
    while at + horizon <= len(gaps):
        wrong = np.flatnonzero(gaps[at - 1 : at + horizon] > LONGEST)
        if len(wrong):
            at += int(wrong[-1]) + 1
        else:
            starts.append(at)
            at += horizon
    return starts
