"""The three tolerances of the tests, and their root seed. Use:

    np.testing.assert_allclose(actual, desired, **FLOAT)
    np.testing.assert_allclose(mean, truth, rtol=0, atol=monte_carlo(sigma, n))

for arrays; a number is an array too.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

SEED = 2026


class Tolerance(TypedDict):
    """Arguments of `np.testing.assert_allclose`."""

    rtol: float
    atol: float


EXACT: Tolerance = {"rtol": 1e-10, "atol": 1e-12}
"""Algebra in float64: NumPy, SciPy, Python numbers."""
FLOAT: Tolerance = {"rtol": 1e-4, "atol": 1e-5}
"""The same algebra in float32, JAX's default: some hundreds of roundings of 6e-8 each."""


WEIGHT_SIGMA = 0.5
"""Standard deviation of a normaliser estimated by one importance weight a state, as `test_goofspiel_models` finds."""


def monte_carlo(sigma: ArrayLike, n: int, k: float = 4.0) -> Any:
    """k standard errors of a mean of n independent draws whose standard deviation is sigma, an array as sigma is one.

    A sound mean lies outside 4 of them once in 16 000 times. Where thousands of means are
    compared at once, k = 5 (once in 1.7 million).
    """
    if n < 1:
        raise ValueError(f"A mean needs at least one draw; got n = {n}.")
    return k * np.asarray(sigma) / math.sqrt(n)
