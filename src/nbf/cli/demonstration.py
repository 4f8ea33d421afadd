"""The demo, and the paper's figure "gridworld-example": the beliefs of several filters in one 8 x 8 grid.

The default filter stands beside a particle filter of as many calls, and the exact posterior is the judge of both. All
filters run on a few dozen episodes, so that the table does not depend on one of them. The episode with the most
moves is shown; the choice does not depend on how well the filters do.

Most of the demo's minute is compilation, so one compiled function runs all filters on all episodes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Int

from nbf import prng
from nbf.cli.tracking import SHAPE, DemoFilter, Tracks, demo_filters, track_episode
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error, update_microseconds
from nbf.files.shipped import shipped_model
from nbf.plot.episode import Episode

MODEL = "8-2D-random"
"""The shipped model."""
PARTICLE_FILTERS = (32, 128, 512)
"""Particle counts of the particle filters."""
RUNS_ONCE = {"xla_backend_optimization_level": 0}
"""Compiler options of a function that runs once: 10 seconds to compile instead of 25, and still one to run."""
MAX_STEPS, MAX_PARTICLES, MAX_FILTERS = 200, 4096, 8
"""Each filter takes seconds to compile; the steps are drawn, and the particles of all episodes are in memory."""
CALL_COSTS = (0.0, 10.0, 1000.0)
"""Microseconds of a call beyond what it takes here: as it is; a small physics engine; a slow simulator."""
TIMED_UPDATES = 300
"""Calls of `step` behind the median time."""


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demo."""

    seed: int = 0
    """Seed of grids, goals, episodes and filters."""
    steps: int = 20
    """Length of every episode."""
    particles: tuple[int, ...] = (32, 128)
    """Particle counts of the neural filters."""
    episodes: int = 64
    """Episodes behind the means, including the one that is shown."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MAX_STEPS:
            raise InputError(f"The demo draws every step: an episode has 1 to {MAX_STEPS} of them; got {self.steps}.")
        if not self.particles or not all(1 <= n <= MAX_PARTICLES for n in self.particles):
            raise InputError(
                f"The demo needs at least one neural filter, each of 1 to {MAX_PARTICLES} particles; "
                f"got {list(self.particles) or 'none'}."
            )
        if len(self.particles) > MAX_FILTERS:
            raise InputError(f"The demo has up to {MAX_FILTERS} neural filters; got {len(self.particles)}. Name fewer.")
        if self.episodes < 2:
            raise InputError(f"A mean with a standard error needs at least 2 episodes; got {self.episodes}.")


@dataclass(frozen=True)
class DemoRow:
    """One filter in the demo's table."""

    filter: str
    """Its label."""
    js_episode: float
    """Divergence from the exact posterior, the mean over the steps of the episode that is shown."""
    js: float
    """The mean over the steps of all episodes."""
    js_se: float
    """Its standard error over episodes."""
    ess: float | None
    """Effective sample size, the mean over steps and episodes; None for a filter without particles."""
    calls: int
    """Simulator calls per update."""
    microseconds: float
    """Median time of one `step`, called from Python."""


@dataclass(frozen=True)
class EqualTime:
    """A neural filter, and the largest particle filter of the demo that takes no longer."""

    call_cost: float
    """Microseconds that a call of the simulator takes beyond what it takes here."""
    filter: str
    """The neural filter."""
    microseconds: float
    """Its time of an update."""
    js: float
    """Its divergence over all episodes."""
    other: str | None
    """The particle filter; None if all of them take longer."""
    other_js: float | None
    """Its divergence."""


@dataclass(frozen=True)
class DemoResult:
    """The result of the demo."""

    config: DemoConfig
    rows: tuple[DemoRow, ...]
    """The table, one row for each filter."""
    equal_time: tuple[EqualTime, ...]
    """The same at equal time, where a call is dearer than here."""
    episode: Episode
    """The episode that is shown, with the exact, the smallest particle and the first neural filter."""


@runtime_checkable
class SupportsDescribe(Protocol):
    """Where progress is reported, for example a `nbf.plot.terminal.Meter`."""

    def describe(self, text: str) -> None:
        """Begin another part of the work.

        Args:
            text: What the part does.
        """
        ...


def demonstrate(config: DemoConfig, bar: SupportsDescribe) -> DemoResult:
    """Run the filters on the demo's episodes, score them, and time their updates.

    Args:
        config: The settings.
        bar: Where progress is reported.

    Returns:
        The table, and the episode to show.
    """
    rows = demo_filters(shipped_model(MODEL), PARTICLE_FILTERS, config.particles)
    tracks = track_episodes(rows, config, bar)
    shown = furthest(np.asarray(tracks.path))
    track, key = _pick(tracks, shown), prng.stream(config.seed, "demo", "timing")
    told = jax.device_put((track.environment, track.policy))
    symbols = np.resize(track.observations, TIMED_UPDATES + 1).tolist()
    inputs = [(key, symbol, *told) for key, symbol in zip(jax.random.split(key, len(symbols)), symbols, strict=True)]
    speeds = []
    for row, start in zip(rows, track.starts, strict=True):
        bar.describe(f"timing one update: {row.label}")
        speeds.append(update_microseconds(row.filter.step, jax.device_put(start), inputs))
    table = tuple(_row(row, tracks, (shown, place), speeds[place]) for place, row in enumerate(rows))
    kinds = {row.label: row.kind for row in rows}
    return DemoResult(config, table, at_equal_time(table, kinds), _episode(rows, track))


def at_equal_time(rows: Sequence[DemoRow], kinds: Mapping[str, str]) -> tuple[EqualTime, ...]:
    """Compare each neural filter with the largest particle filter that takes no longer.

    Args:
        rows: The table.
        kinds: What each filter is, by its label.

    Returns:
        For each cost of a call in `CALL_COSTS`, one comparison for each neural filter.
    """

    def time(row: DemoRow, cost: float) -> float:
        return row.microseconds + cost * row.calls

    found = []
    for cost in CALL_COSTS:
        for ours in (row for row in rows if kinds[row.filter] == "nbf"):
            others = [row for row in rows if kinds[row.filter] == "pf" and time(row, cost) <= time(ours, cost)]
            other = max(others, key=lambda row: row.calls, default=None)
            told = (None, None) if other is None else (other.filter, other.js)
            found.append(EqualTime(cost, ours.filter, time(ours, cost), ours.js, *told))
    return tuple(found)


def example_episode(config: DemoConfig, bar: SupportsDescribe) -> Episode:
    """Compute only the episode that the demo shows: the figure of the documentation.

    Args:
        config: The settings.
        bar: Where progress is reported.

    Returns:
        The episode, as in `demonstrate`.
    """
    rows = demo_filters(shipped_model(MODEL), PARTICLE_FILTERS[:1], config.particles[:1])
    tracks = track_episodes(rows, config, bar)
    shown = furthest(np.asarray(tracks.path))
    return _episode(rows, _pick(tracks, shown))


def furthest(paths: Int[np.ndarray, "episodes steps d"]) -> int:
    """Choose the episode with the most moves.

    Args:
        paths: Positions of the agent in each episode.

    Returns:
        The number of the episode, the first of several.
    """
    return int(np.argmax(np.abs(np.diff(paths, axis=1)).sum(axis=(1, 2))))


def track_episodes(rows: Sequence[DemoFilter], config: DemoConfig, bar: SupportsDescribe) -> Tracks:
    """Run every filter on every episode.

    Args:
        rows: The filters.
        config: The settings.
        bar: Where progress is reported.

    Returns:
        The episodes, along the first axis of every array.
    """
    bar.describe(f"compiling and running {len(rows)} filters on {config.episodes} episodes")
    keys = jax.random.split(prng.stream(config.seed, "demo", "episodes"), config.episodes)
    one = functools.partial(track_episode, rows, config.steps)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one), compiler_options=RUNS_ONCE)(keys))


def _pick(batch: Any, episode: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[episode], batch)


def _row(row: DemoFilter, tracks: Tracks, at: tuple[int, int], microseconds: float) -> DemoRow:
    shown, place = at
    js = tracks.js[:, place, 1:].mean(axis=-1)  # before the first observation there is nothing to filter
    mean, error = mean_and_error(np.asarray(js))
    ess = float(tracks.ess[place].mean()) if row.kind in ("pf", "nbf") else None
    return DemoRow(row.label, float(js[shown]), float(mean), float(error), ess, row.calls, microseconds)


def _episode(rows: Sequence[DemoFilter], tracks: Tracks) -> Episode:
    """The episode with one filter of each kind: three that fit side by side."""
    shown = [next(place for place, row in enumerate(rows) if row.kind == name) for name in ("exact", "pf", "nbf")]
    names = {place: rows[place].label for place in shown}
    legal = tracks.environment.space.legal
    assert legal is not None
    return Episode(
        walls=~np.asarray(legal).reshape(SHAPE),
        goal=np.asarray(tracks.policy.goal),
        path=np.asarray(tracks.path),
        symbols=np.asarray(tracks.observations),
        beliefs={name: np.asarray(tracks.probs[place]).reshape(-1, *SHAPE) for place, name in names.items()},
        js={name: np.asarray(tracks.js[place]) for place, name in names.items() if place != shown[0]},
    )
