"""The learned model over deals, against all deals of a small game."""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, SEED, monte_carlo

from nbf.errors import InputError
from nbf.models.autoregressive_deals import AutoregressiveDealsConfig, pair_marginals
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.spaces import Deals, Lattice

QUOTAS = (2, 1)
CONFIG = AutoregressiveDealsConfig(6, QUOTAS, width=8, depth=1, largest=16)
ALL = np.array([deal for deal in itertools.product(range(3), repeat=6) if (deal.count(0), deal.count(1)) == QUOTAS])
ALLOWED = np.ones((6, 3), bool)
ALLOWED[2, 0] = ALLOWED[4, 2] = False
SEEN = ALLOWED.copy()
SEEN[0] = [True, False, False]
BEFORE = Deals.of(jnp.asarray(ALLOWED), QUOTAS)
SPACES = {"as embedded": BEFORE, "more is known": dataclasses.replace(BEFORE, allowed=jnp.asarray(SEEN))}


def changed(model):
    """The model with random parameters in place of those that start at zero."""
    last = model.network.weights[-1]
    made = 0.5 * jax.random.normal(jax.random.key(SEED), last.shape)
    return eqx.tree_at(lambda model: model.network.weights[-1], model, made)


@pytest.fixture(scope="module")
def untrained():
    return eqx.filter_jit(CONFIG.build)(jax.random.key(SEED))


@pytest.fixture(scope="module")
def trained(untrained):
    return changed(untrained)


@eqx.filter_jit
def log_probs(model, embedding, space):
    """Of every deal with the right hand sizes, legal or not."""
    return model.log_prob(embedding, jnp.asarray(ALL), space)


@eqx.filter_jit
def embedded(model):
    states = jax.vmap(BEFORE.sample)(jax.random.split(jax.random.key(SEED), 12))
    return model.embed(states, jnp.linspace(0.0, 2.0, 12), BEFORE)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_without_training_it_is_maximum_entropy(untrained, space):
    theta = embedded(untrained)
    expected = log_probs(MaximumEntropyDeals(BEFORE), theta[:18], space)
    np.testing.assert_allclose(np.exp(log_probs(untrained, theta, space)), np.exp(expected), atol=1e-5)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_probabilities_of_the_legal_deals_sum_to_one(trained, space):
    theta = embedded(trained)
    found = np.exp(log_probs(trained, theta, space))
    legal = np.asarray(space.allowed)[np.arange(6), ALL].all(axis=1)
    np.testing.assert_allclose(found.sum(), 1.0, **FLOAT)
    np.testing.assert_array_equal(found > 0, legal)
    plain = np.exp(log_probs(MaximumEntropyDeals(BEFORE), theta[:18], space))
    assert np.abs(found - plain).max() > 0.05  # the factors do something


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_draws_have_their_probabilities(trained, space, key):
    """Independent ones; and even ones, with their weights."""
    count, theta = 20_000, embedded(trained)

    @eqx.filter_jit
    def draw(model, key, theta, space):
        even, log_weights = model.draw(key, theta, count, space)
        return model.sample(key, theta, count, space), even, jax.nn.softmax(log_weights)

    independent, even, weights = (np.asarray(part) for part in draw(trained, key, theta, space))
    probs, code = np.exp(log_probs(trained, theta, space)), 3 ** np.arange(6)
    for drawn, shares in ((independent, np.full(count, 1 / count)), (even, weights)):
        found = np.array([shares[drawn @ code == deal @ code].sum() for deal in ALL])
        assert found.sum() == pytest.approx(1.0, abs=1e-5)  # no deal but those
        assert np.all(np.abs(found - probs) <= monte_carlo(np.sqrt(probs * (1 - probs)), count) + 1e-6)
        assert not np.any(found[probs == 0])  # and no illegal one


def test_an_illegal_deal_has_no_probability_and_no_gradient_is_nan(trained):
    theta = embedded(trained)
    wrong = jnp.array([[0, 0, 0, 1, 2, 2], [0, 0, 1, 3, 2, 2], [2, 2, 2, 2, 2, 2]])  # 3 cards, nobody's, too few

    @eqx.filter_jit
    def found(model):
        gradient = eqx.filter_grad(lambda model: jnp.sum(model.log_prob(theta, jnp.asarray(ALL[:1]), BEFORE)))(model)
        return model.log_prob(theta, wrong, BEFORE), gradient

    log_prob, gradient = found(trained)
    assert np.all(np.asarray(log_prob) == -np.inf)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_embedding_is_marginals_of_cards_and_pairs_and_says_how_noisy_they_are(untrained):
    states = jax.vmap(BEFORE.sample)(jax.random.split(jax.random.key(SEED), 8))
    embed = eqx.filter_jit(lambda states: untrained.embed(states, jnp.zeros(len(states)), BEFORE))
    found, held = np.asarray(embed(states)), np.eye(3)[np.asarray(states)].reshape(8, 18)
    np.testing.assert_allclose(found[:18], held.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found[18:-1].reshape(18, 18), held.T @ held / 8, atol=1e-6)
    assert found[-1] == pytest.approx(8.0, abs=1e-4)
    assert embed(jnp.concatenate([states] * 4))[-1] == 16.0  # the largest that is told


def test_pairs_have_the_probabilities_of_all_deals():
    weights = np.random.default_rng(SEED).uniform(0.2, 1.0, (6, 3)) * ALLOWED
    products = weights[np.arange(6), ALL].prod(axis=1)
    held = np.eye(3)[ALL].reshape(len(ALL), 18)
    exact = (held * (products / products.sum())[:, None]).T @ held
    np.testing.assert_allclose(jax.jit(pair_marginals, static_argnums=1)(weights, QUOTAS), exact, atol=1e-5)


def test_what_does_not_fit_is_refused(untrained):
    with pytest.raises(InputError, match="Use Deals"):
        untrained.log_prob(jnp.zeros(343), jnp.zeros((1, 6), jnp.int32), Lattice((2, 2)))
    with pytest.raises(InputError, match="largest at least 2"):
        dataclasses.replace(CONFIG, largest=1).build(jax.random.key(0))
