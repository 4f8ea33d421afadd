"""Time of one update of each filter, of a batch of filters, and of one training step, in one run.

    make bench        (or: python -m benchmarks.updates [--out FILE])

Ratios within one run are what counts: absolute times depend on the machine and on what else it does.
Compile times stand apart from run times. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import nbf
from nbf import prng
from nbf.files.atomic import write_atomically
from nbf.training import intervals
from nbf.training.config import optimizer_of
from nbf.training.fit import training_chunk
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.gridworld import arm_of, family_of
from nbf_paper.records import package_versions

CONFIG = "8-2D-random"
BATCH = 1024


def timed(function: Callable[[], Any], seconds: float) -> np.ndarray:
    """Microseconds of each call, called for that many seconds."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return np.asarray(times) * 1e6


def first_call(function: Callable[[], Any]) -> float:
    """Seconds of the first call: tracing, compiling, and one run."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def compare(calls: dict[str, Callable[[], Any]], seconds: float, rounds: int = 10) -> dict[str, dict[str, float]]:
    """Times of each call in µs, in rounds that alternate between them."""
    compile_seconds = {name: first_call(call) for name, call in calls.items()}
    times: dict[str, list[np.ndarray]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call, seconds / rounds))
    together = {name: np.concatenate(parts) for name, parts in times.items()}
    return {
        name: {
            "median": float(np.median(all)), "p10": float(np.percentile(all, 10)), "best": float(np.min(all)),
            "compile": compile_seconds[name],
        }
        for name, all in together.items()
    }  # fmt: skip


def single(tracker: nbf.Filter, environment: Any, policy: Any, observations: list[int], seconds: float) -> dict:
    """One filter stepped from a Python loop, as a user would."""
    keys = list(jax.random.split(prng.stream(0, "bench"), 64))
    state = tracker.init(keys[0], environment)
    step, count = tracker.step, 0

    def one() -> Any:
        nonlocal state, count
        count += 1
        state, _ = step(keys[count % 64], state, observations[count % len(observations)], environment, policy)
        return state

    compile_seconds = first_call(one)
    times = timed(one, seconds)
    return {"median": float(np.median(times)), "p10": float(np.percentile(times, 10)), "compile": compile_seconds}


def batched(tracker: nbf.Filter, family: nbf.Family, seconds: float) -> dict:
    """`BATCH` filters at once, each in a grid of its own; time per update of one of them."""
    keys = jax.random.split(prng.stream(0, "bench", "batch"), BATCH)
    environments, policies = jax.jit(jax.vmap(family.sample))(keys)
    states = jax.jit(jax.vmap(tracker.init))(keys, environments)
    observations = jax.random.randint(prng.stream(1, "bench"), (BATCH,), 0, 5)
    update = jax.jit(jax.vmap(tracker.update))

    def one() -> Any:
        return update(keys, states, observations, environments, policies)

    compile_seconds = first_call(one)
    times = timed(one, seconds) / BATCH
    return {"median": float(np.median(times)), "p10": float(np.percentile(times, 10)), "compile": compile_seconds}


def training(seconds: float) -> dict:
    """Steps of the paper's model and batch, with and without generating the data."""
    import equinox as eqx

    config = GridworldConfig.parse(CONFIG)
    model_config, fit_config = arm_of(config, "faithful")
    parameters, static = eqx.partition(model_config.build(prng.stream(0, "bench")), eqx.is_inexact_array)
    state = optimizer_of(fit_config).init(parameters)
    source = nbf.ExactPosteriors(family_of(config, 0), config.horizon)
    chunk = training_chunk(source, static, fit_config)
    carried = {"run": (parameters, state), "step": 0}

    def one() -> Any:
        first, last = np.int32(carried["step"]), np.int32(fit_config.steps)
        *carried["run"], loss = chunk(*carried["run"], prng.stream(0, "bench"), first, last)
        carried["step"] += intervals.CHUNK
        return loss

    keys = jax.random.split(prng.stream(0, "data"), (intervals.CHUNK, fit_config.batch))
    data = jax.jit(jax.vmap(jax.vmap(lambda key: source.sample(key, fit_config.samples)[0])))
    compile_seconds = first_call(one)
    times = timed(one, seconds) / intervals.CHUNK
    first_call(lambda: data(keys))
    data_times = timed(lambda: data(keys), seconds / 4) / intervals.CHUNK
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "median": float(np.median(times)), "p10": float(np.percentile(times, 10)), "compile": compile_seconds,
        "data_median": float(np.median(data_times)), "peak_memory_mb": memory,
    }  # fmt: skip


def import_seconds(statement: str) -> float:
    """Fastest of three fresh interpreters."""
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


def measure(seconds: float, console: Console) -> dict[str, Any]:
    """Everything, one after the other."""
    family = family_of(GridworldConfig.parse(CONFIG), 0)
    environment, policy = family.sample(prng.stream(0, "bench", "grid"))
    _, symbols = nbf.rollout(prng.stream(0, "bench", "episode"), environment, policy, 20)
    observations = [int(symbol) for symbol in symbols]
    model = nbf.shipped_model(f"{CONFIG}-faithful")
    trackers: dict[str, nbf.Filter] = {f"PF({n})": nbf.ParticleFilter(n) for n in (32, 64, 128, 512, 4096)}
    trackers |= {f"NBF({n})": nbf.NeuralBayesianFilter.faithful(model, n) for n in (16, 32)}
    trackers["exact"] = nbf.ExactFilter()
    result: dict[str, Any] = {"single": {}, "batch": {}}
    for name, tracker in trackers.items():
        with console.status(f"one {name}"):
            result["single"][name] = single(tracker, environment, policy, observations, seconds)
    for name in ("PF(32)", "NBF(16)"):
        with console.status(f"{BATCH} x {name}"):
            result["batch"][name] = batched(trackers[name], family, seconds)
    with console.status("training steps"):
        result["training"] = training(2 * seconds)
    with console.status("imports"):
        base = import_seconds("import jax, equinox")
        result["import"] = {"jax, equinox": base, "nbf": import_seconds("import nbf; nbf.NeuralBayesianFilter")}
    return result


def show(result: dict[str, Any], console: Console) -> None:
    """The tables, with ratios to PF(32)."""
    reference = result["single"]["PF(32)"]
    table = Table(title=f"One update, {CONFIG}, called from Python (µs)")
    for column in ("filter", "median", "p10", "ratio to PF(32)", "compile (s)"):
        table.add_column(column, justify="left" if column == "filter" else "right")
    for name, row in result["single"].items():
        ratio = f"{row['median'] / reference['median']:.2f}"
        table.add_row(name, f"{row['median']:.0f}", f"{row['p10']:.0f}", ratio, f"{row['compile']:.1f}")
    console.print(table)
    table = Table(title=f"A batch of {BATCH}, each in its own grid (µs per update)")
    for column in ("filter", "median", "p10", "times cheaper than one by one", "compile (s)"):
        table.add_column(column, justify="left" if column == "filter" else "right")
    for name, row in result["batch"].items():
        gain = f"{result['single'][name]['median'] / row['median']:.1f}"
        table.add_row(name, f"{row['median']:.2f}", f"{row['p10']:.2f}", gain, f"{row['compile']:.1f}")
    console.print(table)
    row = result["training"]
    console.print(
        f"Training, {CONFIG}, paper's model, 32 x 64 samples: {row['median'] / 1e3:.2f} ms a step "
        f"({1e6 / row['median']:.0f} steps/s), of which data {row['data_median'] / 1e3:.2f} ms; "
        f"compile {row['compile']:.1f} s; peak memory {row['peak_memory_mb']:.0f} MB."
    )
    times = result["import"]
    console.print(f"Import: nbf with a filter {times['nbf'] / times['jax, equinox']:.2f} x jax and equinox alone.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each row is measured (default 3)")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    arguments = parser.parse_args()
    console = Console()
    busy = os.getloadavg()[0]
    if busy > 0.7:
        console.print(f"Note: the load average is {busy:.1f}; on a busy machine only the ratios mean something.")
    result = {"load_average": busy, "versions": package_versions(), **measure(arguments.seconds, console)}
    show(result, console)
    if arguments.out:
        write_atomically(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
