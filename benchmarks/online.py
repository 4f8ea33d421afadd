"""What `filter.step` costs in a plain Python loop, against the compiled update alone, in one run.

    python -m benchmarks.online [--out FILE]

*Bare* is the compiled update at its best: flat lists of arrays that are on the device already, in and out, nothing
checked. `step` takes the filter, the environment and the policy as they are and an observation as it comes, a Python
number or NumPy's, and checks it. Either way one array is waited for. All take turns, so that whatever
else the machine does slows them alike.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import nbf
from benchmarks.updates import CONFIG, compare
from nbf import prng
from nbf.files.atomic import write_atomically
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.gridworld import family_of
from nbf_paper.records import package_versions

KEYS, STEPS, ROUNDS = 64, 20, 100
TARGET = 1.5
"""At most this ratio of `step` to the bare update."""


def world() -> tuple[nbf.Environment, Any]:
    """A grid and the policy of its agent."""
    return family_of(GridworldConfig.parse(CONFIG), 0).sample(prng.stream(0, "bench", "grid"))


def plane() -> tuple[nbf.Environment, Any]:
    """A linear system whose readings are vectors."""
    identity = np.eye(2)
    return nbf.LinearGaussian(0.9 * identity, identity, identity, identity, np.zeros(2), identity), None


def bare(tracker: nbf.Filter, environment: Any, policy: Any, keys: list[Any], observations: Any) -> Callable[[], Any]:
    """The update as a compiled function of flat arrays, called with the state that it gave before."""
    fixed, fixed_structure = jax.tree.flatten((tracker, environment, policy))
    state, structure = jax.tree.flatten(tracker.init(keys[0], environment))

    @jax.jit
    def update(key: Any, observation: Any, *leaves: Any) -> list[Any]:
        filter, environment, policy = fixed_structure.unflatten(leaves[: len(fixed)])
        before = structure.unflatten(leaves[len(fixed) :])
        return jax.tree.leaves(filter.update(key, before, observation, environment, policy))

    turns = itertools.cycle(zip(itertools.cycle(keys), list(observations), strict=False))

    def one() -> Any:
        nonlocal state
        after = update(*next(turns), *fixed, *state)
        state = after[: len(state)]
        return after[-1]

    return one


def stepped(tracker: nbf.Filter, environment: Any, policy: Any, keys: list[Any], observations: Any) -> Callable:
    """`step`, as a user calls it."""
    state, step = tracker.init(keys[0], environment), tracker.step
    turns = itertools.cycle(zip(itertools.cycle(keys), list(observations), strict=False))

    def one() -> Any:
        nonlocal state
        key, observation = next(turns)
        state, info = step(key, state, observation, environment, policy)
        return info.recovered

    return one


def ratios(tracker: nbf.Filter, environment: Any, policy: Any, seconds: float) -> dict[str, dict[str, float]]:
    """Times of the bare update and of `step` with each kind of observation, and their ratios."""
    keys = list(jax.random.split(prng.stream(0, "bench"), KEYS))
    _, observations = nbf.rollout(prng.stream(0, "bench", "episode"), environment, policy, STEPS)
    numbers = np.asarray(observations, np.int64 if observations.dtype == np.int32 else np.float64)
    kinds = {"step, NumPy": numbers, "step, on the device": observations}
    if numbers.ndim == 1:
        kinds = {"step, Python": numbers.tolist(), **kinds}
    calls = {"bare": bare(tracker, environment, policy, keys, observations)}
    calls |= {name: stepped(tracker, environment, policy, keys, kind) for name, kind in kinds.items()}
    times = compare(calls, seconds, rounds=ROUNDS)
    for row in times.values():
        row["ratio"] = row["best"] / times["bare"]["best"]
    return times


def measure(seconds: float, console: Console) -> dict[str, Any]:
    """Every filter in turn."""
    filters = {
        "PF(32)": (nbf.ParticleFilter(32), *world()),
        "exact": (nbf.ExactFilter(), *world()),
        "NBF(32)": (nbf.NeuralBayesianFilter.faithful(nbf.shipped_model(f"{CONFIG}-faithful"), 32), *world()),
        "PF(32), linear-Gaussian": (nbf.ParticleFilter(32), *plane()),
        "watched PF(32)": (nbf.Surprise(nbf.ParticleFilter(32)), *world()),
    }
    result = {}
    for name, (tracker, environment, policy) in filters.items():
        with console.status(name):
            result[name] = ratios(tracker, environment, policy, seconds)
    return result


def show(result: dict[str, Any], console: Console) -> None:
    """The table; ratios are of the best of many calls, which whatever else the machine does disturbs least."""
    table = Table(title=f"One update, {CONFIG}, from a Python loop (µs); target: at most {TARGET} x bare")
    for column in ("filter", "called", "median", "best", "ratio to bare"):
        table.add_column(column, justify="right" if column in ("median", "best", "ratio to bare") else "left")
    for name, times in result.items():
        for called, row in times.items():
            missed = " (missed)" if row["ratio"] > TARGET else ""
            table.add_row(name, called, f"{row['median']:.0f}", f"{row['best']:.0f}", f"{row['ratio']:.2f}{missed}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each row is measured (default 3)")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    arguments = parser.parse_args()
    console = Console()
    result = {"load_average": os.getloadavg()[0], "versions": package_versions()}
    result["online"] = measure(arguments.seconds, console)
    show(result["online"], console)
    if arguments.out:
        write_atomically(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
