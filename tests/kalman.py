"""The Kalman filter in float64, and random systems for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats
from tolerances import SEED

STATES, READINGS = 2, 1


def random_system(number: int) -> dict[str, Any]:
    """A random stable system: the spectral radius of A is 0.9."""
    rng = np.random.default_rng([SEED, number])
    matrix = rng.normal(size=(STATES, STATES))
    roots = [rng.normal(size=(size, size)) for size in (STATES, READINGS, STATES)]
    Q, R, P0 = (root @ root.T + 0.3 * np.eye(len(root)) for root in roots)  # noqa: N806
    return {
        "A": 0.9 * matrix / np.abs(np.linalg.eigvals(matrix)).max(),
        "Q": 0.3 * Q,
        "C": rng.normal(size=(READINGS, STATES)),
        "R": R,
        "m0": rng.normal(size=STATES),
        "P0": P0,
    }


def kalman(A, Q, C, R, m0, P0, observations, push) -> tuple[np.ndarray, float]:  # noqa: N803
    """E[x_T | y_1:T] and log p(y_1:T)."""
    mean, covariance, log_evidence = m0, P0, 0.0
    for y in observations:
        mean, covariance = A @ mean + push, A @ covariance @ A.T + Q
        spread = C @ covariance @ C.T + R
        log_evidence += stats.multivariate_normal(C @ mean, spread).logpdf(y)
        gain = covariance @ C.T @ np.linalg.inv(spread)
        mean, covariance = mean + gain @ (y - C @ mean), covariance - gain @ C @ covariance
    return mean, float(log_evidence)
