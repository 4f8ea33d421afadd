"""Bad days in worlds of their own: readings that are no numbers, simulators that diverge, rooms without a way out."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import CONFIGS, with_random_parameters
from faults import assert_sound, begin, probabilities
from jaxtyping import Array, Float
from scipy.special import logsumexp
from tolerances import FLOAT
from worlds import HiddenMarkov, hidden_markov

from nbf.contracts import Environment
from nbf.environments.linear_gaussian import LinearGaussian
from nbf.environments.matrices import from_matrices
from nbf.errors import InputError
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.models.belief_model import BoxConfig, ModelConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig
from nbf.models.tabular import TabularModel
from nbf.spaces import Box, Lattice

# Readings that are no numbers

SENSOR = LinearGaussian([[0.9]], [[0.04]], [[1.0]], [[0.25]], [0.0], [[1.0]], space=Box((-4.0,), (4.0,), False))


@pytest.mark.parametrize(
    "wrong", [[np.nan], [np.inf], [-np.inf], [1e39], [0], 0.0, [[0.0]], [0.0, 0.0], "0", None.__class__, [1j]], ids=str
)
def test_a_vector_that_is_no_reading_is_refused(wrong, key):
    with pytest.raises(InputError):
        ParticleFilter(4).step(key, None, wrong, SENSOR, None)


def mixture_model():
    config = ModelConfig(BoxConfig((-4.0,), (4.0,), False), MixtureConfig(2, 4, 1), MeanConfig(4, 1), 3)
    return with_random_parameters(config.build, jax.random.key(3))


CONTINUOUS = {
    "particle": lambda: ParticleFilter(16),
    "neural, mixture": lambda: NeuralBayesianFilter(mixture_model(), 16, initial_samples=8),
}


@eqx.filter_jit
def one_of_each(filter, key, environment, observations):
    start = filter.init(key, environment)
    return jax.vmap(lambda y: filter.update(key, start, y, environment, None))(observations)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_readings_that_are_no_numbers_are_survived_where_nothing_can_raise(name, key):
    """Inside jit: no particle explains them, so the belief is the prediction."""
    readings = jnp.asarray([[np.nan], [np.inf], [-np.inf], [3e38], [1e30], [0.1]])
    state, info = one_of_each(CONTINUOUS[name](), key, SENSOR, readings)
    assert_sound((state, info))
    np.testing.assert_array_equal(info.recovered, [True] * 5 + [False])
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, [True] * 5 + [False])


class Diverging(Environment):
    """A simulator that blows up where the policy says: states right of it become NaN, or infinite."""

    space: Box
    system: LinearGaussian
    into: Float[Array, ""]

    def init(self, key):
        return self.system.init(key)

    def transition(self, key, state, policy):
        return jnp.where(state > policy, self.into, self.system.transition(key, state, None))

    def observe(self, key, state, next_state):
        return self.system.observe(key, state, next_state)

    def log_likelihood(self, observation, state, next_state):
        return self.system.log_likelihood(observation, state, next_state)

    def check_observation(self, observation):
        self.system.check_observation(observation)


@eqx.filter_jit
def through_divergence(filter, key, environment, observations):
    """A step in which some particles diverge, one in which all do, and one in which none does; and the estimates."""

    def step(state, inputs):
        key, policy = inputs
        after, info = filter.update(key, state, observations, environment, policy)
        weighted = after.particles if isinstance(filter, NeuralBayesianFilter) else filter.belief(after, environment)
        return after, (info, weighted.expectation(lambda x: x[0]), after)

    inputs = jax.random.split(key, 3), jnp.asarray([0.0, -1e9, 1e9])
    return jax.lax.scan(step, filter.init(key, environment), inputs)[1]


@pytest.mark.sampled
@pytest.mark.parametrize("observation", [0.1, None])
@pytest.mark.parametrize("into", [np.nan, np.inf])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_particles_that_diverge_have_no_weight(name, into, observation, key):
    """And do not poison the others. If all of them do, the belief stays as it was, and the caller sees it."""
    environment = Diverging(SENSOR.space, SENSOR, jnp.asarray(into))
    observation = None if observation is None else jnp.asarray([observation])
    infos, means, states = through_divergence(CONTINUOUS[name](), key, environment, observation)
    assert np.all(np.isfinite(means))
    np.testing.assert_array_equal(infos.recovered, [False, True, False])
    if name == "particle":
        np.testing.assert_array_equal(states.states[0], states.states[1])
    else:
        assert np.all(np.isfinite(states.embedding))
        np.testing.assert_array_equal(states.embedding[0], states.embedding[1])


# Worlds of four rooms: weights of any size, rooms without a way out, policies without a move


class Rooms(HiddenMarkov):
    """Its likelihoods are given by their logs, so that they may be smaller than any float32."""

    def log_likelihood(self, observation, state, next_state):
        return self.symbols[state[0], next_state[0], observation]


ROOMS = {
    "exact": ExactFilter,
    "particle": lambda: ParticleFilter(64, threshold=0.0),
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((4,))), 64),
    "faithful, enumerated": lambda: NeuralBayesianFilter.faithful(
        with_random_parameters(CONFIGS["enumerated"]((4,)).build, jax.random.key(1)), 64
    ),
    "approx": lambda: ApproxBeliefs(TabularModel(Lattice((4,))), 64),
}
each_room = pytest.mark.parametrize("name", ROOMS)
STAY, UNIFORM = np.eye(4), np.full((4, 4), 0.25)


@functools.cache
def in_rooms(name):
    return ROOMS[name]()


def rooms(moves, log_likelihood, start=(0.25,) * 4):
    """Log-likelihoods are [next room, symbol]."""
    table = np.broadcast_to(np.asarray(log_likelihood, np.float32)[None], (4, 4, 2))
    world = hidden_markov(start, moves, np.zeros((4, 4, 2)))
    return Rooms(world.space, world.start, world.moves, jnp.asarray(table))


SPAN = np.stack([np.linspace(-690.0, 0.0, 4), np.full(4, -690.0)], axis=1)
"""Symbol 0: likelihoods from 1e-300 to 1. Symbol 1: 1e-300 for all."""


@pytest.mark.sampled
@each_room
def test_weights_from_1e_minus_300_to_1(name, key):
    """Their logs are the truth's, and all of them at 1e-300 are no reason to give up."""
    world, filter, stays = rooms(STAY, SPAN), in_rooms(name), jnp.asarray(1.0)
    start = begin(filter, key, world)
    spread, info = filter.step(key, start, jnp.asarray(0), world, stays)
    assert_sound((spread, info))
    assert not bool(info.recovered)
    if name == "neural, tabular":  # all branches of all rooms, of which one of each has weight
        logs = np.asarray(spread.particles.log_weights)
        np.testing.assert_allclose(logs[np.isfinite(logs)], SPAN[:, 0] - logsumexp(SPAN[:, 0]), **FLOAT)
    if name.startswith(("particle", "faithful")):
        weighted = getattr(spread, "particles", spread)
        logs = SPAN[np.asarray(weighted.states)[:, 0], 0]
        np.testing.assert_allclose(weighted.log_weights, logs - logsumexp(logs), **FLOAT)
        np.testing.assert_allclose(info.log_evidence, logsumexp(logs) - np.log(64), **FLOAT)
    else:
        np.testing.assert_allclose(info.log_evidence, logsumexp(SPAN[:, 0]) - np.log(4), **FLOAT)
    tiny, info = filter.step(key, start, jnp.asarray(1), world, stays)
    assert_sound((tiny, info))
    assert not bool(info.recovered)
    np.testing.assert_allclose(info.log_evidence, -690.0, **FLOAT)
    # Ten such steps are a likelihood of 1e-3000.
    for _ in range(10):
        tiny, info = filter.step(key, tiny, jnp.asarray(1), world, stays)
    np.testing.assert_allclose(info.log_evidence, -690.0, **FLOAT)


@pytest.mark.sampled
@each_room
def test_terminal_states_are_absorbing(name, key):
    """From everywhere the way leads to the last room, which is left by nobody: there the filter goes on filtering."""
    moves = 0.5 * STAY + 0.5 * np.eye(4)[[3, 3, 3, 3]]
    world, filter = rooms(moves, np.log([[0.5, 0.5]] * 4)), in_rooms(name)
    state = begin(filter, key, world)
    for t in range(60):
        state, info = filter.step(jax.random.fold_in(key, t), state, jnp.asarray(t % 2), world, jnp.asarray(0.0))
        assert not bool(info.recovered)
        np.testing.assert_allclose(info.log_evidence, np.log(0.5), **FLOAT)
    assert_sound(state)
    probs = np.asarray(probabilities(filter, state, world))
    if name != "faithful, enumerated":  # an untrained model does not know
        np.testing.assert_allclose(probs, [0, 0, 0, 1], **FLOAT)
    else:
        np.testing.assert_allclose(probs.sum(), 1.0, **FLOAT)


@each_room
@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_a_policy_that_puts_zero_on_everything(name, nothing, key):
    """Nothing can happen, and nothing does: no NaN and no room that there is not. The exact filter sees it, keeps the
    belief it had and says so, and one that follows all branches says so too; a simulator's draw of nothing is its last
    outcome, which a particle cannot tell."""
    world, filter = rooms(np.full((4, 4), nothing), np.log([[0.5, 0.5]] * 4)), in_rooms(name)
    start = begin(filter, key, world)
    state, info = filter.step(key, start, jnp.asarray(0), world, jnp.asarray(0.0))
    assert_sound((state, info))
    np.testing.assert_allclose(np.sum(probabilities(filter, state, world)), 1.0, **FLOAT)
    if name in ("exact", "approx"):
        assert bool(info.recovered)
        np.testing.assert_allclose(getattr(state, "truth", state), getattr(start, "truth", start), **FLOAT)
    elif name == "neural, tabular":
        assert bool(info.recovered)
    else:
        states = np.asarray(getattr(state, "particles", state).states)
        assert np.all(states == 3)
    # And the next policy finds a belief to go on with.
    state, info = filter.step(key, state, jnp.asarray(0), rooms(UNIFORM, np.log([[0.5, 0.5]] * 4)), jnp.asarray(0.0))
    assert_sound((state, info))
    assert not bool(info.recovered)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["neural, tabular", "exact", "particle"])
def test_a_finite_environment_stays_put_under_a_policy_of_zeros(name, key):
    """There every filter agrees, because the environment itself says what happens."""
    world = from_matrices([UNIFORM, STAY], [[0.5, 0.5]] * 4, [0.1, 0.2, 0.3, 0.4])
    filter = in_rooms(name)
    start = begin(filter, key, world)
    state, info = filter.step(key, start, None, world, jnp.zeros(2))
    assert not bool(info.recovered)
    if name == "exact":
        np.testing.assert_allclose(state, start, **FLOAT)
    elif name == "particle":
        np.testing.assert_array_equal(state.states, start.states)
    moved, _ = filter.step(key, start, None, world, jnp.asarray([1.0, 0.0]))
    assert_sound(moved)


def test_ten_thousand_predictions_do_not_drift(key):
    """Of the exact filter, whose rounding would otherwise add up; the truth is the stationary distribution."""
    rng = np.random.default_rng(5)
    moves = rng.dirichlet(np.ones(4), size=4)
    world = rooms(moves * (1 + 1e-5), SPAN)  # a table as imprecise as a user's may be

    @jax.jit
    def predicted(state):
        step = lambda state, _: (ExactFilter().update(key, state, None, world, jnp.asarray(0.0))[0], None)  # noqa: E731
        return jax.lax.scan(step, state, None, length=10_000)[0]

    values, vectors = np.linalg.eig(moves.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    np.testing.assert_allclose(predicted(world.start), stationary / stationary.sum(), **FLOAT)
