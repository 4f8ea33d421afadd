"""FilterPy: its resampling with the loop that its author's book, "Kalman and Bayesian Filters in Python", writes."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

import itertools

import numpy as np
from filterpy.monte_carlo import systematic_resample
from numpy.random import randn

from benchmarks.peers.speed.plane import DECAY, OBSERVATIONS, Call, Loop, serve


def stepped(number: int) -> Call:
    particles = randn(number, 2)  # noqa: NPY002 - the generator that the package draws from
    turns = itertools.cycle(OBSERVATIONS)

    def call() -> None:
        nonlocal particles
        particles = DECAY * particles + randn(number, 2)  # noqa: NPY002
        weights = np.exp(-0.5 * np.sum((next(turns) - particles) ** 2, axis=1)) + 1e-300
        weights /= np.sum(weights)
        particles = particles[systematic_resample(weights)]

    return call


if __name__ == "__main__":
    np.random.seed(0)  # noqa: NPY002
    serve("filterpy", {"`systematic_resample`, a Python loop": Loop(stepped)})
