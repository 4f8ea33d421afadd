"""Trick-taking games against OpenSpiel's Oh Hell: every legal action of random games, and their scores."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from tolerances import SEED

from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError


def random_game(pyspiel, rules, rng):
    """A game of OpenSpiel: the deck, the dealer, and the actions with what was legal before each."""
    parameters = {
        "players": rules.players, "num_suits": rules.suits, "num_cards_per_suit": rules.ranks,
        "num_tricks_fixed": rules.tricks,
    }  # fmt: skip
    state = pyspiel.load_game("oh_hell", parameters).new_initial_state()
    chances, actions, legal, players = [], [], [], []
    while not state.is_terminal():
        if state.is_chance_node():
            action = int(rng.choice([outcome for outcome, _ in state.chance_outcomes()]))
            chances.append(action)
        else:
            legal.append(state.legal_actions())
            action = int(rng.choice(legal[-1]))
            actions.append(action)
            players.append(state.current_player())
        state.apply_action(action)
    _, dealer, *deck = chances
    rest = [card for card in range(rules.cards) if card not in deck]
    return np.array([*deck, *rest]), dealer, np.array(actions), legal, np.array(players), np.array(state.returns())


@pytest.mark.parametrize("rules", [TrickTaking(), TrickTaking(4, 4, 13, 8), TrickTaking(3, 2, 5, 2)], ids=str)
def test_every_step_is_that_of_openspiel(rules):
    pyspiel, rng = extra("pyspiel", "openspiel"), np.random.default_rng(SEED)
    games = [random_game(pyspiel, rules, rng) for _ in range(60)]
    decks, dealers, actions = (np.stack([game[place] for game in games]) for place in range(3))

    @jax.jit
    @jax.vmap
    def played(deck, dealer, actions):
        def step(game, action):
            return rules.play(game, action), (rules.legal(game), game.player)

        end, found = jax.lax.scan(step, rules.dealt(deck, dealer), actions)
        return rules.returns(end), jnp.any(rules.legal(end)), jnp.sum(end.won), found

    returns, going, won, (legal, players) = jax.tree.map(np.asarray, played(decks, dealers, actions))
    np.testing.assert_array_equal(returns, np.stack([game[5] for game in games]))
    np.testing.assert_array_equal(players, np.stack([game[4] for game in games]))
    assert not np.any(going)
    assert np.all(won == rules.tricks)
    for place, game in enumerate(games):
        assert len(game[3]) == rules.length
        for time, wanted in enumerate(game[3]):
            assert np.flatnonzero(legal[place, time]).tolist() == wanted


def test_what_is_public_is_true_and_told_from_each_seat(key):
    """In random games: who played what, who is void, and view that know nothing of hidden hands."""
    rules = TrickTaking()

    @jax.jit
    @jax.vmap
    def played(key):
        def step(game, key):
            legal = rules.legal(game)
            action = jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))
            own = game.hands[game.player]
            hidden = rules.view(dataclasses.replace(game, hands=~game.hands), own)
            after = rules.play(game, action)
            return after, (game, action, rules.view(game, own), hidden)

        deal_key, play_key = jax.random.split(key)
        return jax.lax.scan(step, rules.deal(deal_key), jax.random.split(play_key, rules.length))[1]

    # In NumPy: JAX compiles every kind of slice by itself, and takes each.
    games, actions, view, hidden = jax.tree.map(np.asarray, played(jax.random.split(key, 40)))
    np.testing.assert_array_equal(view, hidden)
    assert view.shape[-1] == rules.view_size
    suits, seen = rules.suit_of, 0
    for episode in range(40):
        by = np.full(rules.cards, -1)
        for time in range(rules.length):
            np.testing.assert_array_equal(games.played_by[episode, time], by)
            void = np.asarray(games.void[episode, time])
            hands = np.asarray(games.hands[episode, time])
            seen += void.sum()
            for player, suit in np.argwhere(void):
                assert not hands[player, suits == suit].any()
            player, action = games.player[episode, time], actions[episode, time]
            if action < rules.cards:
                led = games.led[episode, time]
                by[action] = player
                if led != -1 and suits[action] != led:
                    assert games.void[episode, min(time + 1, rules.length - 1)][player, led] or time == rules.length - 1
    assert seen > 100


def test_a_deal_gives_each_player_as_many_cards_as_there_are_tricks(key):
    rules = TrickTaking()
    games = jax.tree.map(np.asarray, jax.jit(jax.vmap(rules.deal))(jax.random.split(key, 50)))
    assert np.all(np.sum(games.hands, axis=2) == rules.tricks)
    assert np.all(np.sum(games.hands, axis=1) <= 1)
    held = np.any(games.hands, axis=1)
    assert not np.any(held[np.arange(50), games.turned_up])
    assert set(np.unique(games.dealer)) == {0, 1, 2}


@pytest.mark.parametrize("sizes", [(1, 3, 8, 5), (3, 0, 8, 5), (3, 3, 8, 0)])
def test_a_game_needs_players_suits_and_tricks(sizes):
    with pytest.raises(InputError, match="needs 2 players"):
        TrickTaking(*sizes)


def test_a_deck_must_have_enough_cards():
    with pytest.raises(InputError, match="4 hands of 6 cards, and one that is turned up, need more than 24"):
        TrickTaking(4, 3, 8, 6)
