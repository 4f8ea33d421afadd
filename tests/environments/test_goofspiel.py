"""The belief over the opponent's bids in Goofspiel against all games, played in Python."""

from __future__ import annotations

import collections
import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from card_games import SMALL, episodes, network_pool, replayed, tracked
from constructors import with_random_parameters
from tolerances import FLOAT, monte_carlo

import nbf
from nbf.capabilities import Enumerable
from nbf.environments.goofspiel import Goofspiel, LargeGoofspiel, goofspiel
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import (
    DRAW,
    LOSS,
    NONE,
    OVER,
    WIN,
    CardPolicy,
    GoofspielGame,
)
from nbf.errors import InputError
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import ModelConfig, TokensConfig
from nbf.models.set_encoder import MeanConfig
from nbf.sources.episodic import EpisodePosteriors

STANDARD = GoofspielGame(3, standard=True)


class TablePolicy(eqx.Module):
    """A random probability for every hand, prize and set of prizes won, of four cards."""

    table: jax.Array

    def log_probs(self, view):
        hand, _, prize, own, _ = view.reshape(5, 4)
        powers = 2 ** jnp.arange(4)
        number = lambda cards: jnp.sum(cards * powers).astype(int)  # noqa: E731
        chances = self.table[number(hand), jnp.argmax(prize), number(own)] * hand
        return jnp.log(chances / jnp.maximum(jnp.sum(chances), 1e-30))


def chances_of(table, hand, prize, own) -> dict[int, float]:
    """The same by itself: card -> probability."""
    row = table[sum(2**card for card in hand), prize, sum(2**card for card in own)]
    return {card: row[card] / sum(row[other] for other in hand) for card in hand}


@functools.cache
def tables() -> np.ndarray:
    """Those of the observer and of the opponent."""
    return np.random.default_rng(5).uniform(0.05, 1.0, (2, 16, 4, 16, 4)) ** 3


@functools.cache
def small_episodes():
    return episodes(GoofspielFamily(network_pool(4), SMALL), jax.random.split(jax.random.key(8), 2000))


@functools.cache
def all_games():
    """(public history after t rounds) -> {hidden state: probability}, from every game of four cards between the two
    table policies, with the deal and the order of the prizes: what is public is the observer's hand and bids, the
    deck, the prizes and the outcomes."""
    posteriors = collections.defaultdict(collections.Counter)
    deck_of = lambda missing: tuple(card for card in range(4) if card != missing)  # noqa: E731

    def play(public, hidden, reach):
        own_missing, deck, bids, prizes, outcomes = public
        posteriors[public][hidden] += reach
        number = len(bids)
        if number == 3:
            return
        for prize in set(deck_of(deck)) - set(prizes):
            chance = reach / (3 - number)
            won = {WIN: set(), LOSS: set(), DRAW: set()}
            for each, outcome in zip(prizes, outcomes, strict=True):
                won[outcome].add(each)
            hands = [set(deck_of(own_missing)) - set(bids), set(range(4)) - set(hidden)]
            ours = chances_of(tables()[0], hands[0], prize, won[WIN])
            theirs = chances_of(tables()[1], hands[1], prize, won[LOSS])
            for (a, p), (b, q) in itertools.product(ours.items(), theirs.items()):
                outcome = WIN if a > b else LOSS if a < b else DRAW
                after = (own_missing, deck, (*bids, a), (*prizes, prize), (*outcomes, outcome))
                play(after, (*hidden, b), chance * p * q)

    for own, other, deck in itertools.product(range(4), repeat=3):
        play((own, deck, (), (), ()), (other,), 1 / 64)
    return posteriors


@functools.cache
def histories():
    """All public histories of whole games, and as arrays: deck, bids, prizes, outcomes."""
    whole = [public for public in all_games() if len(public[2]) == 3]
    decks = np.arange(4) != np.asarray([public[1] for public in whole])[:, None]
    return whole, decks, *(np.asarray([public[part] for public in whole], np.int32) for part in (2, 3, 4))


@functools.cache
def environments_of_histories():
    _, decks, *record = histories()
    rounds = lambda deck, *record: jax.vmap(lambda time: goofspiel(SMALL, deck, time, *record))(jnp.arange(3))  # noqa: E731
    return jax.jit(jax.vmap(rounds))(decks, *record)


@pytest.mark.sampled
@pytest.mark.parametrize("filter", [PrefixFilter(), ExactFilter()], ids=["prefixes", "branches"])
def test_the_posterior_is_that_of_all_games(filter):
    """After every round of every game of four cards, with the evidence; the observer's policy cancels."""
    whole, _, _, _, outcomes = histories()
    policy = TablePolicy(jnp.broadcast_to(jnp.asarray(tables()[1], jnp.float32), (len(whole), 3, 16, 4, 16, 4)))
    beliefs, info = jax.tree.map(np.asarray, tracked(filter, environments_of_histories(), policy, outcomes))
    assert not info.recovered.any()
    environment = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], environments_of_histories())
    place = {tuple(card for card in state if card < 4): i for i, state in enumerate(np.asarray(environment.states()))}
    expected = np.zeros_like(beliefs, np.float64)
    mass = np.zeros((len(whole), 3))
    for number, (own, deck, *record) in enumerate(whole):
        for time in range(3):
            posterior = all_games()[own, deck, *(part[: time + 1] for part in record)]
            mass[number, time] = sum(posterior.values())
            for hidden, chance in posterior.items():
                expected[number, time, place[hidden]] = chance / mass[number, time]
    np.testing.assert_allclose(beliefs, expected, **FLOAT)
    # The evidence, against how often each outcome follows the same public history and own bid.
    ways = collections.Counter()
    for (own, deck, bids, prizes, seen), hidden in all_games().items():
        if bids:
            ways[own, deck, bids, prizes, seen[:-1]] += sum(hidden.values())
    before = [[ways[own, deck, b[:t], p[:t], o[: t - 1]] for t in (1, 2, 3)] for own, deck, b, p, o in whole]
    np.testing.assert_allclose(np.exp(info.log_evidence), mass / np.asarray(before), **FLOAT)


def test_legal_states_are_those_that_explain_the_outcomes():
    """In every step's space: nothing else is contained, and a symbol is legal where some such state has it next."""
    whole, *_ = histories()
    chosen = np.random.default_rng(0).choice(len(whole), 12, replace=False)
    spaces = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], environments_of_histories()).space
    sequences = np.asarray(list(itertools.product(range(5), repeat=4)), np.int32)
    look = lambda space: jax.vmap(lambda state: (space.contains(state), space.masks(state)))(sequences)  # noqa: E731
    contained, masks = jax.tree.map(np.asarray, jax.jit(jax.vmap(jax.vmap(look)))(spaces))
    for row, number in enumerate(chosen):
        _, _, bids, _, outcomes = whole[number]
        for time in range(3):
            explains = {WIN: lambda a, b: a > b, LOSS: lambda a, b: a < b, DRAW: lambda a, b: a == b}
            legal = {
                (*hidden, *(4,) * (2 - time))
                for hidden in itertools.permutations(range(4), time + 2)
                if all(explains[outcomes[r]](bids[r], hidden[1 + r]) for r in range(time + 1))
            } | ({(missing, 4, 4, 4) for missing in range(4)} if time == 0 else set())
            assert {tuple(each) for each in sequences[contained[row, time]]} == legal
            following = collections.defaultdict(set)
            for state, i in itertools.product(legal, range(4)):
                following[state[:i]].add(state[i])
            for state, mask in zip(sequences, masks[row, time], strict=True):
                for i in range(4):
                    if tuple(state[:i]) in following:
                        assert set(np.flatnonzero(mask[i])) == following[tuple(state[:i])]


@pytest.mark.slow
def test_the_opponent_sees_what_the_game_shows():
    """The view of the environment are the second player's in the game, from the true hand."""
    environments, _, _, states = small_episodes()
    hidden = np.asarray(states)[:, -1]
    hands = np.ones((len(hidden), 2, 4), bool)
    hands[np.arange(len(hidden)), 1, hidden[:, 0]] = False
    bids = np.stack([np.asarray(environments.bids)[:, -1], hidden[:, 1:]], axis=-1)
    deck, prizes = np.asarray(environments.deck)[:, 0], np.asarray(environments.prizes)[:, -1]
    view, _, outcomes = replayed(SMALL, hands, deck, prizes, bids)
    seen = lambda world, state: world.view(world.hand(state))  # noqa: E731
    found = jax.jit(jax.vmap(jax.vmap(seen)))(environments, states[:, :-1])
    np.testing.assert_array_equal(found, np.asarray(view)[:, :, 1])
    np.testing.assert_array_equal(outcomes, np.asarray(environments.outcomes)[:, -1])


def test_the_posterior_is_calibrated():
    """The mean log probability of the true state is the mean negative entropy, after each round of 2000 games."""
    environments, policies, observations, states = small_episodes()
    n = len(states)
    beliefs, info = jax.tree.map(np.asarray, tracked(PrefixFilter(), environments, policies, observations))
    assert not info.recovered.any()
    index = lambda world, state: (world.index(state), world.space.contains(state))  # noqa: E731
    places, legal = jax.tree.map(np.asarray, jax.jit(jax.vmap(jax.vmap(index)))(environments, states[:, 1:]))
    assert legal.all(), "the true state is legal"
    truth = np.log(np.take_along_axis(beliefs, places[..., None], axis=-1)[..., 0].astype(np.float64))
    entropy = -np.sum(beliefs * np.log(np.where(beliefs > 0, beliefs, 1.0)), axis=-1)
    difference = truth + entropy
    assert np.all(difference.std(axis=0)[:-1] > 0.1), "there is something to be wrong about"
    assert np.all(np.abs(difference.mean(axis=0)) < monte_carlo(difference.std(axis=0), n))


@pytest.mark.parametrize(
    "game", [GoofspielGame(3), pytest.param(STANDARD, marks=pytest.mark.slow)], ids=["variant", "standard"]
)
def test_an_environment_of_the_family_keeps_the_contract(game, key):
    family = GoofspielFamily(network_pool(game.cards), game)
    nbf.testing.check_environment(*eqx.filter_jit(family.sample)(key)).raise_if_failed()


@pytest.mark.slow
@pytest.mark.parametrize("time", [1, 3], ids=["a round", "over"])
def test_the_two_exact_filters_agree_whatever_is_seen(time, key):
    """Also on an observation that cannot be, on none at all, and once the game is over."""
    environments, policies, observations, _ = small_episodes()
    beliefs, _ = tracked(PrefixFilter(), environments, policies, observations)
    world, policy = (jax.tree.map(lambda leaf: leaf[0, 2], tree) for tree in (environments, policies))
    world = world.at(jnp.int32(time), world.bids, world.prizes, world.outcomes)
    before = beliefs[0, time - 1]

    @eqx.filter_jit
    def both(observation):
        return [filter.update(key, before, observation, world, policy) for filter in (PrefixFilter(), ExactFilter())]

    for observation in (*(jnp.int32(value) for value in range(4)), None):
        (ours, info), (theirs, their_info) = both(observation)
        np.testing.assert_allclose(ours, theirs, **FLOAT)
        for name in ("ess", "log_evidence", "recovered"):
            np.testing.assert_allclose(getattr(info, name), getattr(their_info, name), **FLOAT)
        if time == 3:
            np.testing.assert_allclose(ours, before, **FLOAT)
            assert bool(info.recovered) == (observation is not None and observation != OVER)


@pytest.mark.slow
def test_thirteen_cards_are_filtered_without_a_list():
    family = GoofspielFamily(network_pool(13), GoofspielGame(13))
    environments, policies, observations, _ = episodes(family, jax.random.split(jax.random.key(3), 4))
    assert isinstance(environments, LargeGoofspiel)
    assert not isinstance(environments, Enumerable)
    final, _ = tracked(ParticleFilter(64), environments, policies, observations)
    cards = np.sort(np.asarray(final.states)[:, -1], axis=-1)
    np.testing.assert_array_equal(cards, np.broadcast_to(np.arange(13), cards.shape))
    with pytest.raises(InputError, match="prefix filter needs the capability Prefixes"):
        tracked(PrefixFilter(), environments, policies, observations)


@functools.cache
def a_model():
    config = ModelConfig(TokensConfig(4, 5), AutoregressiveConfig(width=8, depth=1), MeanConfig(width=8, depth=1), 3)
    return with_random_parameters(config.build, jax.random.key(7))


@pytest.mark.slow
def test_a_masked_model_tracks_what_is_legal():
    """An untrained autoregressive model, whose particles are all consistent with what was seen."""
    environments, policies, observations, _ = jax.tree.map(lambda leaf: leaf[:20], small_episodes())
    states, info = tracked(NeuralBayesianFilter(a_model(), 32), environments, policies, observations)
    assert not np.any(info.recovered)
    contains = lambda world, particles: jax.vmap(world.space.contains)(particles)  # noqa: E731
    legal = np.asarray(jax.jit(jax.vmap(jax.vmap(contains)))(environments, states.particles.states))
    assert np.all(legal | (np.asarray(states.particles.log_weights) == -np.inf))


@pytest.mark.slow
def test_beliefs_to_train_on_are_posteriors_of_random_depth():
    family = GoofspielFamily(network_pool(4), SMALL)
    source, n = EpisodePosteriors(PrefixFilter(), family, SMALL.rounds), 400
    draw = eqx.filter_jit(lambda source, keys: jax.vmap(lambda key: source.sample(key, 5))(keys))
    samples, spaces = draw(source, jax.random.split(jax.random.key(9), n))
    assert np.all(jax.jit(jax.vmap(lambda space, some: jax.vmap(space.contains)(some)))(spaces, samples))
    lengths = np.sum(np.asarray(samples) < 4, axis=-1)
    assert np.all(lengths == lengths[:, :1])
    assert_frequencies(np.bincount(lengths[:, 0] - 1, minlength=4), np.full(4, 0.25), detects=0.2)


def test_bad_input_is_refused(key):
    record = [jnp.asarray([1, 2, 3]), jnp.asarray([0, 1, 2]), jnp.asarray([WIN, NONE, NONE])]
    deck = jnp.arange(4) != 3
    world = goofspiel(SMALL, deck, jnp.int32(1), *record)
    assert isinstance(world, Goofspiel)
    world.check_observation(jnp.int32(WIN))
    for bad in (4, -1, 1.0, jnp.zeros(2, int)):
        with pytest.raises(InputError, match="A Goofspiel observation is"):
            world.check_observation(bad)
    with pytest.raises(InputError, match=r"outcomes must be 0\.\.2 for each round known at time 2"):
        world.at(jnp.int32(2), *record)
    with pytest.raises(InputError, match=r"bids must be 0\.\.3 for each round known at time 0; got \[ 7"):
        goofspiel(SMALL, deck, jnp.int32(0), jnp.asarray([7, 0, 0]), *record[1:])
    with pytest.raises(InputError, match=r"deck must have the shape \(4,\)"):
        goofspiel(SMALL, deck[:3], jnp.int32(1), *record)
    with pytest.raises(InputError, match="at least 2 cards; got cards=1"):
        GoofspielGame(1)
    with pytest.raises(InputError, match="CardPolicy needs 2 cards"):
        CardPolicy(key, 4, width=0)
    state = SMALL.reset(key)
    with pytest.raises(InputError, match=r"Player 1 bids one of the cards \[.*\] in hand; got 9"):
        SMALL.step(key, state, jnp.asarray([int(np.argmax(state.hands[0])), 9]))
    with pytest.raises(InputError, match="A pool is a policy with log_probs"):
        GoofspielFamily(jnp.zeros(3), SMALL)
    family = GoofspielFamily(network_pool(4), SMALL)
    with pytest.raises(InputError, match="cannot be drawn ahead"):
        jax.eval_shape(lambda key: nbf.ExactPosteriors(family, 3).posterior(key), key)
    with pytest.raises(InputError, match="has 3 steps; got a horizon of 4"):
        jax.eval_shape(lambda key: EpisodePosteriors(PrefixFilter(), family, 4).posterior(key), key)
    with pytest.raises(InputError, match="horizon must be 0 or more; got -1"):
        EpisodePosteriors(PrefixFilter(), family, -1)


def test_the_states_of_a_game_are_the_orders_of_its_cards():
    game = goofspiel(SMALL, jnp.ones(4, bool), jnp.int32(0), *(jnp.zeros(3, int),) * 3)
    assert isinstance(game, Goofspiel)
    states = game.states()
    assert len(states) == sum(math.perm(4, length) for length in range(1, 5))
