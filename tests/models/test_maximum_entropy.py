"""The distribution over deals of largest entropy, against all deals of a small game."""

from __future__ import annotations

import dataclasses
import itertools

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


def probabilities(weights):
    products = weights[np.arange(6), LEGAL].prod(axis=1)
    return products / products.sum(), products.sum()


def test_sums_and_marginals_are_those_of_all_deals():
    weights = random_weights()
    probs, total = probabilities(weights)
    np.testing.assert_allclose(completions(jnp.asarray(weights), QUOTAS)[1], np.log(total), rtol=1e-5)
    np.testing.assert_allclose(
        marginals(jnp.asarray(weights), QUOTAS), np.einsum("d,dco->co", probs, ONE_HOT), atol=1e-6
    )


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
    ours = np.exp(model.log_prob(jnp.asarray(target.ravel(), jnp.float32), jnp.asarray(LEGAL), space()))
    np.testing.assert_allclose(ours, expected, atol=2e-4)


def test_draws_have_their_probabilities(key):
    weights, count = random_weights(), 20_000
    probs, _ = probabilities(weights)
    drawn = np.asarray(deals(jnp.asarray(weights), QUOTAS, jax.random.uniform(key, (6, count))))
    code = 3 ** np.arange(6)
    shares = np.array([(drawn @ code == deal @ code).mean() for deal in LEGAL])
    assert shares.sum() == pytest.approx(1.0)  # no other deal
    assert np.all(np.abs(shares - probs) < monte_carlo(np.sqrt(probs * (1 - probs)), count))


def test_even_draws_are_unbiased_and_closer_to_the_marginals(key):
    model = MaximumEntropyDeals(space(), smoothing=0.0)
    target = marginals(jnp.asarray(random_weights()), QUOTAS).ravel()
    exact = marginals(model.weights(target, space()), QUOTAS).ravel()
    keys, n = jax.random.split(key, 400), 16

    @jax.jit
    @jax.vmap
    def both(key):
        even, log_weights = model.draw(key, target, n, space())
        return model.embed(even, log_weights), model.embed(model.sample(key, target, n, space()), log_weights)

    even, independent = (np.asarray(found) for found in both(keys))
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
    found = np.exp(model.log_prob(jnp.asarray(target, jnp.float32), jnp.asarray(LEGAL), now))
    expected = np.where(LEGAL[:, 0] == 0, probs, 0.0)
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-3)


def test_marginals_that_contradict_what_is_known_leave_legality():
    known = ALLOWED.copy()
    known[0] = [True, False, False]
    sure = jnp.asarray(np.eye(3)[[2, 0, 1, 0, 1, 2]].ravel(), jnp.float32)  # card 0 in the rest, and quotas not met
    model = MaximumEntropyDeals(space(), smoothing=0.0)
    drawn = model.sample(jax.random.key(0), sure, 50, Deals(jnp.asarray(known), QUOTAS))
    assert np.all(jax.vmap(Deals(jnp.asarray(known), QUOTAS).contains)(drawn))


def test_scaling_leaves_marginals_that_fit():
    target = marginals(jnp.asarray(random_weights()), QUOTAS)
    np.testing.assert_allclose(marginals(scaled(target, QUOTAS, 100), QUOTAS), target, atol=1e-3)


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
