"""FilterPy: its resampling with the loop that its author's book, "Kalman and Bayesian Filters in Python", writes."""

# The package is in an environment of its own (`installed.py`).
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from filterpy.monte_carlo import systematic_resample
from numpy.random import randn
from scipy.stats import uniform

from benchmarks.peers.scenario import OBSERVATIONS, PARTICLES, START, STEP, WIDTH, Step, distinct, report, weighted


def neff(weights: np.ndarray) -> float:
    return 1.0 / np.sum(np.square(weights))


def run(seed: int, *, floor: float, always: bool) -> Iterator[Step]:
    np.random.seed(seed)  # noqa: NPY002 - the generator that the package draws from
    particles = START * randn(PARTICLES)  # noqa: NPY002
    weights = np.full(PARTICLES, 1.0 / PARTICLES)
    indexes = np.arange(PARTICLES)
    for y in OBSERVATIONS:
        parents = distinct(indexes)  # of the resampling after the step before
        particles = particles + STEP * randn(PARTICLES)  # noqa: NPY002
        weights = weights * uniform(particles - WIDTH, 2 * WIDTH).pdf(y) + floor
        weights = weights / np.sum(weights)
        size, belief, indexes = neff(weights), weighted(particles, weights), np.arange(PARTICLES)
        if always or size < PARTICLES / 2:
            indexes = systematic_resample(weights)
            particles, weights = particles[indexes], np.full(PARTICLES, 1.0 / PARTICLES)
        yield Step(*belief, size, None, parents)


WAYS = {
    "the loop of its author's book: `weights += 1e-300`, resampling where ESS < n/2": (1e-300, False),
    "the same without `1e-300`": (0.0, False),
    "the same without `1e-300`, resampling at every step": (0.0, True),
}

if __name__ == "__main__":
    report("filterpy", {way: partial(run, floor=floor, always=always) for way, (floor, always) in WAYS.items()})
