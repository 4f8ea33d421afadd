"""Triangulation: one update of NBF against a particle filter's, and the truth by a point-mass filter, in one run.

    python -m benchmarks.triangulation [--seconds 3] [--out FILE]

Times of a model do not depend on its numbers, so an untrained one of the paper's sizes is timed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import nbf
from benchmarks.updates import compare
from nbf import prng
from nbf.files.atomic import write_atomically
from nbf.filters.point_mass import PointMassFilter
from nbf_paper.config import TriangulationConfig
from nbf_paper.experiments.triangulation import TriangulationJob
from nbf_paper.records import package_versions

BATCH = 10
"""Episodes at once, as in the evaluation."""
RESOLUTION = 200


def stepped(tracker: nbf.Filter) -> Callable[[], Any]:
    """One update of a filter, a scan, as a user calls it."""
    world = TriangulationConfig().family().environment().at(jnp.int32(1), jnp.bool_(True))
    _, policy = TriangulationConfig().family().sample(prng.stream(0, "bench"))
    keys = list(jax.random.split(prng.stream(0, "bench", "keys"), 64))
    state, step, count = tracker.init(keys[0], world), tracker.step, 0

    def one() -> Any:
        nonlocal count
        count += 1
        return step(keys[count % 64], state, 2.5, world, policy)[0]

    return one


def truth() -> Callable[[], Any]:
    """One step of a batch of point-mass filters."""
    config, tracker = TriangulationConfig(), PointMassFilter(RESOLUTION)
    keys = jax.random.split(prng.stream(0, "bench", "truth"), BATCH)
    worlds, policies = jax.vmap(lambda key: config.family().schedule(key, 1))(keys)
    worlds, policies = jax.tree.map(lambda leaf: leaf[:, 0], (worlds, policies))
    states = jax.vmap(tracker.init)(keys, worlds)
    update = jax.jit(jax.vmap(tracker.update))
    return lambda: update(keys, states, jnp.full(BATCH, 2.5), worlds, policies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each row is measured (default 3)")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    arguments = parser.parse_args()
    console = Console()
    model = TriangulationJob().model.build(prng.stream(0, "bench", "model"))
    calls = {f"PF({n})": stepped(nbf.ParticleFilter(n)) for n in (32, 256, 1024)}
    calls |= {f"NBF({n})": stepped(nbf.NeuralBayesianFilter.faithful(model, n)) for n in (16, 32, 64)}
    with console.status("timing"):
        found = compare(calls | {"truth": truth()}, arguments.seconds)
    per_step = found["truth"]["median"] / BATCH / 1e3
    table = Table(title="One update, called from Python (µs)")
    for column in ("filter", "median", "best", "ratio to PF(256)", "compile (s)"):
        table.add_column(column, justify="left" if column == "filter" else "right")
    for name in calls:
        row = found[name]
        ratio = f"{row['median'] / found['PF(256)']['median']:.2f}"
        table.add_row(name, f"{row['median']:.0f}", f"{row['best']:.0f}", ratio, f"{row['compile']:.1f}")
    console.print(table)
    console.print(f"Truth at {RESOLUTION} x {RESOLUTION}: {per_step:.2f} ms per step and episode, {BATCH} at once.")
    if arguments.out:
        result = {"versions": package_versions(), "us": found, "truth_ms_per_step": per_step}
        write_atomically(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
