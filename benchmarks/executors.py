"""What a call costs on each executor, beyond the work of its function: `python -m benchmarks.executors`.

The function returns its argument, an array of 32 states of 8 numbers; two workers, calls one at a time.
"""

from __future__ import annotations

import time

import numpy as np

from nbf.executors import Executor, InProcess, Processes, RayWorkers

REPEATS = 300


def microseconds(on: Executor) -> float:
    """Median time of a `map` of one call."""
    states = np.zeros((32, 8))
    times = []
    on.map(np.asarray, [(states,)] * 2)  # starts the workers
    for _ in range(REPEATS):
        begin = time.perf_counter()
        on.map(np.asarray, [(states,)])
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times))


def main() -> None:
    for executor in (InProcess(), Processes(2), RayWorkers("local", workers=2)):
        with executor as on:
            print(f"{type(on).__name__}: {microseconds(on):.0f} µs a call")


if __name__ == "__main__":
    main()
