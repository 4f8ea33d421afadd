"""The exact filter on the lumped state against that over all sequences, and against counting."""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from card_games import episodes, network_pool, tracked
from constructors import small_grid
from tolerances import FLOAT

from nbf.beliefs.lumped import NO_SYMBOL, LumpedState, lump
from nbf.environments.goofspiel import LargeGoofspiel, goofspiel
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import DRAW, LOSS, WIN, GoofspielGame, UniformPolicy
from nbf.errors import InputError
from nbf.filters.lumped import LumpedFilter
from nbf.filters.prefixes import PrefixFilter

GAMES = {str(k): GoofspielGame(k) for k in (4, 5, 3)}
GAMES |= {f"{name}, standard": GoofspielGame(game.cards, standard=True) for name, game in GAMES.items()}


@functools.cache
def played(name, count=20):
    """Random games between random policies."""
    game = GAMES[name]
    return episodes(GoofspielFamily(network_pool(game.cards), game), jax.random.split(jax.random.key(4), count))


def at(tree, episode, time):
    """Of one round of one episode, sliced by NumPy: JAX would compile a program for every shape."""
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[episode, time]), tree)


def marginal(game, sequences, probs):
    """(missing card, set of bids) -> probability, summed in Python over sequences."""
    found, probs = {}, np.asarray(probs, np.float64)
    for place, sequence in enumerate(np.asarray(sequences).tolist()):
        cards = [card for card in sequence if card < game.cards]
        missing = NO_SYMBOL if game.standard else cards.pop(0)
        group = (missing, frozenset(cards))
        found[group] = found.get(group, 0.0) + probs[..., place]
    return found


def lumped_states(game, groups):
    cards = np.arange(game.cards)
    first = np.asarray([missing for missing, _ in groups], np.int32)
    return LumpedState(jnp.asarray(first), jnp.asarray([np.isin(cards, list(bids)) for _, bids in groups]))


@eqx.filter_jit
def believed(masses, environments, states):
    """Probabilities of some lumped states in the beliefs of many filters."""
    look = lambda masses, world: jnp.exp(LumpedFilter().belief(masses, world).log_probs(states))  # noqa: E731
    return jax.vmap(jax.vmap(look))(masses, environments)


@pytest.mark.sampled
@pytest.mark.parametrize("name", GAMES)
def test_it_is_the_marginal_of_the_posterior_over_sequences(name):
    """At every round, with the evidence; of sets of another size it believes nothing."""
    game, (environments, policies, observations, _) = GAMES[name], played(name)
    probs, info = tracked(PrefixFilter(), environments, policies, observations)
    masses, found = tracked(LumpedFilter(), environments, policies, observations)
    world = at(environments, 0, 0)
    expected = marginal(game, world.states(), probs)
    assert len(expected) == sum(1 for _ in subsets(game))
    states = lumped_states(game, list(expected))
    ours = believed(masses, environments, states)
    np.testing.assert_allclose(ours, np.stack(list(expected.values()), axis=-1), **FLOAT)
    np.testing.assert_allclose(np.sum(ours, axis=-1), np.ones(ours.shape[:2]), **FLOAT)
    np.testing.assert_allclose(found.log_evidence, info.log_evidence, **FLOAT)
    assert not np.any(found.recovered)


def subsets(game):
    """Every missing card with every set of others; in the standard game every set."""
    for missing in [NO_SYMBOL] if game.standard else range(game.cards):
        others = [card for card in range(game.cards) if card != missing]
        for size in range(len(others) + 1):
            yield from itertools.combinations(others, size)


@pytest.mark.sampled
@pytest.mark.parametrize("time", [1, 3], ids=["a round", "over"])
def test_it_agrees_whatever_is_seen(time, key):
    """Also on an observation that cannot be, on none at all, and once the game is over: what is kept, what is told."""
    game, (environments, policies, observations, _) = GAMES["4"], played("4")
    world, policy = at((environments, policies), 0, 2)
    worlds = [world.at(jnp.int32(t), world.bids, world.prizes, world.outcomes) for t in range(time + 1)]

    def followed(filter, last):
        state = filter.init(key, worlds[0])
        for before, outcome in zip(worlds[:-1], observations[0], strict=False):
            state, _ = filter.update(key, state, outcome, before, policy)
        return state, filter.update(key, state, last, worlds[-1], policy)

    @eqx.filter_jit
    def both(last):
        return followed(PrefixFilter(), last), followed(LumpedFilter(), last)

    refused = []
    for observation in (*(jnp.int32(value) for value in range(4)), None):
        (_, (sequences, info)), (start, (masses, told)) = both(observation)
        expected = marginal(game, worlds[-1].states(), sequences)
        belief = LumpedFilter().belief(masses, worlds[-1])
        ours = np.exp(belief.log_probs(lumped_states(game, list(expected))))
        np.testing.assert_allclose(ours, list(expected.values()), **FLOAT)
        for field in ("log_evidence", "recovered", "attempts"):
            np.testing.assert_allclose(getattr(told, field), getattr(info, field), **FLOAT)
        assert (told.ess > 0) == (info.ess > 0)
        assert int(masses.size) == int(start.size) + (time == 1)
        refused.append(bool(told.recovered))
    assert any(refused)
    assert not all(refused)


def test_steps_from_python_are_the_batch(key):
    game, (environments, policies, observations, _) = GAMES["4"], played("4")
    masses, infos = tracked(LumpedFilter(), environments, policies, observations)
    state = LumpedFilter().init(key, at(environments, 3, 0))
    for time in range(game.rounds):
        world, policy = at((environments, policies), 3, time)
        state, info = LumpedFilter().step(key, state, int(observations[3, time]), world, policy)
        np.testing.assert_allclose(state.masses, masses.masses[3, time], **FLOAT)
        np.testing.assert_allclose(info.log_evidence, infos.log_evidence[3, time], **FLOAT)


def test_a_policy_without_any_probability_changes_nothing(key):
    """As in the other exact filters: nothing is NaN, the belief stays, and the step is reported."""

    class Silent(eqx.Module):
        def log_probs(self, features):
            return jnp.full(4, jnp.nan)

    world = at(played("4")[0], 0, 0)
    start = LumpedFilter().init(key, world)
    for observation in (WIN, None):
        state, info = LumpedFilter().step(key, start, observation, world, Silent())
        np.testing.assert_array_equal(state.masses, start.masses)
        assert int(state.size) == int(start.size)
        assert bool(info.recovered)
        assert float(info.log_evidence) == -np.inf


def uniform_game(cards):
    """The environments of the first three rounds of a game in which the observer wins, loses and draws."""
    game, middle = GoofspielGame(cards), cards // 2
    bids, outcomes = np.arange(cards - 1, dtype=np.int32), np.full(cards - 1, DRAW, np.int32)
    bids[:3], outcomes[:2] = [middle + 1, middle, middle - 1], [WIN, LOSS]
    deck, *record = map(jax.device_put, (np.arange(cards) < cards - 1, bids, np.arange(cards - 1), outcomes))
    return bids[:3], [goofspiel(game, deck, jnp.int32(time), *record) for time in range(3)]


def test_thirteen_cards_against_counting(key):
    """Of an opponent that bids anything with the same probability all sequences that explain the outcomes are equally
    likely; those of three rounds can be counted."""
    bids, worlds = uniform_game(13)
    assert isinstance(worlds[0], LargeGoofspiel)
    own, left = np.asarray(bids).tolist(), list(itertools.permutations(range(13), 4))
    tests = [lambda own, card: own > card, lambda own, card: own < card, lambda own, card: own == card]
    state = LumpedFilter().init(key, worlds[0])
    for time, (outcome, world) in enumerate(zip((WIN, LOSS, DRAW), worlds, strict=True)):
        before = len(left)
        left = [sequence for sequence in left if tests[time](own[time], sequence[time + 1])]
        state, info = LumpedFilter().step(key, state, outcome, world, UniformPolicy())
        np.testing.assert_allclose(np.exp(info.log_evidence), len(left) / before, **FLOAT)
    counts = marginal(worlds[0].game, left, np.full(len(left), 1.0 / len(left)))
    belief = LumpedFilter().belief(state, worlds[-1])
    states = lumped_states(worlds[0].game, list(counts))
    np.testing.assert_allclose(np.exp(belief.log_probs(states)), list(counts.values()), **FLOAT)
    np.testing.assert_allclose(np.sum(state.masses), sum(counts.values()), **FLOAT)


def test_the_belief_is_the_distribution_it_says(key):
    """Its samples, probabilities and expectations are of lumped states; a sequence is refused."""
    environments, policies, observations, hidden = played("4")
    masses, _ = tracked(LumpedFilter(), environments, policies, observations)
    world = at(environments, 2, 0)
    belief = LumpedFilter().belief(at(masses, 2, 0), world)
    states = lumped_states(world.game, [(m, frozenset([b])) for m, b in itertools.permutations(range(4), 2)])
    probs = np.exp(belief.log_probs(states))
    np.testing.assert_allclose(probs.sum(), 1.0, **FLOAT)
    drawn = belief.sample(key, 20_000)
    assert np.all(np.sum(drawn.rest, axis=1) == 1)
    cells = np.asarray(drawn.first) * 4 + np.argmax(drawn.rest, axis=1)
    assert_frequencies(np.bincount(cells, minlength=16)[np.asarray(states.first) * 4 + np.argmax(states.rest, axis=1)],
                       probs, detects=0.05)  # fmt: skip
    mean = belief.expectation(lambda state: (state.first, state.rest.astype(float)))
    np.testing.assert_allclose(mean[0], probs @ np.asarray(states.first), **FLOAT)
    np.testing.assert_allclose(mean[1], probs @ np.asarray(states.rest), **FLOAT)
    two, none = jnp.asarray([True, True, False, False]), jnp.zeros(4, bool)
    for first, rest in ((0, two), (3, two), (3, none), (NO_SYMBOL, two), (4, two)):
        assert float(belief.log_prob(LumpedState(jnp.int32(first), rest))) == -np.inf
    true = lump(hidden[2, 1], first=True)
    assert float(belief.log_prob(true)) > -np.inf
    with pytest.raises(InputError, match=r"over sets, not over sequences.*lump"):
        belief.log_prob(hidden[2, 1])


def test_what_it_cannot_list_is_refused(key):
    _, worlds = uniform_game(14)
    with pytest.raises(InputError, match=r"at most 13 symbols; with 14 there are up to 3,432 sets.*about 7 MiB"):
        LumpedFilter().init(key, worlds[0])
    with pytest.raises(InputError, match=r"lumped filter needs the capability Lumpable .*Gridworld does not claim"):
        LumpedFilter().init(key, small_grid()[0])
