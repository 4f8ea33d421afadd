"""Bad days, for every filter: nothing that happens to a filter makes it NaN, and the caller sees what happened.

`test_particle_filter` and `test_neural_filter` compare single filters with the truth on such days; here are the laws
that hold for all of them. The long ones are in `test_faults_slow`.
"""

from __future__ import annotations

import functools
import resource
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import CONFIGS, FILTERS, MODELS, small_grid, with_random_parameters
from jaxtyping import Array, Float
from scipy.special import logsumexp
from tolerances import FLOAT
from worlds import HiddenMarkov, hidden_markov

from nbf import dispatch
from nbf.contracts import Environment, InputError
from nbf.environments.gridworld import GoalPolicy, Gridworld, RandomGridworlds
from nbf.environments.linear_gaussian import LinearGaussian
from nbf.environments.matrices import from_matrices
from nbf.evaluation.records import Record, RecordError, Run, add, completed, read_records
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.run import run
from nbf.models.belief_model import BoxConfig, ModelConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import MeanConfig
from nbf.models.tabular import TabularModel
from nbf.spaces import Box, Lattice
from nbf.training import checkpoint

NEVER = 0
"""The symbol of `deaf_grid` that no move explains."""
BELIEF_SUM = {"rtol": 0, "atol": 1e-3}
"""How far a belief may be from summing to one: the flow's is a quadrature that is exact to three digits."""
each_filter = pytest.mark.parametrize("name", FILTERS)


@functools.cache
def filter_of(name):
    return FILTERS[name]()


class DeafGrid(Gridworld):
    """Counts how often it is traced, and gives one symbol no likelihood at all."""

    traces = [0]  # noqa: RUF012

    def log_likelihood(self, observation, state, next_state):
        self.traces[0] += 1
        return jnp.where(observation == NEVER, -jnp.inf, super().log_likelihood(observation, state, next_state))


def deaf_grid(error=0.3, legal=None):
    grid, policy = small_grid(error=error)
    space = grid.space if legal is None else Lattice((3, 3), jnp.asarray(legal))
    return DeafGrid(space, grid.error), policy


def assert_sound(state):
    for leaf in jax.tree.leaves(state):
        assert not np.any(np.isnan(np.asarray(leaf, np.float64)))


def belief_sums(filter, state, environment):
    """What a belief over a lattice gives to all of its cells."""
    probs = jnp.exp(filter.belief(state, environment).log_probs(jnp.asarray(environment.space.points())))
    return jnp.sum(probs)


# Likelihood zero


@eqx.filter_jit
def bad_days(filter, key, environment, policy, observations):
    """The beliefs' sums, the finiteness of states, and the infos: [day, step]."""

    def look(state):
        sound = jnp.stack([~jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(state)])
        return jnp.all(sound), belief_sums(filter, state, environment)

    return jax.vmap(lambda row: run(filter, key, row, environment, policy, look=look))(observations)


def days(steps):
    """Which steps of each day are impossible: the first, all, one in ten, none."""
    step = np.arange(steps)
    return np.stack([step == 0, step >= 0, step % 10 == 5, step < 0])


def check_bad_days(name, key, steps):
    environment, policy = deaf_grid()
    bad = days(steps)
    good = np.random.default_rng(0).integers(1, 5, bad.shape)
    observations = jnp.asarray(np.where(bad, NEVER, good), jnp.int32)
    (sound, sums), info = bad_days(filter_of(name), key, environment, policy, observations)
    assert np.all(sound)
    np.testing.assert_allclose(sums, np.ones_like(sums), **BELIEF_SUM)
    np.testing.assert_array_equal(info.recovered, bad)
    np.testing.assert_array_equal(np.asarray(info.ess) == 0, bad)
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, bad)
    assert not np.any(np.isnan(info.log_evidence))
    attempts = 5 if name.startswith(("particle", "neural")) else 1
    np.testing.assert_array_equal(np.asarray(info.attempts)[bad], np.full(bad.sum(), attempts))


@each_filter
def test_an_impossible_observation_is_seen_and_survived(name, key):
    """At step 1, at every step, at one step in ten: recovered at exactly those, and a distribution at all."""
    check_bad_days(name, key, 20)


# Observations that are none

WRONG = {
    "above": 5, "below": -1, "huge": 2**40, "NaN": np.nan, "infinite": np.inf, "a float": 1.0,
    "float array": jnp.asarray(1.0), "text": "1", "truth": True, "vector": [1], "matrix": np.zeros((1, 1), int),
    "empty": np.zeros(0, int), "object": object(), "complex": 1j, "two": (1, 2),
}  # fmt: skip


@each_filter
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_observation_is_refused_before_anything_is_compiled(name, wrong, key):
    compiled = len(dispatch._COMPILED)
    with pytest.raises(InputError, match=r"observation|Observation"):
        filter_of(name).step(key, None, wrong, *deaf_grid())
    assert len(dispatch._COMPILED) == compiled


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


# Missing observations, one particle, duplicates


@each_filter
def test_a_missing_observation_is_one_that_tells_nothing(name, key):
    """With an error of 4 in 5 all five symbols are equally likely, whatever happened: same key, same belief."""
    grid, policy = small_grid(error=0.8)
    filter = filter_of(name)
    start = filter.init(key, grid)
    predicted, info = filter.step(key, start, None, grid, policy)
    updated, other = filter.step(key, start, jnp.asarray(2), grid, policy)
    for one, two in zip(jax.tree.leaves(predicted), jax.tree.leaves(updated), strict=True):
        np.testing.assert_allclose(one, two, **FLOAT)
    np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)
    legal = np.mean(np.asarray(info.ess)) / 16 if name.startswith("neural") else 1.0
    np.testing.assert_allclose(other.log_evidence, np.log(0.2 * legal), **FLOAT)


@each_filter
def test_particles_that_are_all_the_same_state(name, key):
    """A grid of one free cell: every particle is a duplicate of every other, and bumps for ever."""
    grid, policy = deaf_grid(legal=np.arange(9) == 4)
    filter = filter_of(name)
    state = filter.init(key, grid)
    for _ in range(3):
        state, info = filter.step(key, state, jnp.asarray(4), grid, policy)
        assert_sound((state, info))
    belief = filter.belief(state, grid)
    probability = np.exp(belief.log_prob(jnp.asarray([1, 1])))
    if "flow" in name:  # an untrained one puts mass on walls
        assert 0 < probability <= 1
    else:
        np.testing.assert_allclose(probability, 1.0, **FLOAT)


SINGLE = {
    "particle": lambda: ParticleFilter(1),
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((3, 3))), 1),
    "neural, enumerated": lambda: NeuralBayesianFilter(MODELS["enumerated"](jax.random.key(1), (3, 3)), 1),
    "approx": lambda: ApproxBeliefs(TabularModel(Lattice((3, 3))), 1),
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_particle_is_a_filter(name, key):
    grid, policy = deaf_grid()
    filter = SINGLE[name]()
    state = filter.init(key, grid)
    for t, symbol in enumerate([1, NEVER, 4, 2]):
        state, info = filter.step(jax.random.fold_in(key, t), state, jnp.asarray(symbol), grid, policy)
        assert_sound((state, info))
        assert bool(info.recovered) == (symbol == NEVER)
        if name != "approx":
            np.testing.assert_allclose(info.ess, 0.0 if symbol == NEVER else 1.0, **FLOAT)
        np.testing.assert_allclose(belief_sums(filter, state, grid), 1.0, **BELIEF_SUM)


# Worlds of four rooms: weights of any size, rooms without a way out, policies without a move


class Rooms(HiddenMarkov):
    """Its likelihoods are given by their logs, so that they may be smaller than any float32."""

    def log_likelihood(self, observation, state, next_state):
        return self.symbols[state[0], next_state[0], observation]


ROOMS = {
    "exact": ExactFilter,
    "particle": lambda: ParticleFilter(64, threshold=0.0),
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((4,))), 64),
    "neural, enumerated": lambda: NeuralBayesianFilter(
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


@each_room
def test_weights_from_1e_minus_300_to_1(name, key):
    """Their logs are the truth's, and all of them at 1e-300 are no reason to give up."""
    world, filter, stays = rooms(STAY, SPAN), in_rooms(name), jnp.asarray(1.0)
    start = filter.init(key, world)
    spread, info = filter.step(key, start, jnp.asarray(0), world, stays)
    assert_sound((spread, info))
    assert not bool(info.recovered)
    weighted = getattr(spread, "particles", spread) if name.startswith(("particle", "neural")) else None
    if weighted is not None:
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


@each_room
def test_terminal_states_are_absorbing(name, key):
    """From everywhere the way leads to the last room, which is left by nobody: there the filter goes on filtering."""
    moves = 0.5 * STAY + 0.5 * np.eye(4)[[3, 3, 3, 3]]
    world, filter = rooms(moves, np.log([[0.5, 0.5]] * 4)), in_rooms(name)
    state = filter.init(key, world)
    for t in range(60):
        state, info = filter.step(jax.random.fold_in(key, t), state, jnp.asarray(t % 2), world, jnp.asarray(0.0))
        assert not bool(info.recovered)
        np.testing.assert_allclose(info.log_evidence, np.log(0.5), **FLOAT)
    assert_sound(state)
    probs = np.exp(filter.belief(state, world).log_probs(world.states()))
    if name != "neural, enumerated":  # an untrained model does not know
        np.testing.assert_allclose(probs, [0, 0, 0, 1], **FLOAT)
    else:
        np.testing.assert_allclose(probs.sum(), 1.0, **FLOAT)


@each_room
@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_a_policy_that_puts_zero_on_everything(name, nothing, key):
    """Nothing can happen, and nothing does: no NaN and no room that there is not. The exact filter sees it, keeps the
    belief it had and says so; a simulator's draw of nothing is its last outcome, which a particle cannot tell."""
    world, filter = rooms(np.full((4, 4), nothing), np.log([[0.5, 0.5]] * 4)), in_rooms(name)
    start = filter.init(key, world)
    state, info = filter.step(key, start, jnp.asarray(0), world, jnp.asarray(0.0))
    assert_sound((state, info))
    np.testing.assert_allclose(belief_sums(filter, state, world), 1.0, **FLOAT)
    if name in ("exact", "approx"):
        assert bool(info.recovered)
        np.testing.assert_allclose(getattr(state, "truth", state), getattr(start, "truth", start), **FLOAT)
    else:
        states = np.asarray(getattr(state, "particles", state).states)
        assert np.all(states == 3)
    # And the next policy finds a belief to go on with.
    state, info = filter.step(key, state, jnp.asarray(0), rooms(UNIFORM, np.log([[0.5, 0.5]] * 4)), jnp.asarray(0.0))
    assert_sound((state, info))
    assert not bool(info.recovered)


@pytest.mark.parametrize("name", ["exact", "particle", "neural, tabular"])
def test_a_finite_environment_stays_put_under_a_policy_of_zeros(name, key):
    """There every filter agrees, because the environment itself says what happens."""
    world = from_matrices([UNIFORM, STAY], [[0.5, 0.5]] * 4, [0.1, 0.2, 0.3, 0.4])
    filter = in_rooms(name)
    start = filter.init(key, world)
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


# Environment and policy swapped at every step

COMPILATIONS: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: COMPILATIONS.append(event) if "compile" in event or "trace" in event else None
)


@functools.cache
def many_grids(count=100):
    """More than `dispatch` remembers."""
    family = RandomGridworlds(3, 2, 1, 1, temperature=0.5, error=0.2)
    batch, policies = jax.jit(jax.vmap(family.sample))(jax.random.split(jax.random.key(8), count))
    grids, policies = jax.device_get(((batch.space.legal, batch.error), policies))
    return [
        (
            DeafGrid(Lattice((3, 3), jnp.asarray(grids[0][i])), jnp.asarray(grids[1][i])),
            GoalPolicy(jnp.asarray(policies.goal[i]), jnp.asarray(policies.temperature[i])),
        )
        for i in range(count)
    ]


@each_filter
def test_swapping_environment_and_policy_at_every_step_compiles_nothing(name, key):
    """A hundred grids and goals, none twice: one compilation, one trace, and beliefs that tell them apart."""
    filter, worlds = filter_of(name), many_grids()
    assert len(worlds) > dispatch.REMEMBERED
    symbols = [jnp.asarray(symbol) for symbol in range(1, 5)]
    keys = list(jax.random.split(key, len(worlds)))
    state = filter.init(key, worlds[0][0])
    state, _ = filter.step(keys[0], state, symbols[0], *worlds[0])
    traces, programs, events = DeafGrid.traces[0], len(dispatch._COMPILED), len(COMPILATIONS)
    assert traces > 0
    assert events > 0
    for t in range(1, len(worlds)):
        state, info = filter.step(keys[t], state, symbols[t % 4], *worlds[t])
    assert DeafGrid.traces[0] == traces
    assert len(dispatch._COMPILED) == programs
    assert COMPILATIONS[events:] == []
    assert_sound((state, info))
    print(f"{name}: {len(worlds) - 1} swaps, 0 compilations, 0 traces")


def test_a_swapped_environment_is_the_one_that_is_used(key):
    """The exact filter, step by step in other grids, against one scan over all of them."""
    worlds = many_grids()[:10]
    observations = jnp.asarray([1, 2, 3, 4, 1, 2, 3, 4, 1, 2])
    environments, policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)
    together, _ = jax.jit(lambda: run(ExactFilter(), key, observations, environments, policies, changing=True))()
    state = ExactFilter().init(key, worlds[0][0])
    for t, (environment, policy) in enumerate(worlds):
        state, _ = ExactFilter().step(key, state, observations[t], environment, policy)
        np.testing.assert_allclose(state, together[t], **FLOAT)
    assert np.abs(np.asarray(together[0]) - np.asarray(together[1])).max() > 0.01


# Disk full


class NoRoom:
    """No file may grow beyond `size` bytes, as on a disk that is full; what Python then gets is an OSError."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


RECORDS = [Record("e", "c", "pf", "", 8, 8, 0, step, "js", 0.5, None, 1) for step in range(50)]
RUN = Run("run", 0, "", 1.0, {}, {})


def save_when_full(folder, full, *, large):
    """A model and records that were saved, then others that do not fit: the old ones stay, whole."""
    model = MODELS["enumerated"](jax.random.key(0), (2, 3))
    config = CONFIGS["enumerated"]((2, 3))
    path = folder / "model.safetensors"
    checkpoint.save_model(path, model, config)
    add(folder, RECORDS[:1], RUN)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with full:
        with pytest.raises(InputError, match="Cannot write"):
            checkpoint.save_model(path, model, config, note="x" * large)
        with pytest.raises(RecordError, match="cannot be written"):
            add(folder, RECORDS, Run("another", 0, "x" * large, 1.0, {}, {}))
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert after.keys() == before.keys(), "a half-written file was left"
    assert after["model.safetensors"] == before["model.safetensors"]
    assert not completed(folder, "another")
    assert {record.key for record in read_records(folder)} >= {RECORDS[0].key}


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path):
    save_when_full(tmp_path, NoRoom(4096), large=20_000)


# A million particles

MILLION = 1_000_000
MILLIONS = {
    "particle": lambda: ParticleFilter(MILLION),
    "neural, tabular": lambda: NeuralBayesianFilter(TabularModel(Lattice((3, 3))), MILLION),
    "neural, dequantized flow": lambda: NeuralBayesianFilter(
        MODELS["dequantized flow"](jax.random.key(1), (3, 3)), MILLION
    ),
    "approx": lambda: ApproxBeliefs(TabularModel(Lattice((3, 3))), MILLION),
}
BYTES_EACH = 1024
"""Memory of a step for each particle: a few dozen numbers and the hidden units of a network, but no n x n."""


def check_million(name, key):
    filter = MILLIONS[name]()
    grid, policy = deaf_grid()
    start = jax.jit(filter.init)(key, grid)
    compiled = jax.jit(filter.update).lower(key, start, jnp.asarray(1), grid, policy).compile()
    taken = compiled.memory_analysis()
    each = (taken.temp_size_in_bytes + taken.output_size_in_bytes) / MILLION
    print(f"{name}: {each:.0f} bytes for each of a million particles")
    assert each < BYTES_EACH
    state, info = compiled(key, start, jnp.asarray(1), grid, policy)
    assert_sound((state, info))
    assert not bool(info.recovered)
    truth, evidence = ExactFilter().update(key, ExactFilter().init(key, grid), jnp.asarray(1), grid, policy)
    if "flow" not in name:
        np.testing.assert_allclose(info.log_evidence, evidence.log_evidence, rtol=0, atol=0.01)
        if name != "particle":
            np.testing.assert_allclose(state.embedding, truth, rtol=0, atol=0.005)


def test_a_million_particles(key):
    check_million("particle", key)
