"""Statistics of ranks that cluster by belief: covariances, errors, and a test of uniformity.

Held-out samples of one belief share that belief and its draws; only beliefs are independent. So every number is first
averaged within each belief, and its standard error is taken over beliefs. For a calibrated model more is known: draws
and held-out samples are exchangeable, ranks follow Pólya's urn, and the covariance of their shares has a closed form
(`share_covariance`). An error that decides whether a model is calibrated is the larger of the two, so that few beliefs
do not make narrow bands by chance.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from jax.scipy.special import gammaincc
from jaxtyping import Float

from nbf.evaluation.batches import mean_and_error

BINS = 20
"""Bars of a PIT histogram."""
BAND = 0.99
"""Probability that the whole histogram, or the whole curve, of a calibrated model lies within its band."""


def share_covariance(edges: Float[np.ndarray, " k"], held_out: int, draws: int) -> Float[np.ndarray, "k k"]:
    """Covariance, within one belief, of the shares of ranks that are at most each edge, for a calibrated model.

    Given the draws, a sample falls between two neighbouring ones with a probability that is one of n + 1 spacings of
    the uniform distribution, which are Dirichlet(1, ..., 1); samples are then independent.

    Args:
        edges: Ends of the intervals [0, edge].
        held_out: Held-out samples of the belief.
        draws: Draws n that they are ranked among.

    Returns:
        The covariance matrix.
    """
    slots = draws + 1
    inside = np.clip(edges * slots - np.arange(slots)[:, None], 0.0, 1.0)
    product = np.outer(edges, edges)
    own = np.minimum.outer(edges, edges) - product
    shared = (inside.T @ inside / slots - product) / (slots + 1)
    return (own + (held_out - 1) * shared) / held_out


def bar_shares(pit: Float[np.ndarray, "beliefs h d"]) -> Float[np.ndarray, "beliefs d bins"]:
    """Share of each belief's PITs in each bar of the histogram.

    Args:
        pit: PIT of each coordinate of each held-out sample.

    Returns:
        Shares, which sum to 1 over the bars.
    """
    bins = np.minimum((pit * BINS).astype(int), BINS - 1)
    return np.stack([np.mean(bins == place, axis=1) for place in range(BINS)], axis=-1)


def bar_covariance(held_out: int, draws: int) -> Float[np.ndarray, "bins bins"]:
    """Covariance of the bars of one belief, for a calibrated model.

    Args:
        held_out: Held-out samples of the belief.
        draws: Draws that they are ranked among.

    Returns:
        The covariance matrix.
    """
    difference = np.diff(np.eye(BINS + 1), axis=0)
    edges = np.linspace(0.0, 1.0, BINS + 1)
    return difference @ share_covariance(edges, held_out, draws) @ difference.T


def uniformity_p_values(
    bars: Float[np.ndarray, "beliefs d bins"], law: Float[np.ndarray, "bins bins"]
) -> Float[np.ndarray, " d"]:
    """Test each coordinate's PIT histogram for uniformity.

    Pearson's χ² with its mean and variance under clustering (Rao, Scott 1981, Satterthwaite's form). The p-value is the
    larger of two: with the covariance measured over beliefs, and with that of a calibrated model.

    Args:
        bars: Shares of each belief in each bar.
        law: Covariance of the bars of one belief, for a calibrated model.

    Returns:
        The p-value of each coordinate.
    """
    statistic = np.sum((bars.mean(axis=0) - 1.0 / BINS) ** 2, axis=-1)
    centred = bars - bars.mean(axis=0)
    measured = np.einsum("idk,idl->dkl", centred, centred) / (len(bars) - 1)
    # Bars that are the same in every belief have no measured variance.
    measured = np.where(np.any(measured, axis=(1, 2), keepdims=True), measured, law)
    p = []
    for covariance in (measured, np.broadcast_to(law, measured.shape)):
        mean = np.trace(covariance, axis1=1, axis2=2)
        freedom = mean**2 / np.sum(covariance**2, axis=(1, 2))
        p.append(np.asarray(gammaincc(freedom / 2.0, freedom / 2.0 * len(bars) * statistic / mean), np.float64))
    return np.maximum(*p)


def standard_error(
    shares: Float[np.ndarray, "beliefs *k"], law: Float[np.ndarray, "*#k"] | float
) -> Float[np.ndarray, "*k"]:
    """Standard error of a mean over beliefs: as measured, but not below that of a calibrated model.

    Args:
        shares: Values of each belief.
        law: Variance of one belief's value, for a calibrated model.

    Returns:
        The standard error.
    """
    return np.asarray(np.maximum(mean_and_error(shares)[1], np.sqrt(np.asarray(law) / len(shares))))


def normal_quantile(comparisons: int) -> float:
    """Number of standard errors within which all of several comparisons lie with probability `BAND` (Bonferroni).

    Args:
        comparisons: How many comparisons.

    Returns:
        The quantile.
    """
    return NormalDist().inv_cdf(1.0 - (1.0 - BAND) / 2.0 / comparisons)
