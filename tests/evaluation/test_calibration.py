"""Diagnostics of belief models whose faults are known, against closed forms, enumeration and SciPy."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import FALSE_ALARM
from PIL import Image
from scipy import stats
from scipy.spatial.distance import cdist, jensenshannon, pdist
from tolerances import EXACT, FLOAT, SEED, monte_carlo

from nbf import prng
from nbf.beliefs.categorical import CategoricalBelief
from nbf.capabilities import ExactSource
from nbf.contracts import BeliefModel, BeliefSource
from nbf.environments.gridworld import Gridworld
from nbf.errors import InputError
from nbf.evaluation.calibration import calibrate
from nbf.evaluation.rank_statistics import BINS, share_covariance
from nbf.evaluation.scores import energy_distance, ranks
from nbf.models.tabular import TabularModel
from nbf.plot.diagnostics import MAX_COORDINATES, calibration_figure
from nbf.spaces import Box, Lattice

SIGMA = np.array([0.5, 1.5], np.float32)
SIZES: dict[str, Any] = {"beliefs": 320, "embed": 1, "held_out": 32, "draws": 63}
SAMPLES = SIZES["beliefs"] * SIZES["held_out"]


class Gaussians(BeliefSource):
    """N(μ, diag σ²) with μ ~ N(0, 1) and σ known; the space's context tells μ."""

    def sample(self, key, n):
        mean_key, sample_key = jax.random.split(key)
        mean = jax.random.normal(mean_key, (2,))
        states = mean + SIGMA * jax.random.normal(sample_key, (n, 2))
        return states, Box((-1.0, -1.0), (1.0, 1.0), bounded=False, context=mean)


class Oracle(BeliefModel):
    """Reads μ from the context and believes N(trust · μ + shift, diag scale²)."""

    space: Box
    trust: jax.Array
    shift: jax.Array
    scale: jax.Array

    def embed(self, states, log_weights, space=None):
        assert space is not None
        assert space.context is not None
        return self.trust * space.context + self.shift

    def sample(self, key, embedding, n, space):
        return embedding + self.scale * jax.random.normal(key, (n, 2))

    def log_prob(self, embedding, states, space):
        return jnp.sum(jax.scipy.stats.norm.logpdf(states, embedding, self.scale), axis=-1)

    def objective(self, key, embeddings, states, space):
        return jax.vmap(self.log_prob, (0, 0, None))(embeddings, states, space)

    def prepared(self):
        return self


def oracle(trust=1.0, shift=(0.0, 0.0), scale: np.ndarray = SIGMA):
    space = Box((-1.0, -1.0), (1.0, 1.0), bounded=False)
    return Oracle(space, jnp.asarray(trust), jnp.asarray(shift), jnp.asarray(scale, jnp.float32))


MODELS = {
    "perfect": oracle,
    "overconfident": lambda: oracle(scale=SIGMA / 2),
    "underconfident": lambda: oracle(scale=SIGMA * 2),
    "biased": lambda: oracle(shift=(0.5, 0.0)),
    "blind": lambda: oracle(trust=0.0, scale=np.sqrt(1 + SIGMA**2)),
}
"""`blind` knows the mean over all beliefs only: calibrated, though the samples of one belief go astray together."""


@functools.cache
def found(name):
    return calibrate(prng.stream(SEED, "calibration", name), MODELS[name](), Gaussians(), **SIZES)


class Tables(BeliefSource):
    """Random tables of probabilities over a lattice with several samples to a cell; the context tells them."""

    shape: tuple[int, ...]

    def sample(self, key, n):
        table_key, sample_key = jax.random.split(key)
        space = Lattice(self.shape)
        # Equal pairs of probabilities: densities are tied between cells, too.
        table = jnp.repeat(jax.random.dirichlet(table_key, jnp.ones(space.size // 2)), 2) / 2
        states = jnp.asarray(space.points())[prng.categoricals(sample_key, table, n)]
        return states, Lattice(self.shape, context=table)


class Reader(BeliefModel):
    """A table, given or read from the context, and raised to a power."""

    space: Lattice
    power: jax.Array
    table: jax.Array | None = None

    def embed(self, states, log_weights, space=None):
        assert space is not None
        table = space.context if self.table is None else self.table
        assert table is not None
        table = table**self.power
        return table / jnp.sum(table)

    def sample(self, key, embedding, n, space):
        return TabularModel(self.space).sample(key, embedding, n, space)

    def log_prob(self, embedding, states, space):
        return TabularModel(self.space).log_prob(embedding, states, space)

    def objective(self, key, embeddings, states, space):
        return jax.vmap(self.log_prob, (0, 0, None))(embeddings, states, space)

    def prepared(self):
        return self


class Fixed(ExactSource):
    """Always the same belief, and its probabilities are known."""

    probs: jax.Array

    def posterior(self, key):
        return CategoricalBelief(self.probs, Gridworld(Lattice((3, 3)), jnp.asarray(0.3)))

    def sample(self, key, n):
        belief = self.posterior(key)
        return belief.sample(key, n), belief.environment.space


# --- the parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "h", "d"), [(7, 5, 2), (2, 2, 1), (30, 11, 3)])
def test_energy_distance_is_the_sum_over_pairs(n, h, d):
    rng = np.random.default_rng(n)
    one, other = rng.normal(size=(n, d)), rng.normal(size=(h, d)) + 0.3
    expected = 2 * cdist(one, other).mean() - pdist(one).mean() - pdist(other).mean()
    actual = jax.jit(energy_distance)(jnp.asarray(one, jnp.float32), jnp.asarray(other, jnp.float32))
    np.testing.assert_allclose(actual, expected, **FLOAT)


def test_ranks_count_the_draws_below(key):
    rng = np.random.default_rng(3)
    draws, samples = (jnp.asarray(rng.normal(size=(size, 2)), jnp.float32) for size in (9, 4))
    expected = np.sum(np.asarray(draws) < np.asarray(samples)[:, None], axis=1)
    found = np.asarray(jax.jit(ranks)(key, draws, samples)) * 10
    np.testing.assert_array_equal(np.floor(found), expected)


def test_ties_are_broken_at_random_once_for_all(key):
    """Among equal draws every rank is as likely; two equal samples are as far apart as two different ones."""
    constant = jnp.zeros((3, 1)), jnp.zeros((2, 1))
    found = np.asarray(jax.jit(jax.vmap(lambda key: ranks(key, *constant)))(jax.random.split(key, 4000)))[:, :, 0]
    counts = np.zeros((4, 4))
    np.add.at(counts, tuple((found * 4).astype(int).T), 1)
    # Pólya's urn: both ranks are equal with probability 2/5, each pair of different ones has 1/20.
    law = np.where(np.eye(4), 1 / 10, 1 / 20)
    assert stats.chisquare(counts.ravel(), 4000 * law.ravel()).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("draws", "held_out"), [(2, 2), (1, 3), (3, 2)])
def test_the_law_of_the_shares_by_enumeration(draws, held_out):
    """Every order of draws and samples is as likely; what U adds to a rank is integrated by hand."""
    edges = np.array([0.0, 0.2, 0.5, 0.55, 1.0])
    orders = list(itertools.permutations(range(draws + held_out)))
    second = np.zeros((len(edges), len(edges)))
    for order in orders:
        place = np.sum(np.array(order[:draws])[:, None] < np.array(order[draws:]), axis=0)
        below = np.clip(edges * (draws + 1) - place[:, None], 0, 1)  # P(rank <= edge) of each sample, given the order
        pairs = np.einsum("ik,jl->kl", below, below) - np.einsum("ik,il->kl", below, below)
        second += (pairs + np.minimum(below[:, :, None], below[:, None]).sum(axis=0)) / held_out**2
    expected = second / len(orders) - np.outer(edges, edges)
    np.testing.assert_allclose(share_covariance(edges, held_out, draws), expected, **EXACT)


# --- models with known faults --------------------------------------------------------------------


@pytest.mark.slow
def test_a_perfect_model_passes():
    seen = found("perfect")
    assert seen.verdict == "calibrated"
    assert np.all(seen.pit_p > FALSE_ALARM)
    np.testing.assert_array_equal(seen.pit.sum(axis=1), [SAMPLES, SAMPLES])
    assert np.all(np.abs(seen.pit - SAMPLES / BINS) < seen.pit_band)
    assert np.all(np.abs(seen.coverage - seen.levels) < seen.coverage_band)
    np.testing.assert_allclose(seen.energy, 0, atol=monte_carlo(seen.energy_error, 1))


NLL = {"perfect": (1.0, 0.0), "overconfident": (0.5, 0.0), "underconfident": (2.0, 0.0), "biased": (1.0, 0.5)}


@pytest.mark.sampled
@pytest.mark.parametrize("name", NLL)
def test_held_out_likelihood_is_the_cross_entropy(name):
    """-E log N(x; μ + shift, s²σ²) in closed form; (z + a)² of a standard normal z has variance 2 + 4a²."""
    stretch, shift = NLL[name]
    offset = np.array([shift, 0]) / SIGMA
    expected = np.sum(np.log(stretch * SIGMA * np.sqrt(2 * np.pi)) + (1 + offset**2) / (2 * stretch**2))
    deviation = np.sqrt(np.sum(2 + 4 * offset**2)) / (2 * stretch**2)
    np.testing.assert_allclose(found(name).nll, expected, rtol=0, atol=monte_carlo(deviation, SAMPLES))
    # A sample standard deviation of n clusters is off by 1/√(2n) of itself.
    np.testing.assert_allclose(
        found(name).nll_error, deviation / SAMPLES**0.5, rtol=monte_carlo(0.5**0.5, SIZES["beliefs"])
    )


@pytest.mark.parametrize("name", ["overconfident", "underconfident", "perfect"])
def test_coverage_is_what_theory_says(name):
    """A disc of probability L under the model has 1 - (1 - L)^(s²) in truth; draws estimate it binomially."""
    seen, stretch = found(name), NLL[name][0]
    truth = (np.arange(20000) + 0.5) / 20000  # probabilities of the true highest-density region, uniform
    model = 1 - (1 - truth) ** (1 / stretch**2)
    slots = SIZES["draws"] + 1
    whole = np.floor(seen.levels * slots)[:, None]
    part = seen.levels[:, None] * slots - whole
    draws = stats.binom(SIZES["draws"], model)
    expected = np.mean(draws.cdf(whole - 1) + part * draws.pmf(whole), axis=1)
    error = seen.coverage_band / stats.norm.isf(0.005 / len(seen.levels))
    assert np.all(np.abs(seen.coverage - expected) < monte_carlo(error, 1))


@pytest.mark.parametrize(("name", "sign"), [("overconfident", -1), ("underconfident", 1)])
def test_confidence_is_told_with_its_sign(name, sign):
    """Too narrow a model: too little coverage, and PITs at both ends; too wide a one the reverse."""
    seen = found(name)
    assert seen.verdict == name
    assert np.all(sign * (seen.coverage - seen.levels) > seen.coverage_band)
    np.testing.assert_allclose(seen.coverage_bias, sign * seen.coverage_gap, **EXACT)
    ends, middle = seen.pit[:, [0, -1]], seen.pit[:, BINS // 2 - 1 : BINS // 2 + 1]
    excess = sign * (middle - SAMPLES / BINS)
    assert np.all(excess > seen.pit_band[:, BINS // 2 - 1 : BINS // 2 + 1])
    assert np.all(sign * (ends - SAMPLES / BINS) < -seen.pit_band[:, [0, -1]])
    assert np.all(seen.pit_p < FALSE_ALARM)
    assert seen.energy > monte_carlo(seen.energy_error, 1)


def test_a_biased_model_has_a_skewed_pit_where_it_is_biased():
    """Shifted by one standard deviation: P(PIT <= u) is Φ(Φ⁻¹(u) + 1), whose mean is Φ(-1/√2)."""
    seen = found("biased")
    expected = [stats.norm.cdf(-(0.5**0.5)) - 0.5, 0.0]
    # At most that of uniform PITs: a spread of each sample's own, and one that a belief's share through its draws.
    spread = np.sqrt(1 / 12 / SAMPLES + 1 / 12 / SIZES["beliefs"] / SIZES["draws"])
    slots = SIZES["draws"] + 1  # E (r + 1/2) / (n + 1)
    np.testing.assert_allclose(
        seen.pit_shift, np.multiply(expected, SIZES["draws"] / slots), rtol=0, atol=monte_carlo(spread, 1)
    )
    assert seen.pit_p[0] < FALSE_ALARM < seen.pit_p[1]
    assert seen.summary()["pit_p"] < FALSE_ALARM
    assert seen.summary()["pit_shift"] == seen.pit_shift[0]


def test_errors_are_clustered_by_belief():
    """The blind model is calibrated; only whoever takes its samples for independent finds it is not."""
    seen = found("blind")
    assert np.all(seen.pit_p > FALSE_ALARM)
    assert np.all(np.abs(seen.pit - SAMPLES / BINS) < seen.pit_band)
    assert np.all(np.abs(seen.coverage - seen.levels) < seen.coverage_band)
    assert stats.chisquare(seen.pit[0]).pvalue < FALSE_ALARM
    assert seen.energy > monte_carlo(seen.energy_error, 1)


def test_the_perfect_model_has_the_best_scores():
    scores = {name: found(name) for name in MODELS}
    assert min(scores, key=lambda name: scores[name].nll) == "perfect"
    assert min(scores, key=lambda name: scores[name].energy) == "perfect"


# --- discrete beliefs ----------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "calibrated"), (2.5, "overconfident"), (0.3, "underconfident")])
def test_ties_leave_a_perfect_discrete_model_uniform(power, verdict, key):
    model = Reader(Lattice((2, 3)), jnp.asarray(power))
    seen = calibrate(key, model, Tables((2, 3)), beliefs=320, embed=1, held_out=16, draws=31)
    assert seen.verdict == verdict
    if verdict == "calibrated":
        assert np.all(seen.pit_p > FALSE_ALARM)
        assert np.all(np.abs(seen.pit - 320 * 16 / BINS) < seen.pit_band)
        assert np.all(np.abs(seen.coverage - seen.levels) < seen.coverage_band)
        np.testing.assert_allclose(seen.energy, 0, atol=monte_carlo(seen.energy_error, 1))
    assert seen.js is None
    assert "js" not in seen.summary()


def test_js_is_scipys_where_the_source_knows_its_beliefs(key):
    truth = np.array([4, 0, 1, 2, 2, 1, 3, 5, 2]) / 20
    table = np.array([1, 2, 3, 4, 5, 4, 3, 2, 1]) / 25
    source = Fixed(jnp.asarray(truth, jnp.float32))
    model = Reader(Lattice((3, 3)), jnp.asarray(1.0), jnp.asarray(table, jnp.float32))
    seen = calibrate(key, model, source, beliefs=8, embed=1, held_out=4, draws=4)
    assert seen.js is not None
    assert seen.js_error is not None
    np.testing.assert_allclose(seen.js, jensenshannon(truth, table) ** 2, **FLOAT)
    np.testing.assert_allclose(seen.js_error, 0, **FLOAT)
    assert seen.summary()["js"] == seen.js
    assert "JS from the exact belief" in str(seen)


def test_what_a_model_rules_out_is_told(key):
    """A table of few samples gives no probability to the cells it has not seen: its likelihood is zero, not NaN."""
    truth = jnp.full(9, 1 / 8).at[1].set(0.0)
    seen = calibrate(key, TabularModel(Lattice((3, 3))), Fixed(truth), beliefs=64, embed=3, held_out=4, draws=4)
    # A cell is missed by three samples with probability (7/8)³.
    expected = (7 / 8) ** 3
    np.testing.assert_allclose(
        seen.impossible, expected, rtol=0, atol=monte_carlo((expected * (1 - expected)) ** 0.5, 64)
    )
    assert seen.nll == seen.nll_error == np.inf
    assert seen.verdict == "overconfident"
    assert "ruled out" in str(seen)
    assert np.all(np.isfinite([value for name, value in seen.summary().items() if not name.startswith("nll")]))


# --- using it ------------------------------------------------------------------------------------


def test_the_table_and_the_summary_have_the_same_numbers():
    seen = found("biased")
    lines = str(seen).splitlines()
    assert all(line.count("|") == 3 for line in lines)
    assert lines[0].startswith("| 320 beliefs: 1 samples embedded, 32 held out, 63 drawn")
    for name, spec in {"nll": ".4f", "energy": ".5f", "coverage_gap": ".4f", "coverage_bias": "+.4f"}.items():
        assert any(format(seen.summary()[name], spec) in line for line in lines)
    assert all(type(value) is float for value in seen.summary().values())


def test_progress_is_told(key):
    done = []
    calibrate(key, oracle(), Gaussians(), **(SIZES | {"beliefs": 70}), advance=done.append)
    assert done == [32, 32, 6]


@pytest.mark.parametrize(("name", "value"), [("beliefs", 1), ("embed", 0), ("held_out", 1), ("draws", 1)])
def test_bad_sizes_are_refused(name, value, key):
    with pytest.raises(InputError, match=f"{name} must be at least {value + 1}.*got {value}"):
        calibrate(key, oracle(), Gaussians(), **(SIZES | {name: value}))


def test_models_that_do_not_fit_or_give_nan_are_refused(key):
    with pytest.raises(InputError, match=r"lattice\(3, 3\).*reals"):
        calibrate(key, TabularModel(Lattice((3, 3))), Gaussians(), **SIZES)
    with pytest.raises(InputError, match="NaN or an infinite density in 40 of 40 beliefs"):
        calibrate(key, oracle(trust=float("nan")), Gaussians(), **{**SIZES, "beliefs": 40})


def panel_arrays(seen, repeat=1):
    return (
        np.tile(seen.pit, (repeat, 1)), np.tile(seen.pit_band, (repeat, 1)),
        seen.levels, seen.coverage, seen.coverage_band,
    )  # fmt: skip


def test_the_figure_is_written_and_shows_the_curve(tmp_path):
    seen = found("overconfident")
    figure = calibration_figure(*panel_arrays(seen), names=["east", "north"], title="a model", path=tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
    east, north, coverage = figure.axes
    assert [axis.get_title() for axis in (east, north)] == ["east", "north"]
    np.testing.assert_allclose([bar.get_height() for bar in east.containers[0]], BINS * seen.pit[0] / SAMPLES, **EXACT)
    drawn = np.asarray(coverage.lines[1].get_xydata())
    np.testing.assert_allclose(drawn, np.stack([seen.levels, seen.coverage], 1))
    assert figure.get_suptitle() == "a model"


def test_of_many_coordinates_the_least_flat_are_drawn():
    arrays = list(panel_arrays(found("perfect"), repeat=10))
    arrays[0][17, 3] += 1000
    figure = calibration_figure(*arrays)
    titles = [axis.get_title() for axis in figure.axes if axis.get_visible()]
    assert len(titles) == MAX_COORDINATES + 1
    assert "coordinate 18" in titles
    assert figure.get_suptitle() == "the 11 least flat of 20 coordinates"


@pytest.mark.parametrize(
    ("place", "change"),
    [(0, lambda a: a[0]), (1, lambda a: a[:, 1:]), (3, lambda a: a[1:]), (4, lambda a: a * np.nan)],
)
def test_arrays_that_cannot_be_drawn_are_refused(place, change):
    arrays = list(panel_arrays(found("perfect")))
    arrays[place] = change(arrays[place])
    with pytest.raises(InputError):
        calibration_figure(*arrays)


def test_names_must_fit():
    with pytest.raises(InputError, match=r"2 coordinates to name; got 1 names: \['x'\]"):
        calibration_figure(*panel_arrays(found("perfect")), names=["x"])
