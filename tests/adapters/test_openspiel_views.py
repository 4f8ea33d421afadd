"""OpenSpiel's games as one player sees them: against the enumeration of all histories, and of all hands of dice."""

from __future__ import annotations

import functools
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from open_spiel_games import PHANTOM, load, peculiar, random_game
from tolerances import EXACT, FLOAT, SEED, monte_carlo

import nbf
from nbf.adapters.openspiel import information_state_posterior, uniform
from nbf.adapters.openspiel_episodes import openspiel_episodes
from nbf.adapters.openspiel_histories import BatchedPolicy
from nbf.adapters.openspiel_steps import Step
from nbf.adapters.openspiel_views import from_openspiel
from nbf.errors import HostError, InputError
from nbf.testing import check_environment

DICE, FACES = 3, 6
LIAR = f"liars_dice(players=2,numdice={DICE})"


def step_of(seen, policy=None, given=True):
    return Step(np.int32(seen.action), seen.observation, np.bool_(given), policy)


def exact(view, steps):
    """The posterior by the environment's own functions: p(x) p(seen | x) p(x' | x, seen), summed."""
    seat = view.seat
    belief: dict[tuple[int, ...], float] = {(): 1.0}
    for seen in steps:
        rows = np.stack([seat.row(history) for history in belief])
        after = {}
        for history, few in zip(belief, listed(view, rows, step_of(seen)), strict=True):
            for tail, chance in zip(few.actions, few.probs, strict=True):
                after[history + tail] = belief[history] * np.exp(few.log_total) * chance
        total = sum(after.values())
        belief = {history: chance / total for history, chance in after.items() if chance > 0}
    return belief


@pytest.mark.parametrize(("name", "games"), [("kuhn_poker", 6), ("tiny_hanabi", 6), ("leduc_poker", 1)])
@pytest.mark.parametrize("clock", ["own", "public"])
def test_the_posterior_is_that_of_all_histories(name, games, clock):
    game, rng = load(name), np.random.default_rng(SEED)
    for observer in range(2):
        view = from_openspiel(game, observer, peculiar, clock=clock)
        for _ in range(games):
            state = game.new_initial_state()
            for action in random_game(game, rng, observer).history():
                state.apply_action(action)
                told = state.information_state_string(observer)
                if not view.seat.is_own(state) and not state.is_terminal():
                    continue
                truth = information_state_posterior(game, peculiar, observer, told)
                found = exact(view, view.follow(state))
                assert found.keys() == truth.keys()
                np.testing.assert_allclose([found[each] for each in truth], list(truth.values()), **EXACT)


def filtered(view, filter, steps, key, policies=None):
    """The belief after a game, and what each step told."""
    state, infos = filter.init(key, view.environment), []
    for number, seen in enumerate(steps):
        policy = None if policies is None else policies[number]
        environment = view.at(seen, policy)
        state, info = filter.step(jax.random.fold_in(key, number), state, seen.observation, environment, None)
        infos.append(info)
    return state, infos


def listed(view, rows, step):
    """What may follow each history, where it is listed."""
    found = [few for few in view.turns.continuations(rows, step) if few is not None]
    assert len(found) == len(rows)
    return found


def weights_of(state):
    weights = np.exp(np.asarray(state.log_weights, np.float64))
    return weights / weights.sum()


def test_particles_have_the_frequencies_of_the_enumeration(key):
    game, observer, n = load("leduc_poker"), 1, 2000
    view = from_openspiel(game, observer, peculiar)
    end = random_game(game, np.random.default_rng(SEED), observer)
    state, infos = filtered(view, nbf.ParticleFilter(n, threshold=0.0), view.follow(end), key)
    truth = information_state_posterior(game, peculiar, observer, end.information_state_string(observer))
    rows, weights = np.asarray(state.states), weights_of(state)
    found = {history: weights[(rows == view.seat.row(history)).all(axis=1)].sum() for history in truth}
    np.testing.assert_allclose(sum(found.values()), 1.0, **FLOAT)
    chances = np.array(list(truth.values()))
    spread = np.sqrt(chances * (1 - chances))
    errors = np.abs(np.array(list(found.values())) - chances)
    np.testing.assert_array_less(errors, monte_carlo(spread, int(infos[-1].ess)) + FLOAT["atol"])


def own_dice(state, player):
    """0..5 for each die of a player."""
    return state.history()[player * DICE : (player + 1) * DICE]


def bids_what_it_has(state, player):
    """A player of liar's dice: each die that a bid needs beyond those it has makes the bid three times less likely."""
    legal = tuple(state.legal_actions(player))
    return dict(zip(legal, bid_chances(legal, tuple(own_dice(state, player))).tolist(), strict=True))


@functools.cache
def bid_chances(legal, dice):
    # A bid is a number of dice and a face; OpenSpiel counts the faces within each number. The last action: "liar".
    needed = [max(bid // FACES + 1 - dice.count(bid % FACES), 0) for bid in legal]
    weights = 3.0 ** -np.array(needed)
    return weights / weights.sum()


def hand_posterior(end):
    """The other player's 6^3 hands, each with its probability: by Bayes' rule from the bids alone."""
    hands, history = list(itertools.product(range(FACES), repeat=DICE)), end.history()
    logs, state = np.zeros(len(hands)), end.get_game().new_initial_state()
    for place, action in enumerate(history):
        if place >= 2 * DICE and state.current_player() == 0:
            legal = tuple(state.legal_actions())
            logs += [np.log(bid_chances(legal, hand)[legal.index(action)]) for hand in hands]
        state.apply_action(action)
    chances = np.exp(logs - logs.max())
    return np.array(hands), chances / chances.sum()


def test_dice_are_believed_as_bayes_rule_over_all_hands_says(key):
    """Liar's dice with three dice each: 216 hidden hands, 37 actions."""
    game, rng = load(LIAR), np.random.default_rng(SEED)
    view = from_openspiel(game, 1, bids_what_it_has, clock="public")
    gains = []
    for number in range(2):
        end = random_game(game, rng, 1, bids_what_it_has)
        hands, chances = hand_posterior(end)
        counts = (hands[:, :, None] == np.arange(FACES)).sum(axis=1)
        filter = nbf.ParticleFilter(100, threshold=0.0)
        state, infos = filtered(view, filter, view.follow(end), jax.random.fold_in(key, number))
        assert not any(bool(info.recovered) for info in infos)
        thrown, weights = np.asarray(state.states)[:, :DICE], weights_of(state)
        found, truth = weights @ (thrown[:, :, None] == np.arange(FACES)).sum(axis=1), chances @ counts
        spread = np.sqrt(chances @ (counts - truth) ** 2)
        np.testing.assert_array_less(np.abs(found - truth), monte_carlo(spread, int(infos[-1].ess), k=5))
        # The expected gain in squared error over a belief without the bids, in which each face is on 3/6 of a die.
        gains.append(np.sum((DICE / FACES - truth) ** 2) - np.sum((found - truth) ** 2))
    assert np.mean(gains) > 0.1


def occupied(view, state):
    """The chance that the other player, who moves second, has a stone in each cell."""
    rows, weights = np.asarray(state.states), weights_of(state)
    boards = [view.state(row).observation_string(1)[:11].replace("\n", "") for row in rows]
    return weights @ np.array([[cell == "o" for cell in board] for board in boards], float)


def test_stones_that_nobody_sees_are_found(key):
    """Phantom tic-tac-toe: an own move onto a hidden stone fails, and tells where it is."""
    game, rng, n = load(PHANTOM), np.random.default_rng(SEED), 300
    view = from_openspiel(game, 0, peculiar, limit=1)
    scores = []
    for number in range(4):
        end = random_game(game, rng, 0)
        steps = view.follow(end)[:-1]
        state, infos = filtered(view, nbf.ParticleFilter(n), steps, jax.random.fold_in(key, number))
        assert not any(bool(info.recovered) for info in infos)
        cells = occupied(view, state)
        truth = view.state(steps[-1].history).observation_string(1)[:11].replace("\n", "")
        true = np.array([cell == "o" for cell in truth])
        prior = nbf.ParticleFilter(n)
        blind = prior.init(key, view.environment)
        for step, seen in enumerate(steps):  # the game as it goes, of which nothing is seen
            environment = view.at(seen, given=False)
            blind, _ = prior.step(jax.random.fold_in(key, step), blind, None, environment, None)
        guess = occupied(view, blind)
        scores.append([np.log(np.clip(np.where(true, p, 1 - p), 1 / n, 1)).sum() for p in (cells, guess)])
    ours, without = np.mean(scores, axis=0)
    assert ours > without + 1


def weighed(view, rows, step):
    """Where a set of histories is moved to, and with which weights."""
    moved = view.turns.transition(np.random.default_rng(SEED), rows, None, step)
    return moved, view.turns.log_likelihood(np.asarray(step.seen), rows, moved, step)


def leduc(policy, observer=1, **options):
    """A view of Leduc poker, a game in it, and what was seen."""
    game = load("leduc_poker")
    view = from_openspiel(game, observer, policy, **options)
    end = random_game(game, np.random.default_rng(SEED), observer)
    return view, view.follow(end)


def test_drawn_steps_have_the_joint_distribution_of_listed_ones():
    """With limit=1 nothing is listed: the weight is 1 or 0, and the mean of the weights is the same probability."""
    n, (view, steps) = 4000, leduc(peculiar)
    drawing, rows = leduc(peculiar, limit=1)[0], np.stack([view.seat.row([])] * 4000)
    told, logs = weighed(view, rows, step_of(steps[0]))
    drawn, zeros = weighed(drawing, rows, step_of(steps[0]))
    chance, agrees = float(np.exp(logs[0])), zeros == 0.0
    assert (zeros[~agrees] == -np.inf).all()
    np.testing.assert_allclose(agrees.mean(), chance, rtol=0, atol=monte_carlo(np.sqrt(chance), n))
    shares = [np.bincount(each[:, 0], minlength=6) / len(each) for each in (drawn[agrees], told)]
    np.testing.assert_allclose(*shares, rtol=0, atol=2 * monte_carlo(0.5, int(agrees.sum())))


def test_batched_several_and_openspiels_policies_are_the_function():
    from open_spiel.python import policy as open_spiel_policy

    class Peculiar(open_spiel_policy.Policy):
        def __init__(self, sharpness):
            self.sharpness = sharpness

        def action_probabilities(self, state, player_id=None):
            return peculiar(state, state.current_player(), self.sharpness)

    def table(states, sharpness):
        chances = np.zeros((len(states), states[0].num_distinct_actions()))
        for row, state in zip(chances, states, strict=True):
            for action, chance in peculiar(state, state.current_player(), float(sharpness)).items():
                row[action] = chance
        return chances

    sharp = 3.0
    plain, steps = leduc(lambda state, player: peculiar(state, player, sharp))
    batched, _ = leduc(BatchedPolicy(table, np.float64(1.0)))
    several, _ = leduc([peculiar, Peculiar(sharp)])
    rows = np.stack([plain.seat.row([])])
    for seen in steps[:2]:
        wanted = listed(plain, rows, step_of(seen))[0]
        for view, chosen in ((batched, np.float64(sharp)), (several, np.int32(1))):
            found = listed(view, rows, step_of(seen, chosen))[0]
            assert found.actions == wanted.actions
            np.testing.assert_allclose(found.log_total, wanted.log_total, **EXACT)
        other = listed(several, rows, step_of(seen, np.int32(0)))[0]
        assert abs(other.log_total - wanted.log_total) > 0.01
        rows = np.stack([plain.seat.row(wanted.actions[0])])


def test_the_policy_may_change_by_the_step(key):
    """Without compiling again: the evidence of each step is that of its policy."""
    view, steps = leduc([peculiar, uniform], clock="public")
    _, infos = filtered(view, nbf.ParticleFilter(8), steps, key, policies=[1] * len(steps))
    truth = np.log(1 / 2)  # the first player has two actions at first: to call or to raise
    np.testing.assert_allclose(float(infos[2].log_evidence), truth, **FLOAT)
    _, others = filtered(view, nbf.ParticleFilter(8), steps, key, policies=[0] * len(steps))
    assert abs(float(others[2].log_evidence) - truth) > 0.01


def test_a_policy_that_excludes_what_was_seen_is_recovered_from(key):
    """The step says so; the belief keeps what the rules allow, and the next step is a usual one."""
    view, steps = leduc(peculiar, clock="public")
    taken = next(number for number, seen in enumerate(steps) if seen.action == -1 and number >= 2)

    def never(state, player):
        legal = state.legal_actions(player)
        rest = [action for action in legal if action != int(steps[taken].history[taken])]
        return {action: 1 / len(rest) for action in rest}

    view = from_openspiel(load("leduc_poker"), 1, [uniform, never], clock="public")
    policies = [int(number == taken) for number in range(len(steps))]
    state, infos = filtered(view, nbf.ParticleFilter(50), steps, key, policies)
    assert [bool(info.recovered) for info in infos] == [number == taken for number in range(len(steps))]
    assert all(np.isfinite(float(info.log_evidence)) for number, info in enumerate(infos) if number != taken)
    assert all(view.agrees(view.state(row), steps[-1]) for row in np.asarray(state.states)[:10])


def test_what_is_no_history_stays_and_has_no_weight():
    view, steps = leduc(peculiar)
    seat, seen = view.seat, steps[1]
    sound = np.asarray(steps[0].history)
    gap, illegal = np.full(seat.length, seat.padding), seat.row([0, 0])  # the same card twice
    gap[1] = 3
    rows = np.stack([sound, gap, illegal, seat.row([])]).astype(np.int32)  # the last: not the observer's turn
    moved, logs = weighed(view, rows, step_of(seen))
    assert np.isfinite(logs[0])
    assert (logs[1:] == -np.inf).all()
    np.testing.assert_array_equal(moved[1:], rows[1:])
    drawn, logs = weighed(from_openspiel(seat.game, 1, peculiar, limit=1), rows, step_of(seen))
    assert (logs[1:] == -np.inf).all()
    np.testing.assert_array_equal(drawn[1:], rows[1:])
    with pytest.raises(InputError, match="no history of leduc_poker"):
        view.state(illegal)


def test_a_view_is_the_same_in_another_process():
    view, steps = leduc(uniform)
    rows = np.stack([view.seat.row([])] * 20)
    again = pickle.loads(pickle.dumps(view.turns))
    one, other = (
        each.transition(np.random.default_rng(0), rows, None, step_of(steps[0])) for each in (view.turns, again)
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_it_passes_the_checks(given):
    view, steps = leduc(peculiar)
    report = check_environment(view.at(steps[0], given=given), None)
    assert report.passed, str(report)


def test_episodes_are_games_that_the_filter_can_explain(key):
    view, _ = leduc([peculiar, uniform])
    family = openspiel_episodes(view, 4)
    environments, policy, observations, states = family.episode(key)
    assert policy is None
    last = view.state(np.asarray(states)[-1])
    steps = view.follow(last)
    np.testing.assert_array_equal(np.asarray(observations)[: len(steps)], [seen.observation for seen in steps][:4])
    filter, state = nbf.ParticleFilter(100), None
    for number in range(4):
        environment = jax.tree.map(lambda leaf: leaf[number], environments)  # noqa: B023
        state = filter.init(key, environment) if state is None else state
        state, info = filter.step(key, state, np.asarray(observations)[number], environment, None)
        assert not bool(info.recovered)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"game": "goofspiel(imp_info=True,num_cards=4)"}, "convert_to_turn_based"),
        ({"observer": 2}, r"players 0\.\.1"),
        ({"limit": 0}, "at least 1"),
        ({"policy": 3}, "A policy is one of"),
        ({"policy": []}, "at least 1"),
        ({"sees": lambda state, player: 1}, "gives a string"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_filtered_is_refused(change, named):
    given = {"game": "kuhn_poker", "observer": 0, "policy": uniform} | change
    game = load(given.pop("game"))
    with pytest.raises(InputError, match=named):
        from_openspiel(game, **given).follow(game.new_initial_state().child(0).child(1))


def bad_table(states, parameters):
    return np.zeros((len(states), 2))


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (lambda state, player: {0: 2.0}, "sum to 1"),
        (lambda state, player: {7: 1.0}, "legal actions"),
        (BatchedPolicy(bad_table), r"shape \(\d+, 2\)"),
    ],
)
def test_what_is_no_policy_is_told_in_the_step(policy, named, key):
    view, steps = leduc(policy)
    filter = nbf.ParticleFilter(4)
    state = filter.init(key, view.environment)
    with pytest.raises(HostError, match=named):
        filter.step(key, state, steps[0].observation, view.at(steps[0]), None)


def test_calls_that_do_not_fit_are_refused(key):
    view, steps = leduc([peculiar, uniform])
    with pytest.raises(InputError, match="There are 2 policies"):
        view.at(steps[0], 2)
    with pytest.raises(InputError, match="takes no choice"):
        leduc(peculiar)[0].at(steps[0], 1)
    with pytest.raises(InputError, match="The view is of leduc_poker"):
        view.follow(load("kuhn_poker").new_initial_state())
    rows = np.stack([view.seat.row([])])
    with pytest.raises(InputError, match="same `Seen`"):
        view.turns.log_likelihood(steps[1].observation, rows, rows, step_of(steps[0], np.int32(0)))
    with pytest.raises(InputError, match="belongs to the environment"):
        view.turns.transition(np.random.default_rng(0), rows, 1, step_of(steps[0], np.int32(0)))
    with pytest.raises(InputError, match="length=3"):
        leduc(peculiar, length=3)


def test_models_draw_nothing_that_is_known_to_be_otherwise():
    """Of liar's dice all but the other player's dice are known: every sequence that the space allows has the rest."""
    game = load(LIAR)
    end = random_game(game, np.random.default_rng(SEED), 1, bids_what_it_has)
    length = len(end.history()) + 1
    view = from_openspiel(
        game, 1, bids_what_it_has, clock="public", reveals=lambda state: len(state.history()) >= DICE, length=length
    )
    for seen in view.follow(end)[1::4]:
        space = view.at(seen).space
        assert isinstance(space, nbf.Tokens)
        assert bool(space.contains(jnp.asarray(seen.history)))
        allowed = np.asarray(space.masks(jnp.asarray(seen.history)))
        assert (allowed.sum(axis=1)[DICE:] == 1).all()
        count = int((seen.history != view.seat.padding).sum())
        assert (allowed.sum(axis=1)[: min(count, DICE)] > 1).all()
        other = np.array(seen.history)
        other[-1] = (other[-1] + 1) % view.seat.padding
        assert not bool(space.contains(jnp.asarray(other)))
    with pytest.raises(InputError, match="needs clock='public'"):
        from_openspiel(game, 1, uniform, reveals=lambda state: True)
