"""The laws of surprise: p-values are uniform in the right world, bets against them are fair, false alarms are as rare
as stated, and a wrong world is found out."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import FILTERS, small_grid
from scipy import integrate
from tolerances import FLOAT, monte_carlo
from worlds import trap_door

import nbf
from nbf.contracts import InputError
from nbf.filters.surprise import BETS, log_payoffs

EPISODES, STEPS = 1500, 20
DETECTS = 0.03
"""How far the distribution function of the p-values may be from the uniform one at most, to be found nearly always."""
FALSE_ALARM, MISSED = 1e-5, 1e-2
"""How often the test of uniformity fails in the right world, and how often it finds nothing `DETECTS` away."""


def line(noise) -> nbf.Environment:
    """A position that wanders, read with noise of this deviation."""
    return nbf.LinearGaussian(
        [[0.9]], [[0.5]], [[1.0]], [[noise**2]], [0.0], [[1.0]], space=nbf.Box((-4.0,), (4.0,), False)
    )


WATCHES = {
    "exact": nbf.Surprise(nbf.ExactFilter(), draws=9, particles=8),
    "particle": nbf.Surprise(nbf.ParticleFilter(256), draws=9, particles=16),
}


@functools.cache
def right(name):
    environment, policy = small_grid(error=0.3) if name == "exact" else (line(0.7), None)
    return watched(name, jax.random.key(5), environment, environment, policy, EPISODES, STEPS)


@eqx.filter_jit
def watched(name, key, believed, true, policy, episodes, steps):
    """p and log E after every step of episodes of one world, watched by a filter that believes in another."""

    def one(key):
        episode_key, run_key = jax.random.split(key)
        _, observations = nbf.rollout(episode_key, true, policy, steps)
        look = lambda state: (state.p, state.log_e)  # noqa: E731
        return nbf.run(WATCHES[name], run_key, observations, believed, policy, look=look)[0]

    return jax.vmap(one)(jax.random.split(key, episodes))


@pytest.mark.parametrize("name", WATCHES)
def test_p_values_are_uniform_in_the_right_world(name):
    """By the Dvoretzky-Kiefer-Wolfowitz inequality, which also says what the test can find."""
    p = np.sort(np.ravel(right(name)[0]))
    n = len(p)
    allowed, power = (np.sqrt(np.log(2.0 / often) / (2 * n)) for often in (FALSE_ALARM, MISSED))
    assert allowed + power < DETECTS, "too few p-values for the power stated"
    steps = np.arange(n + 1) / n
    assert max(np.max(steps[1:] - p), np.max(p - steps[:-1])) < allowed


@pytest.mark.parametrize("name", WATCHES)
def test_p_values_do_not_remember_the_past(name):
    p = np.asarray(right(name)[0], np.float64) - 0.5
    lagged = np.mean(p[:, 1:] * p[:, :-1])
    np.testing.assert_allclose(lagged, 0.0, rtol=0, atol=monte_carlo(1.0 / 12.0, p[:, 1:].size))


@pytest.mark.parametrize("name", WATCHES)
@pytest.mark.parametrize("rate", [0.3, 0.1, 0.02])
def test_false_alarms_are_as_rare_as_stated(name, rate):
    """Ville's inequality, over whole episodes."""
    alarms = np.mean(np.max(right(name)[1], axis=1) >= -np.log(rate))
    assert alarms <= rate + monte_carlo(np.sqrt(rate * (1 - rate)), EPISODES)


@pytest.mark.parametrize(
    ("name", "believed", "true"),
    [("exact", 0.1, 0.5), ("exact", 0.6, 0.1), ("particle", 0.3, 1.5), ("particle", 1.5, 0.3)],
)
def test_a_wrong_world_raises_the_alarm(name, believed, true, key):
    """Too much noise and too little, each in nearly every episode of 80 steps at a rate of 0.001."""
    if name == "exact":
        (_, policy), worlds = small_grid(), [small_grid(error=error)[0] for error in (believed, true)]
    else:
        policy, worlds = None, [line(noise) for noise in (believed, true)]
    _, log_e = watched(name, key, *worlds, policy, 100, 80)
    assert np.mean(np.max(log_e, axis=1) >= np.log(1000.0)) > 0.95


def test_a_late_change_is_found(key):
    """After 300 sound steps the sensor fails; the price of having waited is a factor of t·log²t at most."""
    rng = np.random.default_rng(7)
    e = np.asarray([trace(np.concatenate([rng.uniform(size=300), rng.uniform(0, 0.1, size=40)])) for _ in range(20)])
    assert np.mean(np.max(e[:, :300], axis=1) >= np.log(1000.0)) < 0.1
    assert np.all(np.max(e[:, 300:], axis=1) >= np.log(1000.0))


class Fixed(nbf.Filter):
    """Tracks nothing."""

    def init(self, key, environment):
        return jnp.zeros(())

    def update(self, key, state, observation, environment, policy):
        return state, nbf.FilterInfo(jnp.ones(()), jnp.zeros(()), jnp.int32(1), jnp.bool_(False))

    def belief(self, state, environment):
        return nbf.ParticleBelief(jnp.zeros((1, 1)), jnp.zeros(1))


class Given(nbf.Surprise):
    """Surprise whose p-values are its observations."""

    def rank(self, key, belief, observation, environment, policy):
        return observation


@jax.jit
def trace(p):
    """log E after each of the given p-values."""
    watch, world = Given(Fixed()), line(1.0)
    return nbf.run(watch, jax.random.key(0), jnp.asarray(p, jnp.float32), world, None, look=lambda s: s.log_e)[0]


def test_the_bets_are_the_martingale_of_the_docstring():
    """Summed literally, in float64."""
    p = np.random.default_rng(3).uniform(size=12) ** 2
    payoff = np.asarray([[k * u ** (k - 1) for u in (q, 1 - q) for k in BETS] for q in p])
    reserve = 1 / (1 + np.log1p(np.arange(len(p) + 1)))
    expected = [
        reserve[t]
        + sum((reserve[s - 1] - reserve[s]) * np.mean(np.prod(payoff[s - 1 : t], axis=0)) for s in range(1, t + 1))
        for t in range(1, len(p) + 1)
    ]
    np.testing.assert_allclose(trace(p), np.log(expected), **FLOAT)


def test_every_bet_is_fair():
    for place in range(2 * len(BETS)):
        payoff = jax.jit(lambda p, place=place: jnp.exp(log_payoffs(p))[place])
        mean, _ = integrate.quad(lambda p: float(payoff(p)), 0, 1, points=[1e-6, 1e-3, 1 - 1e-3, 1 - 1e-6], limit=200)
        # A p is a float32 and is kept off the ends by 1e-7: the dearest bet, κ = 1/4, loses (1e-7)^(1/4) there.
        np.testing.assert_allclose(mean, 1.0, rtol=0, atol=0.02)
        assert mean <= 1.0 + FLOAT["rtol"]


@pytest.mark.parametrize("name", FILTERS)
def test_a_watched_filter_is_the_same_filter(name, key):
    """Bit for bit, and whatever its belief is, p is a number between 0 and 1."""
    (environment, policy), filter = small_grid(), FILTERS[name]()
    watch = nbf.Surprise(filter, draws=4, particles=4)
    state, seen = filter.init(key, environment), watch.init(key, environment)
    assert float(seen.log_e) == 0.0
    for number, observation in enumerate((0, 4, None)):
        step_key = jax.random.fold_in(key, number)
        state, info = filter.step(step_key, state, observation, environment, policy)
        before, (seen, told) = seen, watch.step(step_key, seen, observation, environment, policy)
        for one, other in zip(jax.tree.leaves((state, info)), jax.tree.leaves((seen.watched, told)), strict=True):
            np.testing.assert_array_equal(one, other)
        assert 0.0 <= float(seen.p) <= 1.0
    assert int(seen.steps) == 2
    np.testing.assert_array_equal(seen.log_bets, before.log_bets)


def test_what_cannot_be_is_the_greatest_surprise(key):
    """Symbol 2 never happens, symbol 3 has no likelihood: none of 9 draws scores below it."""
    world, watch = trap_door(0.2), nbf.Surprise(nbf.ExactFilter(), draws=9, particles=8)
    start = watch.init(key, world)
    for symbol in (2, 3):
        state, info = watch.step(key, start, symbol, world, jnp.asarray(0.0))
        assert bool(info.recovered)
        assert float(state.p) <= 0.1
        assert float(state.log_e) > 0.0


@pytest.mark.parametrize("sizes", [{"draws": 0}, {"particles": 0}])
def test_sizes_that_make_no_sense_are_refused(sizes):
    with pytest.raises(InputError, match=f"{next(iter(sizes))}=0"):
        nbf.Surprise(nbf.ExactFilter(), **sizes)


def test_a_rate_is_a_probability(key):
    state = WATCHES["exact"].init(key, small_grid()[0])
    assert not bool(state.alarm(0.5))
    with pytest.raises(InputError, match=r"got 1\.5"):
        state.alarm(1.5)
