"""The resampler for OpenSpiel's Oh Hell: what it draws agrees with what is known, and has the right probabilities."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from jaxtyping import Array
from tolerances import FLOAT, SEED, monte_carlo

from nbf.adapters.oh_hell import OhHellResampler, rules_of
from nbf.adapters.openspiel import information_state_posterior
from nbf.beliefs.hands import HandBelief
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.filters.hands import HandTableFilter
from nbf.filters.particle import ParticleFilter

SMALL = {"players": 3, "num_suits": 2, "num_cards_per_suit": 4, "num_tricks_fixed": 2}
TINY = {"players": 3, "num_suits": 1, "num_cards_per_suit": 5, "num_tricks_fixed": 1}


class Preferring(eqx.Module):
    """Goes by the action alone, so that OpenSpiel's states need not be read."""

    preferences: Array

    def log_probs(self, view, legal):
        return jax.nn.log_softmax(jnp.where(legal, self.preferences, -jnp.inf))

    def of_state(self, state, player):
        """The same policy for OpenSpiel."""
        legal = state.legal_actions(player)
        weights = np.exp(np.asarray(self.preferences, np.float64)[legal])
        return dict(zip(legal, weights / weights.sum(), strict=True))


def load(parameters):
    pyspiel = extra("pyspiel", "openspiel")
    game = pyspiel.load_game("oh_hell", parameters)
    actions = rules_of(game).num_actions
    return game, Preferring(jnp.asarray(np.random.default_rng(SEED).normal(0.0, 1.5, actions), jnp.float32))


def random_states(game, rng):
    """The states of a random game in which someone acts."""
    state = game.new_initial_state()
    while not state.is_terminal():
        if not state.is_chance_node():
            yield state.clone()
            state.apply_action(int(rng.choice(state.legal_actions())))
        else:
            state.apply_action(int(rng.choice([action for action, _ in state.chance_outcomes()])))


@pytest.mark.parametrize("filter", [None, ParticleFilter(32)], ids=["default", "particle filter"])
def test_drawn_states_agree_with_what_the_player_knows(filter):
    game, policy = load(SMALL)
    resampler, rng = OhHellResampler(game, policy, filter, samples=16), np.random.default_rng(SEED)
    hidden = set()
    for _ in range(2):
        for state in random_states(game, rng):
            if state.current_player() != 0:
                continue
            for _ in range(3):
                drawn = resampler(state, 0)
                assert drawn.information_state_string(0) == state.information_state_string(0)
                assert drawn.history()[-1] == state.history()[-1]
                hidden.add(tuple(drawn.history()[:9]))
    assert len(hidden) > 10


def test_the_posterior_is_that_of_all_histories():
    """Against the enumeration of OpenSpiel's own game tree."""
    game, policy = load(TINY)
    rules, samples = rules_of(game), 4000
    assert rules == TrickTaking(3, 1, 5, 1)
    resampler = OhHellResampler(game, policy, HandTableFilter(), samples=samples)
    rng = np.random.default_rng(SEED)
    states = [state for state in random_states(game, rng) if state.current_player() == 0]
    for state in states:
        exact = np.zeros(rules.cards)
        told = information_state_posterior(game, policy.of_state, 0, state.information_state_string(0))
        for history, probability in told.items():
            exact[history[3]] += probability  # the card that player 1 was dealt
        same = [
            probability for history, probability in told.items() if history[2:6] == tuple(state.history()[2:6])
        ]  # the deal of the state, whatever else
        assert np.exp(resampler.log_prob(state, 0)) == pytest.approx(sum(same), abs=1e-5)
        belief = resampler.belief(state, 0)
        assert isinstance(belief, HandBelief)
        np.testing.assert_allclose(np.asarray(belief.marginals())[:, 0], exact, **FLOAT)
        found = resampler.marginals(state, 0)[:, 0]
        assert np.all(np.abs(found - exact) < monte_carlo(np.sqrt(np.maximum(exact * (1 - exact), 0)), samples) + 1e-6)


def test_an_action_of_probability_zero_is_counted_and_survived():
    game, policy = load(SMALL)
    never = Preferring(jnp.where(jnp.arange(len(policy.preferences)) < 8, policy.preferences, -jnp.inf))
    resampler = OhHellResampler(game, never, HandTableFilter(), samples=8)  # it never bids
    state = [state for state in random_states(game, np.random.default_rng(SEED)) if state.current_player() == 0][-1]
    drawn = resampler(state, 0)
    assert drawn.information_state_string(0) == state.information_state_string(0)
    assert resampler.recovered == 2


def test_what_it_cannot_do_is_said():
    pyspiel = extra("pyspiel", "openspiel")
    game, policy = load(SMALL)
    with pytest.raises(InputError, match="with a fixed number of tricks"):
        rules_of(pyspiel.load_game("oh_hell"))
    with pytest.raises(InputError, match="for oh_hell"):
        rules_of(pyspiel.load_game("kuhn_poker"))
    with pytest.raises(InputError, match="not dealt yet"):
        OhHellResampler(game, policy)(game.new_initial_state(), 0)
    state = next(random_states(game, np.random.default_rng(0)))
    with pytest.raises(InputError, match="players 0 to 2; got player 3"):
        OhHellResampler(game, policy)(state, 3)
    with pytest.raises(InputError, match="no policy of player 1"):
        OhHellResampler(game, {2: policy})(state, 0)
    with pytest.raises(InputError, match="at least 1"):
        OhHellResampler(game, policy, samples=0)


def test_cards_that_were_not_dealt_are_drawn_as_well():
    """A player does not know them: every unseen card is somewhere in a hand in some draw."""
    game, _ = load(SMALL)
    state = next(random_states(game, np.random.default_rng(SEED)))
    resampler = OhHellResampler(game, Preferring(jnp.zeros(11)), HandTableFilter(), samples=200)
    marginals = resampler.marginals(state, 0)
    unseen = np.ones(8, bool)
    unseen[[*state.history()[2:8:3], state.history()[8]]] = False
    np.testing.assert_allclose(marginals[unseen, :2], 2 / 5, atol=4 * np.sqrt(0.24 / 200))


def test_the_resampler_of_openspiel_knows_which_cards_were_not_dealt():
    """What the pages say of it; if this fails, OpenSpiel has mended it, and they must be changed."""
    pyspiel = extra("pyspiel", "openspiel")
    game, _ = load(SMALL)
    state = next(random_states(game, np.random.default_rng(SEED)))
    dealt = set(state.history()[2:9])
    sampler = pyspiel.UniformProbabilitySampler(0.0, 1.0)
    drawn = [state.resample_from_infostate(0, sampler) for _ in range(50)]
    assert all(set(other.history()[2:9]) == dealt for other in drawn)
    assert len({tuple(other.history()[2:9]) for other in drawn}) > 1
