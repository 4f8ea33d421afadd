"""No package: NumPy as one would write it by hand who wants it fast."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.peers.speed.plane import DECAY, OBSERVATIONS, Call, Loop, serve


def stepped(number: int) -> Call:
    rng, turns = np.random.default_rng(0), itertools.cycle(OBSERVATIONS)
    particles = rng.standard_normal((number, 2))

    def call() -> None:
        nonlocal particles
        particles = DECAY * particles + rng.standard_normal((number, 2))
        apart = next(turns) - particles
        log_weights = -0.5 * (apart[:, 0] ** 2 + apart[:, 1] ** 2)
        ends = np.cumsum(np.exp(log_weights - log_weights.max()))
        passed = np.ceil(ends * (number / ends[-1]) - rng.random()).astype(np.int64)
        passed[-1] = number
        particles = np.repeat(particles, np.diff(passed, prepend=0), axis=0)

    return call


if __name__ == "__main__":
    serve("numpy", {"a Python loop": Loop(stepped)}, ())
