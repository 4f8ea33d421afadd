"""How good a belief model is on beliefs that are known through samples: likelihood, distance, calibration.

Of each of many random beliefs some samples are embedded and others held out. The decoded belief is asked for the
likelihood of the held-out samples, for draws that should look like them (energy distance), and for two ranks:

- the probability integral transform (PIT): where each encoded coordinate of a held-out sample lies among the draws;
- highest-density regions: the share of draws that the model finds more probable than the held-out sample. The samples
  of which this is at most 1 - α should be 1 - α of all (expected coverage, Hermans et al. 2022, arXiv 2110.06581).

Both are uniform on [0, 1] if the model is right, in discrete spaces too: every draw and every held-out sample carries
a random number that decides ties, and a rank r of n draws becomes (r + U) / (n + 1).

Errors. Held-out samples of one belief share that belief and its draws; only beliefs are independent. So every number is
first averaged within each belief, and its standard error is taken over beliefs. For a right model more is known: draws
and held-out samples are exchangeable, ranks follow Pólya's urn, and the covariance of their shares has a closed form
(`share_covariance`). Where an error decides whether a model is right it is the larger of the two, so that few beliefs
do not make narrow bands by chance.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.categorical import CategoricalBelief
from nbf.contracts import BeliefModel, BeliefSource, Embedding, State, StateSpace
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.evaluation.divergence import jensen_shannon

BINS = 20
"""Bars of a PIT histogram."""
LEVELS = np.arange(5, 100, 5) / 100.0
"""Nominal coverages."""
BAND = 0.99
"""How often a whole histogram, or a whole curve, of a right model lies within its band."""
BATCH = 32
"""Beliefs that are measured at once."""
TIE = 1e-3
"""Log-probabilities are compared in steps of this many nats: the same state may come out of one program with two
roundings, and a rank must not see them. Any score gives uniform ranks, so nothing is lost."""


class Sizes(eqx.Module):
    """How many samples of a belief are used for what."""

    embed: int = eqx.field(static=True)
    held_out: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)


class Scores(eqx.Module):
    """What is measured of one belief."""

    nll: Float[Array, ""]
    """Mean over the held-out samples."""
    impossible: Float[Array, ""]
    """Share of the held-out samples to which the model gives no probability."""
    energy: Float[Array, ""]
    js: Float[Array, ""] | None
    pit: Float[Array, "h d"]
    density: Float[Array, " h"]
    """The share of draws that are more probable than each held-out sample."""
    broken: Int[Array, ""]
    """How many states have an encoding or log-probability that is no number, or an infinite density."""


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` found. An `_error` is a standard error over beliefs, a `_band` half the width of a band.

    A band holds a whole histogram or curve of a right model `BAND` of the time, by Bonferroni's bound.
    """

    beliefs: int
    embed: int
    held_out: int
    draws: int
    nll: float
    """Mean negative log-likelihood of held-out samples, in nats; inf if the model rules one of them out."""
    nll_error: float
    impossible: float
    """Share of held-out samples that the model rules out."""
    energy: float
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of draws and held-out samples, encoded; without bias, hence perhaps < 0."""
    energy_error: float
    js: float | None
    """Jensen-Shannon divergence from the exact beliefs, in nats, where the source knows them."""
    js_error: float | None
    pit: Float[np.ndarray, "d bins"]
    """For each encoded coordinate, how many PITs fall into each of `BINS` equal intervals."""
    pit_band: Float[np.ndarray, "d bins"]
    """Around the mean height of the bars."""
    pit_p: Float[np.ndarray, " d"]
    """For each coordinate the p-value of a chi-square test of uniformity, corrected for clusters."""
    levels: Float[np.ndarray, " levels"]
    coverage: Float[np.ndarray, " levels"]
    """The share of held-out samples in the model's highest-density region of each level."""
    coverage_band: Float[np.ndarray, " levels"]
    """Around the diagonal."""
    coverage_bias_error: float

    @property
    def pit_shift(self) -> Float[np.ndarray, " d"]:
        """Mean PIT of each coordinate, less 1/2: positive where the model's draws lie too low."""
        centres = (np.arange(self.pit.shape[1]) + 0.5) / self.pit.shape[1]
        return self.pit @ centres / self.pit.sum(axis=1) - 0.5

    @property
    def pit_deviation(self) -> float:
        """How far the bar furthest from the mean height is from it, relative to that height."""
        return float(np.max(np.abs(self.pit / self.pit.mean(axis=1, keepdims=True) - 1.0)))

    @property
    def coverage_gap(self) -> float:
        """Mean absolute difference between coverage and level."""
        return float(np.mean(np.abs(self.coverage - self.levels)))

    @property
    def coverage_bias(self) -> float:
        """Mean of coverage less level: negative for an overconfident model, positive for an underconfident one."""
        return float(np.mean(self.coverage - self.levels))

    @property
    def verdict(self) -> str:
        """`overconfident` or `underconfident` where the coverage's bias says so with confidence `BAND`, `uneven` where
        a PIT histogram is not flat with that confidence, else `calibrated`."""
        if abs(self.coverage_bias) > _quantile(1) * self.coverage_bias_error:
            return "overconfident" if self.coverage_bias < 0 else "underconfident"
        return "uneven" if self.summary()["pit_p"] < 1.0 - BAND else "calibrated"

    def summary(self) -> dict[str, float]:
        """The numbers, by name. `pit_p` is the least of the coordinates' p-values, times their number."""
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
        """A table, in Markdown."""
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
    """How well the model knows `beliefs` random beliefs of the source from `embed` samples of each.

    `advance` is told how many beliefs were finished. A source whose `posterior(key)` is a `CategoricalBelief`
    is asked for its exact beliefs, and `js` compares with them.
    """
    for name, value, least in (
        ("beliefs", beliefs, 2), ("embed", embed, 1), ("held_out", held_out, 2), ("draws", draws, 2),
    ):  # fmt: skip
        if value < least:
            raise InputError(f"{name} must be at least {least} for a mean and its error; got {value}.")
    sizes = Sizes(embed, held_out, draws)
    measure = functools.partial(_measure, model, source, sizes)
    scores = in_batches(measure, (jax.random.split(key, beliefs),), batch=min(BATCH, beliefs), advance=advance)
    if np.any(scores.broken):
        raise InputError(
            f"The model gives NaN or an infinite density in {np.count_nonzero(scores.broken)} of {beliefs} beliefs: it "
            "cannot be judged. Check its parameters, and that the source's states suit its space."
        )
    return _collect(scores, sizes)


@eqx.filter_jit
def _measure(model: BeliefModel, source: BeliefSource, sizes: Sizes, keys: Key[Array, " b"]) -> Scores:
    return jax.vmap(lambda key: _score(key, model, source, sizes))(keys)


def _score(key: Key[Array, ""], model: BeliefModel, source: BeliefSource, sizes: Sizes) -> Scores:
    belief_key, draw_key, pit_key, density_key = jax.random.split(key, 4)
    states, space, exact = _belief(belief_key, source, sizes.embed + sizes.held_out)
    if space.signature != model.space.signature:
        raise InputError(
            f"The model is for {model.space.signature} and the source's beliefs are over {space.signature}: "
            "calibrate a model on beliefs over its own space."
        )
    known, held = (
        jax.tree.map(operator.itemgetter(part), states) for part in (slice(sizes.embed), slice(sizes.embed, None))
    )
    embedding = model.embed(known, jnp.zeros(sizes.embed), space)
    drawn = model.sample(draw_key, embedding, sizes.draws, space)
    # Draws and held-out samples go through one program together, so that equal states give equal numbers.
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), drawn, held)
    numbers, log_probs = jax.lax.optimization_barrier(
        (jax.vmap(space.encode)(both), model.log_prob(embedding, both, space))
    )
    js = None if exact is None else _divergence(model, embedding, exact)
    broken = ~(jnp.all(jnp.isfinite(numbers), axis=1) & (log_probs < jnp.inf))
    likelihood = log_probs[sizes.draws :]
    steps = -jnp.round(log_probs / TIE)[:, None]
    return Scores(
        nll=-jnp.mean(likelihood),
        impossible=jnp.mean(likelihood == -jnp.inf),
        energy=energy_distance(numbers[: sizes.draws], numbers[sizes.draws :]),
        js=js,
        pit=ranks(pit_key, numbers[: sizes.draws], numbers[sizes.draws :]),
        density=ranks(density_key, steps[: sizes.draws], steps[sizes.draws :])[:, 0],
        broken=jnp.sum(broken) + (0 if js is None else jnp.isnan(js)),
    )


def _belief(key: Key[Array, ""], source: BeliefSource, n: int) -> tuple[State, StateSpace, CategoricalBelief | None]:
    """n samples of a random belief, its space, and the belief itself if the source can tell."""
    posterior = getattr(source, "posterior", None)
    if posterior is not None:
        belief_key, sample_key = jax.random.split(key)
        belief = posterior(belief_key)
        if isinstance(belief, CategoricalBelief):
            return belief.sample(sample_key, n), belief.environment.space, belief
    return *source.sample(key, n), None


def _divergence(model: BeliefModel, embedding: Embedding, exact: CategoricalBelief) -> Float[Array, ""]:
    environment = exact.environment
    table = jnp.exp(model.log_prob(embedding, environment.states(), environment.space))
    return jensen_shannon(exact.probs, table)


def ranks(key: Key[Array, ""], draws: Float[Array, "n d"], samples: Float[Array, "h d"]) -> Float[Array, "h d"]:
    """(r + U) / (n + 1), r of n draws being below a sample: uniform on [0, 1] if all are from one distribution.

    Equal numbers are put in order by random ones, of which every draw and every sample has its own.
    """
    draw_key, sample_key, spread_key = jax.random.split(key, 3)
    n, h = draws.shape[0], samples.shape[0]
    first = jax.random.uniform(draw_key, (n,)) < jax.random.uniform(sample_key, (h, 1))
    below = draws < samples[:, None]
    tied = (draws == samples[:, None]) & first[:, :, None]
    return (jnp.sum(below | tied, axis=1) + jax.random.uniform(spread_key, (h, 1))) / (n + 1)


def energy_distance(one: Float[Array, "n d"], other: Float[Array, "h d"]) -> Float[Array, ""]:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'|, estimated without bias: no sample is paired with itself."""
    n, h = one.shape[0], other.shape[0]
    within = _distances(one, one) / (n * (n - 1)) + _distances(other, other) / (h * (h - 1))
    return 2.0 * _distances(one, other) / (n * h) - within


def _distances(one: Float[Array, "n d"], other: Float[Array, "h d"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sqrt(jnp.sum((one[:, None] - other) ** 2, axis=-1)))


def share_covariance(edges: Float[np.ndarray, " k"], held_out: int, draws: int) -> Float[np.ndarray, "k k"]:
    """Covariance of the shares of one belief's ranks that are at most each edge, if the model is right.

    Given the draws, a sample falls between two neighbours of them with a probability that is one of n + 1 spacings
    of the uniform distribution, which are Dirichlet(1, ..., 1); samples are then independent.
    """
    slots = draws + 1
    inside = np.clip(edges * slots - np.arange(slots)[:, None], 0.0, 1.0)
    product = np.outer(edges, edges)
    own = np.minimum.outer(edges, edges) - product
    shared = (inside.T @ inside / slots - product) / (slots + 1)
    return (own + (held_out - 1) * shared) / held_out


def _collect(scores: Scores, sizes: Sizes) -> Calibration:
    """Means, errors and bands of the scores of all beliefs, which are arrays with a leading axis by now."""
    nll, pit, density = (np.asarray(part, np.float64) for part in (scores.nll, scores.pit, scores.density))
    beliefs = len(nll)
    energy, energy_error = _number(np.asarray(scores.energy, np.float64))
    js, js_error = (None, None) if scores.js is None else _number(np.asarray(scores.js, np.float64))
    bars, bar_law = _bars(pit), _bar_covariance(sizes)
    total = beliefs * sizes.held_out
    covered = np.mean(density[:, :, None] <= LEVELS, axis=1)
    law = share_covariance(LEVELS, sizes.held_out, sizes.draws)
    return Calibration(
        beliefs, sizes.embed, sizes.held_out, sizes.draws,
        *(_number(nll) if np.all(np.isfinite(nll)) else (np.inf, np.inf)),
        impossible=float(np.mean(scores.impossible)),
        energy=energy, energy_error=energy_error, js=js, js_error=js_error,
        pit=np.rint(bars.mean(axis=0) * total),
        pit_band=_quantile(BINS) * _error(bars, np.diagonal(bar_law)) * total,
        pit_p=_flatness(bars, bar_law),
        levels=LEVELS,
        coverage=covered.mean(axis=0),
        coverage_band=_quantile(len(LEVELS)) * _error(covered, np.diagonal(law)),
        coverage_bias_error=float(_error(covered.mean(axis=1), law.mean())),
    )  # fmt: skip


def _bars(pit: Float[np.ndarray, "beliefs h d"]) -> Float[np.ndarray, "beliefs d bins"]:
    """The share of each belief's PITs in each bar."""
    bins = np.minimum((pit * BINS).astype(int), BINS - 1)
    return np.stack([np.mean(bins == place, axis=1) for place in range(BINS)], axis=-1)


def _bar_covariance(sizes: Sizes) -> Float[np.ndarray, "bins bins"]:
    """That of the bars of one belief, if the model is right."""
    difference = np.diff(np.eye(BINS + 1), axis=0)
    edges = np.linspace(0.0, 1.0, BINS + 1)
    return difference @ share_covariance(edges, sizes.held_out, sizes.draws) @ difference.T


def _flatness(
    bars: Float[np.ndarray, "beliefs d bins"], law: Float[np.ndarray, "bins bins"]
) -> Float[np.ndarray, " d"]:
    """p-values of Pearson's χ² with its mean and variance under clusters (Rao, Scott 1981, Satterthwaite's form).

    The larger of two: with the bars' covariance as measured over beliefs, and with that of a right model.
    """
    statistic = np.sum((bars.mean(axis=0) - 1.0 / BINS) ** 2, axis=-1)
    centred = bars - bars.mean(axis=0)
    measured = np.einsum("idk,idl->dkl", centred, centred) / (len(bars) - 1)
    # Bars that are the same in every belief tell nothing of their spread.
    measured = np.where(np.any(measured, axis=(1, 2), keepdims=True), measured, law)
    p = []
    for covariance in (measured, np.broadcast_to(law, measured.shape)):
        mean = np.trace(covariance, axis1=1, axis2=2)
        freedom = mean**2 / np.sum(covariance**2, axis=(1, 2))
        p.append(np.asarray(gammaincc(freedom / 2.0, freedom / 2.0 * len(bars) * statistic / mean), np.float64))
    return np.maximum(*p)


def _number(values: Float[np.ndarray, " beliefs"]) -> tuple[float, float]:
    mean, error = mean_and_error(values)
    return float(mean), float(error)


def _error(shares: Float[np.ndarray, "beliefs *k"], law: Float[np.ndarray, "*#k"] | float) -> Float[np.ndarray, "*k"]:
    """The standard error of a mean over beliefs: as measured, but not below that of a right model."""
    return np.asarray(np.maximum(mean_and_error(shares)[1], np.sqrt(np.asarray(law) / len(shares))))


def _quantile(comparisons: int) -> float:
    """How many standard errors hold all of so many comparisons `BAND` of the time."""
    return NormalDist().inv_cdf(1.0 - (1.0 - BAND) / 2.0 / comparisons)
