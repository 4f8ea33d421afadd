"""The resampler for any OpenSpiel game: what it draws agrees with what is known, and has the right probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from open_spiel_games import PHANTOM, load, peculiar, random_game
from tolerances import SEED, monte_carlo

import nbf
from nbf.adapters.openspiel import information_state_posterior, uniform
from nbf.adapters.openspiel_resampler import OpenSpielResampler
from nbf.errors import InputError


def decisions(game, rng, player):
    """The states of a random game in which a player acts."""
    state = game.new_initial_state()
    for action in random_game(game, rng, player).history():
        if state.current_player() == player:
            yield state.clone()
        state.apply_action(action)


def test_drawn_states_have_the_probabilities_of_the_enumeration():
    game, samples = load("leduc_poker"), 1000
    resampler = OpenSpielResampler(game, peculiar, nbf.ParticleFilter(samples, threshold=0.0), samples=samples)
    state = list(decisions(game, np.random.default_rng(SEED), 1))[-1]
    told = state.information_state_string(1)
    drawn = [resampler(state, 1) for _ in range(samples)]
    assert all(one.information_state_string(1) == told for one in drawn)
    truth = information_state_posterior(game, peculiar, 1, told)
    found = np.array([sum(one.history() == list(history) for one in drawn) / samples for history in truth])
    chances = np.array(list(truth.values()))
    # The particles are weighed first and drawn from then: twice a Monte Carlo error, of no fewer than a third of them.
    bound = 2 * monte_carlo(np.sqrt(chances * (1 - chances)), samples // 3)
    np.testing.assert_array_less(np.abs(found - chances), bound)
    assert resampler.recovered == 0


def test_ismcts_plays_a_game_with_it():
    from open_spiel.python.algorithms import ismcts, mcts

    game, rng = load(PHANTOM), np.random.default_rng(SEED)
    resampler = OpenSpielResampler(game, uniform, nbf.ParticleFilter(100), limit=1, samples=20)
    evaluator = mcts.RandomRolloutEvaluator(1, np.random.RandomState(0))
    bot = ismcts.ISMCTSBot(game, evaluator, uct_c=2.0, max_simulations=20, random_state=np.random.RandomState(0))
    bot.set_resampler(resampler)
    state, hidden = game.new_initial_state(), set()
    while not state.is_terminal():
        if state.current_player() == 0:
            action = bot.step(state)
            drawn = resampler(state, 0)
            assert drawn.information_state_string(0) == state.information_state_string(0)
            hidden.add(tuple(drawn.history()))
        else:
            action = rng.choice(state.legal_actions())
        state.apply_action(int(action))
    assert len(hidden) > 1


def test_what_cannot_be_drawn_is_told():
    game = load("leduc_poker")

    def folds(state, player):
        return {state.legal_actions()[0]: 1.0}

    with pytest.raises(InputError, match="samples must be"):
        OpenSpielResampler(game, uniform, nbf.ParticleFilter(4), samples=0)
    with pytest.raises(InputError, match="one policy, not a list"):
        OpenSpielResampler(game, [uniform, uniform], nbf.ParticleFilter(4))
    resampler = OpenSpielResampler(game, uniform, nbf.ParticleFilter(4))
    with pytest.raises(InputError, match="where the player is to act"):
        resampler(game.new_initial_state(), 0)
    with pytest.raises(InputError, match="The view is of leduc_poker"):
        resampler(load("kuhn_poker").new_initial_state(), 0)
    raised = game.new_initial_state()
    for action in (0, 1, 2):
        raised.apply_action(action)
    drawing = OpenSpielResampler(game, folds, nbf.ParticleFilter(20), limit=1)
    with pytest.raises(InputError, match="3 times none of 128"):
        drawing(raised, 1)
    assert drawing.recovered == 3
    # Where steps are listed, the rules explain what the policy does not: counted, and drawn all the same.
    listing = OpenSpielResampler(game, folds, nbf.ParticleFilter(20))
    assert listing(raised, 1).information_state_string(1) == raised.information_state_string(1)
    assert listing.recovered == 1
