"""What is learned of hidden hands: the beliefs to train on, the card-location network and its fine-tuning, the job."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jobs import run_twice
from tolerances import FLOAT, monte_carlo

from nbf.beliefs.hands import HandBelief, hand_table
from nbf.environments.scripted_player import ScriptedPlayer
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.spaces.deal_weights import marginals
from nbf_paper.experiments.card_beliefs import HandGames, samples
from nbf_paper.experiments.card_games import random_network, watch
from nbf_paper.experiments.card_location import CardLocationConfig, FineTuned, Located, PlayedGames, log_probs
from nbf_paper.experiments.cards_learned import LearnedCardJob
from nbf_paper.experiments.choices.cards import Cards
from nbf_paper.experiments.choices.experiment import Amount
from nbf_paper.experiments.trick_policies import TrickPoolConfig

RULES = TrickTaking(3, 2, 6, 3)  # 12 cards, of which 8 are unseen: 56 hands
LENGTH = 9
CONFIG = CardLocationConfig(3, 2, 6, 3, LENGTH, width=8, depth=1)
TINY = TrickPoolConfig(
    suits=2, ranks=6, tricks=3, runs=2, checkpoints=2, timesteps=48, epochs=1, minibatch=16, width=8, depth=1
)


@pytest.fixture(scope="module")
def game():
    """A game between scripted players, with its truth."""

    @eqx.filter_jit
    def play(key):
        players = eqx.filter_vmap(lambda key: ScriptedPlayer.random(key, RULES))(jax.random.split(key, 3))
        return watch(RULES, key, players, LENGTH)

    return play(jax.random.key(4))


@pytest.fixture(scope="module")
def network():
    """One that says something."""
    made = CONFIG.build(jax.random.key(1))
    last = jax.random.normal(jax.random.key(2), made.network.weights[-1].shape)
    return eqx.tree_at(lambda made: made.network.weights[-1], made, last)


def test_samples_of_a_belief_have_its_probabilities(key):
    table = hand_table(6, 2)[1]
    log_weights = jax.random.normal(key, (2, len(table))).at[0, 3].set(-jnp.inf)
    count = 20_000

    @jax.jit
    def both(key, log_weights):
        belief = HandBelief.of(log_weights, jnp.arange(6), 6, 2)[0]
        drawn = samples(key, belief, count)
        return drawn, belief.log_probs(drawn), belief.marginals()

    drawn, told, exact = (np.asarray(part) for part in both(key, log_weights))
    assert np.all(told > -np.inf)
    shares = np.eye(3)[drawn].mean(axis=0)
    assert np.all(np.abs(shares - exact) <= monte_carlo(np.sqrt(exact * (1 - exact)), count))
    same = np.all(drawn == drawn[0], axis=1).mean()
    probability = np.exp(told[0])
    assert abs(same - probability) <= monte_carlo(np.sqrt(probability * (1 - probability)), count)


@pytest.mark.slow
def test_beliefs_to_train_on_keep_to_what_is_allowed(key):
    """Samples of a belief to what was allowed, and those of the next step to what will be."""
    policies = jax.vmap(lambda key: random_network(key, RULES, 8))(jax.random.split(key, 4))
    made, spaces = eqx.filter_jit(lambda source, key: source.episode(key, 16))(
        HandGames(policies, RULES, LENGTH, 8), key
    )
    before = np.asarray(spaces.context).reshape(spaces.allowed.shape) > 0
    for part, allowed in ((made.now, before), (made.then, np.asarray(spaces.allowed))):
        part = np.asarray(part)
        held = np.take_along_axis(allowed[:, None], part[..., None], axis=3)
        assert held.all()
        assert np.all([(part == holder).sum(axis=2) == 3 for holder in (0, 1)])
    assert np.any(before != np.asarray(spaces.allowed))
    np.testing.assert_array_equal(before[1:], np.asarray(spaces.allowed)[:-1])


def test_a_network_without_training_has_the_prior(game):
    found = eqx.filter_jit(Located(CONFIG.build(jax.random.key(0)), RULES))(jax.random.key(0), game)[0][0]
    space = game.environments.space
    prior = jax.jit(jax.vmap(lambda allowed: marginals(allowed.astype(jnp.float32), space.quotas)))(space.allowed)
    np.testing.assert_allclose(found, prior, **FLOAT)


def test_the_log_probabilities_of_the_network_are_those_of_its_weights(game, network):
    """Of all pairs of hands of the small game, by products of weights."""
    (found, calls), told = eqx.filter_jit(Located(network, RULES))(jax.random.key(0), game)
    space = jax.tree.map(lambda leaf: leaf[2], game.environments.space)
    held = hand_table(len(game.unseen), RULES.tricks)[0]
    pairs = [(a, b) for a in range(len(held)) for b in range(len(held)) if not np.any(held[a] & held[b])]
    every = np.full((len(pairs), RULES.cards), 2)
    unseen = np.asarray(game.unseen)
    for row, (a, b) in enumerate(pairs):
        every[row, unseen[held[a]]], every[row, unseen[held[b]]] = 0, 1
    legal = every[np.asarray(space.allowed)[np.arange(RULES.cards), every].all(axis=1)]
    weights = np.random.default_rng(0).uniform(0.2, 1.0, space.allowed.shape) * np.asarray(space.allowed)
    log_prob = jax.jit(lambda weights, deals: log_probs(weights, deals, space.quotas))
    ours = np.exp(log_prob(jnp.asarray(weights, jnp.float32), jnp.asarray(legal)))
    products = weights[np.arange(RULES.cards), legal].prod(axis=1)
    np.testing.assert_allclose(ours, products / products.sum(), rtol=1e-3, atol=1e-7)
    assert np.all(np.asarray(told) < 1e-4)
    assert not np.any(calls)
    np.testing.assert_allclose(np.sum(np.asarray(found), axis=2), 1.0, **FLOAT)


def test_fine_tuning_comes_nearer_to_the_posterior_and_counts_its_calls(game):
    """From a network that knows nothing, by many calls and steps."""
    blind = CONFIG.build(jax.random.key(0))
    error = eqx.filter_jit(lambda run: (game.errors(run(jax.random.key(0), game)[0][0]), run(jax.random.key(0), game)))
    errors, ((_, calls), _) = error(FineTuned(blind, RULES, 256, 0.03, 40))
    prior, _ = error(Located(blind, RULES))
    assert np.mean(errors[3:]) < 0.6 * np.mean(prior[3:])
    np.testing.assert_array_equal(np.asarray(calls) > 0, np.asarray(game.owner) < 2)
    assert np.max(calls) == 256


def test_games_to_train_on_have_their_true_deals(key):
    policies = jax.vmap(lambda key: random_network(key, RULES, 8))(jax.random.split(key, 4))
    position, spaces = eqx.filter_jit(lambda source, key: source.sample(key, 2))(
        PlayedGames(policies, RULES, LENGTH), key
    )
    deal = np.asarray(position.deal)
    assert np.asarray(spaces.allowed)[:, np.arange(RULES.cards), deal].all()
    told = np.asarray(position.inputs)
    own = told[: RULES.cards, 0] + told[RULES.cards : 2 * RULES.cards, 0]
    assert np.all(deal[own > 0] == 2)
    np.testing.assert_array_equal(told[2 * RULES.cards :].sum(axis=0), 2 * (1 + np.arange(LENGTH)))  # what, and by whom


@pytest.mark.slow
def test_a_job_is_recorded_once(tmp_path):
    _, records = run_twice("cards", LearnedCardJob("scripted", games=2, policies=TINY, few=True), tmp_path)
    found = {(record.filter, record.arm, record.metric) for record in records}
    assert {("nbf", "learned", "marginal_error"), ("approx", "learned", "deal_log_prob")} <= found
    assert ("nbf", "", "marginal_error") not in found  # that is a row of another job
    assert all(np.isfinite(record.value) for record in records)


def test_the_whole_deck_has_nothing_learned():
    with pytest.raises(InputError, match="leave 52-cards out"):
        Cards(games=("52-cards",), learned=True).jobs(Amount())
