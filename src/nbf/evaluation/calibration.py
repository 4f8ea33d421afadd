"""How good a belief model is on beliefs that are known through samples: likelihood, distance, calibration.

Some samples of each of many random beliefs are embedded, others are held out. The decoded belief is judged by the
likelihood of the held-out samples, by the energy distance between its draws and them, and by two ranks:

- the probability integral transform (PIT): the rank of each encoded coordinate of a held-out sample among the draws;
- highest-density regions: the share of draws that are more probable under the model than the held-out sample. It should
  be at most 1 - α for a share 1 - α of the samples (expected coverage, Hermans et al. 2022, arXiv 2110.06581).

Both are uniform on [0, 1] if the model is calibrated, in discrete spaces too: every draw and every held-out sample
carries a random number that breaks ties, and a rank r among n draws becomes (r + U) / (n + 1). `rank_statistics` says
how errors are found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.contracts import BeliefModel, BeliefSource
from nbf.errors import InputError
from nbf.evaluation import rank_statistics as ranks
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.evaluation.rank_statistics import BAND, BINS
from nbf.evaluation.scores import Scores, Sizes, measure

LEVELS = np.arange(5, 100, 5) / 100.0
"""Nominal coverages."""
BATCH = 32
"""Beliefs measured at once."""


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`.

    An `_error` is a standard error over beliefs. A `_band` is the half-width of a band that holds the whole histogram
    or curve of a calibrated model with probability `BAND`, by Bonferroni's bound.
    """

    beliefs: int
    """Beliefs measured."""
    embed: int
    """Samples embedded of each belief."""
    held_out: int
    """Samples held out of each belief."""
    draws: int
    """Draws from each decoded belief."""
    nll: float
    """Mean negative log-likelihood of held-out samples, in nats; inf if one of them has probability zero."""
    nll_error: float
    """Standard error of `nll`."""
    impossible: float
    """Share of held-out samples to which the model gives probability zero."""
    energy: float
    """Energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| between encoded draws and held-out samples. The estimate is
    unbiased, hence may be negative."""
    energy_error: float
    """Standard error of `energy`."""
    js: float | None
    """Jensen-Shannon divergence from the exact beliefs, in nats; None if the source does not know them."""
    js_error: float | None
    """Standard error of `js`."""
    pit: Float[np.ndarray, "d bins"]
    """PIT histogram of each encoded coordinate: counts in `BINS` equal intervals."""
    pit_band: Float[np.ndarray, "d bins"]
    """Half-width of the band around the mean height of the bars."""
    pit_p: Float[np.ndarray, " d"]
    """p-value of a χ² test of uniformity of each coordinate, corrected for clustering by belief."""
    levels: Float[np.ndarray, " levels"]
    """Nominal coverages, `LEVELS`."""
    coverage: Float[np.ndarray, " levels"]
    """The share of held-out samples in the model's highest-density region of each level."""
    coverage_band: Float[np.ndarray, " levels"]
    """Half-width of the band around the diagonal."""
    coverage_bias_error: float
    """Standard error of `coverage_bias`."""

    @property
    def pit_shift(self) -> Float[np.ndarray, " d"]:
        """Mean PIT of each coordinate, minus 1/2: positive where the model's draws are too low."""
        centres = (np.arange(self.pit.shape[1]) + 0.5) / self.pit.shape[1]
        return self.pit @ centres / self.pit.sum(axis=1) - 0.5

    @property
    def pit_deviation(self) -> float:
        """Largest deviation of a bar from the mean height, relative to that height."""
        return float(np.max(np.abs(self.pit / self.pit.mean(axis=1, keepdims=True) - 1.0)))

    @property
    def coverage_gap(self) -> float:
        """Mean absolute difference between coverage and level."""
        return float(np.mean(np.abs(self.coverage - self.levels)))

    @property
    def coverage_bias(self) -> float:
        """Mean of coverage minus level: negative for an overconfident model, positive for an underconfident one."""
        return float(np.mean(self.coverage - self.levels))

    @property
    def verdict(self) -> str:
        """The conclusion, at confidence `BAND`.

        `overconfident` or `underconfident` if the bias of the coverage is significant, `uneven` if a PIT histogram is
        not uniform, else `calibrated`.
        """
        if abs(self.coverage_bias) > ranks.normal_quantile(1) * self.coverage_bias_error:
            return "overconfident" if self.coverage_bias < 0 else "underconfident"
        return "uneven" if self.summary()["pit_p"] < 1.0 - BAND else "calibrated"

    def summary(self) -> dict[str, float]:
        """The numbers by name. `pit_p` is the smallest p-value of a coordinate times their number (Bonferroni)."""
        exact = {} if self.js is None or self.js_error is None else {"js": self.js, "js_error": self.js_error}
        return {
            "nll": self.nll,
            "nll_error": self.nll_error,
            "impossible": self.impossible,
            "energy": self.energy,
            "energy_error": self.energy_error,
            **exact,
            "pit_p": min(1.0, float(np.min(self.pit_p)) * len(self.pit_p)),
            "pit_deviation": self.pit_deviation,
            "pit_shift": float(self.pit_shift[np.argmax(np.abs(self.pit_shift))]),
            "coverage_gap": self.coverage_gap,
            "coverage_bias": self.coverage_bias,
            "coverage_bias_error": self.coverage_bias_error,
        }

    def __str__(self) -> str:
        """Format the numbers as a Markdown table."""
        number = self.summary()
        rows = [("held-out NLL (nats)", f"{self.nll:.4f} ± {self.nll_error:.4f}")]
        if self.impossible > 0:
            rows.append(("held-out samples ruled out", f"{self.impossible:.2%}"))
        rows.append(("energy distance", f"{self.energy:.5f} ± {self.energy_error:.5f}"))
        if "js" in number:
            rows.append(("JS from the exact belief (nats)", f"{number['js']:.4f} ± {number['js_error']:.4f}"))
        rows += [
            ("PIT: p-value of flatness", f"{number['pit_p']:.3g}"),
            ("PIT: furthest bar, largest shift", f"{number['pit_deviation']:.1%}, {number['pit_shift']:+.4f}"),
            ("coverage less level, absolute", f"{self.coverage_gap:.4f}"),
            ("coverage less level, signed", f"{self.coverage_bias:+.4f} ± {self.coverage_bias_error:.4f}"),
            ("verdict", self.verdict),
        ]
        first = f"{self.beliefs} beliefs: {self.embed} samples embedded, {self.held_out} held out, {self.draws} drawn"
        return "\n".join(f"| {name} | {value} |" for name, value in [(first, ""), ("---", "---"), *rows])


def calibrate(
    key: Key[Array, ""],
    model: BeliefModel,
    source: BeliefSource,
    *,
    beliefs: int = 200,
    embed: int = 64,
    held_out: int = 64,
    draws: int = 256,
    advance: Callable[[int], None] = lambda done: None,
) -> Calibration:
    """Measure how well a model reconstructs random beliefs from samples of them.

    Args:
        key: Random key.
        model: Model to judge.
        source: Where the beliefs come from. If its `posterior(key)` is a `CategoricalBelief`, `js` compares with it.
        beliefs: Number of beliefs.
        embed: Samples embedded of each belief.
        held_out: Samples held out of each belief.
        draws: Draws from each decoded belief.
        advance: Called with the number of beliefs finished since the last call.

    Returns:
        The calibration.
    """
    for name, value, least in (
        ("beliefs", beliefs, 2), ("embed", embed, 1), ("held_out", held_out, 2), ("draws", draws, 2),
    ):  # fmt: skip
        if value < least:
            raise InputError(f"{name} must be at least {least} for a mean and its error; got {value}.")
    sizes = Sizes(embed, held_out, draws)
    measured = functools.partial(measure, model, source, sizes)
    scores = in_batches(measured, (jax.random.split(key, beliefs),), batch=min(BATCH, beliefs), advance=advance)
    if np.any(scores.broken):
        raise InputError(
            f"The model gives NaN or an infinite density in {np.count_nonzero(scores.broken)} of {beliefs} beliefs: it "
            "cannot be judged. Check its parameters, and that the source's states suit its space."
        )
    return _collect(scores, sizes)


def _collect(scores: Scores, sizes: Sizes) -> Calibration:
    """Means, errors and bands of the scores of all beliefs."""
    nll, pit, density = (np.asarray(part, np.float64) for part in (scores.nll, scores.pit, scores.density))
    beliefs = len(nll)
    energy, energy_error = _number(np.asarray(scores.energy, np.float64))
    js, js_error = (None, None) if scores.js is None else _number(np.asarray(scores.js, np.float64))
    bars, bar_law = ranks.bar_shares(pit), ranks.bar_covariance(sizes.held_out, sizes.draws)
    total = beliefs * sizes.held_out
    covered = np.mean(density[:, :, None] <= LEVELS, axis=1)
    law = ranks.share_covariance(LEVELS, sizes.held_out, sizes.draws)
    return Calibration(
        beliefs, sizes.embed, sizes.held_out, sizes.draws,
        *(_number(nll) if np.all(np.isfinite(nll)) else (np.inf, np.inf)),
        impossible=float(np.mean(scores.impossible)),
        energy=energy, energy_error=energy_error, js=js, js_error=js_error,
        pit=np.rint(bars.mean(axis=0) * total),
        pit_band=ranks.normal_quantile(BINS) * ranks.standard_error(bars, np.diagonal(bar_law)) * total,
        pit_p=ranks.uniformity_p_values(bars, bar_law),
        levels=LEVELS,
        coverage=covered.mean(axis=0),
        coverage_band=ranks.normal_quantile(len(LEVELS)) * ranks.standard_error(covered, np.diagonal(law)),
        coverage_bias_error=float(ranks.standard_error(covered.mean(axis=1), law.mean())),
    )  # fmt: skip


def _number(values: Float[np.ndarray, " beliefs"]) -> tuple[float, float]:
    mean, error = mean_and_error(values)
    return float(mean), float(error)
