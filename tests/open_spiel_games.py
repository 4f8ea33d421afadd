"""Games of OpenSpiel, and players with peculiar policies."""

from __future__ import annotations

import functools

import numpy as np
from extras import extra
from tolerances import SEED

from nbf.adapters.openspiel import uniform

PHANTOM = "phantom_ttt(obstype=reveal-nothing)"


@functools.cache
def load(name):
    return extra("pyspiel", "openspiel").load_game(name)


@functools.cache
def _weights(told, actions, sharpness):
    rng = np.random.default_rng(SEED + sum(place * ord(letter) for place, letter in enumerate(told)))
    weights = np.exp(sharpness * rng.normal(size=actions))
    return weights / weights.sum()


def peculiar(state, player, sharpness=1.5):
    """A policy that differs at each information state."""
    legal = state.legal_actions(player)
    chances = _weights(state.information_state_string(player), len(legal), sharpness)
    return dict(zip(legal, chances.tolist(), strict=True))


def random_game(game, rng, observer, policy=peculiar):
    """A game's end: the observer plays at random."""
    state = game.new_initial_state()
    while not state.is_terminal():
        if state.is_chance_node():
            chances = dict(state.chance_outcomes())
        else:
            chances = (uniform if state.current_player() == observer else policy)(state, state.current_player())
        state.apply_action(int(rng.choice(list(chances), p=np.array(list(chances.values())))))
    return state
