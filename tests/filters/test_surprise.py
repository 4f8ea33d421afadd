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
from PIL import Image
from scipy import integrate
from tolerances import FLOAT, SEED, monte_carlo
from worlds import trap_door

import nbf
from benchmarks.false_alarms import RATE, share_of_alarms
from nbf.errors import InputError
from nbf.filters.surprise import BETS, log_payoffs
from nbf.plot.diagnostics import steps_figure

EPISODES, STEPS = 400, 60
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
    "particle": nbf.Surprise(nbf.ParticleFilter(128), draws=9, particles=16),
}


def world(name, noise) -> nbf.Environment:
    return small_grid(error=noise)[0] if name == "exact" else line(noise)


@functools.cache
def episodes(name, believed, true):
    """p and log E after every step of episodes of one world, watched by a filter that believes in another."""
    policy = small_grid(temperature=0.2)[1] if name == "exact" else None
    found = watched(name, jax.random.key(5), world(name, believed), world(name, true), policy)
    return tuple(np.asarray(part, np.float64) for part in found)


@eqx.filter_jit
def watched(name, key, believed, true, policy):
    def one(key):
        episode_key, run_key = jax.random.split(key)
        _, observations = nbf.rollout(episode_key, true, policy, STEPS)
        look = lambda state: (state.p, state.log_e)  # noqa: E731
        return nbf.run(WATCHES[name], run_key, observations, believed, policy, look=look)[0]

    return jax.vmap(one)(jax.random.split(key, EPISODES))


each_watch = pytest.mark.parametrize(
    "name", [name if name == "exact" else pytest.param(name, marks=pytest.mark.slow) for name in WATCHES]
)


def right(name):
    return episodes(name, 0.5, 0.5)


@each_watch
def test_p_values_are_uniform_in_the_right_world(name):
    """By the Dvoretzky-Kiefer-Wolfowitz inequality, which also says what the test can find."""
    p = np.sort(np.ravel(right(name)[0]))
    n = len(p)
    allowed, power = (np.sqrt(np.log(2.0 / often) / (2 * n)) for often in (FALSE_ALARM, MISSED))
    assert allowed + power < DETECTS, "too few p-values for the power stated"
    steps = np.arange(n + 1) / n
    assert max(np.max(steps[1:] - p), np.max(p - steps[:-1])) < allowed


@each_watch
def test_p_values_do_not_remember_the_past(name):
    p = np.asarray(right(name)[0], np.float64) - 0.5
    lagged = np.mean(p[:, 1:] * p[:, :-1])
    np.testing.assert_allclose(lagged, 0.0, rtol=0, atol=monte_carlo(1.0 / 12.0, p[:, 1:].size))


@each_watch
@pytest.mark.parametrize("rate", [0.3, 0.1, 0.02])
def test_false_alarms_are_as_rare_as_stated(name, rate):
    """Ville's inequality, over whole episodes."""
    alarms = np.mean(np.max(right(name)[1], axis=1) >= -np.log(rate))
    assert alarms <= rate + monte_carlo(np.sqrt(rate * (1 - rate)), EPISODES)


@pytest.mark.slow
def test_false_alarms_of_a_particle_filter_are_as_rare_as_stated_from_64_particles_on():
    """As docs/trust.md says, of 60 steps on a grid: the predictions of 16 particles are wrong, and found out."""
    episodes = 1000
    few, enough = (share_of_alarms("grid", particles, 60, episodes) for particles in (16, 64))
    allowed = RATE + monte_carlo(np.sqrt(RATE * (1 - RATE)), episodes)
    assert enough <= allowed < few


@pytest.mark.parametrize(
    ("name", "believed", "true"),
    [
        ("exact", 0.02, 0.7),
        pytest.param("exact", 0.7, 0.02, marks=pytest.mark.slow),
        pytest.param("particle", 0.3, 1.5, marks=pytest.mark.slow),
        pytest.param("particle", 2.0, 0.2, marks=pytest.mark.slow),
    ],
)
def test_a_wrong_world_raises_the_alarm(name, believed, true):
    """More noise than believed and less, at a rate of 0.001."""
    _, log_e = episodes(name, believed, true)
    alarms = np.mean(np.max(log_e, axis=1) >= np.log(1000.0))
    assert alarms > 0.95


def test_a_late_change_is_found():
    """After 300 sound steps the sensor fails; the price of having waited is a factor of t·log²t at most."""
    rng = np.random.default_rng(SEED)
    p = np.concatenate([rng.uniform(size=(50, 300)), rng.uniform(0, 0.1, size=(50, 40))], axis=1)
    e = np.asarray(jax.vmap(trace)(jnp.asarray(p, jnp.float32)))
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
    p = np.random.default_rng(SEED).uniform(size=12) ** 2
    payoff = np.asarray([[k * u ** (k - 1) for u in (q, 1 - q) for k in BETS] for q in p])
    reserve = 1 / (1 + np.log1p(np.arange(len(p) + 1)))
    expected = [
        reserve[t]
        + sum((reserve[s - 1] - reserve[s]) * np.mean(np.prod(payoff[s - 1 : t], axis=0)) for s in range(1, t + 1))
        for t in range(1, len(p) + 1)
    ]
    np.testing.assert_allclose(trace(p), np.log(expected), **FLOAT)


def test_every_bet_is_fair():
    """∫ κ u^(κ-1) du = 1 by quadrature of the stated payoff in float64, which is what is paid."""
    p = np.linspace(0.001, 0.999, 7, dtype=np.float32)
    paid = np.exp(jax.vmap(log_payoffs)(jnp.asarray(p)))
    for place, kappa in enumerate(BETS):
        stated = lambda u, kappa=kappa: kappa * u ** (kappa - 1)  # noqa: E731
        np.testing.assert_allclose(integrate.quad(stated, 0, 1)[0], 1.0, rtol=1e-8)
        np.testing.assert_allclose(paid[:, place], stated(p), **FLOAT)
        np.testing.assert_allclose(paid[:, place + len(BETS)], stated(1 - p), **FLOAT)


def test_a_watched_filter_is_the_same_filter(key):
    """Bit for bit; and whatever its belief is, p is a number between 0 and 1."""
    (environment, policy), filter = small_grid(), FILTERS["neural, tabular"]()
    watch = nbf.Surprise(filter, draws=4, particles=4)
    state, watched = (eqx.filter_jit(each.init)(key, environment) for each in (filter, watch))
    for t, observation in enumerate([0, 4, 1, 2, 2]):
        step_key = jax.random.fold_in(key, t)
        alone = state, _ = filter.step(step_key, state, observation, environment, policy)
        watched, told = watch.step(step_key, watched, observation, environment, policy)
        for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves((watched.watched, told)), strict=True):
            np.testing.assert_array_equal(one, other)
        assert 0 <= float(watched.p) <= 1
        assert np.isfinite(watched.log_e)


def test_a_missing_observation_is_no_evidence(key):
    world, watch, policy = trap_door(0.2), WATCHES["exact"], jnp.asarray(0.0)
    start = watch.init(key, world)
    assert float(start.log_e) == 0.0
    seen, _ = watch.step(key, start, 0, world, policy)
    missed, _ = watch.step(key, seen, None, world, policy)
    assert (int(missed.steps), float(missed.log_e)) == (1, float(seen.log_e))
    assert 0.0 <= float(missed.p) <= 1.0


def test_what_cannot_be_is_the_greatest_surprise(key):
    """Symbol 2 never happens, symbol 3 has no likelihood: none of 9 draws scores below it."""
    world, watch = trap_door(0.2), WATCHES["exact"]
    start = watch.init(key, world)
    for symbol in (2, 3):
        state, info = watch.step(key, start, symbol, world, jnp.asarray(0.0))
        assert bool(info.recovered)
        assert float(state.p) <= 0.1


@pytest.mark.parametrize("sizes", [{"draws": 0}, {"particles": 0}])
def test_sizes_that_make_no_sense_are_refused(sizes):
    with pytest.raises(InputError, match=f"{next(iter(sizes))} of at least 1; got 0"):
        nbf.Surprise(nbf.ExactFilter(), **sizes)


def test_a_rate_is_a_probability(key):
    state = WATCHES["exact"].init(key, small_grid()[0])
    assert not bool(state.alarm(0.5))
    with pytest.raises(InputError, match=r"got 1\.5"):
        state.alarm(1.5)


# The picture of an episode


def told(steps=6):
    return {
        "ess": np.linspace(16, 4, steps), "log_evidence": -np.ones(steps), "attempts": np.ones(steps, int),
        "recovered": np.zeros(steps, bool), "p": np.linspace(0.1, 0.9, steps), "log_e": np.linspace(0.0, 10.0, steps),
    }  # fmt: skip


def test_the_figure_shows_what_was_told(tmp_path):
    arrays = told()
    arrays["log_evidence"][2], arrays["attempts"][2], arrays["recovered"][2] = -np.inf, 5, True
    figure = steps_figure(**arrays, rate=0.01, title="an episode", path=tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
    panels = {axis.get_ylabel(): axis for axis in figure.axes}
    assert list(panels) == ["ESS", "log-evidence", "attempts", "p", "log E"]
    np.testing.assert_array_equal(panels["ESS"].lines[0].get_ydata(), arrays["ess"])
    assert np.flatnonzero(np.isnan(panels["log-evidence"].lines[0].get_ydata())).tolist() == [2]
    np.testing.assert_array_equal([bar.get_height() for bar in panels["attempts"].containers[0]], arrays["attempts"])
    np.testing.assert_array_equal(np.asarray(panels["p"].collections[-1].get_offsets())[:, 1], arrays["p"])
    np.testing.assert_allclose(np.asarray(panels["log E"].lines[1].get_ydata()), np.log(100.0))
    alarms = np.asarray(panels["log E"].collections[-1].get_offsets())[:, 1]
    np.testing.assert_array_equal(alarms, [value for value in arrays["log_e"] if value >= np.log(100.0)])


def test_an_unwatched_filter_has_three_panels(key):
    environment, policy = small_grid()
    _, infos = jax.jit(functools.partial(nbf.run, nbf.ExactFilter()))(key, jnp.asarray([0, 4]), environment, policy)
    figure = steps_figure(infos.ess, infos.log_evidence, infos.attempts, infos.recovered)
    assert len(figure.axes) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ess", np.ones(5)),
        ("p", np.full(6, np.nan)),
        ("log_e", np.full(6, -np.inf)),
        ("rate", 0.0),
        ("ess", np.ones((6, 2))),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, value):
    with pytest.raises(InputError):
        steps_figure(**(told() | {name: value}))
