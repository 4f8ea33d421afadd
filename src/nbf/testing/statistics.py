"""Tests of whether draws have the probabilities, or the density, that they should have.

Each test bounds a mean by `DEVIATIONS` standard errors, so that false alarms are practically impossible, and tells how
small an error it detects.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Shaped

DEVIATIONS = 6.0
"""Standard errors that a mean may deviate: exceeded by chance once in 500 million times."""
CENTRES = 512
"""Draws that make up the reference of a density."""
ATOM = 8
"""A value drawn this often among them counts as an atom: it has a probability, not a density."""
FREEDOM = 5.0
"""Degrees of freedom of the Student's t around each centre, for heavier tails than a Gaussian's."""
CLEAR = 0.3
"""A smaller constant beside a log density may as well be another error."""
BLOCK = 128
"""Points at which a density is evaluated at once."""


def margin(variance: Float[np.ndarray, "*any"] | float, n: int) -> Float[np.ndarray, "*any"]:
    """Compute how far the mean of n draws may deviate. A term of 1/n² allows for very rare outcomes.

    Args:
        variance: Of one draw.
        n: Number of draws.

    Returns:
        `DEVIATIONS` standard errors.
    """
    return np.asarray(DEVIATIONS * np.sqrt(np.asarray(variance) / n + 1.0 / n**2))


def worst_frequency(
    counts: Float[np.ndarray, " k"], probs: Float[np.ndarray, " k"], slack: float = 0.0
) -> tuple[int, float] | None:
    """Find the outcome whose frequency deviates most from its probability.

    Args:
        counts: How often each outcome was drawn.
        probs: The probability of each.
        slack: Error of the probabilities that is allowed.

    Returns:
        The outcome and its frequency; None if all frequencies agree with the probabilities.
    """
    n = int(counts.sum())
    frequencies = counts / n
    excess = np.abs(frequencies - probs) - margin(probs * np.clip(1.0 - probs, 0.0, 1.0), n) - slack
    excess = np.where((probs == 0) & (counts > 0), np.inf, excess)
    worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
    return None if excess[worst] <= 0 else (worst, float(frequencies[worst]))


def smallest_found(n: int) -> float:
    """Compute the error of a probability that `worst_frequency` always detects.

    Args:
        n: Number of draws.

    Returns:
        The error, for the worst case of a probability of 1/2.
    """
    return 2.0 * float(margin(0.25, n))


class Reference:
    """A kernel density of a set of draws, with a Student's t around each along the real columns, wrapped around those
    that are circular.

    Rows that are drawn at least `ATOM` times are atoms.

    Args:
        rows: The draws.
        real: Which columns are real numbers; the others are integers.
        periods: Of circular columns, infinite for the others; None if no column is circular.
    """

    def __init__(
        self,
        rows: Float[np.ndarray, "n columns"],
        real: Shaped[np.ndarray, " columns"],
        periods: Float[np.ndarray, " columns"] | None = None,
    ):
        self.rows, self.real = rows, np.asarray(real, bool)
        self.periods = np.full(rows.shape[1], np.inf) if periods is None else periods
        values, counts = np.unique(rows, axis=0, return_counts=True)
        self.atoms: np.ndarray = values[counts >= ATOM]
        self.is_atom = np.asarray(_equal(rows, self.atoms).any(axis=1))
        smooth = rows[~self.is_atom]
        columns = np.flatnonzero(self.real)
        deviation = np.array([_deviation(smooth[:, column], self.periods[column]) for column in columns])
        shrink = len(rows) ** (-1.0 / (4.0 + self.real.sum()))
        self.scale = np.maximum(deviation, 1e-6) * shrink

    def sample(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n columns"]:
        """Draw from the density.

        Args:
            rng: NumPy's generator.
            n: Number of draws.

        Returns:
            The draws, rounded to float32.
        """
        chosen = rng.integers(len(self.rows), size=n)
        rows = self.rows[chosen].copy()
        noise = rng.standard_t(FREEDOM, size=(n, int(self.real.sum()))) * self.scale
        rows[:, self.real] += np.where(self.is_atom[chosen][:, None], 0.0, noise)
        for column in np.flatnonzero(np.isfinite(self.periods)):
            rows[:, column] = _like(rows[:, column], self.rows[:, column], self.periods[column])
        return rows.astype(np.float32).astype(np.float64)

    def log_density(self, rows: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, " n"]:
        """Evaluate the log density; at an atom, the log probability.

        Args:
            rows: The points.

        Returns:
            One number for each.
        """
        equal = _equal(rows, self.atoms)
        shares = _equal(self.atoms, self.rows).mean(axis=1)
        atomic, at_atom = equal @ shares, equal.any(axis=1)
        smooth = np.zeros(len(rows))
        centres = self.rows[~self.is_atom]
        if len(centres):
            for part in range(0, len(rows), BLOCK):  # as many at once as a cache holds
                smooth[part : part + BLOCK] = self._smooth(rows[part : part + BLOCK], centres)
        with np.errstate(divide="ignore"):
            return np.log(np.where(at_atom, atomic, smooth))

    def _smooth(
        self, rows: Float[np.ndarray, "n columns"], centres: Float[np.ndarray, "k columns"]
    ) -> Float[np.ndarray, " n"]:
        kernel = np.ones((len(rows), len(centres)))
        for column, scale in zip(np.flatnonzero(self.real), self.scale, strict=True):
            apart = _shortest(rows[:, column, None] - centres[None, :, column], self.periods[column])
            kernel *= _images(apart, self.periods[column], scale)
        if not self.real.all():
            kernel = np.where(_equal(rows[:, ~self.real], centres[:, ~self.real]), kernel, 0.0)
        return kernel.sum(axis=1) / len(self.rows)


def balance(
    log_density: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]],
    log_reference: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]],
) -> tuple[float, float, float, float]:
    """Test whether draws have a density p, by means of draws of a reference q.

        E_p[q / (p + q)] = ∫ p q / (p + q) = E_q[p / (p + q)]

    Both sides are means of numbers between 0 and 1 in any dimension, so there are no heavy tails. A log factor δ on p
    moves the two sides apart by δ times their value.

    Args:
        log_density: log p at the draws of p, and at those of q.
        log_reference: log q at the draws of p, and at those of q.

    Returns:
        Both means, how far apart they may be, and the smallest factor on p that would be detected.
    """
    ours = _share(log_reference[0] - log_density[0])
    theirs = _share(log_density[1] - log_reference[1])
    allowed = math.sqrt(float(margin(ours.var(), len(ours))) ** 2 + float(margin(theirs.var(), len(theirs))) ** 2)
    overlap = max((float(ours.mean()) + float(theirs.mean())) / 2.0, 1e-6)
    return float(ours.mean()), float(theirs.mean()), allowed, math.exp(min(2.0 * allowed / overlap, 50.0))


def mistaken(
    log_density: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]],
    log_reference: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " k"]],
) -> str:
    """Find out whether a density that failed `balance` is a density without its logarithm, or one times a constant.

    With any function h of q / (p + q) under both means, `balance` holds as well; here h is that share itself, and its
    square. A constant that mends all three mends the density.

    Args:
        log_density: What stands for log p, at the draws of p, and at those of q.
        log_reference: log q at the draws of p, and at those of q.

    Returns:
        A remark that ends a message; empty if neither is the case.
    """
    ours, theirs = (np.asarray(each, np.float64) for each in log_density)
    if min(ours.min(), theirs.min()) >= 0.0:
        with np.errstate(divide="ignore"):
            plain = np.log(ours), np.log(theirs)
        if _balanced(plain, log_reference, 0.0):
            return ": it looks like the density itself, so return its logarithm"
    low, high, middle = -50.0, 50.0, 0.0  # the more is added, the smaller is the one side and the larger the other
    while high - low > 1e-6:
        one, other, *_ = balance((ours + middle, theirs + middle), log_reference)
        low, high = (middle, high) if one > other else (low, middle)
        middle = (low + high) / 2.0
    if CLEAR < abs(middle) < 49.0 and _balanced((ours, theirs), log_reference, middle):
        return f": it looks unnormalised, and would fit with {middle:.3g} added to it (has it all of its constants?)"
    return ""


def _balanced(
    log_density: tuple[np.ndarray, np.ndarray], log_reference: tuple[np.ndarray, np.ndarray], added: float
) -> bool:
    """Whether the means agree with h = 1, the share of q, and its square."""
    ours, theirs = (_share(q - p - added) for p, q in zip(log_density, log_reference, strict=True))
    for one, other in (
        (ours, 1.0 - theirs),
        (ours * ours, theirs * (1.0 - theirs)),
        (ours**3, theirs**2 * (1 - theirs)),
    ):
        allowed = math.hypot(float(margin(one.var(), len(one))), float(margin(other.var(), len(other))))
        if abs(float(one.mean()) - float(other.mean())) > allowed:
            return False
    return True


def _share(log_odds: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return 1.0 / (1.0 + np.exp(-np.clip(log_odds, -500.0, 500.0)))


def _equal(rows: Float[np.ndarray, "n columns"], others: Float[np.ndarray, "k columns"]) -> Shaped[np.ndarray, "n k"]:
    equal = np.ones((len(rows), len(others)), bool)
    for column in range(rows.shape[1]):
        equal &= rows[:, column, None] == others[None, :, column]
    return equal


def _shortest(apart: Float[np.ndarray, "*any"], period: float) -> Float[np.ndarray, "*any"]:
    """Differences, the shorter way round if there is a period."""
    return apart - period * np.round(apart / period) if math.isfinite(period) else apart


def _deviation(values: Float[np.ndarray, " n"], period: float) -> float:
    """The standard deviation; from the circular mean if there is a period."""
    if not len(values):
        return 1.0
    if not math.isfinite(period):
        return float(values.std())
    mean = np.angle(np.mean(np.exp(2j * np.pi * values / period))) * period / (2.0 * np.pi)
    return float(np.sqrt(np.mean(_shortest(values - mean, period) ** 2)))


def _like(values: Float[np.ndarray, " n"], draws: Float[np.ndarray, " k"], period: float) -> Float[np.ndarray, " n"]:
    """Values moved by whole periods to where the draws are, if these lie within one: from 0, or around it."""
    start = 0.0 if draws.min() >= 0 else -period / 2.0
    inside = draws.min() >= start * (1 + 1e-6) and draws.max() <= (start + period) * (1 + 1e-6)
    return start + (values - start) % period if inside else values


def _images(apart: Float[np.ndarray, "*any"], period: float, scale: float) -> Float[np.ndarray, "*any"]:
    """The density of a Student's t; if there is a period, with its images on both sides."""
    density = _student(apart, scale)
    if math.isfinite(period):
        density += _student(apart - period, scale) + _student(apart + period, scale)
    return density


def _student(apart: Float[np.ndarray, "*any"], scale: float) -> Float[np.ndarray, "*any"]:
    log_constant = math.lgamma((FREEDOM + 1) / 2) - math.lgamma(FREEDOM / 2) - 0.5 * math.log(FREEDOM * math.pi)
    bulk = 1.0 + apart * apart / (FREEDOM * scale**2)
    return math.exp(log_constant) / scale / (bulk * bulk * bulk)  # to the power of (FREEDOM + 1) / 2
