"""Divergences against SciPy, beliefs as tables, and episodes whose number in a batch does not matter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import MODELS, an_embedding, small_grid
from scipy.spatial.distance import jensenshannon
from tolerances import EXACT, FLOAT

from nbf.beliefs.categorical import CategoricalBelief
from nbf.beliefs.model import ModelBelief
from nbf.beliefs.particles import ParticleBelief
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.evaluation.divergence import jensen_shannon, state_probabilities

divergence = jax.jit(jensen_shannon)


@pytest.mark.parametrize("k", [2, 9, 512])
@pytest.mark.parametrize("concentration", [0.05, 1.0, 50.0])
def test_jensen_shannon_is_scipys(k, concentration):
    rng = np.random.default_rng(k)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(k, concentration), size=2)
        # SciPy gives the square root.
        expected = jensenshannon(p, q) ** 2
        np.testing.assert_allclose(divergence(jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32)), expected,
                                   rtol=1e-4, atol=1e-6)  # fmt: skip


def test_jensen_shannon_is_symmetric_bounded_and_zero_only_for_equals():
    rng = np.random.default_rng(1)
    for _ in range(50):
        p, q = (jnp.asarray(rng.dirichlet(np.full(6, 0.2)), jnp.float32) for _ in range(2))
        value = float(divergence(p, q))
        np.testing.assert_allclose(value, divergence(q, p), **FLOAT)
        assert 0.0 < value <= np.log(2) + 1e-6
        assert float(divergence(p, p)) == 0.0


def test_jensen_shannon_with_zeros_is_never_nan():
    one, other = jnp.asarray([1.0, 0.0, 0.0]), jnp.asarray([0.0, 0.5, 0.5])
    np.testing.assert_allclose(divergence(one, other), np.log(2), **FLOAT)
    np.testing.assert_allclose(divergence(one, one), 0.0, **FLOAT)
    np.testing.assert_allclose(
        divergence(jnp.asarray([0.5, 0.5, 0.0]), one), jensenshannon([0.5, 0.5, 0], [1, 0, 0]) ** 2, **FLOAT
    )
    assert np.isfinite(divergence(jnp.asarray([1.0, 1e-38, 0.0]), jnp.asarray([1.0, 0.0, 1e-38])))


def test_jensen_shannon_normalises():
    p, q = jnp.asarray([1.0, 3.0]), jnp.asarray([20.0, 20.0])
    np.testing.assert_allclose(divergence(p, q), jensenshannon([0.25, 0.75], [0.5, 0.5]) ** 2, **FLOAT)


def test_a_categorical_belief_as_a_table():
    environment, _ = small_grid()
    probs = jnp.linspace(0.0, 1.0, 9) / 4.5
    np.testing.assert_array_equal(state_probabilities(CategoricalBelief(probs, environment), environment), probs)


@pytest.mark.parametrize("shift", [0.0, 2.0, -500.0])
def test_a_particle_belief_as_a_table(shift):
    """Its weighted histogram: equal states add up, and the weights need not be normalised."""
    environment, _ = small_grid()
    cells = np.array([0, 4, 4, 8, 0, 2])
    log_weights = np.log([0.1, 0.2, 0.3, 0.15, 0.25, 1e-30])
    belief = ParticleBelief(
        jnp.asarray(environment.space.points()[cells]), jnp.asarray(log_weights + shift, jnp.float32)
    )
    expected = np.bincount(cells, weights=np.exp(log_weights), minlength=9)
    np.testing.assert_allclose(state_probabilities(belief, environment), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_belief_as_a_table(name, key):
    """Its own probability of each cell."""
    environment, _ = small_grid()
    model = MODELS[name](key, (3, 3))
    embedding = an_embedding(model, key)
    table = jax.jit(lambda embedding: state_probabilities(
        ModelBelief(model, embedding, environment.space), environment
    ))(embedding)  # fmt: skip
    log_prob = jax.jit(lambda state: model.log_prob(embedding, state[None], environment.space)[0])
    one_by_one = [log_prob(state) for state in environment.states()[:3]]
    np.testing.assert_allclose(table[:3], np.exp(one_by_one), **FLOAT)
    np.testing.assert_allclose(np.sum(table), 1.0, rtol=0, atol=1e-3)


@pytest.mark.sampled
@pytest.mark.parametrize(("count", "batch"), [(7, 7), (7, 1), (7, 3), (7, 4), (7, 100), (1, 5), (6, 3)])
def test_results_do_not_depend_on_the_batch(count, batch, key):
    """And a single compilation serves all batches, the last one included."""
    traces, done = [], []

    @jax.jit
    @jax.vmap
    def one(key, number):
        traces.append(None)
        return {"draw": jax.random.uniform(key), "pair": jnp.stack([number, 2 * number])}

    keys, numbers = jax.random.split(key, count), jnp.arange(count)
    results = in_batches(one, (keys, numbers), batch=batch, advance=done.append)
    assert len(traces) == 1
    np.testing.assert_array_equal(results["pair"], np.stack([np.arange(count), 2 * np.arange(count)], axis=1))
    np.testing.assert_allclose(results["draw"], jax.vmap(jax.random.uniform)(keys), **FLOAT)
    assert isinstance(results["draw"], np.ndarray)
    assert sum(done) == count
    assert min(done) > 0


@pytest.mark.parametrize("shape", [(2,), (500,), (40, 3), (10, 2, 4)], ids=str)
def test_means_and_their_standard_errors(shape):
    values = np.random.default_rng(0).normal(3.0, 2.0, shape)
    mean, error = mean_and_error(values)
    np.testing.assert_allclose(mean, np.sum(values, axis=0) / shape[0], **EXACT)
    squares = np.sum((values - mean) ** 2, axis=0) / (shape[0] - 1)
    np.testing.assert_allclose(error, np.sqrt(squares / shape[0]), **EXACT)


def test_one_episode_has_no_standard_error():
    mean, error = mean_and_error(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(mean, [1.0, 2.0])
    assert np.all(np.isnan(error))


def test_the_standard_error_covers_the_truth():
    """About 95 of 100 means lie within two of them."""
    values = np.random.default_rng(3).exponential(1.0, (200, 400))
    mean, error = mean_and_error(values)
    covered = np.mean(np.abs(mean - 1.0) < 1.96 * error)
    assert 0.91 < covered < 0.98
