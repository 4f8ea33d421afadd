"""The particle filter against brute force over all trajectories, and on days when nothing fits."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, monte_carlo
from worlds import HiddenMarkov, posterior, three_rooms, trap_door

from nbf.beliefs.particles import ParticleBelief
from nbf.errors import InputError
from nbf.filters.attempts import until_some_weight
from nbf.filters.particle import ParticleFilter, ParticleState

OBSERVATIONS = [0, 2, 2, 1, 0]
POLICIES = [0.0, 0.3, 0.1, 0.5, 0.2]
NEVER, ALWAYS_NAN, ALWAYS_INFINITE = 2, 3, 4
"""Symbols of `trap_door` that no trajectory explains."""


@eqx.filter_jit
def track(particle_filter: ParticleFilter, keys, world: HiddenMarkov, observations, policies):
    """Filter a sequence once per row of keys: the states and infos of all steps, [row, step, ...]."""

    def one(keys):
        def step(state, inputs):
            key, observation, policy = inputs
            state, info = particle_filter.update(key, state, observation, world, policy)
            return state, (state, info)

        start = particle_filter.init(keys[0], world)
        return jax.lax.scan(step, start, (keys[1:], observations, policies))[1]

    return jax.vmap(one)(keys)


def run(particle_filter, key, world, observations, policies, *, repeats):
    observations, policies = jnp.asarray(observations, jnp.int32), jnp.asarray(policies, jnp.float32)
    keys = jax.random.split(key, (repeats, len(observations) + 1))
    return track(particle_filter, keys, world, observations, policies)


def histogram(states: ParticleState, k: int) -> np.ndarray:
    """The weight on each of the k states."""
    onehot = np.asarray(states.states)[..., 0][..., None] == np.arange(k)
    return np.sum(np.exp(np.asarray(states.log_weights, np.float64))[..., None] * onehot, axis=-2)


def assert_sound(states: ParticleState, info) -> None:
    """Normalised weights, legal states, and no NaN anywhere."""
    for leaf in jax.tree.leaves((states, info)):
        assert not np.any(np.isnan(np.asarray(leaf, np.float64)))
    total = np.sum(np.exp(np.asarray(states.log_weights, np.float64)), axis=-1)
    np.testing.assert_allclose(total, np.ones_like(total), **FLOAT)
    assert np.asarray(states.states).min() >= 0
    assert np.asarray(states.states).max() < 3


def test_error_falls_as_the_root_of_n(key):
    """PF -> exact, with a log-log slope of -1/2 within four of its standard errors."""
    world, sizes, repeats = three_rooms(), [32, 2048], 300
    truth, _ = posterior(world, OBSERVATIONS, POLICIES)
    mean, error, last = [], [], np.zeros(3)
    for n in sizes:
        states, info = run(ParticleFilter(n), key, world, OBSERVATIONS, POLICIES, repeats=repeats)
        assert_sound(states, info)
        last = histogram(states, 3)[:, -1]
        absolute = np.abs(last - truth).sum(axis=1)
        mean.append(absolute.mean())
        error.append(absolute.std() / absolute.mean() / np.sqrt(repeats))
    x = np.log(sizes) - np.mean(np.log(sizes))
    slope = np.sum(x * np.log(mean)) / np.sum(x**2)
    standard_error = np.sqrt(np.sum((x * error) ** 2)) / np.sum(x**2)
    assert standard_error < 0.02, "too noisy to tell a rate of 1/2 from others"
    np.testing.assert_allclose(slope, -0.5, rtol=0, atol=4 * standard_error)
    # And what it converges to is the truth: the residual at the largest n is all noise.
    np.testing.assert_allclose(last.mean(axis=0), truth, rtol=0, atol=2e-3)


@pytest.mark.parametrize(("resampler", "threshold"), [("multinomial", 1.0), ("systematic", 0.5)])
def test_evidence_is_unbiased(resampler, threshold, key):
    """E[product of the steps' evidence] = p(y_1:T), at a size where any one estimate is poor."""
    world, repeats = three_rooms(), 4000
    _, evidence = posterior(world, OBSERVATIONS, POLICIES)
    particle_filter = ParticleFilter(8, threshold, resampler)
    _, info = run(particle_filter, key, world, OBSERVATIONS, POLICIES, repeats=repeats)
    estimates = np.exp(np.sum(np.asarray(info.log_evidence, np.float64), axis=1)) / evidence
    assert 0.1 < estimates.std() < 2.0
    np.testing.assert_allclose(estimates.mean(), 1.0, rtol=0, atol=monte_carlo(estimates.std(), repeats))


def test_evidence_is_unbiased_through_zeros_without_redraws(key):
    """With a single attempt a set that explains nothing counts as an estimate of zero, as it should."""
    world, observations, policies, repeats = trap_door(0.2), [0, 1, 0], [0.0, 0.1, 0.0], 8000
    _, evidence = posterior(world, observations, policies)
    _, info = run(ParticleFilter(4, max_attempts=1), key, world, observations, policies, repeats=repeats)
    assert 0.1 < np.mean(info.recovered[:, 1]) < 0.9
    estimates = np.exp(np.sum(np.asarray(info.log_evidence, np.float64), axis=1)) / evidence
    np.testing.assert_allclose(estimates.mean(), 1.0, rtol=0, atol=monte_carlo(estimates.std(), repeats))


def test_never_resampled_weights_are_products_of_likelihoods(key):
    """Threshold 0: particles keep their place, so a weight is its trajectory's likelihood."""
    world = three_rooms()
    states, info = run(ParticleFilter(16, threshold=0.0), key, world, OBSERVATIONS[1:3], [0.1, 0.2], repeats=5)
    path = np.asarray(states.states)[..., 0]
    symbols = np.asarray(world.symbols, np.float64)
    # The first step's x0 is not in the record, so compare what the second step changed.
    gain = np.log(symbols[path[:, 0], path[:, 1], OBSERVATIONS[2]])
    change = np.asarray(states.log_weights[:, 1] - states.log_weights[:, 0], np.float64)
    np.testing.assert_allclose(change, gain - np.asarray(info.log_evidence)[:, 1:], **FLOAT)


def test_the_state_is_the_weighted_set_before_resampling(key):
    """Threshold 1: every step starts from equal weights, and ends with the likelihood of that step alone."""
    world = three_rooms()
    states, info = run(ParticleFilter(64, threshold=1.0), key, world, OBSERVATIONS, POLICIES, repeats=3)
    weights = np.exp(np.asarray(states.log_weights, np.float64))
    np.testing.assert_allclose(info.ess, 1.0 / np.sum(weights**2, axis=-1), **FLOAT)
    assert np.all(np.asarray(info.ess) < 63.0)
    # Nine pairs (x, x') have at most nine likelihoods: old weights are forgotten.
    for row in np.asarray(states.log_weights).reshape(-1, 64):
        assert len(np.unique(np.round(row, 4))) <= 9
    before = ParticleState(states.states[0, 0], states.log_weights[0, 0])
    belief = ParticleFilter(64).belief(before, world)
    assert isinstance(belief, ParticleBelief)
    probs = [np.exp(belief.log_prob(jnp.asarray([x]))) for x in range(3)]
    np.testing.assert_allclose(probs, histogram(before, 3), **FLOAT)


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_resampling_starts_below_the_threshold(threshold, key):
    """Everyone stays put (policy 1), so whether the set was resampled can be read off the next weights."""
    world = three_rooms()
    update = jax.jit(lambda state: ParticleFilter(20, threshold).update(key, state, None, world, jnp.asarray(1.0)))
    for heavy in (1, 4, 8, 12, 16, 19):
        weights = jnp.where(jnp.arange(20) < heavy, 0.0, -jnp.inf) - jnp.log(heavy)
        state = ParticleState(jnp.zeros((20, 1), jnp.int32), weights)
        after, _ = update(state)
        resampled = heavy < threshold * 20
        expected = np.full(20, -np.log(20)) if resampled else weights
        np.testing.assert_allclose(after.log_weights, expected, **FLOAT)


def test_a_missing_observation_is_a_pure_prediction(key):
    world, repeats = three_rooms(), 200
    keys = jax.random.split(key, repeats)

    def predict(key):
        state = ParticleFilter(64).init(key, world)
        return ParticleFilter(64).update(jax.random.fold_in(key, 1), state, None, world, jnp.asarray(0.3))

    states, info = jax.jit(jax.vmap(predict))(keys)
    truth = 0.3 * np.asarray(world.start) + 0.7 * np.asarray(world.start) @ np.asarray(world.moves)
    share = histogram(states, 3).mean(axis=0)
    tolerance = monte_carlo(np.sqrt(truth * (1 - truth)), 64 * repeats)
    np.testing.assert_array_less(np.abs(share - truth), tolerance)
    np.testing.assert_allclose(info.log_evidence, np.zeros(repeats), **FLOAT)
    np.testing.assert_allclose(info.ess, np.full(repeats, 64.0), **FLOAT)
    np.testing.assert_array_equal(info.attempts, np.ones(repeats))


@pytest.mark.parametrize("impossible", [NEVER, ALWAYS_NAN, ALWAYS_INFINITE])
@pytest.mark.parametrize("where", ["first", "every", "one in ten"])
def test_impossible_observations_leave_a_prediction(impossible, where, key):
    """Never NaN, seen by the caller at exactly those steps, and forgotten afterwards."""
    world, steps = trap_door(0.1), 12
    bad = np.array([{"first": t == 0, "every": True, "one in ten": t % 10 == 5}[where] for t in range(steps)])
    observations = np.where(bad, impossible, 0)
    states, info = run(ParticleFilter(32), key, world, observations, np.zeros(steps), repeats=20)
    assert_sound(states, info)
    np.testing.assert_array_equal(info.recovered, np.tile(bad, (20, 1)))
    np.testing.assert_array_equal(info.attempts, np.where(bad, 5, 1) * np.ones((20, 1)))
    np.testing.assert_array_equal(np.asarray(info.ess) == 0, np.tile(bad, (20, 1)))
    np.testing.assert_array_equal(np.asarray(info.log_evidence) == -np.inf, np.tile(bad, (20, 1)))
    if where == "every":
        predicted = np.asarray(world.start, np.float64)
        for t in range(steps):
            predicted = predicted @ np.asarray(world.moves, np.float64)
            share = histogram(states, 3)[:, t].mean(axis=0)
            # Resampled sets are not independent over the steps, but the runs are.
            sigma = histogram(states, 3)[:, t].std(axis=0)
            np.testing.assert_array_less(np.abs(share - predicted), monte_carlo(sigma, 20, k=5))


def test_redraws_happen_as_often_as_chance_says(key):
    """Each attempt fails with probability q = (1 - p)^n, so their number is geometric, cut at five."""
    p, n, repeats = 0.1, 8, 4000
    states, info = run(ParticleFilter(n), key, trap_door(p), [1], [0.0], repeats=repeats)
    q = (1 - p) ** n
    share = np.array([np.mean(np.asarray(info.attempts)[:, 0] == k) for k in range(1, 6)])
    truth = np.array([(1 - q) * q**k for k in range(4)] + [q**4])
    np.testing.assert_array_less(np.abs(share - truth), monte_carlo(np.sqrt(truth * (1 - truth)), repeats))
    lost = np.asarray(info.recovered)[:, 0]
    np.testing.assert_allclose(lost.mean(), q**5, rtol=0, atol=monte_carlo(np.sqrt(q**5 * (1 - q**5)), repeats))
    # After symbol 1 the agent is behind the door for certain, however many attempts it took to see.
    behind = histogram(states, 3)[:, 0, 2]
    np.testing.assert_allclose(behind[~lost], np.ones(np.sum(~lost)), **FLOAT)
    assert np.all(behind[lost] == 0)


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_redraw_resamples_the_carried_set(max_attempts, key):
    """All weight on one particle, nobody moves, nothing fits: the first attempt leaves everyone in place
    with the weights they had, the second one has only children of that particle."""
    world = trap_door(0.1)
    state = ParticleState(jnp.asarray([[0], [0], [1], [0]]), jnp.asarray([-jnp.inf, -jnp.inf, 0.0, -jnp.inf]))
    particle_filter = ParticleFilter(4, threshold=0.0, max_attempts=max_attempts)
    after, info = jax.jit(particle_filter.update)(key, state, jnp.asarray(NEVER), world, jnp.asarray(1.0))
    assert bool(info.recovered)
    assert int(info.attempts) == max_attempts
    np.testing.assert_array_equal(after.states[:, 0], [0, 0, 1, 0] if max_attempts == 1 else [1, 1, 1, 1])
    np.testing.assert_array_equal(
        after.log_weights, state.log_weights if max_attempts == 1 else np.full(4, np.log(np.float32(0.25)))
    )


@pytest.mark.slow
def test_vmap_of_filters_that_need_different_attempts(key):
    """One lane at a time gives what all lanes together give."""
    world = trap_door(0.2)
    particle_filter = ParticleFilter(4)
    keys = jax.random.split(key, 12)
    start = jax.vmap(particle_filter.init, in_axes=(0, None))(keys, world)
    observations = jnp.asarray([0, 1, NEVER] * 4)

    def update(key, state, observation):
        return particle_filter.update(key, state, observation, world, jnp.asarray(0.0))

    together = jax.jit(jax.vmap(update))(keys, start, observations)
    assert len(np.unique(together[1].attempts)) > 2
    alone = jax.jit(update)
    for lane in range(12):
        one = alone(keys[lane], jax.tree.map(lambda leaf, lane=lane: leaf[lane], start), observations[lane])
        for both, single in zip(jax.tree.leaves(together), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(both[lane], single, **FLOAT)


def test_until_some_weight_counts_and_draws_afresh(key):
    """Succeeds at attempt 3: the numbers passed are 0, 1, 2, 3, and no two attempts share a key."""

    def propose(key, attempt):
        return {"key": jax.random.key_data(key), "attempt": attempt}, jnp.where(attempt == 3, 0.0, -jnp.inf)[None]

    proposals = [until_some_weight(key, limit, propose) for limit in (1, 2, 3, 4, 9)]
    assert [int(proposal["attempt"]) for proposal, _, _ in proposals] == [0, 1, 2, 3, 3]
    assert [int(attempts) for _, _, attempts in proposals] == [1, 2, 3, 4, 4]
    assert [bool(log_weights[0] == 0) for _, log_weights, _ in proposals] == [False, False, False, True, True]
    assert len({tuple(np.asarray(proposal["key"])) for proposal, _, _ in proposals[:4]}) == 4


def test_same_key_same_result_and_one_particle_is_enough(key):
    world = three_rooms()
    first = run(ParticleFilter(1), key, world, OBSERVATIONS, POLICIES, repeats=4)
    again = run(ParticleFilter(1), key, world, OBSERVATIONS, POLICIES, repeats=4)
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(first[1].ess, np.ones((4, 5)), **FLOAT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_particles": 0}, "num_particles of at least 1; got 0"),
        ({"num_particles": -3}, "num_particles of at least 1"),
        ({"resampler": "lottery"}, "systematic, stratified, multinomial, residual"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": -0.1}, "threshold"),
        ({"max_attempts": 0}, "max_attempts of at least 1; got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ParticleFilter(**{"num_particles": 8, **arguments})
