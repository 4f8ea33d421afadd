"""Goofspiel, the game: its rules over many random games, and OpenSpiel on every information state."""

from __future__ import annotations

import collections
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from card_games import SMALL, network_pool, replayed, tracked
from tolerances import FLOAT

from nbf.adapters.openspiel import information_state_posterior, uniform
from nbf.environments.goofspiel import Goofspiel, goofspiel
from nbf.environments.goofspiel_game import DRAW, LOSS, NONE, OVER, WIN, GameState, GoofspielGame, UniformPolicy
from nbf.filters.prefixes import PrefixFilter


@pytest.mark.slow
def test_random_games_keep_the_rules(key):
    """Of 10^5 games: cards are conserved, bids legal, outcomes those of the bids; the deal and the bids are uniform."""
    game, n = GoofspielGame(5), 100_000
    play = jax.jit(jax.vmap(lambda key: game.play(key, (UniformPolicy(), UniformPolicy()))))
    games = jax.tree.map(np.asarray, play(jax.random.split(key, n)))
    cards = np.arange(5)
    hot = lambda numbers: (numbers[..., None] == cards).sum(axis=1)  # noqa: E731
    assert np.all(games.hands.sum(axis=-1) == 4)
    assert np.all(games.deck.sum(axis=-1) == 4)
    np.testing.assert_array_equal(hot(games.prizes), games.deck)
    np.testing.assert_array_equal(hot(games.bids), games.hands)
    assert not games.final.hands.any()
    assert not games.final.deck.any()
    assert np.all(games.final.prize == NONE)
    np.testing.assert_array_equal(games.outcomes, np.sign(games.bids[..., 0] - games.bids[..., 1]) + 1)
    for player, outcome in enumerate((WIN, LOSS)):
        won = ((games.outcomes == outcome)[..., None] & (games.prizes[..., None] == cards)).any(axis=1)
        np.testing.assert_array_equal(games.final.won[:, player], won)
    assert not np.any(games.final.won[:, 0] & games.final.won[:, 1])
    points, returns = jax.jit(jax.vmap(lambda state: (game.points(state), game.returns(state))))(games.final)
    np.testing.assert_array_equal(points, games.final.won @ (cards + 1.0))
    assert np.all(np.sum(returns, axis=1) == 0)
    np.testing.assert_array_equal(returns[:, 0], np.sign(points[:, 0] - points[:, 1]))
    dealt = np.concatenate([games.hands, games.deck[:, None]], axis=1).argmin(axis=-1) @ [25, 5, 1]
    assert_frequencies(np.bincount(dealt, minlength=125), np.full(125, 1 / 125), detects=0.02)
    first = np.cumsum(games.hands, axis=-1) - 1
    rank = np.take_along_axis(first, games.bids[:, 0, :, None], axis=-1)[..., 0] @ [4, 1]
    assert_frequencies(np.bincount(rank, minlength=16), np.full(16, 1 / 16), detects=0.02)


def openspiel(cards, **settings):
    pyspiel = pytest.importorskip("pyspiel")
    return pyspiel.load_game(
        "goofspiel",
        {"num_cards": cards, "imp_info": True, "points_order": "random", "returns_type": "total_points", **settings},
    )


def nodes(state):
    """Every node at which someone acts or the game is over."""
    if not state.is_chance_node():
        yield state
    if state.is_terminal():
        return
    if state.is_chance_node():
        children = (state.child(action) for action in state.legal_actions())
    else:
        children = []
        for joint in itertools.product(state.legal_actions(0), state.legal_actions(1)):
            child = state.clone()
            child.apply_actions(list(joint))
            children.append(child)
    for child in children:
        yield from nodes(child)


def information(player, hand, bids, prizes, outcomes, points, over) -> str:
    """As OpenSpiel writes it, where a draw is won by nobody, -3."""
    words = lambda numbers: "".join(f"{number} " for number in numbers)  # noqa: E731
    winner = {WIN: 0, LOSS: 1, DRAW: -3}
    return (
        f"P{player} hand: {words(hand + 1)}\nP{player} action sequence: {words(bids)}\nPoint card sequence: "
        f"{words(prizes + 1)}\nWin sequence: {words(winner[int(each)] for each in outcomes)}\n"
        f"Points: {words(int(each) for each in points)}\nTerminal?: {over:d}\n"
    )


@pytest.mark.parametrize("cards", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_standard_game_is_openspiels_on_every_information_state(cards):
    """Hands (the legal bids), sequences of bids, prizes and winners, points, and when it is over."""
    game = GoofspielGame(cards, standard=True)
    orders = np.asarray(list(itertools.permutations(range(cards))), np.int32)
    prizes, own, other = (orders[part.ravel()] for part in np.indices((len(orders),) * 3))
    bids = np.stack([own, other], axis=-1)
    full = np.ones((len(prizes), cards), bool)
    view, states, outcomes = jax.tree.map(np.asarray, replayed(game, full[:, None].repeat(2, 1), full, prizes, bids))
    points = states.won @ (np.arange(cards) + 1)
    found = collections.defaultdict(dict)
    for place in range(len(prizes)):
        for rounds in (*range(cards - 1), cards):
            over = rounds == cards
            shown = prizes[place, : rounds + 1]
            legal = states.hands[place, -1] if over else view[place, rounds, :, :cards] > 0
            score = points[place, rounds - 1] if rounds else (0, 0)
            for player in range(2):
                done = tuple(bids[place, :rounds].ravel())
                text = information(
                    player, np.flatnonzero(legal[player]), bids[place, :rounds, player], shown,
                    outcomes[place, :rounds], score, over,
                )  # fmt: skip
                found[tuple(shown), done][player] = text
    theirs = list(nodes(openspiel(cards).new_initial_state()))
    seen = set()
    for node in theirs:
        history = node.history()
        if not node.is_terminal():
            for player in range(2):
                hand = set(range(cards)) - set(history[1 + player :: 3])
                assert node.legal_actions(player) == sorted(hand)
        over = node.is_terminal()
        shown, done = _sequences(history, cards, over)
        seen.add((shown, done))
        for player in range(2):
            assert node.information_state_string(player) == found[shown, done][player]
        if over:
            assert node.returns() == [float(line) for line in found[shown, done][0].split("Points: ")[1].split()[:2]]
    assert seen == set(found), "both have the same nodes"


def _sequences(history, cards, over):
    """Prizes and bids of a history of OpenSpiel's; the last round, which it plays unasked, added."""
    shown, done = tuple(history[0::3]), [*zip(history[1::3], history[2::3], strict=True)]
    if over:
        rest = lambda used: (set(range(cards)) - set(used)).pop()  # noqa: E731
        done.append((rest(bid for bid, _ in done), rest(bid for _, bid in done)))
        shown = (*shown, rest(shown))
    return shown, tuple(itertools.chain(*done))


def test_a_posterior_of_the_standard_game_is_openspiels():
    """Bids 4 then 1, won then lost, against a uniform opponent: 7 sequences, 1/7 each."""
    theirs = openspiel(4, num_turns=2)
    nodes_of_it = list(nodes(theirs.new_initial_state()))
    over = [node for node in nodes_of_it if node.is_terminal()]
    assert len(over) == 1728
    wanted = next(node for node in over if node.history() == [1, 3, 2, 0, 0, 1])
    posterior = information_state_posterior(theirs, uniform, 0, wanted.information_state_string(0))
    expected = {(history[2], history[5]): chance for history, chance in posterior.items()}
    assert len(expected) == 7
    game = GoofspielGame(4, standard=True)
    record = [
        jnp.asarray(part, jnp.int32) for part in ([3, 0, NONE, NONE], [1, 0, NONE, NONE], [WIN, LOSS, NONE, NONE])
    ]
    rounds = [goofspiel(game, jnp.ones(4, bool), jnp.int32(time), *record) for time in range(2)]
    environments = jax.tree.map(lambda *leaves: jnp.stack(leaves)[None], *rounds)
    beliefs, _ = tracked(PrefixFilter(), environments, UniformPolicy(), record[2][None, :2])
    assert isinstance(rounds[1], Goofspiel)
    states = np.asarray(rounds[1].states())
    for state, chance in zip(states, np.asarray(beliefs)[0, -1], strict=True):
        listed = expected.get((state[0], state[1]), 0.0) if tuple(state[2:]) == (4, 4) else 0.0
        np.testing.assert_allclose(chance, listed, **FLOAT)


def test_a_game_that_is_over_stays_so(key):
    nothing, won = np.zeros((2, 4), bool), np.zeros((2, 4), bool)
    won[0, 2] = True
    final = GameState(*map(jnp.asarray, (nothing, nothing[0], np.int32(NONE), won, np.int32(3))))
    policies = UniformPolicy(), jax.tree.map(lambda leaf: leaf[0], network_pool(4))

    @jax.jit
    def look(key, final):
        log_probs = [policy.log_probs(SMALL.view(final, 1)) for policy in policies]
        return *SMALL.step(key, final, jnp.asarray([1, 2])), SMALL.legal(final, 0), log_probs

    after, outcome, legal, log_probs = look(key, final)
    assert outcome == OVER
    assert eqx.tree_equal(*jax.device_get((after, final)))
    assert not np.any(legal)
    for found in log_probs:
        assert np.all(np.asarray(found) == -np.inf)
