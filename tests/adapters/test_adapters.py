"""Adapters: what another library's model does under our filters is what it does under its own, or by hand.

gymnax and OpenSpiel are extras; where one is missing, its tests are skipped. Stand-ins for gymnax with the same methods
are always tested. `test_adapters_pomdp_py.py` has the third.
"""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from extras import extra
from tolerances import EXACT, FLOAT, SEED, monte_carlo

import nbf
from nbf.adapters.gymnax import from_gymnax
from nbf.adapters.openspiel import information_state_posterior, uniform
from nbf.errors import InputError

PARTICLES = 12
BY_HAND = nbf.ParticleFilter(PARTICLES, threshold=0.0, max_attempts=1)
"""Never resamples: under deterministic dynamics its weights are products of likelihoods."""

# --- gymnax --------------------------------------------------------------------------------------

LINE = nbf.Box((-3.0,), (3.0,), bounded=False)
NOISE, STRIDE, END, LIMIT = 0.4, 0.5, 2.0, 6


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Place:
    position: jax.Array
    time: int | jax.Array


class Walk:
    """Left or right along a line, as gymnax had it before 1.0: a step gives 5 values."""

    default_params = {"stride": STRIDE, "end": END, "limit": LIMIT}  # noqa: RUF012

    def action_space(self, params):
        return SimpleNamespace(n=2)

    def reset(self, key, params):
        state = Place(jax.random.uniform(key, minval=-1.0, maxval=1.0), 0)
        return self.get_obs(state), state

    def step_env(self, key, state, action, params) -> tuple[Any, ...]:
        state = Place(state.position + params["stride"] * (2 * action - 1), state.time + 1)
        return self.get_obs(state), state, 0.0, self.is_terminal(state, params), {}

    def step(self, key, state, action, params) -> tuple[Any, ...]:
        observation, after, reward, done, info = self.step_env(key, state, action, params)
        restarted = self.reset(key, params)[1]
        after = jax.tree.map(lambda new, old: jnp.where(done, new, old), restarted, after)
        return observation, after, reward, done, info

    def get_obs(self, state, params=None, key=None):
        return state.position[None]

    def is_terminal(self, state, params):
        return (state.position > params["end"]) | (state.time >= params["limit"])


class Walk6(Walk):
    """The same since 1.0: 6 values, time limits apart, and `observe`."""

    def observe(self, key, state, action, params):
        return self.get_obs(state)

    def step_env(self, key, state, action, params):
        *first, _, info = super().step_env(key, state, action, params)
        return *first, self.is_terminal(first[1], params), self.is_truncated(first[1], params), info

    def step(self, key, state, action, params):
        observation, after, reward, terminated, truncated, info = self.step_env(key, state, action, params)
        restarted = self.reset(key, params)[1]
        after = jax.tree.map(lambda new, old: jnp.where(terminated | truncated, new, old), restarted, after)
        return observation, after, reward, terminated, truncated, info

    def is_terminal(self, state, params):
        return state.position > params["end"]

    def is_truncated(self, state, params):
        return state.time >= params["limit"]


WALKS = {"5 values": Walk(), "6 values": Walk6()}
WHOLE = functools.partial(from_gymnax, space=LINE, noise=NOISE)  # a particle filter never encodes a state
PARTS = functools.partial(
    WHOLE, hidden=lambda state: state.position[None], restore=lambda vector: Place(vector[0], jnp.int32(0))
)


def weighed(filter, key, environment, observations, policy):
    """Log weights after each step of a filter, from `filter.step`."""
    state, weights = filter.init(key, environment), []
    for observation in observations:
        state, _ = filter.step(key, state, observation, environment, policy)
        weights.append(np.asarray(state.log_weights))
    return weights


def normalized(log_weights):
    return log_weights - scipy.special.logsumexp(log_weights)


@pytest.mark.sampled
@pytest.mark.parametrize("values", WALKS)
@pytest.mark.parametrize(("build", "limit"), [(WHOLE, LIMIT), (PARTS, np.inf)], ids=["whole states", "hidden parts"])
def test_a_particle_filter_of_a_gymnax_environment_is_the_one_by_hand(values, build, limit, key):
    env, observations = WALKS[values], np.random.default_rng(SEED).normal(size=(LIMIT + 2, 1)).astype(np.float32)
    found = weighed(BY_HAND, key, build(env), observations, 1)
    starts = [env.reset(each, env.default_params)[1].position for each in jax.random.split(key, PARTICLES)]
    positions, total = np.array(starts, np.float64), np.zeros(PARTICLES)
    for time, observation in enumerate(observations):
        positions = np.where((positions > END) | (time >= limit), positions, positions + STRIDE)
        total += scipy.stats.norm.logpdf(observation, positions, NOISE)
        np.testing.assert_allclose(found[time], normalized(total), **FLOAT)


@pytest.mark.parametrize("values", WALKS)
@pytest.mark.parametrize(("position", "time"), [(END + 0.1, 1), (0.0, LIMIT - 1)], ids=["end", "time limit"])
def test_a_last_state_is_absorbing_or_begins_anew(values, position, time, key):
    last = WHOLE(WALKS[values]).transition(key, Place(jnp.asarray(position), jnp.asarray(time)), 1)
    still = WHOLE(WALKS[values]).transition(key, last, 1)
    assert (float(still.position), int(still.time)) == (float(last.position), int(last.time))
    anew = WHOLE(WALKS[values], restart=True).transition(key, Place(jnp.asarray(position), jnp.asarray(time)), 1)
    assert int(anew.time) == 0
    assert abs(float(anew.position)) <= 1.0


def test_gymnax_policies_are_actions_probabilities_or_functions(key):
    environment, n = PARTS(Walk()), 4000
    move = jax.jit(jax.vmap(environment.transition, (0, None, None)))
    keys, start = jax.random.split(key, n), jnp.zeros(1)
    chance = np.asarray([0.3, 0.7], np.float32)
    drawn = np.asarray(move(keys, start, chance))[:, 0]
    assert set(np.abs(drawn)) == {STRIDE}
    np.testing.assert_allclose(np.mean(drawn > 0), 0.7, rtol=0, atol=monte_carlo(np.sqrt(0.21), n))
    assert np.all(move(keys, start, np.zeros(2, np.float32)) == start)
    seek = jax.tree_util.Partial(lambda goal, key, state: (state.position < goal).astype(int), jnp.asarray(0.5))
    assert [float(environment.transition(key, jnp.array([at]), seek)[0]) for at in (0.0, 1.0)] == [STRIDE, 1.0 - STRIDE]
    for policy in (None, 0.5, np.ones(3, np.float32), np.ones(2, int)):
        with pytest.raises(InputError, match="action"):
            environment.transition(key, start, policy)


def test_gymnax_parameters_change_without_a_new_environment(key):
    near = PARTS(Walk())
    far = dataclasses.replace(near, parameters=near.parameters | {"stride": 1.5})
    assert [float(each.transition(key, jnp.zeros(1), 1)[0]) for each in (near, far)] == [STRIDE, 1.5]
    own = PARTS(Walk(), near.parameters | {"stride": 0.25})
    assert float(own.transition(key, jnp.zeros(1), 1)[0]) == 0.25


@pytest.mark.parametrize("values", WALKS)
def test_declared_noise_is_normal_around_what_gymnax_observes(values, key):
    environment, state, n = PARTS(WALKS[values]), jnp.array([0.7]), 4000
    seen = jax.vmap(environment.observe, (0, None, None))(jax.random.split(key, n), state, state)
    np.testing.assert_allclose(np.mean(seen), 0.7, rtol=0, atol=monte_carlo(NOISE, n))
    np.testing.assert_allclose(np.mean((seen - 0.7) ** 2), NOISE**2, rtol=0, atol=monte_carlo(NOISE**2 * 2**0.5, n))
    expected = scipy.stats.norm.logpdf(0.2, 0.7, NOISE)
    np.testing.assert_allclose(environment.log_likelihood(jnp.array([0.2]), state, state), expected, **FLOAT)


class Endless(Walk):
    def is_terminal(self, state, params):
        raise NotImplementedError


class Three(Walk):
    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action, params)[:3]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"noise": None}, "observe=None"),
        ({"log_likelihood": lambda *given: 0.0}, "`noise` alone"),
        ({"noise": 0.0}, "above 0; got 0"),
        ({"noise": np.nan}, "finite"),
        ({"noise": [0.1, 0.1]}, r"of shape \(1,\)"),
        ({"hidden": None}, "`hidden` and `restore`"),
        ({"env": Endless()}, "restart=True"),
    ],
    ids=["nothing", "both", "zero", "nan", "shape", "hidden", "endless"],
)
def test_a_gymnax_environment_that_says_too_little_is_refused(change, named):
    with pytest.raises(InputError, match=named):
        PARTS(**({"env": Walk()} | change))


def test_a_step_of_other_values_is_refused(key):
    with pytest.raises(InputError, match="3 values"):
        PARTS(Three()).transition(key, jnp.zeros(1), 1)


def test_gymnax_pendulum_is_filtered_as_by_hand(key):
    env, params = extra("gymnax", "gymnax").make("Pendulum-v1")
    template = env.reset(key, params)[1]
    sees = lambda state: jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta)])  # noqa: E731
    environment = from_gymnax(
        env,
        params,
        space=nbf.Box((-3.2, -8.0), (3.2, 8.0), bounded=False),
        hidden=lambda state: jnp.stack([state.theta, state.theta_dot]),
        restore=lambda vector: template.replace(theta=vector[0], theta_dot=vector[1]),
        observe=lambda key, state, next_state, params: sees(next_state) + NOISE * jax.random.normal(key, (2,)),
        log_likelihood=lambda observation, state, next_state, params: jnp.sum(
            jax.scipy.stats.norm.logpdf(observation, sees(next_state), NOISE)
        ),
    )
    torque = np.asarray([0.5], np.float32)
    observations = np.random.default_rng(SEED).normal(size=(5, 2)).astype(np.float32)
    found = weighed(BY_HAND, key, environment, observations, torque)
    starts = [env.reset(each, params)[1] for each in jax.random.split(key, PARTICLES)]
    angle = np.array([start.theta for start in starts], np.float64)
    speed, total = np.array([start.theta_dot for start in starts], np.float64), np.zeros(PARTICLES)
    for time, observation in enumerate(observations):
        speed = np.clip(speed + (15.0 * np.sin(angle) + 3.0 * 0.5) * 0.05, -8.0, 8.0)
        angle = angle + 0.05 * speed
        total += scipy.stats.norm.logpdf(observation, np.stack([np.cos(angle), np.sin(angle)], 1), NOISE).sum(axis=1)
        np.testing.assert_allclose(found[time], normalized(total), **FLOAT)


@pytest.mark.parametrize("restart", [False, True])
def test_gymnax_cartpole_stops_or_begins_anew(restart, key):
    env, params = extra("gymnax", "gymnax").make("CartPole-v1")
    environment = from_gymnax(env, params, space=LINE, noise=0.1, restart=restart)
    state, fallen = environment.init(key), []
    move = jax.jit(environment.transition)
    for _ in range(25):  # pushed right all the time, a pole falls within a dozen steps
        state = move(key, state, 1)
        fallen.append(abs(float(state.theta)) > params.theta_threshold_radians)
    assert int(state.time) < 25
    assert fallen[-1] == (not restart)
    assert any(fallen) == (not restart)


# --- OpenSpiel -----------------------------------------------------------------------------------

JACK, QUEEN, KING = 0, 1, 2
PASS, BET = 0, 1


def kuhn(policy, information_state, player=0):
    game = extra("pyspiel", "openspiel").load_game("kuhn_poker")
    return information_state_posterior(game, policy, player, information_state)


def replies(bluff):
    """The second player: bets a king, bluffs with a jack, calls with a king, and with a queen in one of three."""
    after_pass = {"0p": bluff, "1p": 0.0, "2p": 1.0}
    after_bet = {"0b": 0.0, "1b": 1 / 3, "2b": 1.0}
    return {name: {PASS: 1.0 - bet, BET: bet} for name, bet in (after_pass | after_bet).items()}


def assert_equally_likely(posterior, histories):
    assert posterior.keys() == histories
    np.testing.assert_allclose(list(posterior.values()), 1.0 / len(histories), **EXACT)


def test_kuhn_poker_under_the_uniform_policy():
    """Nothing that a uniform player does tells their card: the two that are left are equally likely."""
    for card in (JACK, QUEEN, KING):
        others = {JACK, QUEEN, KING} - {card}
        assert_equally_likely(kuhn(uniform, f"{card}"), {(card, other) for other in others})
        assert_equally_likely(kuhn(uniform, f"{card}pb"), {(card, other, PASS, BET) for other in others})
        assert_equally_likely(kuhn(uniform, f"{card}b", player=1), {(other, card, BET) for other in others})


@pytest.mark.parametrize("bluff", [0.0, 1 / 3, 0.5])
def test_kuhn_poker_under_a_policy_that_tells(bluff):
    """p(king | queen, pass, bet) = 1 / (1 + bluff): 3/4 in equilibrium."""
    posterior = kuhn(replies(bluff), "1pb")
    np.testing.assert_allclose(posterior[(QUEEN, KING, PASS, BET)], 1.0 / (1.0 + bluff), **EXACT)
    np.testing.assert_allclose(sum(posterior.values()), 1.0, **EXACT)
    over = kuhn(replies(bluff), "1bp")
    np.testing.assert_allclose(over[(QUEEN, JACK, BET, PASS)], 1.0, **EXACT)


def test_goofspiel_of_four_cards_two_rounds_in():
    """Simultaneous moves: bids 4 then 1, won then lost. The other bid 1..3 and then 2..4, and no card twice."""
    game = extra("pyspiel", "openspiel").load_game(
        "goofspiel", {"imp_info": True, "num_cards": 4, "points_order": "descending"}
    )
    state = game.new_initial_state()
    state.apply_actions([3, 0])
    state.apply_actions([0, 2])
    posterior = information_state_posterior(game, uniform, 0, state.information_state_string(0))
    bids = {(3, first, 0, second) for first in range(3) for second in range(1, 4) if first != second}
    assert len(bids) == 7
    assert_equally_likely(posterior, bids)


@pytest.mark.parametrize(
    ("policy", "information_state", "player", "named"),
    [
        (uniform, "nothing", 0, "'nothing' of player 0"),
        (uniform, "0", 2, "player=2"),
        (replies(0.0) | {"1p": {PASS: 0.5}}, "0pb", 0, r"'1p' must give the legal actions \[0, 1\]"),
        (replies(0.0) | {"1p": {PASS: 1.5, BET: -0.5}}, "0pb", 0, "0 or more"),
        (replies(0.0) | {"1p": {7: 1.0}}, "0pb", 0, "got {7: 1.0}"),
        ({"0p": {PASS: 1.0}}, "0pb", 0, "says nothing about"),
    ],
)
def test_openspiel_questions_without_an_answer_are_refused(policy, information_state, player, named):
    with pytest.raises(InputError, match=named):
        kuhn(policy, information_state, player)


def test_a_game_that_is_too_large_is_refused():
    game = extra("pyspiel", "openspiel").load_game("kuhn_poker")
    with pytest.raises(InputError, match="limit=5"):
        information_state_posterior(game, uniform, 0, "1pb", limit=5)
