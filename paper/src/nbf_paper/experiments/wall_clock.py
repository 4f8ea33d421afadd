"""The paper's tables of section "Wall-Clock Time Experiments": time of one update step of every filter, and of one
gradient step of the recurrent model, on fixed grids.

As in the paper, each step is called from Python and timed by itself, 10 000 times. Times further than 1.5 interquartile
ranges outside the quartiles are left out; the tables have mean and standard deviation of the rest. The rows of a grid
take turns in short blocks, so that other load on the machine affects all alike.

Parameters are random: a trained model of the same sizes takes the same time, so nothing is trained here.
"""

from __future__ import annotations

import itertools
import os
import platform
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

from nbf import prng
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.filters.fine_tuned import FineTunedFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.training.config import optimizer_of
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.gridworld import arm_of, family_of, sizes_of
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.recurrent import ExactHistories, divergence_loss
from nbf_paper.experiments.rows import FilterRow
from nbf_paper.records import ALL, Record

MEASUREMENTS = 10_000
BLOCK = 100
"""Measurements of a row before the next one has its turn."""
SELDOM = 10
"""The fine-tuned filter takes a hundred times as long, and has fewer measurements by this factor."""
PARTICLE_FILTERS, NEURAL_FILTERS = (32, 64, 128), (16, 32)
BATCH = 32
"""Episodes of a gradient step."""
FENCE = 1.5
"""Interquartile ranges outside the quartiles beyond which a measurement is left out."""

Clock = Callable[[], float]
"""Does one step, waits for it, and returns its seconds."""


def filter_rows(config: GridworldConfig, seed: int) -> list[FilterRow]:
    """The rows of the first table, the default filter beside the paper's update with the same model, and the recurrent
    filter that is fine-tuned by one gradient step at every filter step."""
    key = prng.stream(seed, "wall-clock", config.name)
    model, wide, recurrent = (arm_of(config, arm)[0].build(key) for arm in ("faithful", "wide", "recurrent"))
    tuned = FineTunedFilter(recurrent, 1, longest=config.horizon)
    return [
        FilterRow(RecurrentFilter(recurrent), "recurrent", "", 0, 0),
        *(FilterRow(ParticleFilter(n), "pf", "", n, n) for n in PARTICLE_FILTERS),
        *(FilterRow(NeuralBayesianFilter.faithful(model, n), "nbf", "faithful", n, n) for n in NEURAL_FILTERS),
        FilterRow(NeuralBayesianFilter.faithful(wide, 32), "nbf", "wide", 32, 32),
        FilterRow(NeuralBayesianFilter(wide, 32), "nbf", "default", 32, 32),
        FilterRow(tuned, "fine-tuned", "m=1", 0, tuned.calls(config.horizon)),
    ]


def update_clock(row: FilterRow, config: GridworldConfig, seed: int) -> Clock:
    """Times `filter.step`, episode after episode; the start of an episode is not timed."""
    environment, policy = family_of(config, seed).sample(prng.stream(seed, "wall-clock", "grid"))
    _, symbols = rollout(prng.stream(seed, "wall-clock", "episode"), environment, policy, config.horizon)
    keys = list(jax.random.split(prng.stream(seed, "wall-clock", "filter"), config.horizon))
    state = start = eqx.filter_jit(row.filter.init)(keys[0], environment)
    step, turns = row.filter.step, itertools.cycle(enumerate(zip(keys, symbols.tolist(), strict=True)))

    def clock() -> float:
        nonlocal state
        number, (key, observation) = next(turns)
        before = start if number == 0 else state
        begin = time.perf_counter()
        state, info = step(key, before, observation, environment, policy)
        info.recovered.block_until_ready()
        return time.perf_counter() - begin

    return clock


def gradient_clock(config: GridworldConfig, seed: int) -> Clock:
    """Times one gradient step of the recurrent model, on a batch that was made before."""
    model_config, training = arm_of(config, "recurrent")
    parameters, static = eqx.partition(model_config.build(prng.stream(seed, "wall-clock")), eqx.is_inexact_array)
    optimizer, key = optimizer_of(training), prng.stream(seed, "wall-clock", "batch")
    source = ExactHistories(family_of(config, seed), config.horizon)
    histories = jax.jit(jax.vmap(lambda key: source.sample(key, 1)[0]))(jax.random.split(key, BATCH))
    carried = parameters, optimizer.init(parameters)

    @jax.jit
    def update(parameters: Any, state: Any, histories: Any) -> tuple[Any, Any]:
        def loss(parameters: Any) -> Any:
            model = eqx.combine(parameters, static)
            return divergence_loss(model, key, histories, model.space)

        changes, state = optimizer.update(jax.grad(loss)(parameters), state, parameters)
        return optax.apply_updates(parameters, changes), state

    def clock() -> float:
        nonlocal carried
        begin = time.perf_counter()
        carried = jax.block_until_ready(update(*carried, histories))
        return time.perf_counter() - begin

    return clock


def interleaved(
    clocks: Mapping[Any, Clock],
    measurements: int,
    advance: Callable[[int], None],
    block: int = BLOCK,
    seldom: Container[Any] = (),
) -> dict[Any, np.ndarray]:
    """Microseconds of so many measurements of each clock, in blocks that take turns; clocks in `seldom` have fewer. The
    first two calls of each, which compile, do not count."""
    for clock in clocks.values():
        clock()
        clock()
    times: dict[Any, list[float]] = {name: [] for name in clocks}
    done = 0
    while done < measurements:
        count = min(block, measurements - done)
        for name, clock in clocks.items():
            times[name] += [clock() for _ in range(max(2, count // SELDOM) if name in seldom else count)]
        done += count
        advance(count)
    return {name: np.asarray(found) * 1e6 for name, found in times.items()}


def within_fences(values: np.ndarray) -> np.ndarray:
    """The values between Q1 - 1.5 IQR and Q3 + 1.5 IQR."""
    low, high = np.percentile(values, (25, 75))
    reach = FENCE * (high - low)
    return values[(values >= low - reach) & (values <= high + reach)]


def records_of(base: Record, metric: str, microseconds: np.ndarray) -> list[Record]:
    """Mean with its standard error, and standard deviation, as two metrics."""
    kept = within_fences(microseconds)
    deviation = float(np.std(kept))
    values = {metric: (float(np.mean(kept)), deviation / len(kept) ** 0.5), f"{metric}_std": (deviation, None)}
    return [Record(**{**vars(base), "metric": name, "value": value, "se": se}) for name, (value, se) in values.items()]


@dataclass(frozen=True)
class WallClockJob(Job):
    """Every row of both tables on one grid."""

    timed = True

    config: GridworldConfig
    seed: int = 0
    """The seed of the grid."""
    measurements: int = MEASUREMENTS

    def __post_init__(self) -> None:
        if self.measurements < 2:
            raise InputError(f"A standard deviation needs at least 2 measurements; got {self.measurements}.")

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.name, "seed": self.seed, "measurements": self.measurements,
            "block": BLOCK, "fence": FENCE, "batch": BATCH, "seldom": SELDOM,
            "parameters": "fresh, of the trained models' sizes", "called": "filter.step from Python",
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"{self.config.name}/wall-clock/{self.seed}"

    @property
    def evaluated(self) -> int:
        return self.measurements

    def sizes(self) -> list[Size]:
        grid, *_ = sizes_of(self.config, 2, 1)
        return [grid, *super().sizes()]

    @property
    def title(self) -> str:
        return f"{self.config.name} wall clock seed {self.seed}"

    def notes(self) -> dict[str, Any]:
        """The machine, and how busy it was."""
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        return {"machine": machine, "load_average": round(os.getloadavg()[0], 2)}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        rows = filter_rows(self.config, self.seed)
        bar.describe(f"{self.title}: compiling")
        rows.append(FilterRow(rows[0].filter, "recurrent", "gradient", 0, 0))
        names = {(row.name, row.arm, row.particles): row for row in rows}
        clocks = {
            name: gradient_clock(self.config, self.seed)
            if row.arm == "gradient"
            else update_clock(row, self.config, self.seed)
            for name, row in names.items()
        }
        bar.describe(self.title)
        seldom = [name for name, row in names.items() if row.name == "fine-tuned"]
        times = interleaved(clocks, self.measurements, bar.advance, seldom=seldom)
        records = []
        for name, row in names.items():
            base = Record(
                experiment="wall-clock", config=self.config.name, filter=row.name, arm=row.arm,
                particles=row.particles, calls=row.calls, seed=self.seed, step=ALL, metric="us", value=0.0, se=None,
                episodes=len(times[name]),
            )  # fmt: skip
            metric = "us_per_gradient" if row.arm == "gradient" else "us_per_update"
            records += records_of(base, metric, times[name])
        return records
