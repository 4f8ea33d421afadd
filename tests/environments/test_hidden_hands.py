"""Hidden hands, against the same game replayed with every deal; and filters against the posterior of all deals."""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from tolerances import monte_carlo

import nbf
import nbf.testing
from nbf.environments.gridworld import Gridworld
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.filters.hands import HandTableFilter
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.spaces import Lattice

KEY = jax.random.key(0)
RULES = TrickTaking(3, 2, 4, 2)  # eight cards, two in each hand, one turned up, one left over


class Linear(eqx.Module):
    """Prefers actions by a random linear function of what it sees."""

    weights: Array

    def log_probs(self, view, legal):
        return jax.nn.log_softmax(jnp.where(legal, self.weights @ view, -jnp.inf))


@pytest.fixture(scope="module")
def played():
    """A game of three players: before each action, the actions, and the environments that player 0 sees."""
    seen = jnp.arange(RULES.view_size) < RULES.cards  # it goes by its hand alone
    policy = Linear(2.0 * seen * jax.random.normal(jax.random.key(3), (RULES.num_actions, RULES.view_size)))

    @jax.jit
    def play(start_key, keys):
        return jax.lax.scan(step, RULES.deal(start_key), keys)[1]

    def step(game, key):
        log_probs = policy.log_probs(RULES.view(game, game.hands[game.player]), RULES.legal(game))
        action = jax.random.categorical(key, log_probs)
        return RULES.play(game, action), (game, action, HiddenHands.of(RULES, game, action, policy))

    return policy, *play(jax.random.key(8), jax.random.split(jax.random.key(5), RULES.length))


def at(tree, place):
    """In NumPy: JAX compiles every slice by itself."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[place], tree)


def every_deal(game):
    """All deals that the observer may think of before anything was played."""
    own = np.asarray(game.hands[0])
    unseen = [card for card in range(RULES.cards) if not own[card] and card != int(game.turned_up)]
    for first in itertools.combinations(unseen, 2):
        for second in itertools.combinations([card for card in unseen if card not in first], 2):
            deal = np.full(RULES.cards, 2)
            deal[list(first)], deal[list(second)] = 0, 1
            yield deal


def replayed(policy, games, actions):
    """log probability of the opponents' actions in the game itself, dealt anew in every way."""
    deals = np.stack(list(every_deal(at(games, 0))))
    return np.asarray(told_of_deals(deals, policy, at(games, 0), actions))


@jax.jit
def told_of_deals(deals, policy, start, actions):
    """One program for all tests."""

    @jax.vmap
    def one(deal):
        def step(game, action):
            legal = RULES.legal(game)
            told = policy.log_probs(RULES.view(game, game.hands[game.player]), legal)[action]
            told = jnp.where(game.player == 0, 0.0, jnp.where(legal[action], told, -jnp.inf))
            return RULES.play(game, action), told

        hands = jnp.stack([start.hands[0], deal == 0, deal == 1])
        return jax.lax.scan(step, dataclasses.replace(start, hands=hands), actions)[1]

    return one(deals)


@jax.jit
def likelihoods(environments, actions, deals):
    """Of the actions under each deal, and whether it is legal at that step: [deal, step]."""

    @jax.vmap
    def one(environment, action):
        return jax.vmap(
            lambda deal: (environment.log_likelihood(action, deal, deal), environment.space.contains(deal))
        )(deals)

    return jax.tree.map(jnp.transpose, one(environments, actions))


def test_the_likelihood_is_that_of_the_game_dealt_anew(played):
    policy, games, actions, environments = played
    deals = np.stack(list(every_deal(at(games, 0))))
    expected = replayed(policy, games, actions)
    found, legal = jax.tree.map(np.asarray, likelihoods(environments, actions, deals))
    # A deal that is impossible by now may be given any likelihood: the space no longer contains it.
    dead = np.cumsum(np.isinf(expected), axis=1) > 0
    assert 0 < dead[:, -1].sum() < len(deals)
    np.testing.assert_allclose(np.where(dead, 0.0, found), np.where(dead, 0.0, expected), atol=1e-5)
    assert not np.any(~legal & ~dead)
    assert np.all(~legal | np.isfinite(found) | dead)


def test_every_step_keeps_the_contract(played, key):
    environments = played[3]
    nbf.testing.check_environment(at(environments, 4), None).raise_if_failed()


STEPS = 5


@eqx.filter_jit
def tracked(filter, key, actions, environments):
    """The state of a filter after some actions."""

    def step(state, inputs):
        key, action, environment = inputs
        return filter.update(key, state, action, environment, None)[0], None

    inputs = jax.tree.map(lambda leaf: leaf[:STEPS], (jax.random.split(key, len(actions)), actions, environments))
    first = jax.tree.map(lambda leaf: leaf[0], environments)
    return jax.lax.scan(step, filter.init(key, first), inputs)[0]


def posterior(policy, games, actions):
    log_probs = replayed(policy, games, actions)[:, :STEPS].sum(axis=1)
    probs = np.exp(log_probs - log_probs.max())
    return probs / probs.sum()


def test_a_particle_filter_finds_the_posterior(played, key):
    policy, games, actions, environments = played
    exact, count = posterior(policy, games, actions), 4000
    state = tracked(nbf.ParticleFilter(count), key, actions, environments)
    code = 3 ** np.arange(RULES.cards)
    weights = np.exp(np.asarray(state.log_weights))
    shares = np.array(
        [weights[np.asarray(state.states) @ code == deal @ code].sum() for deal in every_deal(at(games, 0))]
    )
    # Weights and resampling at each step add to the error of independent draws.
    assert np.all(np.abs(shares - exact) < 3.0 * monte_carlo(np.sqrt(exact * (1 - exact)), count) + 1e-6)


def test_a_neural_filter_draws_legal_deals_and_knows_more_than_legality(played, key):
    policy, games, actions, environments = played
    deals, exact = jnp.asarray(np.stack(list(every_deal(at(games, 0))))), posterior(policy, games, actions)
    filter = nbf.NeuralBayesianFilter(MaximumEntropyDeals(at(environments, 0).space), 256)
    state, now = tracked(filter, key, actions, environments), at(environments, STEPS - 1)

    @eqx.filter_jit
    def look(state, now):
        belief, contains = filter.belief(state, now), jax.vmap(now.space.contains)
        return contains(belief.sample(key, 100)), jnp.exp(belief.log_probs(deals)), contains(deals)

    drawn, probs, legal = (np.asarray(found) for found in look(state, now))
    assert np.all(drawn)
    assert probs.sum() == pytest.approx(1.0, abs=1e-2)
    assert np.abs(probs - exact).sum() < 0.5 * np.abs(legal / legal.sum() - exact).sum()


@pytest.fixture(scope="module")
def tables(played):
    """The exact filter after every action of the game, and what each step told."""
    _, _, actions, environments = played

    @jax.jit
    def run(actions, environments):
        exact = HandTableFilter()
        first = jax.tree.map(lambda leaf: leaf[0], environments)

        def step(state, inputs):
            action, environment = inputs
            state, info = exact.update(KEY, state, action, environment, None)
            return state, (state, info)

        return jax.lax.scan(step, exact.init(KEY, first), (actions, environments))[1]

    return run(actions, environments)


def test_tables_of_hands_are_the_posterior_of_all_deals(played, tables, key):
    policy, games, actions, _ = played
    deals = np.stack(list(every_deal(at(games, 0))))
    told, one_hot = replayed(policy, games, actions), np.eye(3)[deals]
    states, infos = tables

    @jax.jit
    def look(state):
        return jnp.exp(state.log_probs(jnp.asarray(deals))), state.marginals(), state.sample(key, 4000)

    before, expected, drawn = 0.0, np.zeros(len(deals)), deals
    for step in range(RULES.length):
        log_total = np.logaddexp.reduce(told[:, : step + 1].sum(axis=1)) - np.log(len(deals))
        expected = np.exp(told[:, : step + 1].sum(axis=1) - log_total) / len(deals)
        probs, marginals, drawn = (np.asarray(found) for found in look(at(states, step)))
        np.testing.assert_allclose(probs, expected, atol=1e-5)
        np.testing.assert_allclose(marginals, np.einsum("d,dco->co", expected, one_hot), atol=1e-5)
        np.testing.assert_allclose(np.asarray(infos.log_evidence)[step], log_total - before, atol=1e-4)
        before = log_total
    shares = np.array([(drawn == deal).all(axis=1).mean() for deal in deals])
    assert shares.sum() == pytest.approx(1.0)
    deviation = np.sqrt(np.maximum(expected * (1 - expected), 0.0))
    assert np.all(np.abs(shares - expected) < monte_carlo(deviation, 4000) + 1e-6)


def test_tables_of_hands_give_expectations_of_any_function(tables):
    state = at(tables[0], 4)
    found = jax.jit(lambda state: state.expectation(lambda deal: jax.nn.one_hot(deal, 3)))(state)
    np.testing.assert_allclose(found, state.marginals(), atol=1e-5)


def test_an_action_that_no_deal_explains_leaves_what_is_known(played, tables):
    """The policy gives the observed action probability 0, whatever the hand."""
    _, games, actions, environments = played
    place = next(place for place in range(3, 9) if int(games.player[place]) != 0)

    class Never(eqx.Module):
        def log_probs(self, view, legal):
            return jnp.where(jnp.arange(len(legal)) == actions[place], -jnp.inf, -jnp.log(len(legal) - 1.0))

    wrong = dataclasses.replace(at(environments, place), policy=Never())
    before = at(tables[0], place - 1)
    update = jax.jit(lambda state, wrong: HandTableFilter().update(KEY, state, actions[place], wrong, None))
    after, info = update(before, wrong)
    assert bool(info.recovered)
    assert float(info.log_evidence) == -np.inf
    deals = np.stack(list(every_deal(at(games, 0))))
    look = jax.jit(lambda state: jnp.exp(state.log_probs(jnp.asarray(deals))))
    prior, now = (np.asarray(look(state)) for state in (before, after))
    legal = np.asarray(jax.vmap(wrong.space.contains)(deals))
    np.testing.assert_allclose(now, prior * legal / (prior * legal).sum(), atol=1e-5)


def test_tables_are_for_small_games_of_hidden_hands(played):
    four, large = TrickTaking(4, 4, 4, 2), TrickTaking(3, 4, 8, 2)
    many = HiddenHands.of(four, four.deal(KEY), jnp.int32(16), played[0])
    with pytest.raises(InputError, match="2 or 3 players"):
        HandTableFilter().init(KEY, many)
    with pytest.raises(InputError, match="for HiddenHands; got Gridworld"):
        HandTableFilter().init(KEY, Gridworld(Lattice((3, 3)), jnp.asarray(0.1)))
    unseen = HiddenHands.of(large, large.deal(KEY), jnp.int32(32), played[0])
    with pytest.raises(InputError, match="up to 20 unseen cards"):
        HandTableFilter().init(KEY, unseen)


@pytest.mark.parametrize("action", [-1, RULES.num_actions, 1.5, [1, 2]])
def test_what_is_no_action_is_refused(played, action):
    with pytest.raises(InputError, match="a whole number from 0 to 10"):
        at(played[3], 0).check_observation(action)


def test_the_observer_is_a_player(played):
    with pytest.raises(InputError, match="players 0 to 2; got 3"):
        HiddenHands.of(RULES, at(played[1], 0), played[2][0], played[0], observer=3)
