"""Whether frequencies agree with probabilities, by a chi-square test that states what it can find."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

FALSE_ALARM = 1e-5
"""How often sound frequencies fail."""
POWER = 0.99
"""How often a deviation as large as `detects` is found."""


def assert_frequencies(counts: ArrayLike, probs: ArrayLike, *, detects: float) -> None:
    """Counts of independent draws against the probabilities they should have; rows are separate draws.

    `detects` is a total variation distance: if the true distribution of even one row is that far from
    `probs`, the test fails with probability `POWER`, or it complains that the draws are too few for it.
    Outcomes that are expected less than five times are taken together.
    """
    counts, probs = (np.atleast_2d(np.asarray(table, np.float64)) for table in (counts, probs))
    np.testing.assert_allclose(probs.sum(axis=1), np.ones(len(probs)), rtol=1e-4)
    assert not np.any(counts[probs == 0]), "something of probability zero was drawn"
    statistic, freedom = 0.0, 0
    for row, wanted in zip(counts, probs / probs.sum(axis=1, keepdims=True), strict=True):
        seen, expected = _pooled(row, wanted * row.sum())
        statistic += np.sum((seen - expected) ** 2 / expected)
        freedom += len(seen) - 1
    if freedom == 0:
        return
    threshold = stats.chi2.isf(FALSE_ALARM, freedom)
    # Σ Δ²/p >= (Σ |Δ|)² = (2·TV)², by Cauchy and Schwarz.
    power = stats.ncx2.sf(threshold, freedom, counts.sum(axis=1).min() * (2.0 * detects) ** 2)
    assert power > POWER, f"too few draws to find a distance of {detects}: power {power:.3f}"
    assert statistic < threshold, f"chi-square {statistic:.1f} with {freedom} degrees of freedom"


def _pooled(seen: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(expected)
    seen, expected = seen[order], expected[order]
    rare = int(np.sum(expected < 5.0))
    while 0 < rare < len(expected) and expected[:rare].sum() < 5.0:
        rare += 1
    if rare > 0:
        seen, expected = (np.append(part[rare:], part[:rare].sum()) for part in (seen, expected))
    return seen[expected > 0], expected[expected > 0]
