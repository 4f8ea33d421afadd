"""The distribution over deals of largest entropy, against all deals of a small game."""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from tolerances import SEED, monte_carlo

from nbf.errors import InputError
from nbf.models.maximum_entropy import MaximumEntropyDeals, scaled
from nbf.spaces import Deals
from nbf.spaces.deal_weights import completions, deals, marginals

QUOTAS = (2, 1)
ALL = np.array([deal for deal in itertools.product(range(3), repeat=6) if (deal.count(0), deal.count(1)) == QUOTAS])
ALLOWED = np.ones((6, 3), bool)
ALLOWED[2, 0] = ALLOWED[4, 2] = False
LEGAL = ALL[ALLOWED[np.arange(6), ALL].all(axis=1)]
ONE_HOT = np.eye(3)[LEGAL]


def space():
    return Deals(jnp.asarray(ALLOWED), QUOTAS)


def random_weights():
    return np.random.default_rng(SEED).uniform(0.2, 1.0, (6, 3)) * ALLOWED


@jax.jit
def marginals_of(weights):
    return marginals(weights, QUOTAS)


@eqx.filter_jit
def log_probs(model, embedding, space):
    """Of all legal deals."""
    return model.log_prob(embedding, jnp.asarray(LEGAL), space)


def probabilities(weights):
    products = weights[np.arange(6), LEGAL].prod(axis=1)
    return products / products.sum(), products.sum()


def test_sums_and_marginals_are_those_of_all_deals():
    weights = random_weights()
    probs, total = probabilities(weights)
    np.testing.assert_allclose(jax.jit(completions, static_argnums=1)(weights, QUOTAS)[1], np.log(total), rtol=1e-5)
    np.testing.assert_allclose(marginals_of(weights), np.einsum("d,dco->co", probs, ONE_HOT), atol=1e-6)


def test_no_distribution_with_these_marginals_has_a_larger_entropy():
    """Against the dual problem, solved by SciPy over all deals."""
    rng = np.random.default_rng(SEED)
    target = np.einsum("d,dco->co", rng.dirichlet(np.ones(len(LEGAL))), ONE_HOT)

    def dual(numbers):
        logits = ONE_HOT.reshape(len(LEGAL), -1) @ numbers
        return np.log(np.exp(logits).sum()) - numbers @ target.ravel()

    found = optimize.minimize(dual, np.zeros(18), method="BFGS", options={"gtol": 1e-7}).x
    logits = ONE_HOT.reshape(len(LEGAL), -1) @ found
    expected = np.exp(logits - np.log(np.exp(logits).sum()))
    model = MaximumEntropyDeals(space(), iterations=300, smoothing=0.0)
    ours = np.exp(log_probs(model, np.asarray(target.ravel(), np.float32), space()))
    np.testing.assert_allclose(ours, expected, atol=2e-4)


def test_draws_have_their_probabilities(key):
    weights, count = random_weights(), 20_000
    probs, _ = probabilities(weights)
    draw = jax.jit(lambda key, weights: deals(weights, QUOTAS, jax.random.uniform(key, (6, count))))
    drawn = np.asarray(draw(key, weights))
    code = 3 ** np.arange(6)
    shares = np.array([(drawn @ code == deal @ code).mean() for deal in LEGAL])
    assert shares.sum() == pytest.approx(1.0)  # no other deal
    assert np.all(np.abs(shares - probs) < monte_carlo(np.sqrt(probs * (1 - probs)), count))


def test_even_draws_are_unbiased_and_closer_to_the_marginals(key):
    model = MaximumEntropyDeals(space(), smoothing=0.0)
    target = jax.device_put(np.ravel(marginals_of(random_weights())))
    keys, n = jax.random.split(key, 400), 16

    @jax.vmap
    def both(key):
        even, log_weights = model.draw(key, target, n, space())
        return model.embed(even, log_weights), model.embed(model.sample(key, target, n, space()), log_weights)

    drawn = jax.jit(lambda keys: (*both(keys), marginals(model.weights(target, space()), QUOTAS).ravel()))
    even, independent, exact = (np.asarray(found) for found in drawn(keys))
    spread = np.sqrt(exact * (1 - exact) / n)
    assert np.all(np.abs(even.mean(axis=0) - exact) < monte_carlo(spread, len(keys)) + 1e-5)
    assert np.mean((even - exact) ** 2) < 0.8 * np.mean((independent - exact) ** 2)


def test_what_becomes_known_is_conditioned_on():
    """Embedded with all deals, decoded when a card has been seen: the conditional distribution."""
    weights = random_weights()
    probs, _ = probabilities(weights)
    target = np.einsum("d,dco->co", probs, ONE_HOT).ravel()
    known = ALLOWED.copy()
    known[0] = [True, False, False]
    now = dataclasses.replace(Deals.of(jnp.asarray(ALLOWED), QUOTAS), allowed=jnp.asarray(known))
    model = MaximumEntropyDeals(space(), iterations=300, smoothing=0.0)
    found = np.exp(log_probs(model, np.asarray(target, np.float32), now))
    expected = np.where(LEGAL[:, 0] == 0, probs, 0.0)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-3)


def test_marginals_that_contradict_what_is_known_leave_legality():
    known = ALLOWED.copy()
    known[0] = [True, False, False]
    sure = jnp.asarray(np.eye(3)[[2, 0, 1, 0, 1, 2]].ravel(), jnp.float32)  # card 0 in the rest, and quotas not met
    model = MaximumEntropyDeals(space(), smoothing=0.0)
    now = Deals(jnp.asarray(known), QUOTAS)

    @jax.jit
    def legal(key):
        return jax.vmap(now.contains)(model.sample(key, sure, 50, now))

    assert np.all(legal(jax.random.key(0)))


def test_scaling_leaves_marginals_that_fit():
    target = marginals_of(random_weights())
    again = jax.jit(lambda target: marginals(scaled(target, QUOTAS, 100), QUOTAS))(target)
    np.testing.assert_allclose(again, target, atol=1e-3)


def test_a_space_of_deals_knows_its_own():
    one = space()
    inside = jax.vmap(one.contains)(jnp.asarray(ALL))
    np.testing.assert_array_equal(inside, ALLOWED[np.arange(6), ALL].all(axis=1))
    assert not one.contains(jnp.array([0, 0, 0, 1, 2, 2]))  # three cards
    assert not one.contains(jnp.array([0, 0, 1, 3, 2, 2]))  # nobody
    np.testing.assert_array_equal(one.decode(one.encode(jnp.asarray(LEGAL[0]))), LEGAL[0])
    assert one.signature == "deals(6, (2, 1))"


@pytest.mark.parametrize("quotas", [(), (4, 3), (-1, 2), (1, 1, 1)])
def test_quotas_must_fit(quotas):
    with pytest.raises(InputError, match="needs 2 quotas"):
        Deals(jnp.ones((6, 3), bool), quotas)


def test_settings_must_make_sense():
    with pytest.raises(InputError, match="iterations must be at least 1"):
        MaximumEntropyDeals(space(), iterations=0)
