"""The player who searches: its rollouts keep to the rules, it sees no hidden card, and it plays better than chance."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT, monte_carlo

from nbf import prng
from nbf.environments.trick_taking import NONE, TrickTaking
from nbf.errors import InputError
from nbf_paper.experiments.card_search import SearchPlayer, Seen, Setting, Table, as_set, by_rule, played, tricks_of

RULES = TrickTaking(3, 2, 6, 3)


class Uniform(eqx.Module):
    """Plays any legal action."""

    def log_probs(self, view, legal):
        return jnp.log(legal / jnp.sum(legal))


GAMES = 64


@pytest.fixture(scope="module")
def games():
    """Every position of some games that are played at random, time first."""

    def play(key):
        def step(game, key):
            action = prng.categorical(key, RULES.legal(game) * 1.0)
            return RULES.play(game, action), (game, action)

        return jax.lax.scan(step, RULES.deal(key), jax.random.split(key, RULES.length))[1]

    return jax.jit(jax.vmap(play, out_axes=1))(jax.random.split(jax.random.key(3), GAMES))


def test_a_rollout_keeps_to_the_rules(games):
    """Card by card beside `TrickTaking`: cards of the random games, and then the cards of the rule."""
    positions, actions = games
    first = jax.tree.map(lambda leaf: leaf[RULES.players], positions)
    setting = Setting(
        tuple(as_set(first.hands[:, seat]) for seat in range(3)), tuple(first.bids.T),
        as_set(jnp.asarray(RULES.suit_of) == (first.turned_up % RULES.suits)[:, None]),
    )  # fmt: skip
    every, none = as_set(jnp.ones(RULES.cards, bool)), jnp.zeros(GAMES, jnp.uint32)
    start = Table(
        jnp.int32(RULES.players), jnp.broadcast_to(every, GAMES), jnp.zeros(GAMES, jnp.int32), first.player, none, none,
        first.player,
    )  # fmt: skip
    table = start
    for time in range(RULES.players, RULES.length):
        game = jax.tree.map(lambda leaf: leaf[time], positions)  # noqa: B023
        np.testing.assert_array_equal(table.left, as_set(game.played_by == NONE))
        np.testing.assert_array_equal(table.player, game.player)
        np.testing.assert_array_equal(np.stack([tricks_of(table.won, seat) for seat in range(3)], 1), game.won)
        bits = jnp.uint32(1) << jnp.maximum(game.best, 0).astype(jnp.uint32)
        np.testing.assert_array_equal(table.best, jnp.where(game.best == NONE, 0, bits))
        table = jax.jit(played, static_argnums=0)(
            RULES, setting, table, jnp.uint32(1) << actions[time].astype("uint32")
        )
    table, game = start, first
    for _ in range(RULES.players, RULES.length):
        after = jax.jit(by_rule, static_argnums=0)(RULES, setting, table)
        card = table.left & ~after.left
        np.testing.assert_array_equal(np.bitwise_count(card), 1)
        assert np.all(np.asarray(card & as_set(jax.vmap(RULES.legal)(game)[:, : RULES.cards])))
        game = jax.vmap(RULES.play)(game, jnp.log2(card.astype(jnp.float32)).round().astype(jnp.int32))
        table = after
    np.testing.assert_array_equal(np.stack([tricks_of(table.won, seat) for seat in range(3)], 1), game.won)


def test_imagined_deals_are_those_that_the_view_allows(games, key):
    positions, _ = games
    player = SearchPlayer.random(key, RULES, deals=32)

    @jax.jit
    def imagined(game):
        seen = Seen.of(RULES, RULES.view(game, game.hands[game.player]))
        return player._imagined(seen, jnp.arange(RULES.tricks + 1)[:, None])[0]

    settings = jax.vmap(jax.vmap(imagined))(positions)
    own, *others = (np.asarray(hand) for hand in settings.hands)
    seat = np.asarray(positions.player)[..., None]
    hands = np.asarray(as_set(positions.hands))
    np.testing.assert_array_equal(own[..., None], np.take_along_axis(hands, seat, axis=2))
    hidden = np.asarray(as_set(positions.played_by == NONE)) & ~own
    hidden &= ~(np.uint32(1) << np.asarray(positions.turned_up).astype(np.uint32))
    for place, hand in enumerate(others, 1):
        held = np.bitwise_count(np.take_along_axis(hands, (seat + place) % 3, axis=2))
        np.testing.assert_array_equal(np.bitwise_count(hand), np.broadcast_to(held, hand.shape))
        assert not np.any(hand & ~hidden[..., None])
    assert not np.any(others[0] & others[1])
    assert len(np.unique(others[0][0, 0])) > 16
    dealer = (np.asarray(positions.dealer)[:3] - seat[:3, :, 0]) % 3
    total = np.sum([np.broadcast_to(np.asarray(bid)[:3], (3, GAMES, 4, 32)) for bid in settings.bids], axis=0)
    assert np.all(total[dealer != 0] != RULES.tricks)  # whoever deals may not make the bids even


def test_it_chooses_among_legal_actions_and_sees_no_hidden_card(games, key):
    positions, _ = games
    player = SearchPlayer.random(key, RULES, deals=4)

    def look(game, shown=True):
        own = jnp.arange(3)[:, None] == game.player
        game = dataclasses.replace(game, hands=game.hands & (own | shown))
        legal = RULES.legal(game)
        return player.log_probs(RULES.view(game, game.hands[game.player]), legal), legal

    log_probs, legal = (np.asarray(part) for part in jax.jit(jax.vmap(jax.vmap(look)))(positions))
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=2), 1.0, **FLOAT)
    np.testing.assert_array_equal(log_probs > -np.inf, legal)
    assert np.ptp(np.exp(log_probs[0]), axis=0).max() > 0.5  # it goes by what it holds
    blind = jax.jit(jax.vmap(jax.vmap(lambda game: look(game, shown=False))))(positions)[0]
    np.testing.assert_array_equal(np.asarray(blind), log_probs)


@pytest.mark.slow
def test_it_plays_better_than_chance_and_than_with_one_imagined_deal(key):
    """Points of player 0 on the same deals; the others play at random."""

    def points(player):
        def play(key):
            def step(game, key):
                view, legal = RULES.view(game, game.hands[game.player]), RULES.legal(game)
                both = [one.log_probs(view, legal) for one in (player, Uniform())]
                chosen = prng.categorical(key, jnp.exp(jnp.where(game.player == 0, *both)))
                return RULES.play(game, chosen), None

            deal_key, key = jax.random.split(key)
            game = jax.lax.scan(step, RULES.deal(deal_key), jax.random.split(key, RULES.length))[0]
            return RULES.returns(game)[0]

        return np.asarray(eqx.filter_jit(jax.vmap(play))(jax.random.split(key, 2048)))

    chance, one, many = (
        points(player) for player in (Uniform(), *(SearchPlayer.random(key, RULES, deals) for deals in (1, 16)))
    )
    for worse, better in ((chance, many), (chance, one), (one, many)):
        lead = better - worse
        assert lead.mean() > monte_carlo(lead.std(), len(lead))


def test_the_whole_deck_is_too_large():
    with pytest.raises(InputError, match="up to 32 cards; got 52"):
        SearchPlayer.random(jax.random.key(0), TrickTaking(4, 4, 13, 8))
