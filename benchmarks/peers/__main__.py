"""One step of a particle filter in every package, against the clock: the record of docs/peers.md.

    make bench-peers        (or: python -m benchmarks.peers, with --particles, --filters, --seconds or --cores)

Every package runs in an environment of its own, made once in the cache folder, and all of them in one run: each waits
in a process of its own until it is its turn to step for a moment, so that whatever else the machine does hits all
alike. They share one core, unless `--cores` says otherwise: XLA hands parts of small loops to further threads, which
costs every package that is written in JAX more than it saves. `benchmarks.peers.speed.plane` is the system; the
modules beside it filter it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.installed import CACHE, PINS, ROOT, interpreter
from benchmarks.peers.speed.plane import LEAST, LONGEST, MOST
from nbf.files.atomic import check_writable
from nbf_paper.records import ALL, Record, Run, add, run_key

PARTICLES, FILTERS = (32, 128, 1024, 10_000, 100_000), (1, 256, 4096)
ROUNDS = 5
"""Turns that each has at every size."""
OURS, PLAIN = ("nbf", "plain")
PACKAGES = (OURS, *PINS, PLAIN)


class Worker:
    """A package that waits in a process of its own."""

    def __init__(self, name: str, python: Path | str):
        command = [python, "-m", f"benchmarks.peers.speed.{name}"]
        self.name = name
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        greeting = self._answer()
        self.ways, self.versions = greeting["ways"], greeting["versions"]

    def ask(self, **told: Any) -> dict[str, Any]:
        """What it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} stopped with code {self.process.wait()}; what it said is above.")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Size:
    """How much a call steps."""

    particles: int
    filters: int


def measured(workers: Iterable[Worker], size: Size, seconds: float) -> dict[tuple[str, str], list[float]]:
    """Microseconds of every call, by package and way, of those that are fast enough."""
    rows = [(worker, way) for worker in workers for way in worker.ways]
    asked = {"particles": size.particles, "filters": size.filters}
    ready = [(worker, way) for worker, way in rows if worker.ask(do="prepare", way=way, **asked)["ready"]]
    found: dict[tuple[str, str], list[float]] = {(worker.name, way): [] for worker, way in ready}
    for _ in range(ROUNDS):
        for worker, way in ready:
            times = worker.ask(do="measure", way=way, seconds=seconds / ROUNDS)["microseconds"]
            found[worker.name, way].extend(times)
    for worker in workers:
        worker.ask(do="forget")
    return found


def records_of(size: Size, found: dict[tuple[str, str], list[float]]) -> list[Record]:
    """Median and tenth percentile of each."""
    return [
        Record(
            experiment="peers", config=f"filters={size.filters}", filter=name, arm=way, particles=size.particles,
            calls=size.particles * size.filters, seed=0, step=ALL, metric=metric,
            value=float(np.percentile(times, percent)), se=None, episodes=len(times),
        )
        for (name, way), times in found.items()
        for metric, percent in (("us_median", 50), ("us_p10", 10))
    ]  # fmt: skip


def settings(workers: Iterable[Worker], arguments: argparse.Namespace) -> dict[str, Any]:
    """What the record says of how it was made."""
    return {
        "particles": arguments.particles, "filters": arguments.filters, "seconds": arguments.seconds, "rounds": ROUNDS,
        "left_out": {"particles_in_all_above": MOST, "seconds_above": LONGEST, "of_calls": LEAST},
        "versions": {worker.name: worker.versions for worker in workers},
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "cores": arguments.cores,
    }  # fmt: skip


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One step of a particle filter in every package.")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the packages' environments are")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the records")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each is measured at every size")
    parser.add_argument("--particles", type=int, nargs="+", default=list(PARTICLES))
    parser.add_argument("--filters", type=int, nargs="+", default=list(FILTERS))
    parser.add_argument("--cores", type=int, default=1, help="how many cores the packages may use")
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES), choices=PACKAGES)
    return parser.parse_args()


def main() -> None:
    arguments, start, load = parsed(), time.monotonic(), os.getloadavg()[0]
    folder = arguments.results / "peers"
    check_writable(folder)
    if load > 0.7:
        print(f"Note: the load average is {load:.1f}; on a busy machine only the ratios mean something.")
    if hasattr(os, "sched_setaffinity"):  # the processes inherit it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    cache = arguments.cache.resolve()
    pythons = {name: interpreter(name, cache) if name in PINS else sys.executable for name in arguments.packages}
    workers = [Worker(name, python) for name, python in pythons.items()]
    records: list[Record] = []
    for filters in arguments.filters:
        for particles in arguments.particles:
            found = measured(workers, Size(particles, filters), arguments.seconds)
            records += records_of(Size(particles, filters), found)
            fastest = ", ".join(f"{name} {np.percentile(times, 10):.0f}" for (name, _), times in found.items())
            print(f"{filters} x {particles} particles, p10 in µs: {fastest or 'too much for all'}", flush=True)
    config = settings(workers, arguments)
    for worker in workers:
        worker.close()
    run = run_key("peers", config)
    config |= {"load_average": round(load, 2)}
    seconds = round(time.monotonic() - start, 1)
    add(folder, records, Run(run, 0, "python -m benchmarks.peers", seconds, config))
    print(f"records in {folder}; draw them with: nbf-paper report --results {folder.parent}")


if __name__ == "__main__":
    main()
