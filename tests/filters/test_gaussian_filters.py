"""The Gaussian filters: exact where the system is linear (against the conditioning of one joint Gaussian), the
textbook's formulas where it is not, and sound on bad days."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid
from kalman import kalman, random_system
from scipy import stats
from tolerances import FLOAT, SEED, monte_carlo

import nbf
from nbf import dispatch
from nbf.environments.rollout import rollout
from nbf.environments.triangulation import ScanPolicy, TriangulationFamily
from nbf.errors import InputError
from nbf.filters import gaussian
from nbf.filters.run import run
from nbf.spaces import Box
from nbf.testing import check_filter

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cuthbertlib") is None, reason="cuthbertlib comes with the extra [classical]"
)  # not imported: that takes a second of every worker

FAMILY = TriangulationFamily()
SPACE = Box((-5.0, -5.0), (5.0, 5.0), bounded=False)
STEPS, PUSH = 5, np.array([0.3, -0.2])
FILTERS = {
    "kalman": nbf.KalmanFilter(),
    "extended": nbf.ExtendedKalmanFilter(),
    "unscented": nbf.UnscentedKalmanFilter(),
    "cubature": nbf.CubatureKalmanFilter(),
}
NONLINEAR = {name: filter for name, filter in FILTERS.items() if name != "kalman"}
ENSEMBLE = {"ensemble": nbf.EnsembleKalmanFilter(16)}
MISSING = (1, 3)


def parametrize(filters):
    return pytest.mark.parametrize("filter", list(filters.values()), ids=list(filters))


# --- linear systems --------------------------------------------------------------------------------------------------


@functools.cache
def systems():
    """Three random ones, and one that starts at a known point and is pushed along one line only."""
    found = [random_system(number) for number in range(3)]
    flat = {"P0": np.zeros((2, 2)), "Q": np.outer([1.0, 2.0], [1.0, 2.0])}
    return [*found, random_system(3) | flat]


@functools.cache
def environments_of():
    return [nbf.LinearGaussian(**system, space=SPACE) for system in systems()]


@functools.cache
def stacked():
    """All of them as one batch, and readings of each."""
    made = environments_of()
    readings = np.random.default_rng(SEED).normal(size=(len(made), STEPS, 1)).astype(np.float32)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *made), readings


def conditioned(A, Q, C, R, m0, P0, observations, push):  # noqa: N803
    """Mean and covariance of x_t given y_1:t, and log p(y_1:t), for each t: all states and readings are one Gaussian.
    An observation of None does not take part."""
    T, d = len(observations), len(m0)  # noqa: N806
    mean, means, root = m0, [], np.hstack([np.linalg.cholesky(P0 + 1e-300 * np.eye(d)), np.zeros((d, T * d))])
    values, vectors = np.linalg.eigh(Q)
    step_root, roots = vectors * np.sqrt(np.maximum(values, 0.0)), []
    for t in range(T):
        mean, root = A @ mean + push, A @ root
        root[:, (t + 1) * d : (t + 2) * d] += step_root
        means.append(mean)
        roots.append(root)
    results = []
    for t in range(T):
        seen = [s for s in range(t + 1) if observations[s] is not None]
        if not seen:
            results.append((means[t], roots[t] @ roots[t].T, 0.0))
            continue
        sensed = np.vstack([C @ roots[s] for s in seen])
        spread = sensed @ sensed.T + np.kron(np.eye(len(seen)), R)
        expected, y = np.hstack([C @ means[s] for s in seen]), np.hstack([observations[s] for s in seen])
        gain = roots[t] @ sensed.T @ np.linalg.inv(spread)
        covariance = roots[t] @ roots[t].T - gain @ sensed @ roots[t].T
        log_evidence = stats.multivariate_normal(expected, spread).logpdf(y)
        results.append((means[t] + gain @ (y - expected), covariance, log_evidence))
    return tuple(np.asarray(part) for part in zip(*results, strict=True))


@eqx.filter_jit
def runs(filter, key, readings, environments, policy):
    one = lambda readings, environment: run(filter, key, readings, environment, policy)  # noqa: E731
    return jax.vmap(one)(readings, environments)


@pytest.mark.sampled
@parametrize(FILTERS)
def test_every_filter_is_exact_on_linear_systems(filter, key):
    """Compiled, scanned, and as one batch of different systems."""
    environments, readings = stacked()
    states, infos = runs(filter, key, jnp.asarray(readings), environments, jnp.asarray(PUSH, jnp.float32))
    assert not np.any(infos.recovered)
    np.testing.assert_array_equal(infos.attempts, 1)
    np.testing.assert_array_equal(infos.ess, 1.0)
    for number, system in enumerate(systems()):
        observed = readings[number].astype(np.float64)
        means, covariances, log_evidences = conditioned(**system, observations=list(observed), push=PUSH)
        mean, log_evidence = kalman(**system, observations=observed, push=PUSH)
        np.testing.assert_allclose(means[-1], mean, **FLOAT)
        np.testing.assert_allclose(log_evidences[-1], log_evidence, **FLOAT)
        roots = np.asarray(states.root[number], np.float64)
        np.testing.assert_allclose(states.mean[number], means, **FLOAT)
        np.testing.assert_allclose(roots @ roots.swapaxes(1, 2), covariances, **FLOAT)
        np.testing.assert_allclose(np.cumsum(infos.log_evidence[number]), log_evidences, **FLOAT)


@pytest.mark.sampled
@parametrize(FILTERS)
def test_where_an_observation_is_missing_the_step_predicts(filter, key):
    environment, readings = environments_of()[0], stacked()[1]
    observations = [None if t in MISSING else readings[0, t] for t in range(STEPS)]
    truth = conditioned(**systems()[0], observations=observations, push=PUSH)
    state, total = filter.init(key, environment), 0.0
    for observation, mean, covariance, log_evidence in zip(observations, *truth, strict=True):
        state, info = filter.step(key, state, observation, environment, jnp.asarray(PUSH, jnp.float32))
        total += float(info.log_evidence)
        assert not info.recovered
        np.testing.assert_allclose(state.mean, mean, **FLOAT)
        np.testing.assert_allclose(state.root @ state.root.T, covariance, **FLOAT)
        np.testing.assert_allclose(total, log_evidence, **FLOAT)


def test_the_ensemble_agrees_with_kalman(key):
    """Its error is O(1/√members), its bias O(1/members): of 64 runs of 512, the error is thrice the bias."""
    n, filter = 64, nbf.EnsembleKalmanFilter(512)
    environment, readings = environments_of()[0], stacked()[1]
    means, covariances, log_evidences = conditioned(**systems()[0], observations=list(readings[0]), push=PUSH)

    @eqx.filter_jit
    def many(keys, environment, readings):
        def one(key):
            states, infos = run(filter, key, readings, environment, jnp.asarray(PUSH, jnp.float32))
            belief = filter.belief(states[-1], environment)
            return belief.mean, belief.root @ belief.root.T, jnp.cumsum(infos.log_evidence), infos.ess

        return jax.vmap(one)(keys)

    *found, ess = many(jax.random.split(key, n), environment, jnp.asarray(readings[0]))
    np.testing.assert_array_equal(ess, 512.0)
    for values, truth in zip(found, (means[-1], covariances[-1], log_evidences), strict=True):
        values = np.asarray(values, np.float64)
        error = (values.mean(axis=0) - truth) / values.std(axis=0)
        np.testing.assert_allclose(error, 0.0, rtol=0, atol=monte_carlo(1.0, n, k=5.0))


@parametrize(FILTERS | ENSEMBLE)
def test_another_environment_at_each_step_needs_no_new_compilation(filter, key):
    made, readings = environments_of(), stacked()[1]
    state, push = filter.init(key, made[0]), jnp.asarray(PUSH, jnp.float32)
    state, _ = filter.step(key, state, readings[0, 0], made[0], push)
    compiled = len(dispatch._COMPILED)
    for number, environment in enumerate(made):
        state, info = filter.step(key, state, readings[0, number], environment, push)
        assert np.isfinite(info.log_evidence)
    assert len(dispatch._COMPILED) == compiled


# --- Triangulation ---------------------------------------------------------------------------------------------------


def a_scan(time=0, family=FAMILY):
    return family.environment().at(jnp.int32(time), jnp.bool_(True))


STILL = ScanPolicy(jnp.int32(0), jnp.float32(0.5))


def textbook(name, mean, covariance, beacon, reading, noise):
    """Mean, covariance and log evidence after one range was read, in covariance form and float64."""
    distance = lambda x: np.linalg.norm(x - beacon, axis=-1)  # noqa: E731
    if name == "extended":
        slope = (mean - beacon) / distance(mean)
        expected, cross = distance(mean), covariance @ slope
        spread = slope @ covariance @ slope + noise**2
    else:
        alpha, beta, kappa = (0.5, 2.0, 5.0) if name == "unscented" else (1.0, 0.0, 0.0)
        scale = alpha**2 * (2 + kappa)
        steps = np.linalg.cholesky(scale * covariance).T
        points = np.vstack([mean, mean + steps, mean - steps])
        weights = np.full(5, 0.5 / scale)
        weights[0] = 1.0 - 2.0 / scale
        spreads = weights + np.array([1.0 - alpha**2 + beta, 0, 0, 0, 0])
        expected = weights @ distance(points)
        cross = (spreads * (distance(points) - expected)) @ (points - mean)
        spread = spreads @ (distance(points) - expected) ** 2 + noise**2
    gain = cross / spread
    log_evidence = stats.norm(expected, np.sqrt(spread)).logpdf(reading)
    return mean + gain * (reading - expected), covariance - spread * np.outer(gain, gain), log_evidence


@parametrize(NONLINEAR)
def test_a_range_is_taken_in_as_the_textbook_says(filter, key, request):
    name = request.node.callspec.id
    mean, root = np.array([0.5, -1.0]), np.array([[1.0, 0.0], [-0.4, 0.7]])
    environment, reading = a_scan(), 2.5
    state = gaussian.Moments(jnp.asarray(mean, jnp.float32), jnp.asarray(root, jnp.float32))
    state, info = filter.step(key, state, jnp.float32(reading), environment, STILL)
    expected = textbook(name, mean, root @ root.T, np.asarray(environment.beacon, np.float64), reading, 0.5)
    np.testing.assert_allclose(state.mean, expected[0], **FLOAT)
    np.testing.assert_allclose(state.root @ state.root.T, expected[1], **FLOAT)
    np.testing.assert_allclose(info.log_evidence, expected[2], **FLOAT)


@parametrize(NONLINEAR)
def test_a_move_adds_its_noise_and_reads_nothing(filter, key):
    environment = FAMILY.environment()
    state, info = filter.step(key, filter.init(key, environment), jnp.float32(0.0), environment, STILL)
    np.testing.assert_allclose(state.mean, [-0.5, 0.0], **FLOAT)
    np.testing.assert_allclose(state.root @ state.root.T, (10.0**2 / 12 + 0.1**2) * np.eye(2), **FLOAT)
    np.testing.assert_allclose(info.log_evidence, 0.0, **FLOAT)
    assert not info.recovered


@functools.cache
def episodes():
    def one(key):
        schedule_key, walk_key = jax.random.split(key)
        environments, policies = FAMILY.schedule(schedule_key, 10)
        return environments, policies, rollout(walk_key, environments, policies, 10, changing=True)[1]

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(SEED), 50))


ABSURD = np.array([-1e3, 1e3, 1e6, 1e18, 1e30, np.inf, np.nan, 0.0], np.float32)


@pytest.mark.slow
@parametrize(NONLINEAR | ENSEMBLE)
def test_episodes_stay_finite_and_absurd_readings_are_survived(filter, key):
    environments, policies, readings = episodes()

    @jax.jit
    def tracked(key, readings, environments, policies):
        one = lambda *inputs: run(filter, key, *inputs, changing=True)  # noqa: E731
        return jax.vmap(one)(readings, environments, policies)

    states, infos = tracked(key, readings, environments, policies)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((states, infos)))
    assert not np.any(infos.recovered)
    # The same episodes with an absurd reading in the middle of each.
    odd = readings.at[:, 5].set(jnp.asarray(np.resize(ABSURD, 50)))
    states, infos = tracked(key, odd, environments, policies)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(states))
    positions = states if isinstance(filter, nbf.EnsembleKalmanFilter) else states.mean
    assert np.all(np.abs(positions) <= 5.0)
    recovered, scans = np.asarray(infos.recovered[:, 5]), np.asarray(environments.scanning[:, 5])
    hopeless = np.resize(~(ABSURD < 1e20), 50)
    np.testing.assert_array_equal(recovered[hopeless], scans[hopeless])
    np.testing.assert_array_equal(np.asarray(infos.log_evidence)[:, 5][recovered], -np.inf)
    assert not np.any(np.delete(np.asarray(infos.recovered), 5, axis=1))


def test_an_impossible_reading_leaves_the_prediction(key):
    filter, environment = nbf.UnscentedKalmanFilter(), a_scan()
    start = filter.init(key, environment)
    kept, info = filter.step(key, start, jnp.float32(1e30), environment, STILL)
    predicted, _ = filter.step(key, start, None, environment, STILL)
    assert bool(info.recovered)
    assert float(info.ess) == 0.0
    np.testing.assert_array_equal(kept.mean, predicted.mean)
    np.testing.assert_array_equal(kept.root, predicted.root)


def test_at_a_beacon_the_extended_filter_learns_nothing_and_is_no_nan(key):
    environment = a_scan(family=TriangulationFamily(beacons=((0.0, 0.0),)))
    filter = nbf.ExtendedKalmanFilter()
    start = filter.init(key, environment)
    state, info = filter.step(key, start, jnp.float32(0.3), environment, STILL)
    np.testing.assert_allclose(state.mean, 0.0, **FLOAT)
    np.testing.assert_allclose(state.root @ state.root.T, start.root @ start.root.T, **FLOAT)
    np.testing.assert_allclose(info.log_evidence, stats.norm(0.0, 0.5).logpdf(0.3), **FLOAT)


def test_dynamics_that_overflow_leave_the_belief_as_it_was(key):
    environment = nbf.LinearGaussian(
        1e30 * np.eye(2), np.eye(2), np.eye(2), np.eye(2), [1.0, 1.0], np.eye(2), space=SPACE
    )
    filter = nbf.KalmanFilter()
    state, info = filter.step(key, filter.init(key, environment), None, environment, None)
    assert not info.recovered
    kept, info = filter.step(key, state, None, environment, None)
    assert bool(info.recovered)
    assert float(info.log_evidence) == -np.inf
    np.testing.assert_array_equal(kept.mean, state.mean)


# --- contracts and refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter",
    [
        pytest.param(filter, id=name, marks=() if name == "extended" else pytest.mark.slow)
        for name, filter in (FILTERS | ENSEMBLE).items()
    ],
)
def test_the_contract_is_kept(filter, key):
    if isinstance(filter, nbf.KalmanFilter):
        report = check_filter(filter, environments_of()[0], None)
    else:
        report = check_filter(filter, a_scan(), STILL)
    report.raise_if_failed()


def test_what_they_cannot_filter_is_refused(key):
    with pytest.raises(InputError, match=r"linear moments.*ExtendedKalmanFilter"):
        nbf.KalmanFilter().init(key, a_scan())
    with pytest.raises(InputError, match=r"lattice\(3, 3\)"):
        nbf.ExtendedKalmanFilter().init(key, small_grid()[0])
    plain = nbf.environment(
        space=SPACE,
        init=lambda key: jnp.zeros(2),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state,
        log_likelihood=lambda observation, state, next_state: jnp.zeros(()),
    )
    with pytest.raises(InputError, match="initial_moments"):
        nbf.CubatureKalmanFilter().init(key, plain)
    with pytest.raises(InputError, match="at least 2; got 1"):
        nbf.EnsembleKalmanFilter(1)
    with pytest.raises(InputError, match="alpha=0"):
        nbf.UnscentedKalmanFilter(alpha=0.0)
    filter = nbf.UnscentedKalmanFilter(kappa=-2.0)
    with pytest.raises(InputError, match="above -2"):
        filter.update(key, filter.init(key, a_scan()), None, a_scan(), STILL)


@parametrize(FILTERS | ENSEMBLE)
def test_without_cuthbertlib_the_extra_is_named(filter, key, monkeypatch):
    environment = environments_of()[0]
    state = filter.init(key, environment)
    monkeypatch.setitem(sys.modules, "cuthbertlib", None)
    with pytest.raises(InputError, match=r"pip install 'neural-bayesian-filtering\[classical\]'"):
        filter.update(key, state, None, environment, None)


def test_nothing_is_imported_before_it_is_needed():
    check = "import sys, nbf; nbf.KalmanFilter(); sys.exit('cuthbertlib' in sys.modules or 'numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
