"""Algorithm 1, and what is done better than it, with the theorem's perfect model against the exact filter, on bad
days, and at any batch size."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import FILTERS, MODELS, small_grid
from tolerances import FLOAT, monte_carlo
from worlds import three_rooms, trap_door

from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import BeliefModel, Environment, InputError
from nbf.environments.gridworld import GoalPolicy, Gridworld, RandomGridworlds
from nbf.evaluation.divergence import state_probabilities
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.branching import BranchingFilter
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.run import run
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice

OBSERVATIONS = jnp.asarray([1, 1, 2, 4, 0, 3])
NEVER, ALWAYS_NAN, ALWAYS_INFINITE = 2, 3, 4
"""Symbols of `trap_door` that no trajectory explains."""
OPTIONS = {
    "Algorithm 1": {"even_draws": False, "consistent": False, "expand": False},
    "even draws": {"consistent": False, "expand": False},
    "consistent": {"even_draws": False, "expand": False},
    "even draws, consistent": {"expand": False},
}
"""What leaves chance a part; with `expand` as well the perfect model is exact on a small grid."""
tabular = functools.partial(NeuralBayesianFilter, TabularModel(Lattice((3, 3))))
rooms = functools.partial(NeuralBayesianFilter, TabularModel(Lattice((3,))))
faithful_rooms = functools.partial(NeuralBayesianFilter.faithful, TabularModel(Lattice((3,))))


@eqx.filter_jit
def many(filter, keys, environment, policy, observations=OBSERVATIONS):
    """States and infos of every step of one run for each key."""
    return jax.vmap(lambda key: run(filter, key, observations, environment, policy))(keys)


def value(state):
    """A bounded function of the state, different in every cell."""
    return jnp.sin(1.0 + state[0] + 3.0 * state[1])


# The theorem


@pytest.fixture(scope="module")
def truth():
    """Of `small_grid`, where every observation has a likelihood of at least 0.3 / 4."""
    environment, policy = small_grid()
    probs, info = many(ExactFilter(), jax.random.split(jax.random.key(0), 1), environment, policy)
    return np.asarray(probs[0], np.float64), np.asarray(info.log_evidence[0], np.float64)


@pytest.fixture(scope="module", params=OPTIONS)
def runs(request):
    """200 runs with each number of particles."""
    environment, policy = small_grid()
    keys = jax.random.split(jax.random.key(1), 200)
    return {n: many(tabular(n, **OPTIONS[request.param]), keys, environment, policy) for n in (32, 512)}


def slope_of(sizes, errors):
    """The log-log slope of the mean error by size, and its standard error; errors are [size, run]."""
    means = errors.mean(axis=1)
    spread = errors.std(axis=1) / means / np.sqrt(errors.shape[1])
    x = np.log(sizes) - np.mean(np.log(sizes))
    return np.sum(x * np.log(means)) / np.sum(x**2), np.sqrt(np.sum((x * spread) ** 2)) / np.sum(x**2)


def test_the_largest_error_of_the_estimates_falls_as_the_root_of_n(runs, truth):
    """sup_t |μ̂_t - E_t[f]| = O(n^-1/2): the slope is -1/2 within four standard errors, a 99.99 % interval."""
    probs, _ = truth
    points = jnp.asarray(Lattice((3, 3)).points())
    expected = probs @ np.asarray(jax.vmap(value)(points), np.float64)
    errors = []
    for states, _ in runs.values():
        estimate = jax.jit(jax.vmap(jax.vmap(lambda state: tabular(1).estimate(state, value))))
        errors.append(np.abs(np.asarray(estimate(states), np.float64) - expected).max(axis=1))
    slope, error = slope_of(list(runs), np.stack(errors))
    assert error < 0.02, "too noisy to tell a rate of 1/2 from others"
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * error)


def test_the_embedding_converges_to_the_posterior(runs, truth):
    """The largest error of any probability at any step falls at the same rate, to nothing but noise."""
    probs, _ = truth
    errors = [np.abs(np.asarray(states.embedding) - probs).max(axis=(1, 2)) for states, _ in runs.values()]
    slope, error = slope_of(list(runs), np.stack(errors))
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * error)
    last = np.asarray(runs[512][0].embedding, np.float64)
    np.testing.assert_array_less(np.abs(last.mean(axis=0) - probs), monte_carlo(last.std(axis=0), 200, k=5) + 1e-3)


@pytest.mark.parametrize("options", [OPTIONS["Algorithm 1"], {}], ids=["Algorithm 1", "default"])
def test_the_evidence_is_unbiased(options, truth, key):
    """Drawing from a table is multinomial resampling, and drawing evenly an optimal one, so E[product of evidences]
    = p(y_1:T) at any n."""
    environment, policy = small_grid()
    _, info = many(tabular(8, **options), jax.random.split(key, 2000), environment, policy)
    ratio = np.exp(np.asarray(info.log_evidence, np.float64).sum(axis=1) - truth[1].sum())
    assert ratio.std() > 0.05
    np.testing.assert_allclose(ratio.mean(), 1.0, rtol=0, atol=monte_carlo(ratio.std(), 2000))
    assert not np.any(info.recovered)
    np.testing.assert_array_equal(info.attempts, np.ones((2000, 6)))


def test_the_evidence_converges_to_the_exact_one(runs, truth):
    """Step by step, at the rate of everything else."""
    errors = [np.abs(np.asarray(info.log_evidence, np.float64) - truth[1]).max(axis=1) for _, info in runs.values()]
    slope, error = slope_of(list(runs), np.stack(errors))
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * error)
    assert errors[-1].max() < 0.15


@pytest.mark.parametrize("n", [32, 50])
def test_with_calls_for_all_branches_it_is_exact(n, truth, key):
    """4 branches of each of 8 free cells: the default is Bayes' rule, step by step."""
    environment, policy = small_grid()
    states, info = many(tabular(n), jax.random.split(key, 2), environment, policy)
    np.testing.assert_allclose(states.embedding, np.tile(truth[0], (2, 1, 1)), **FLOAT)
    np.testing.assert_allclose(info.log_evidence, np.tile(truth[1], (2, 1)), **FLOAT)


# One step


@eqx.filter_jit
def one_update(filter, key, state, observation):
    environment, policy = small_grid()
    return filter.update(key, state, observation, environment, policy)


@pytest.mark.parametrize("observation", [2, None])
def test_a_belief_of_few_states_is_updated_exactly(observation, key):
    """Two cells with 4 branches each, for 8 calls; a third cell that all but nothing is believed of may go."""
    environment, _ = small_grid()
    belief = jnp.zeros(9).at[jnp.asarray([0, 5, 8])].set(jnp.asarray([0.3, 0.7, 1e-9]))
    observation = None if observation is None else jnp.asarray(observation)
    filter = tabular(8)
    start = eqx.tree_at(lambda state: state.embedding, filter.init(key, environment), belief)
    state, info = one_update(filter, key, start, observation)
    truth, exact = one_update(ExactFilter(), key, belief, observation)
    np.testing.assert_allclose(state.embedding, truth, **FLOAT)
    np.testing.assert_allclose(info.log_evidence, exact.log_evidence, **FLOAT)


@eqx.filter_jit
def one_step(filter, key, observation):
    environment, policy = small_grid()
    return filter.update(key, filter.init(key, environment), observation, environment, policy)


def test_the_estimate_is_the_self_normalised_sum(key):
    filter = tabular(50)
    state, info = one_step(filter, key, jnp.asarray(1))
    weights = np.exp(np.asarray(state.particles.log_weights, np.float64))
    values = np.asarray(jax.vmap(value)(state.particles.states), np.float64)
    np.testing.assert_allclose(filter.estimate(state, value), weights @ values / weights.sum(), **FLOAT)
    np.testing.assert_allclose(info.ess, weights.sum() ** 2 / np.sum(weights**2), **FLOAT)
    assert 10 < float(info.ess) < 49
    # The new embedding is that of the same weighted set.
    cells = np.ravel_multi_index(tuple(np.asarray(state.particles.states).T), (3, 3))
    np.testing.assert_allclose(state.embedding, np.bincount(cells, weights, 9) / weights.sum(), **FLOAT)


def test_the_first_embedding_is_that_of_the_start(key):
    environment, _ = small_grid()
    state = tabular(4).init(key, environment)
    np.testing.assert_allclose(state.embedding, np.exp(environment.initial_log_probs()), **FLOAT)
    assert state.particles.states.shape == (4, 2)
    np.testing.assert_allclose(np.exp(state.particles.log_weights).sum(), 1.0, **FLOAT)


class Unlisted(Environment):
    """A grid that does not tell which states there are."""

    space: Lattice
    grid: Gridworld

    def init(self, key):
        return self.grid.init(key)

    def transition(self, key, state, policy):
        return self.grid.transition(key, state, policy)

    def observe(self, key, state, next_state):
        return self.grid.observe(key, state, next_state)

    def log_likelihood(self, observation, state, next_state):
        return self.grid.log_likelihood(observation, state, next_state)

    def check_observation(self, observation):
        self.grid.check_observation(observation)


def test_a_start_that_cannot_be_listed_is_sampled(key):
    grid, policy = small_grid()
    filter, environment = tabular(64, initial_samples=5000), Unlisted(grid.space, grid)
    state = jax.jit(lambda key: filter.init(key, environment))(key)
    assert_frequencies(5000 * np.asarray(state.embedding), np.asarray(grid.free) / 8, detects=0.06)
    state, info = filter.step(key, state, jnp.asarray(1), environment, policy)
    assert np.all(np.isfinite(state.embedding))
    assert float(info.ess) > 1


# Illegal particles, missing observations, zero weights


class Scripted(BeliefModel):
    """Always draws the same cells; an embedding is the weighted histogram."""

    space: Lattice
    cells: tuple[int, ...] = eqx.field(static=True)

    def embed(self, states, log_weights, space=None):
        return TabularModel(self.space).embed(states, log_weights)

    def sample(self, key, embedding, n, space):
        return jnp.asarray(self.space.points()[list(self.cells)])

    def log_prob(self, embedding, states, space):
        return TabularModel(self.space).log_prob(embedding, states, space)

    def objective(self, key, embeddings, states, space):
        raise NotImplementedError

    def prepared(self):
        return self


WALL = 1
"""The cell that is an obstacle in `small_grid`."""


def scripted(*cells, even_draws=True, **settings):
    return NeuralBayesianFilter(Scripted(Lattice((3, 3)), cells), len(cells), even_draws=even_draws, **settings)


@pytest.mark.parametrize("even_draws", [True, False])
@pytest.mark.parametrize("observation", [1, None])
def test_particles_on_illegal_states_have_no_weight(observation, even_draws, key):
    """Of those that are drawn evenly, copies of the others take their places."""
    observation = None if observation is None else jnp.asarray(observation)
    state, info = one_step(scripted(WALL, 0, WALL, 5, 8, even_draws=even_draws), key, observation)
    weights = np.exp(np.asarray(state.particles.log_weights))
    np.testing.assert_array_equal(weights > 0, [True] * 5 if even_draws else [False, True, False, True, True])
    distance = np.abs(np.asarray(state.particles.states)[:, None] - Lattice((3, 3)).points()[[0, 5, 8]]).sum(axis=-1)
    assert np.all(distance.min(axis=1)[weights > 0] <= 1)
    np.testing.assert_allclose(weights.sum(), 1.0, **FLOAT)
    assert 1.0 <= float(info.ess) <= (5.0 if even_draws else 3.0) + 1e-4
    assert not bool(info.recovered)


def test_a_missing_observation_is_no_evidence(key):
    """Its log-evidence is 0, also where the model put some particles on walls."""
    for cells in [(0, 5, 8), (0, WALL, 8)]:
        _, info = one_step(scripted(*cells), key, None)
        np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)


def test_a_missing_observation_is_a_prediction(key):
    environment, policy = small_grid()
    predicted, _ = ExactFilter().update(key, ExactFilter().init(key, environment), None, environment, policy)
    state, info = one_step(tabular(5000, expand=False), key, None)
    assert_frequencies(5000 * np.asarray(state.embedding), predicted, detects=0.06)
    np.testing.assert_allclose(info.ess, 5000, **FLOAT)
    assert int(info.attempts) == 1


def test_a_model_that_knows_only_walls_recovers_to_something_finite(key):
    state, info = one_step(scripted(WALL, WALL, WALL, max_attempts=3), key, jnp.asarray(1))
    assert bool(info.recovered)
    assert int(info.attempts) == 3
    assert float(info.ess) == 0.0
    assert float(info.log_evidence) == -np.inf
    assert np.all(np.isfinite(state.embedding))
    assert np.all(np.isfinite(state.particles.log_weights))


def test_a_recovered_belief_keeps_off_the_walls(key):
    """With an observation that nothing explains the belief is the prediction, of the legal particles only."""
    environment, policy = small_grid(error=0.0)
    filter = scripted(WALL, 6, 6, WALL)
    start = filter.init(key, environment)
    # From the corner (2, 0), where the goal is, the agent never moves up to (1, 0) at this temperature.
    policy = GoalPolicy(policy.goal, jnp.asarray(1e-5))
    state, info = filter.update(key, start, jnp.asarray(0), environment, policy)
    assert bool(info.recovered)
    np.testing.assert_allclose(state.embedding[6], 1.0, **FLOAT)


@pytest.mark.parametrize("impossible", [NEVER, ALWAYS_NAN, ALWAYS_INFINITE])
def test_an_impossible_observation_leaves_the_prediction(impossible, key):
    """At exactly those steps, never NaN, and forgotten afterwards."""
    world, policy = trap_door(0.1), jnp.asarray(0.0)
    observations = jnp.asarray([0, impossible, 0, impossible, impossible, 0])
    states, info = many(rooms(64), jax.random.split(key, 100), world, policy, observations)
    bad = np.tile(np.asarray(observations) == impossible, (100, 1))
    np.testing.assert_array_equal(info.recovered, bad)
    np.testing.assert_array_equal(np.asarray(info.ess) == 0, bad)
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, bad)
    np.testing.assert_array_equal(info.attempts, np.where(bad, 5, 1))
    for leaf in jax.tree.leaves(states):
        assert np.all(np.isfinite(leaf)) or leaf is states.particles.log_weights
    np.testing.assert_allclose(np.sum(states.embedding, axis=-1), np.ones((100, 6)), **FLOAT)
    exact, _ = many(ExactFilter(), jax.random.split(key, 1), world, policy, observations)
    sigma = np.asarray(states.embedding).std(axis=0)
    gap = np.abs(np.asarray(states.embedding).mean(axis=0) - np.asarray(exact[0]))
    np.testing.assert_array_less(gap, monte_carlo(sigma, 100, k=5) + 0.02)


def test_redraws_happen_as_often_as_chance_says(key):
    """Each attempt fails with probability q = (1 - p)^n, so their number is geometric, cut at five."""
    p, n, repeats = 0.1, 8, 4000
    world, policy = trap_door(p), jnp.asarray(0.0)
    states, info = many(faithful_rooms(n), jax.random.split(key, repeats), world, policy, jnp.asarray([1]))
    q = (1 - p) ** n
    counts = np.bincount(np.asarray(info.attempts)[:, 0], minlength=6)[1:]
    assert_frequencies(counts, [*((1 - q) * q**k for k in range(4)), q**4], detects=0.06)
    lost = np.asarray(info.recovered)[:, 0]
    np.testing.assert_allclose(lost.mean(), q**5, rtol=0, atol=monte_carlo(np.sqrt(q**5 * (1 - q**5)), repeats))
    # However many attempts it took, the belief is the posterior: behind the door for certain.
    behind = np.asarray(states.embedding)[:, 0, 2]
    np.testing.assert_allclose(behind[~lost], np.ones(np.sum(~lost)), **FLOAT)
    np.testing.assert_allclose(behind[lost], np.zeros(np.sum(lost)), **FLOAT)


# Every filter


@pytest.fixture(params=FILTERS)
def filter(request):
    return FILTERS[request.param]()


class Counted(Gridworld):
    """Counts how often it is traced: Python runs this method only while something is compiled."""

    traces = [0]  # noqa: RUF012

    def log_likelihood(self, observation, state, next_state):
        self.traces[0] += 1
        return super().log_likelihood(observation, state, next_state)


@functools.cache
def grids():
    """Three environments and policies of one structure."""
    family = RandomGridworlds(3, 2, 1, 1, temperature=0.5, error=0.2)
    grids, policies = jax.jit(jax.vmap(family.sample))(jax.random.split(jax.random.key(4), 3))
    batch = Counted(grids.space, grids.error), policies
    return [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(3)]


def test_a_batch_of_runs_is_the_same_as_single_steps_from_python(filter, key):
    """Three episodes under one `vmap`, each in its own grid, against a plain loop that goes from one episode
    to the next at every step: no step after the second compiles anything, and none mixes up its inputs."""
    keys, observations = jax.random.split(key, 3), jnp.asarray([[0, 4, 3], [1, 1, 2], [4, 0, 4]])
    environments, policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *grids())

    @jax.jit
    @jax.vmap
    def together(key, observations, environment, policy):
        def look(state):
            return state, state_probabilities(filter.belief(state, environment), environment)

        return run(filter, key, observations, environment, policy, look=look)

    (states, probs), infos = together(keys, observations, environments, policies)
    np.testing.assert_allclose(np.sum(probs, axis=-1), np.ones((3, 3)), rtol=0, atol=1e-3)
    start_keys, step_keys = jax.vmap(lambda key: jax.random.split(key))(keys).T
    step_keys = jax.vmap(lambda key: jax.random.split(key, 3))(step_keys)
    begin = jax.jit(lambda key, environment: filter.init(key, environment))
    alone = [begin(start_key, environment) for start_key, (environment, _) in zip(start_keys, grids(), strict=True)]
    for t in range(3):
        for lane, (environment, policy) in enumerate(grids()):
            if t == 1 and lane == 1:
                compiled = Counted.traces[0]
            alone[lane], info = filter.step(step_keys[lane, t], alone[lane], observations[lane, t], environment, policy)
            expected = jax.tree.map(lambda leaf, lane=lane, t=t: leaf[lane, t], (states, infos))
            for one, other in zip(jax.tree.leaves((alone[lane], info)), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(one, other, **FLOAT)
    assert Counted.traces[0] == compiled
    with pytest.raises(InputError, match="alphabet"):
        filter.step(key, alone[0], jnp.asarray(5), *grids()[0])


def test_the_first_step_compiles_for_all_others(filter, key):
    """A state has the same shapes and types before and after a step, so the second one compiles nothing."""
    environment, policy = grids()[0]
    start = jax.eval_shape(filter.init, key, environment)
    after, _ = jax.eval_shape(filter.update, key, start, jnp.asarray(0), environment, policy)

    def kinds(tree):
        return [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]

    assert kinds(start) == kinds(after)


class Metered(Gridworld):
    """Keeps how many transitions and branches each batch of calls asks for, while it is traced."""

    calls = []  # noqa: RUF012

    def _metered(self, function, each, *inputs):
        function = jax.custom_batching.custom_vmap(function)

        @function.def_vmap
        def count(size, batched, *inputs):
            self.calls.append(size * each)
            axes = tuple(jax.tree.map(lambda is_batched: 0 if is_batched else None, part) for part in batched)
            results = jax.vmap(function.fun, axes)(*inputs)
            return results, jax.tree.map(lambda _: True, results)

        return function(*inputs)

    def transition(self, key, state, policy):
        return self._metered(lambda *inputs: Gridworld.transition(self, *inputs, policy), 1, key, state)

    def successors(self, state, policy):
        branches = 2 * self.space.dimension
        return self._metered(lambda state: Gridworld.successors(self, state, policy), branches, state)


@pytest.mark.parametrize("n", [3, 4, 7, 8, 30, 100])
@pytest.mark.parametrize("kind", ["tabular", "dequantized flow", "branching"])
def test_no_step_calls_the_simulator_more_often_than_it_says(kind, n, key):
    """Transitions or branches, whichever way a step goes."""
    grid, policy = small_grid()
    environment = Metered(grid.space, grid.error)
    filter = BranchingFilter(max(n, 4)) if kind == "branching" else NeuralBayesianFilter(MODELS[kind](key, (3, 3)), n)
    start = jax.eval_shape(filter.init, key, environment)
    Metered.calls.clear()
    jax.eval_shape(lambda key, state: filter.update(key, state, jnp.asarray(1), environment, policy), key, start)
    assert max(n, 4) - 4 < max(Metered.calls) <= max(n, 4) if kind == "branching" else max(Metered.calls) == n


def test_a_missing_observation_from_python(filter, key):
    environment, policy = grids()[0]
    state, info = filter.step(key, filter.init(key, environment), None, environment, policy)
    np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)
    assert not bool(info.recovered)
    for leaf in jax.tree.leaves(state):
        assert not np.any(np.isnan(leaf))


def test_a_changed_policy_is_never_mistaken_for_the_old_one(key):
    """A policy is any pytree: a dictionary that its owner changes in place is another policy."""
    world = three_rooms()

    class Dictionary(type(world)):
        def successors(self, state, policy):
            return super().successors(state, policy["stay"])

    world = Dictionary(*(getattr(world, field) for field in ("space", "start", "moves", "symbols")))
    policy = {"stay": jnp.asarray(1.0)}
    start = ExactFilter().init(key, world)
    stayed, _ = ExactFilter().step(key, start, None, world, policy)
    np.testing.assert_allclose(stayed, world.start, **FLOAT)
    policy["stay"] = jnp.asarray(0.0)
    moved, _ = ExactFilter().step(key, start, None, world, policy)
    np.testing.assert_allclose(moved, np.asarray(world.start) @ np.asarray(world.moves), **FLOAT)


# Approx Beliefs


def test_approx_beliefs_embed_samples_of_the_true_posterior(truth, key):
    environment, policy = small_grid()
    states, info = many(ApproxBeliefs(TabularModel(Lattice((3, 3))), 64), jax.random.split(key, 200),
                        environment, policy)  # fmt: skip
    np.testing.assert_allclose(states.truth, np.tile(truth[0], (200, 1, 1)), **FLOAT)
    np.testing.assert_allclose(info.log_evidence, np.tile(truth[1], (200, 1)), **FLOAT)
    assert_frequencies(64 * np.asarray(states.embedding, np.float64).sum(axis=0), truth[0], detects=0.05)
    # 64 draws: each probability is a multiple of 1/64.
    np.testing.assert_allclose(np.round(64 * states.embedding), 64 * states.embedding, rtol=0, atol=1e-3)


# Bad input


@pytest.mark.parametrize("name", MODELS)
def test_a_model_for_another_space_is_refused(name, key):
    environment, policy = small_grid()
    filter = NeuralBayesianFilter(MODELS[name](key, (3, 4)), 4)
    with pytest.raises(InputError, match=r"\(3, 4\).*\(3, 3\)"):
        filter.init(key, environment)
    state = tabular(4).init(key, environment)
    with pytest.raises(InputError, match=r"\(3, 4\).*\(3, 3\)"):
        filter.update(key, state, jnp.asarray(0), environment, policy)


@pytest.mark.parametrize("settings", [{"num_particles": 0}, {"num_particles": -1}, {"max_attempts": 0},
                                      {"initial_samples": 0}], ids=str)  # fmt: skip
def test_a_filter_without_particles_is_refused(settings):
    with pytest.raises(InputError, match="at least 1"):
        tabular(**{"num_particles": 4, **settings})


def test_approx_beliefs_without_samples_are_refused():
    with pytest.raises(InputError, match="at least 1"):
        ApproxBeliefs(TabularModel(Lattice((3, 3))), 0)


def test_approx_beliefs_for_another_space_are_refused(key):
    """Before anything is embedded: a lattice of another shape would only shift the cells around."""
    environment, _ = small_grid()
    with pytest.raises(InputError, match=r"\(3, 4\).*\(3, 3\)"):
        ApproxBeliefs(TabularModel(Lattice((3, 4))), 4).init(key, environment)


@pytest.mark.parametrize("weights", [[-jnp.inf] * 3, [jnp.nan, 0.0, 0.0]], ids=str)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(InputError, match="log weights"):
        ParticleBelief(jnp.zeros((3, 2), jnp.int32), jnp.asarray(weights))
