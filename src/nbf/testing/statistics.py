"""Do draws agree with the probabilities, or the density, that they should have?

Both tests bound a mean by `DEVIATIONS` standard errors, so that sound code is practically never accused, and say how
small an error they find.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Shaped

DEVIATIONS = 6.0
"""Standard errors that a mean may be off: by chance once in 500 million times, for any number of checks rare enough."""
CENTRES = 512
"""Draws that the reference of a density is made of."""
ATOM = 8
"""A value drawn that often among them has a probability, not a density."""
FREEDOM = 5.0
"""Degrees of freedom of the Student's t around each centre: tails that reach where a Gaussian's do not."""


def margin(variance: Float[np.ndarray, "*any"] | float, n: int) -> Float[np.ndarray, "*any"]:
    """How far the mean of n draws may lie off; the second term is for outcomes that are hardly expected at all."""
    return np.asarray(DEVIATIONS * np.sqrt(np.asarray(variance) / n + 1.0 / n**2))


def worst_frequency(
    counts: Float[np.ndarray, " k"], probs: Float[np.ndarray, " k"], slack: float = 0.0
) -> tuple[int, float] | None:
    """The outcome whose frequency disagrees most with its probability, and its frequency; None if all agree.
    `slack` is an error of the probabilities that is allowed for."""
    n = int(counts.sum())
    frequencies = counts / n
    excess = np.abs(frequencies - probs) - margin(probs * np.clip(1.0 - probs, 0.0, 1.0), n) - slack
    excess = np.where((probs == 0) & (counts > 0), np.inf, excess)
    worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
    return None if excess[worst] <= 0 else (worst, float(frequencies[worst]))


def smallest_found(n: int) -> float:
    """A probability wrong by this much is found by `worst_frequency` with n draws, wherever it lies."""
    return 2.0 * float(margin(0.25, n))


class Reference:
    """A known distribution that resembles a set of draws: a Student's t around each draw, along the columns that are
    real numbers. A row that comes again and again stands for itself."""

    def __init__(self, rows: Float[np.ndarray, "n columns"], real: Shaped[np.ndarray, " columns"]):
        self.rows, self.real = rows, np.asarray(real, bool)
        values, counts = np.unique(rows, axis=0, return_counts=True)
        self.atoms: np.ndarray = values[counts >= ATOM]
        self.is_atom = np.asarray(_equal(rows, self.atoms).any(axis=1))
        smooth = rows[~self.is_atom][:, self.real]
        spread = smooth.std(axis=0) if len(smooth) else np.ones(self.real.sum())
        shrink = len(rows) ** (-1.0 / (4.0 + self.real.sum()))
        self.scale = np.maximum(spread, 1e-6) * shrink

    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n columns"]:
        chosen = rng.integers(len(self.rows), size=n)
        rows = self.rows[chosen].copy()
        noise = rng.standard_t(FREEDOM, size=(n, int(self.real.sum()))) * self.scale
        rows[:, self.real] += np.where(self.is_atom[chosen][:, None], 0.0, noise)
        return rows.astype(np.float32).astype(np.float64)

    def log_density(self, rows: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, " n"]:
        equal = _equal(rows, self.atoms)
        shares = _equal(self.atoms, self.rows).mean(axis=1)
        atomic, at_atom = equal @ shares, equal.any(axis=1)
        smooth = np.zeros(len(rows))
        centres = self.rows[~self.is_atom]
        if len(centres):
            log_kernel = np.zeros((len(rows), len(centres)))
            for column, scale in zip(np.flatnonzero(self.real), self.scale, strict=True):
                log_kernel += _log_t((rows[:, column, None] - centres[None, :, column]) / scale) - math.log(scale)
            matches = _equal(rows[:, ~self.real], centres[:, ~self.real])
            smooth = np.where(matches, np.exp(log_kernel), 0.0).sum(axis=1) / len(self.rows)
        with np.errstate(divide="ignore"):
            return np.log(np.where(at_atom, atomic, smooth))


def balance(
    log_density: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]],
    log_reference: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]],
) -> tuple[float, float, float, float]:
    """Whether draws have the density p that they should, against a reference q with draws of its own:

        E_p[q / (p + q)] = ∫ p q / (p + q) = E_q[p / (p + q)]

    Each pair is (at the draws of p, at the draws of q). Both sides are means of numbers between 0 and 1, whatever the
    dimension, so there are no heavy tails. Gives both means, how far apart they may be, and the factor by which p
    would have to be wrong to be found: a log factor δ moves the sides apart by δ times their value.
    """
    ours = _share(log_reference[0] - log_density[0])
    theirs = _share(log_density[1] - log_reference[1])
    allowed = math.sqrt(float(margin(ours.var(), len(ours))) ** 2 + float(margin(theirs.var(), len(theirs))) ** 2)
    overlap = max((float(ours.mean()) + float(theirs.mean())) / 2.0, 1e-6)
    return float(ours.mean()), float(theirs.mean()), allowed, math.exp(min(2.0 * allowed / overlap, 50.0))


def _share(log_odds: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return 1.0 / (1.0 + np.exp(-np.clip(log_odds, -500.0, 500.0)))


def _equal(rows: Float[np.ndarray, "n columns"], others: Float[np.ndarray, "k columns"]) -> Shaped[np.ndarray, "n k"]:
    equal = np.ones((len(rows), len(others)), bool)
    for column in range(rows.shape[1]):
        equal &= rows[:, column, None] == others[None, :, column]
    return equal


def _log_t(z: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    constant = math.lgamma((FREEDOM + 1) / 2) - math.lgamma(FREEDOM / 2) - 0.5 * math.log(FREEDOM * math.pi)
    return constant - 0.5 * (FREEDOM + 1) * np.log1p(z * z / FREEDOM)
