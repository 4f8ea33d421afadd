"""Is a neural filter better than more particles? Time of one update when every simulator call costs something.

    time(c) = time without that cost + calls · c

The first term is measured here, for every particle filter and neural filter that other experiments have records of, and
for the default filters of `nbf-paper reproduce beyond` and their baselines. Their divergences are read from those
records when a report is made.

A model that is not among the trainings is timed with random parameters of the same sizes. That takes the same time as
long as no update has to redraw its particles. Where an untrained model draws nothing that is possible, as a flow does
in Goofspiel, its redraws would be timed, and the measurement is refused. A simulator that is really slow checks that
the cost of calls adds to the time and nothing else does: it keeps the processor busy for c at every call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from nbf import prng
from nbf.contracts import Filter
from nbf.errors import InputError
from nbf_paper.experiments import beyond
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.slow_simulator import slow
from nbf_paper.experiments.timed_domains import Domain, Step, timed_domain
from nbf_paper.names import TIMED_CONFIGS
from nbf_paper.records import ALL, Record, Row, read_records, records_path

FILTERS = ("nbf", "pf", "pf-kde")
"""The filters that are timed, of those that the domain's own experiment records."""
DEFAULT = "default"
"""The arm of the library's own filters, as `beyond` records it."""
BEYOND = {("nbf", DEFAULT), ("branching", beyond.CHOSEN), ("pf", ""), ("pf-kde", "")}
"""The filters and arms that are timed, of those that `beyond` records."""
SLOW = (100, 1000, 10_000)
"""Costs of a call, in µs, at which a really slow simulator is tried."""
BRISK = 1000
"""Up to this cost a tenth of the updates is timed; beyond, one per turn."""
ROUNDS = 10
"""The filters take this many turns, so that other load on the machine affects all alike."""


# --- timing --------------------------------------------------------------------------------------


class TimedFilter:
    """A filter that runs through an episode again and again, one timed update at a call."""

    def __init__(self, filter: Filter, steps: Sequence[Step], key: Key[Array, ""]):
        self.keys = list(jax.random.split(key, len(steps)))
        self.start = eqx.filter_jit(filter.init)(key, steps[0][1])
        self.step, self.steps, self.state, self.count = filter.step, steps, self.start, 0
        self.attempts = 1
        """The most draws that an update has needed."""

    def __call__(self) -> float:
        """µs of the next update, as a Python loop sees it."""
        place = self.count % len(self.steps)
        self.count += 1
        state = self.state if place else self.start
        observation, environment, policy = self.steps[place]
        begin = time.perf_counter()
        self.state, info = self.step(self.keys[place], state, observation, environment, policy)
        jax.block_until_ready(self.state)
        spent = 1e6 * (time.perf_counter() - begin)
        self.attempts = max(self.attempts, int(info.attempts))
        return spent


def medians(timed: Mapping[Any, Callable[[], float]], updates: int, bar: Counter) -> dict[Any, float]:
    """The median time of an update of each filter, in turns; the first of each compiles and does not count."""
    for update in timed.values():
        update()
    times: dict[Any, list[float]] = {name: [] for name in timed}
    for turn in range(ROUNDS):
        share = updates * (turn + 1) // ROUNDS - updates * turn // ROUNDS
        for name, update in timed.items():
            times[name] += [update() for _ in range(share)]
        bar.advance(share)
    return {name: float(np.median(found)) for name, found in times.items()}


def few_of(updates: int, cost: int) -> int:
    """How many updates are timed with a simulator of such a cost."""
    return max(ROUNDS, updates // 10) if cost <= BRISK else ROUNDS


# --- what is timed -------------------------------------------------------------------------------


def recorded_filters(folder: Path, domain: Domain) -> dict[Row, int]:
    """The filters that have a divergence on record in a domain, and their calls per update."""
    home, rows = folder / domain.experiment, {}
    for source in (home, folder / "beyond"):
        for record in read_records(source) if records_path(source).exists() else ():
            told = (record.config, record.metric, record.step) == (domain.config, "js", ALL)
            meant = record.filter in FILTERS if source == home else (record.filter, record.arm) in BEYOND
            if told and meant:
                rows[record.row] = record.calls
    if not {"nbf", "pf"} <= {filter for filter, _, _ in rows}:
        raise InputError(
            f"The divergences of {domain.config} that times are set against are not in {home}: record them with "
            f"`nbf-paper reproduce {domain.command}` first, or name other configurations with --config."
        )
    return rows


def make_filters(domain: Domain, rows: Mapping[Row, int], runs: Path) -> tuple[dict[Row, Filter], set[str]]:
    """The recorded filters, and the arms whose models are untrained."""
    arms = {arm for filter, arm, _ in rows if filter == "nbf"} | {"faithful"}
    made: dict[Row, Filter] = {}
    untrained: set[str] = set()
    for arm in sorted(arms):
        kind = beyond.MODELS_OF[domain.experiment] if arm == DEFAULT else arm
        model, trained = domain.model(kind, runs)
        if not trained:
            untrained.add(arm)
        if arm == DEFAULT:
            found = [*beyond.filter_rows(domain.config, model), *beyond.baseline_rows(domain.config)]
        else:
            found = domain.filter_rows(arm, model)
        made |= {(row.name, row.arm, row.particles): row.filter for row in found if row.arm in (arm, beyond.CHOSEN, "")}
    unknown = sorted(set(rows) - set(made))
    if unknown:
        raise InputError(
            f"{domain.config} has records of {unknown[0]}, which `nbf-paper reproduce {domain.command}` does not make "
            "now: record it anew, or remove those records."
        )
    return {row: made[row] for row in rows}, untrained


def _one_of_each(rows: Mapping[Row, int]) -> list[Row]:
    """The particle filter and, of each arm, the neural filter with the fewest calls."""
    kinds: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: (rows[row], row)):
        if row[0] != "pf-kde":
            kinds.setdefault(row[:2], row)
    return list(kinds.values())


def _check_redraws(domain: Domain, timed: Mapping[Row, TimedFilter], untrained: set[str]) -> None:
    """Raise if an untrained model had to redraw its particles."""
    for row, each in sorted(timed.items(), key=lambda item: item[0]):
        if row[0] == "nbf" and row[1] in untrained and each.attempts > 1:
            raise InputError(
                f"{domain.config}: an untrained model of {row} draws nothing that is possible, so that up to "
                f"{each.attempts} redraws would be timed, which a trained one does not need. Train it with "
                f"`nbf-paper reproduce {domain.command} --arm {row[1]}`, or leave this configuration out with --config."
            )


def measure(
    domain: Domain, rows: Mapping[Row, int], runs: Path, seed: int, updates: int, slowness: Sequence[int], bar: Counter
) -> list[Record]:
    """Times of every recorded filter of a domain, and of one of each kind with a slow simulator."""
    filters, untrained = make_filters(domain, rows, runs)
    key = prng.stream(seed, "simulation cost", domain.config)
    steps = domain.steps(key)
    bar.describe(f"{domain.config}: {len(rows)} filters")
    timed = {row: TimedFilter(filter, steps, key) for row, filter in filters.items()}
    plain = medians(timed, updates, bar)
    _check_redraws(domain, timed, untrained)

    def record(row: Row, metric: str, microseconds: float, count: int) -> Record:
        filter, arm, particles = row
        return Record(
            experiment="simulation-cost", config=domain.config, filter=filter, arm=arm, particles=particles,
            calls=rows[row], seed=seed, step=ALL, metric=metric, value=microseconds, se=None, episodes=count,
        )  # fmt: skip

    records = [record(row, "us_per_update", value, updates) for row, value in plain.items()]
    for cost in slowness:
        few = few_of(updates, cost)
        bar.describe(f"{domain.config}: {cost} µs a call")
        slowed = [(seen, slow(environment, float(cost)), policy) for seen, environment, policy in steps]
        timed = {row: TimedFilter(filters[row], slowed, key) for row in _one_of_each(rows)}
        found = medians(timed, few, bar)
        records += [record(row, f"us_per_update_{cost}us", value, few) for row, value in found.items()]
    return records


@dataclass(frozen=True)
class SimulationCostJob(Job):
    """The filters of one domain, timed. Which filters are timed follows from what is on record."""

    timed = True

    config: str = TIMED_CONFIGS[0]
    seed: int = 0
    updates: int = 500
    """Timed updates of each filter."""
    slow: tuple[int, ...] = SLOW
    """Costs of a really slow simulator, in µs a call."""

    def __post_init__(self) -> None:
        timed_domain(self.config)
        if self.updates < 1:
            raise InputError(f"updates must be at least 1; got {self.updates}.")

    @property
    def evaluated(self) -> int:
        return self.updates + sum(few_of(self.updates, cost) for cost in self.slow)

    @property
    def title(self) -> str:
        return f"simulation cost {self.config}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"config": self.config, "seed": self.seed, "updates": self.updates, "slow": list(self.slow)}

    @property
    def label(self) -> str:
        return f"{self.config}/{self.seed}"

    def settings_in(self, results: Path) -> dict[str, Any]:
        """With the filters that have a divergence on record: these are timed."""
        rows = recorded_filters(results.parent, timed_domain(self.config))
        return {**self.settings, "filters": sorted(map(list, rows))}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        domain = timed_domain(self.config)
        rows = recorded_filters(results.parent, domain)
        return measure(domain, rows, runs, self.seed, self.updates, self.slow, bar)
