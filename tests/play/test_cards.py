"""A hand of cards in the playground: its rules, and beliefs that are those of an enumeration of all hands."""

from __future__ import annotations

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from playing import FakePrograms
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.filters.neural.state import NeuralState
from nbf.play.problems import PROBLEMS
from nbf.play.problems.cards import OBSERVER, PLAYERS, RULES, SHARPNESS, UNSEEN, label, player
from nbf.play.problems.problem import EXACT, NEURAL
from nbf.play.programs import Programs
from nbf.play.session import Session
from nbf.play.telling import frame_message

CARDS = PROBLEMS["cards"]


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    # The states of the fakes are no filters' states.
    monkeypatch.setattr("nbf.play.session.carried", lambda key, filter, state, environment: state)


def played(episode: Session, steps: int) -> Session:
    for _ in range(steps):
        episode.act("auto")
    return episode


def test_a_hand_from_the_first_bid_to_the_points():
    episode = Session(FakePrograms(), "cards", 5)
    while episode.steps < RULES.length:
        before = frame_message(episode)["marks"]
        mine = [action for action, *_, legal in before["hand"] if legal] + [action for action, _ in before["bids"]]
        assert bool(mine) == (before["turn"] == PLAYERS[OBSERVER])
        held = [name for _, name, _ in before["hand"]]
        frame, suits = episode.frame, {name[-1] for name in held if before["trick"] and len(before["trick"]) < 3}
        episode.act(mine[-1] if mine else "auto")
        after = frame_message(episode)["marks"]
        who, name = after["trick"][-1] if after["trick"] else ("", "")
        if mine:  # nothing is learned: the filters stay, and no number is told
            assert episode.frame.states == frame.states
            assert all(reading.log_evidence is None for reading in episode.frame.readings.values())
            if who:
                assert (who, name in held) == ("You", True)
                led = before["trick"][0][1][-1] if suits else name[-1]
                assert name[-1] == led or led not in {each[-1] for each in held}
        else:
            assert all(len(state) == len(frame.states[EXACT]) + 1 for state in episode.frame.states.values())
    final = frame_message(episode)["marks"]
    for seat in final["players"]:
        assert seat["points"] == seat["won"] + 10 * (seat["won"] == seat["bid"])
    assert sum(seat["won"] for seat in final["players"]) == RULES.tricks
    truth = np.bincount(final["truth"], minlength=3)
    assert truth.tolist() == [RULES.tricks, RULES.tricks, UNSEEN - 2 * RULES.tricks]
    assert sum(final["played"]) == 2 * RULES.tricks
    with pytest.raises(InputError, match="hand is over"):
        episode.act("auto")
    text = json.dumps(frame_message(episode), allow_nan=False)
    assert all((row is None) or np.isclose(sum(row), 1, atol=1e-3) for row in json.loads(text)["filters"][0]["table"])


def test_what_is_not_yours_to_choose_is_an_input_error_and_changes_nothing():
    turns, illegal = 0, 0
    for seed in range(6):
        episode = Session(FakePrograms(), "cards", seed)
        while episode.steps < RULES.length:
            marks, frames = frame_message(episode)["marks"], list(episode.frames)
            if marks["turn"] != PLAYERS[OBSERVER]:
                turns += 1
                with pytest.raises(InputError, match=f"turn of {marks['turn']}"):
                    episode.act("bid 1")
            for action, _, legal in marks["hand"]:
                if marks["turn"] == PLAYERS[OBSERVER] and not legal:
                    illegal += 1
                    with pytest.raises(InputError, match=f"{action} is not legal now; you can choose"):
                        episode.act(action)
            assert episode.frames == frames
            episode.act("auto")
    assert min(turns, illegal) > 5


def enumerated(told: list, kinds: list[str]) -> np.ndarray:
    """Who holds each unseen card, by all pairs of hands: each is weighed by every action, in a game of its own."""
    hand, up, dealer, actions = told
    unseen = np.setdiff1d(np.arange(RULES.cards), [*hand, up])
    hands = np.asarray(list(itertools.combinations(unseen, RULES.tricks)))

    def deck(seat: int, held: np.ndarray) -> np.ndarray:
        rest = iter(np.setdiff1d(unseen, held))
        order = np.asarray([next(rest) if k % 3 else hand[k // 3] for k in range(12) if (k % 3) != seat])
        made = np.empty(RULES.cards, int)
        made[[k for k in range(12) if k % 3 != seat]] = order
        made[seat:12:3], made[12], made[13:] = held, up, list(rest)
        return made

    @jax.jit
    @jax.vmap
    def log_weights(deck):
        game, total = RULES.dealt(deck, jnp.int32(dealer)), jnp.zeros(RULES.players)
        for action, kind in zip(actions, kinds, strict=True):
            log_probs = player(kind).log_probs(RULES.view(game, game.hands[game.player]), RULES.legal(game))
            total = total.at[game.player].add(log_probs[action])
            game = RULES.play(game, jnp.int32(action))
        return total

    left, right = (
        np.exp(np.asarray(log_weights(jnp.asarray([deck(seat, held) for held in hands])))[:, seat]) for seat in (1, 2)
    )
    bits = (1 << np.searchsorted(unseen, hands)).sum(axis=1)
    joint = np.where(bits[:, None] & bits == 0, left[:, None] * right, 0.0)
    has = (bits[:, None] >> np.arange(UNSEEN)) & 1
    left, right = joint.sum(axis=1) @ has / joint.sum(), joint.sum(axis=0) @ has / joint.sum()
    return np.stack([left, right, 1 - left - right], axis=1)


def test_the_exact_table_is_that_of_all_hands_through_a_change_of_the_opponents():
    settings, exact = [CARDS.checked({}), CARDS.checked({"plays": "random", "believed": "contrary"})], None
    episode, kinds = Session(FakePrograms(), "cards", 2), []
    filter, update = CARDS.filter(EXACT, 0), jax.jit(CARDS.filter(EXACT, 0).update)
    for time in range(7):
        now = settings[time >= 4]
        episode.change(now)
        episode.act("auto")
        told = episode.frame.told
        kinds.append("contrary" if time >= 4 else "rule")
        environment, policy = CARDS.at(now, told)
        key = jax.random.key(0)
        exact = filter.init(key, environment) if exact is None else exact
        if not CARDS.silent(told):
            exact, _ = update(key, exact, CARDS.observation(episode.frame.observed), environment, policy)
    told, now = episode.frame.told, episode.frame.used
    environment, _ = CARDS.at(now, told)
    found = np.asarray(CARDS.cells(filter.belief(exact, environment), environment)).reshape(CARDS.shape)
    marks = CARDS.marks(now, episode.frame.world, 7)
    names = [label(card) for card in np.setdiff1d(np.arange(RULES.cards), [*told[0], told[1]]).tolist()]
    truth = enumerated(told, kinds)[[names.index(name) for name in marks["cards"]]]
    unknown = ~np.asarray(marks["played"])
    assert 1 <= np.sum(~unknown) <= 3
    np.testing.assert_allclose(found[unknown], truth[unknown], **FLOAT)
    assert np.all(found[~unknown] == 0)
    np.testing.assert_allclose(truth[~unknown, np.asarray(marks["truth"])[~unknown]], 1.0, **FLOAT)


def test_every_kind_of_opponent_plays_by_a_distribution_over_what_is_legal():
    game = RULES.deal(jax.random.key(3))
    view, legal = RULES.view(game, game.hands[game.player]), RULES.legal(game)
    probs = {kind: np.exp(player(kind).log_probs(view, legal)) for kind in SHARPNESS}
    for found in probs.values():
        np.testing.assert_allclose(found.sum(), 1.0, **FLOAT)
        assert np.all(found[~np.asarray(legal)] == 0)
    np.testing.assert_allclose(probs["random"][np.asarray(legal)], 1 / np.sum(legal), **FLOAT)
    assert np.argmax(probs["rule"]) == np.argmax(probs["roughly"]) != np.argmax(probs["contrary"])


@pytest.mark.slow
def test_the_probabilities_of_all_actions_add_up_to_one():
    """Also those of the neural filter, to which the space of an action tells a part of it."""
    episode = played(Session(Programs(), "cards", 4), 6)
    frame, totals = episode.frame, {}
    hand, up, dealer, done = frame.told
    assert not CARDS.silent([hand, up, dealer, [*done, 0]])
    assert isinstance(frame.states[NEURAL], NeuralState)
    unseen = np.setdiff1d(np.arange(RULES.cards), [*hand, up, *done]).tolist()
    for role, filter in CARDS.filters(frame.settings).items():
        update, told = jax.jit(lambda *arguments, filter=filter: filter.update(*arguments)), []
        for action in unseen:
            environment, policy = CARDS.at(frame.settings, [hand, up, dealer, [*done, action]])
            _, info = update(jax.random.key(1), frame.states[role], jnp.int32(action), environment, policy)
            told.append(float(info.log_evidence))
        totals[role] = np.exp(told).sum()
    print(totals)
    np.testing.assert_allclose(totals[EXACT], 1.0, **FLOAT)
    assert abs(totals[NEURAL] - 1.0) < 0.1
