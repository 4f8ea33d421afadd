"""The theorem on a small grid: the rate, the limit, and that the check of the rate can fail."""

from __future__ import annotations

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid
from tolerances import EXACT, FLOAT

from nbf import prng
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.convergence import (
    ConvergenceEvaluation,
    ConvergenceJob,
    episodes,
    evaluate,
    positivity,
    slope,
    sup_errors,
)
from nbf_paper.experiments.gridworld import family_of
from nbf_paper.records import ALL, read_records, summary
from nbf_paper.report import convergence as report

GRID = GridworldConfig("3-2D-random", 3, 2, fixed=False, horizon=3)
SIZES = ConvergenceEvaluation(episodes=64, particles=(64, 2048), slope_from=64, bootstraps=500)
FAR = 4.0
"""Standard errors of a slope beyond which it is another one: a sound one lies there once in 16 000 times."""


class Bar:
    def describe(self, text: str) -> None: ...
    def advance(self, done: int) -> None: ...


@functools.cache
def records(arm: str):
    """Of the perfect model, and of the same with 64 particles whatever n is."""
    few = lambda n: NeuralBayesianFilter.faithful(TabularModel(Lattice(GRID.shape)), 64)  # noqa: E731
    return evaluate(ConvergenceJob(arm, 0, GRID, SIZES, few if arm == "few" else None), Bar())


def value(records, metric, particles=0):
    (found,) = (each for each in records if (each.metric, each.particles, each.step) == (metric, particles, ALL))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["slope", "slope_tv"])
def test_the_perfect_model_has_the_rate_of_the_corollary(metric):
    found = value(records("tabular"), metric)
    assert found.se is not None
    assert 0.0 < found.se < 0.05  # narrow enough to tell -1/2 from -1/4 and from -3/4
    assert abs(found.value + 0.5) < FAR * found.se
    low, high = (value(records("tabular"), f"{metric}_{end}").value for end in ("low", "high"))
    assert low < -0.5 < high


@pytest.mark.slow
def test_an_error_that_does_not_fall_has_no_such_rate():
    found = value(records("few"), "slope")
    assert found.se is not None
    assert found.value + 0.5 > FAR * found.se
    assert abs(found.value) < FAR * found.se


def test_with_many_particles_the_estimate_is_the_exact_filters():
    """A mean of n numbers in [-1, 1] errs by at most 1/√n, that of a histogram of 9 cells by at most √(9/n)/2 in total
    variation; weights between 0.1/4 and 0.9 cost at most their ratio, and each step adds its own error."""
    n, weights = max(SIZES.particles), 0.9 / 0.025
    found = records("tabular")
    assert value(found, "sup_error", n).value < GRID.horizon * np.sqrt(weights / n)
    assert value(found, "sup_tv", n).value < GRID.horizon * np.sqrt(9 * weights / n) / 2.0
    assert value(found, "sup_error", 64).value > 3.0 * value(found, "sup_error", n).value


def test_the_exact_filter_has_no_error():
    """Of a filter without an estimate of its own that of its belief is taken."""
    keys = jax.random.split(prng.stream(0, "convergence", GRID.name), SIZES.episodes)
    exact = sup_errors(ExactFilter(), keys, episodes(family_of(GRID, 0), GRID.horizon, keys))
    np.testing.assert_allclose(np.stack(exact), 0.0, **FLOAT)


def test_positivity_is_the_least_probability_of_a_step_with_an_observation():
    """Against a loop over the branches of every state and every symbol."""
    environment, policy = small_grid(error=0.3, temperature=1.0)
    least, likelihood = np.inf, eqx.filter_jit(environment.log_likelihood)
    successors = eqx.filter_jit(environment.successors)
    for state in np.asarray(environment.states())[np.asarray(environment.free)]:
        ends, log_probs = successors(jnp.asarray(state), policy)
        ways: dict[tuple[int, ...], float] = {}
        for end, log_prob in zip(np.asarray(ends).tolist(), np.asarray(log_probs).tolist(), strict=True):
            ways[tuple(end)] = ways.get(tuple(end), 0.0) + float(np.exp(log_prob))
        for end, probability in ways.items():
            for symbol in range(environment.num_symbols):
                seen = likelihood(jnp.int32(symbol), jnp.asarray(state), jnp.asarray(end))
                least = min(least, probability * float(np.exp(seen)))
    np.testing.assert_allclose(eqx.filter_jit(positivity)(environment, policy), least, **FLOAT)


def test_the_slope_of_a_power_law_is_its_power():
    counts = np.array([10, 100, 1000])
    scale = np.random.default_rng(0).uniform(0.5, 2.0, size=(20, 1))
    value, resampled = slope(counts, scale * counts**-0.7, 50, 0)
    np.testing.assert_allclose([value, resampled.min(), resampled.max()], -0.7, **EXACT)
    with pytest.raises(InputError, match="above 0"):
        slope(counts, np.zeros((3, 3)), 50, 0)


def test_the_interval_of_a_slope_holds_the_power_as_often_as_it_says():
    """95%, over 200 samples of a power law with noise: 4 standard deviations are 6.2%."""
    counts, rng, inside = np.array([16, 64, 256, 1024]), np.random.default_rng(1), 0
    for trial in range(200):
        errors = counts**-0.5 * np.abs(rng.normal(size=(100, 4)))
        low, high = np.percentile(slope(counts, errors, 400, trial)[1], (2.5, 97.5))
        inside += low < -0.5 < high
    assert inside / 200 > 0.95 - 0.062


def test_recorded_once_and_drawn(tmp_path):
    job = ConvergenceJob("tabular", 0, GRID, SIZES)
    job.check(tmp_path)
    assert job.run(tmp_path / "convergence", tmp_path, command="a test", bar=Bar())
    assert not job.run(tmp_path / "convergence", tmp_path, command="a test", bar=Bar())
    assert sorted(read_records(tmp_path / "convergence"), key=str) == sorted(records("tabular"), key=str)
    page = report.page(tmp_path / "convergence")
    page.figures["convergence.png"]()
    assert "NBF, perfect model" in page.tables["convergence"]


def test_where_a_curve_passes_a_level():
    """Between 1 at n = 10 and 0.1 at n = 1000, on both logarithms, 10^-0.5 is passed at n = 100."""
    base = value(records("tabular"), "epsilon")
    points = [replace(base, metric="sup_error", particles=n, value=error) for n, error in ((10, 1.0), (1000, 0.1))]
    other = replace(base, arm="other", metric="sup_error", particles=5, value=10**-0.5)
    assert report.equal_particles(summary(points), summary([other]), ("nbf", "other")) == "100"


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match=r"no arm 'nonsense'.*tabular"):
        ConvergenceJob("nonsense")
    with pytest.raises(InputError, match="at least 2 episodes"):
        ConvergenceEvaluation(episodes=1)
    with pytest.raises(InputError, match="slope_from=1024"):
        ConvergenceEvaluation(particles=(16, 32))
