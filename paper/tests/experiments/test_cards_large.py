"""Hand inference with the whole deck: baselines against all deals of a tiny game, scores, jobs."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jobs import run_twice
from tolerances import FLOAT, monte_carlo

from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf_paper.experiments import cards_forecasts as forecasts
from nbf_paper.experiments import cards_large
from nbf_paper.experiments import cards_large_baselines as large_baselines
from nbf_paper.experiments.card_games import deal_of, random_network
from nbf_paper.experiments.card_games import play as play_game
from nbf_paper.experiments.cards_forecasts import LargeForecastJob
from nbf_paper.experiments.cards_large import LargeCardJob
from nbf_paper.experiments.trick_policies import TrickPoolConfig


@pytest.mark.parametrize("wrong", [{"games": 1}, {"policies": TrickPoolConfig()}])
@pytest.mark.parametrize("job", [LargeCardJob, LargeForecastJob])
def test_the_whole_deck_has_four_players(job, wrong):
    with pytest.raises(InputError, match="of 4 players and 24 actions"):
        job(**wrong)


FOUR = TrickPoolConfig(
    players=4, suits=3, ranks=8, tricks=5, runs=2, checkpoints=2, timesteps=48, epochs=1, minibatch=16, width=8, depth=1
)


@pytest.fixture(scope="module")
def seen():
    """One game of four players, whose policies are random networks."""

    @jax.jit
    def play(key):
        players = jax.vmap(lambda key: random_network(key, FOUR.rules, 32, 15.0))(jax.random.split(key, 4))
        return cards_large.seen(FOUR.rules, key, players)

    return play(jax.random.key(2))


@pytest.fixture(scope="module")
def listed():
    """After the bids of four players with one card each: the game, and the marginals of its 24 deals."""
    rules = TrickTaking(4, 2, 3, 1)

    @jax.jit
    def play(key):
        players = jax.vmap(lambda key: random_network(key, rules, 16, 15.0))(jax.random.split(key, 4))
        start, environments, actions = play_game(rules, key, players, 4)
        return cards_large.Seen(environments, actions, deal_of(start))

    game = play(jax.random.key(3))
    unseen = np.flatnonzero(np.asarray(game.environments.space.allowed)[0].sum(axis=1) > 1)
    every = np.full((24, rules.cards), 3)
    for row, cards in enumerate(itertools.permutations(unseen, 3)):
        every[row, list(cards)] = range(3)

    @jax.jit
    def told(game, deals):
        def one(environment, action):
            return jax.vmap(lambda deal: environment.log_likelihood(action, deal, deal))(deals)

        return jnp.sum(jax.vmap(one)(game.environments, game.actions), axis=0)

    weights = np.exp(np.asarray(told(game, jnp.asarray(every))))
    return game, np.einsum("d,dco->co", weights / weights.sum(), np.eye(4)[every])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("method", "n"),
    [
        (cards_large.policy_inference(60_000), 20_000),
        (large_baselines.policy_inference(600), 2048),
        (large_baselines.mcmc(64, 200), 1000),
        (large_baselines.resample_move(2000, 10), 2000),
        (large_baselines.kept_predictions(16), 2048),
    ],
    ids=["policy inference", "interpolated", "mcmc", "resample-move", "predictions"],
)
def test_every_baseline_finds_the_posterior_of_all_deals(listed, key, monkeypatch, method, n):
    monkeypatch.setattr(cards_large, "ACTIONS", (4,))
    game, exact = listed
    found = jax.jit(method)(key, game)
    np.testing.assert_allclose(found.marginals[0], exact, atol=monte_carlo(1.0, n))
    drawn = np.eye(4)[np.asarray(found.deals[0])].mean(axis=0)
    np.testing.assert_allclose(drawn, exact, atol=monte_carlo(1.0, cards_large.DRAWS))
    blind = np.asarray(jax.jit(cards_large.prior)(key, game).marginals[0])
    assert np.abs(blind - exact).max() > 0.1


def test_the_score_of_the_prior_is_that_of_its_marginals(seen, key):
    one = jax.tree.map(lambda leaf: leaf[None], seen)
    found = np.asarray(cards_large.scores(cards_large.prior, jax.random.split(key, 1), one))[0]
    told = np.asarray(jax.jit(cards_large.prior)(key, seen).marginals)
    allowed = np.asarray(seen.environments.space.allowed)
    for place, time in enumerate(cards_large.ACTIONS):
        unsettled = allowed[time - 1].sum(axis=1) > 1
        true = told[place][np.arange(len(unsettled)), np.asarray(seen.deal)]
        assert found[place] == pytest.approx(np.log(true[unsettled]).mean(), abs=1e-4)


def test_who_knows_the_deal_foretells_the_next_action_by_the_policy(seen, key):
    found = jax.jit(lambda key, game: forecasts.next_action(forecasts.true_deal(key, game), game))(key, seen)

    @jax.jit
    def told(environments, actions):
        def one(environment, action):
            rules, game = environment.rules, environment.game
            view = rules.view(game, game.hands[game.player])
            return jnp.exp(environment.policy.log_probs(view, rules.legal(game))[action])

        return jax.vmap(one)(environments, actions)

    players, probs = np.asarray(seen.environments.game.player), np.asarray(told(*seen[:2]))
    expected = [next(probs[t] for t in range(time, 24) if players[t] != 0) for time in cards_large.ACTIONS[:-1]]
    np.testing.assert_allclose(found, expected, **FLOAT)


def test_probabilities_are_counted_in_their_bins(seen):
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(4), (5, FOUR.rules.cards)).astype(np.float32)
    found = np.asarray(forecasts.reliability(jnp.asarray(probs), seen))
    allowed, expected = np.asarray(seen.environments.space.allowed), np.zeros((10, 3))
    for place, time in enumerate(cards_large.ACTIONS):
        for card, owner in zip(*np.nonzero(allowed[time - 1]), strict=True):
            if allowed[time - 1, card].sum() > 1:
                prob = probs[place, card, owner]
                expected[int(10 * prob)] += 1, prob, int(seen.deal[card]) == owner
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_calibration_error_is_the_mean_distance_of_forecast_and_share():
    bins = np.zeros((10, 3))
    bins[9], bins[2] = (30, 27.0, 15), (10, 2.5, 2)  # 0.9 and a half; 0.25 and a fifth
    assert forecasts.calibration_error(bins) == pytest.approx((30 * 0.4 + 10 * 0.05) / 40)
    assert forecasts.gap(bins, 9) == pytest.approx(-0.4)
    assert forecasts.gap(bins, 0) == 0.0


def test_the_jackknife_of_a_mean_is_its_standard_error():
    games = np.random.default_rng(1).uniform(size=(12, 1, 3))
    games[..., 0] = 1.0
    value, error = forecasts.jackknife(games, lambda bins: float(bins[0, 2] / bins[0, 0]))
    assert value == pytest.approx(games[:, 0, 2].mean())
    assert error == pytest.approx(games[:, 0, 2].std(ddof=1) / np.sqrt(12))


@pytest.mark.slow
@pytest.mark.parametrize("job", [LargeCardJob, LargeForecastJob], ids=["cards", "forecasts"])
def test_jobs_are_recorded_once(job, tmp_path):
    _, records = run_twice("cards", job(games=2, policies=FOUR, few=True), tmp_path)
    assert all(np.isfinite(record.value) for record in records)
