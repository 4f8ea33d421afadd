"""Few points for many: unbiased, different, and with less error than any resampling; and even points of a cube."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from scipy import optimize
from scipy.stats import qmc
from tolerances import FLOAT, monte_carlo

from nbf import prng
from nbf.resampling.optimal import merge_duplicates, optimal_indices, select_branches, split_heavy, threshold

COUNT, SIZE, REPEATS = 8, 40, 4000
spread = jax.jit(jax.vmap(optimal_indices, (0, None, None)), static_argnums=2)


def some_weights(size=SIZE, empty=5):
    """Of very different sizes, as those of a belief are; a few are zero. They sum to one."""
    weights = np.random.default_rng(size).dirichlet(np.full(size, 0.3))
    weights[:: size // empty] = 0.0
    return weights / weights.sum()


def log(weights):
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(weights), jnp.float32)


def totals(indices, log_weights, size=SIZE):
    """The weight that each of the first points has in the end: one row for each of many draws."""
    found = np.zeros((len(indices), size))
    np.add.at(found, (np.arange(len(indices))[:, None], np.asarray(indices)), np.exp(np.asarray(log_weights, float)))
    return found


def level(weights, count):
    """c, by bisection."""
    return optimize.brentq(lambda c: np.minimum(weights / c, 1.0).sum() - count, 1e-12, 1.0)


@pytest.fixture(scope="module")
def draws():
    indices, log_weights, left = spread(jax.random.split(jax.random.key(0), REPEATS), log(some_weights()), COUNT)
    light = some_weights()[some_weights() < level(some_weights(), COUNT)]
    np.testing.assert_allclose(left, light.sum(), **FLOAT)
    return np.asarray(indices), np.asarray(log_weights)


@pytest.mark.parametrize("count", [1, COUNT, 30])
def test_the_threshold_leaves_so_many(count):
    weights = some_weights()
    found = jax.jit(threshold, static_argnums=1)(weights.astype(np.float32), count)
    np.testing.assert_allclose(found, level(weights, count), **FLOAT)


def test_what_is_left_is_unbiased(draws):
    found = totals(*draws)
    sigma = monte_carlo(found.std(axis=0), REPEATS)
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - some_weights()), sigma + FLOAT["atol"])
    np.testing.assert_allclose(found.sum(axis=1), np.ones(REPEATS), **FLOAT)


def test_no_index_is_there_twice_and_none_without_weight(draws):
    indices, log_weights = draws
    assert np.all(np.isfinite(log_weights))
    assert all(len(set(row)) == COUNT for row in indices.tolist())
    assert np.all(some_weights()[indices] > 0)


def test_the_heavy_ones_keep_their_weight_and_the_light_ones_have_the_threshold(draws):
    weights, found = some_weights(), totals(*draws)
    c = level(weights, COUNT)
    heavy = weights > c
    assert 0 < heavy.sum() < COUNT
    np.testing.assert_allclose(found[:, heavy], np.tile(weights[heavy], (REPEATS, 1)), **FLOAT)
    light = found[:, ~heavy]
    np.testing.assert_allclose(light[light > 0], c, **FLOAT)


def test_no_unbiased_way_to_leave_so_many_has_less_error(draws):
    """One that keeps point i with probability p_i errs by Σ w² (1/p - 1) at least. The best p by a general solver is
    no better; n independent draws err by Σ w (1 - w) / n, a systematic one by the fractions f of n·w, Σ f (1 - f) / n².
    """
    weights = some_weights()
    error = np.sum((totals(*draws) - weights) ** 2, axis=1)
    some = weights[weights > 0]
    start = np.full(len(some), COUNT / len(some))
    best = optimize.minimize(
        lambda p: np.sum(some**2 * (1.0 / p - 1.0)), start, jac=lambda p: -((some / p) ** 2), method="SLSQP",
        bounds=[(1e-6, 1.0)] * len(some), constraints={"type": "ineq", "fun": lambda p: COUNT - p.sum()},
        options={"maxiter": 1000, "ftol": 1e-12},
    )  # fmt: skip
    assert best.success
    np.testing.assert_allclose(error.mean(), best.fun, rtol=0, atol=monte_carlo(error.std(), REPEATS))
    fractions = np.modf(COUNT * weights)[0]
    assert best.fun < np.sum(fractions * (1.0 - fractions)) / COUNT**2 < np.sum(weights * (1.0 - weights)) / COUNT


def test_where_there_are_no_more_than_so_many_nothing_is_left_to_chance(key):
    """As many points as places or fewer, with and without weight."""
    weights = np.append(np.arange(1.0, 7.0), [0.0, 0.0]) / 21.0
    for count in (6, 8, 11):
        (indices,), (log_weights,), (left,) = spread(key[None], log(weights), count)
        assert left == 0.0
        assert np.all(np.asarray(indices[6:]) == 5)  # the heaviest, without weight
        np.testing.assert_array_equal(indices[:6], np.arange(6))
        np.testing.assert_allclose(np.exp(log_weights), np.append(weights[:6], np.zeros(count - 6)), **FLOAT)


BAD = {"no weight": [-np.inf] * 3, "NaN": [np.nan, 0.0, 0.0], "infinite": [np.inf, 0.0, 0.0],
       "far apart": [-1e30, 0.0, -3.0], "one": [-np.inf, 2.0, -np.inf]}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize(
    "way",
    [jax.jit(lambda key, log_weights: optimal_indices(key, log_weights, 2)[:2]), jax.jit(split_heavy)],
    ids=["optimal", "split"],
)
def test_nothing_is_nan_and_what_has_no_weight_gets_none(name, way, key):
    indices, log_weights = way(key, np.asarray(BAD[name], np.float32))
    weights = np.exp(np.asarray(log_weights))
    assert not np.any(np.isnan(weights))
    np.testing.assert_allclose(weights.sum(), 0.0 if name == "no weight" else 1.0, **FLOAT)
    usable = np.isfinite(BAD[name]) & (np.asarray(BAD[name]) > -100.0)
    assert np.all(usable[np.asarray(indices)[weights > 0]])


def test_thousands_of_points_leave_so_many_and_none_without_weight(key):
    """Sums of so many round: nothing is lost, and nothing that has no weight comes in, as their sums never fall and
    rise nowhere but where there is weight."""
    size, count, repeats = 4096, 100, 2000
    weights = np.where(np.arange(size) % 3 == 0, np.random.default_rng(0).uniform(size=size), 0.0)
    rises = np.diff(jax.jit(prng.rising_sums)(weights.astype(np.float32)), prepend=np.float32(0.0))
    np.testing.assert_array_equal(rises > 0, weights > 0)
    indices, log_weights, _ = spread(jax.random.split(key, repeats), log(weights), count)
    kept = np.isfinite(np.asarray(log_weights))
    assert np.all(np.asarray(indices)[kept] % 3 == 0)
    # A sum that rounds across a whole number is one point more or less, which is rare.
    assert np.all(kept.sum(axis=1) >= count - 1)
    np.testing.assert_allclose(np.exp(np.asarray(log_weights, float)).sum(axis=1), np.ones(repeats), **FLOAT)


def test_branches_are_chosen_as_pairs_of_a_point_and_a_way(key):
    """Unbiased for the weights of all pairs, none twice, the heavy ones for certain; and as even in the points as the
    same number of points without branches, where all of them have alike ones."""
    points, branches, count, repeats = 12, 3, 10, 4000
    weights = some_weights(points, empty=2)
    chances = np.random.default_rng(1).dirichlet(np.full(branches, 0.5), size=points)
    chances[0] = [1.0, 0.0, 0.0]
    choose = jax.jit(jax.vmap(lambda key: select_branches(key, log(weights), log(chances), count)))
    entries, branch, log_weights, left = choose(jax.random.split(key, repeats))
    pairs = (weights[:, None] * chances).ravel()
    places = np.asarray(entries) * branches + np.asarray(branch)
    found = totals(places, log_weights, points * branches)
    sigma = monte_carlo(found.std(axis=0), repeats)
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - pairs), sigma + FLOAT["atol"])
    heavy = pairs > level(pairs, count)
    np.testing.assert_allclose(found[:, heavy], np.tile(pairs[heavy], (repeats, 1)), **FLOAT)
    np.testing.assert_allclose(left, pairs[~heavy].sum(), **FLOAT)
    kept = np.isfinite(np.asarray(log_weights))
    assert all(len(set(row[some])) == some.sum() for row, some in zip(places, kept, strict=True))
    assert np.all(pairs[places[kept]] > 0)


def test_alike_points_do_not_all_take_the_same_way(key):
    """Of 64 points with two ways each, 32 are followed: about as many take the one as the other, at every draw."""
    choose = jax.jit(jax.vmap(lambda key: select_branches(key, jnp.zeros(64), jnp.full((64, 2), jnp.log(0.5)), 32)))
    entries, branch, _, left = choose(jax.random.split(key, 200))
    np.testing.assert_allclose(left, 1.0, **FLOAT)
    assert np.all(np.abs(np.asarray(branch).sum(axis=1) - 16) <= 1)
    # And every way is taken from everywhere.
    assert np.all(np.ptp(np.asarray(entries), axis=1) > 55)


def test_places_without_weight_are_given_to_copies(key):
    """Every place is used, no entry loses or gains, and the spare places are shared out in proportion."""
    weights = some_weights(16, empty=2)
    weights[3:] = np.where(weights[3:] < np.median(weights), 0.0, weights[3:])
    weights /= weights.sum()
    some, repeats = weights > 0, 2000
    indices, log_weights = jax.jit(jax.vmap(split_heavy, (0, None)))(jax.random.split(key, repeats), log(weights))
    assert np.all(np.isfinite(log_weights))
    np.testing.assert_allclose(totals(indices, log_weights, 16), np.tile(weights, (repeats, 1)), **FLOAT)
    copies = (np.asarray(indices)[:, :, None] == np.arange(16)).sum(axis=1)
    expected = some + (16 - some.sum()) * weights
    assert np.all(np.abs(copies - expected) < 1.0 + FLOAT["rtol"])
    sigma = monte_carlo(copies.std(axis=0), repeats)
    np.testing.assert_array_less(np.abs(copies.mean(axis=0) - expected), sigma + FLOAT["rtol"])


# Even points

evenly = jax.jit(prng.evenly, static_argnums=(1, 2))


def test_each_even_point_is_uniform(key):
    """The last of 50, over many shifts."""
    points = np.asarray(jax.jit(jax.vmap(lambda key: prng.evenly(key, 50, 2)))(jax.random.split(key, 4000)))
    assert points.min() > 0.0
    assert points.max() < 1.0
    counts = [np.histogram(points[:, axis, -1], 20, (0.0, 1.0))[0] for axis in range(2)]
    assert_frequencies(counts, np.full((2, 20), 0.05), detects=0.08)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_even_points_are_more_even_than_independent_ones(dimension, key):
    """Their discrepancy, as SciPy has it, is below that of the most even of 20 independent sets."""
    n, rng = 200, np.random.default_rng(dimension)
    found = qmc.discrepancy(np.asarray(evenly(key, n, dimension), float).T)
    assert found < min(qmc.discrepancy(rng.uniform(size=(n, dimension))) for _ in range(20))


def test_many_even_points_keep_their_digits(key):
    """Along one axis n of them leave no gap above that of the golden ratio, 2.62 / n, at a million as at a hundred."""
    golden = (3.0 + np.sqrt(5.0)) / 2.0
    for n in (100, 1_000_000):
        line = np.sort(np.asarray(evenly(key, n, 1), float)[0])
        gaps = np.diff(line, append=line[0] + 1.0)
        assert gaps.max() < golden / n + 2.0**-22


def test_equal_places_are_made_one():
    """The totals of a dictionary, whatever the order; entries without weight are nowhere."""
    rng = np.random.default_rng(5)
    places, weights = rng.integers(0, 9, 30), rng.dirichlet(np.ones(30))
    weights[places == 3] = 0.0
    first, totals = jax.jit(merge_duplicates, static_argnums=2)(jnp.asarray(places), log(weights), 12)
    expected = {place: weights[places == place].sum() for place in np.unique(places) if place != 3}
    found = np.exp(np.asarray(totals, np.float64))
    assert len(expected) == np.count_nonzero(found)
    for index, total in zip(np.asarray(first), found, strict=True):
        if total > 0:
            np.testing.assert_allclose(total, expected.pop(places[index]), **FLOAT)
    assert not expected
