"""Hand inference: baselines against the exact posterior of a tiny game, opponents, jobs and the page."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extras import extra
from jobs import run_twice
from tolerances import FLOAT

from nbf.environments.scripted_player import ScriptedPlayer
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf_paper.audit.meaning import key_of
from nbf_paper.experiments import card_baselines as baselines
from nbf_paper.experiments import card_interpolation as interpolation
from nbf_paper.experiments.belief_play import CardPlayJob, CardPlayTimesJob
from nbf_paper.experiments.card_games import random_network, watch
from nbf_paper.experiments.cards import CardJob, kind_of, ratio
from nbf_paper.experiments.cards_interpolated import InterpolatedCardJob
from nbf_paper.experiments.cards_interpolated import rows as interpolated_rows
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.names import BASELINES_OF_CARDS, INTERPOLATED_BASELINES_OF_CARDS
from nbf_paper.report.cards import page
from nbf_paper.report.labels import label

RULES = TrickTaking(3, 2, 6, 3)  # 12 cards, of which 8 are unseen: 56 hands
TINY = TrickPoolConfig(
    suits=2, ranks=6, tricks=3, runs=2, checkpoints=2, timesteps=48, epochs=1, minibatch=16, width=8, depth=1
)
LENGTH = 9


@pytest.fixture(scope="module")
def game():
    """A game between scripted players, with its truth."""

    @eqx.filter_jit
    def play(key):
        players = eqx.filter_vmap(lambda key: ScriptedPlayer.random(key, RULES))(jax.random.split(key, 3))
        return watch(RULES, key, players, LENGTH)

    return play(jax.random.key(4))


def test_the_history_of_a_deal_is_the_sum_of_its_likelihoods(game, key):
    @jax.jit
    def both(key, game):
        history, time = baselines.History(game), jnp.int32(LENGTH - 1)
        space = jax.tree.map(lambda leaf: leaf[-1], game.environments).space
        deals = jax.vmap(space.sample)(jax.random.split(key, 50))
        told = jax.vmap(
            lambda deal: jax.vmap(lambda environment, action: environment.log_likelihood(action, deal, deal))(
                game.environments, game.actions
            )
        )(deals)
        rows = history.rows(deals)
        return jnp.sum(told, axis=1), history.log_likelihoods(time, rows), history.legal(time, rows)

    expected, found, legal = (np.asarray(part) for part in both(key, game))
    assert legal.all()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("baseline", "tolerance"),
    [
        (baselines.policy_inference(6000), 0.03),
        (baselines.hands_combined(100_000), 1e-4),  # every hand
        (baselines.mcmc(64, 200), 0.03),
        (baselines.resample_move(1000, 30), 0.04),
        (baselines.tables, 1e-6),
        (interpolation.hands_combined(400), 1e-4),
        (interpolation.interpolated_tables(100_000), 1e-4),
        (baselines.mcmc(64, 200, interpolation.running_tables(8)), 0.03),
        (baselines.resample_move(1000, 30, interpolation.running_tables(8)), 0.04),
    ],
    ids=[
        "policy inference",
        "hands combined",
        "mcmc",
        "resample-move",
        "tables",
        "hands combined, interpolated",
        "interpolated tables",
        "mcmc, interpolated",
        "resample-move, interpolated",
    ],
)
def test_every_baseline_finds_the_posterior_with_many_calls(game, key, baseline, tolerance):
    run = jax.jit(lambda key, game: (game.errors(baseline(key, game)[0]), baseline(key, game)[1]))
    errors, calls = (np.asarray(part) for part in run(key, game))
    assert np.all(errors < tolerance)
    assert np.all(calls[np.asarray(game.owner) == 2] == 0) or baseline is not baselines.tables
    blind = np.asarray(jax.jit(lambda game: game.errors(baselines.uniform(key, game)[0]))(game))
    assert blind.max() > 2 * errors.max()


def test_interpolation_helps_policy_inference(game, key):
    keys = jax.random.split(key, 8)

    def error(smooth):
        run = baselines.policy_inference(32, smooth=smooth)
        return float(jnp.mean(jax.jit(jax.vmap(lambda key: game.errors(run(key, game)[0])))(keys)))

    assert error(True) < error(False)


def test_the_truth_has_the_hands_of_the_game(game):
    assert np.all(np.asarray(game.deal_log_prob) <= 1e-5)
    assert np.all(np.asarray(game.ceiling_log_prob) <= 1e-4)
    assert np.asarray(game.deal_log_prob)[-1] > np.asarray(game.deal_log_prob)[0]
    np.testing.assert_allclose(np.sum(np.asarray(game.truth), axis=2), 1.0, **FLOAT)


@pytest.mark.parametrize("make", [ScriptedPlayer.random, random_network], ids=["scripted", "wide"])
def test_players_choose_among_legal_actions(make, key):
    @jax.jit
    def look(key):
        player, start = make(key, RULES), RULES.deal(key)
        legal = RULES.legal(start)
        return player.log_probs(RULES.view(start, start.hands[start.player]), legal), legal

    log_probs, legal = (np.asarray(part) for part in look(key))
    np.testing.assert_allclose(np.exp(log_probs).sum(), 1.0, **FLOAT)
    np.testing.assert_array_equal(log_probs > -np.inf, legal)


def test_a_scripted_player_that_needs_tricks_plays_high(key):
    player = ScriptedPlayer(jnp.float32(1.5), jnp.float32(0.5), jnp.float32(5.0), RULES)
    start = jax.jit(RULES.deal)(key)
    time = dataclasses.replace(start, time=jnp.int32(3))  # all have bid
    hand = start.hands[start.player]
    legal = RULES.legal(time)
    bids = {need: dataclasses.replace(time, bids=jnp.full(3, need, jnp.int32)) for need in (0, 3)}
    low, high = (
        int(jnp.argmax(player.log_probs(RULES.view(bids[need], hand), legal))) // RULES.suits for need in (0, 3)
    )
    assert low < high


def test_decisions_of_self_play_are_legal_and_their_results_those_of_games(key):
    @jax.jit
    def play(key):
        learner = TINY.learner(key)
        return dataclasses.replace(TINY, discount=1.0, trace=1.0).play(key, learner, learner.policy)

    made = play(key)
    legal = np.asarray(made.inputs[1])
    assert np.all(legal[np.arange(len(legal)), np.asarray(made.actions)])
    assert len(made.actions) == TINY.games * TINY.decisions
    points = np.round(10.0 * np.asarray(made.returns), 4)
    assert set(np.unique(points)) <= {*range(4), *range(10, 14)}


def test_a_ratio_of_calls_follows_a_power_law():
    errors = {("policy-inference", "", n): np.full((8, 3), n**-0.5) for n in (64, 256, 1024)}
    errors["nbf", "", 16] = np.full((8, 3), 128**-0.5)
    spent = {key: float(key[2]) for key in errors}
    value, error = ratio(errors, spent, ("nbf", "", 16), [key for key in errors if key[0] != "nbf"])
    assert value == pytest.approx(8.0)
    assert error == pytest.approx(0.0, abs=1e-9)
    errors["nbf", "", 16] = np.full((8, 3), 1e-3)  # beyond every budget: a bound
    assert ratio(errors, spent, ("nbf", "", 16), [key for key in errors if key[0] != "nbf"])[0] == pytest.approx(64.0)


@pytest.mark.parametrize(
    "key",
    [
        ("policy-inference", "", 8), ("policy-inference", "hands combined", 8), ("mcmc", "20 swaps", 8),
        *(row[1:] for row in interpolated_rows()),
    ],
)  # fmt: skip
def test_kinds_are_those_of_the_tables(key):
    assert kind_of(key) in (
        INTERPOLATED_BASELINES_OF_CARDS if "interpolated" in "".join(key[:2]) else BASELINES_OF_CARDS
    )
    later = INTERPOLATED_BASELINES_OF_CARDS.get(kind_of(key))
    assert later is None or later[1:] == key[:2]


@pytest.mark.slow
def test_a_job_is_recorded_once_and_its_page_has_its_tables(tmp_path):
    folder, records = run_twice("cards", CardJob("scripted", games=2, policies=TINY, few=True), tmp_path)
    assert {record.metric for record in records} == {"marginal_error", "deal_log_prob"}
    assert set(page(folder).tables) == {"cards", "cards-deals"}


@pytest.mark.parametrize(
    "row",
    [
        ("nbf", "", 64), ("nbf", "faithful", 64), ("nbf", "even draws", 64), ("nbf", "learned", 64),
        ("approx", "learned", 0), ("policy-inference", "interpolated", 8), ("interpolated-tables", "", 8),
        ("policy-inference", "hands combined, interpolated", 8), ("true-deal", "", 0),
        ("card-location", "policy-blind", 0),
        ("fine-tuned", "card-location network", 512),
    ],
)  # fmt: skip
def test_labels_are_read_back(row):
    name, arm, particles = row
    assert key_of(label(name, arm, particles, "cards", ("wide",)), "cards") == row


@pytest.mark.parametrize("wrong", [{"opponents": "nobody"}, {"games": 1}])
def test_impossible_jobs_are_refused(wrong):
    with pytest.raises(InputError):
        CardJob(**({"opponents": "wide"} | wrong))


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [
        InterpolatedCardJob(CardJob("scripted", games=2, policies=TINY, few=True)),
        CardPlayJob(games=2, simulations=3, policies=TINY),
        CardPlayJob(games=2, simulations=30, rollouts="policies", policies=TINY),
        CardPlayTimesJob(games=2, simulations=3, policies=TINY),
    ],
    ids=["interpolated", "ISMCTS", "rollouts by policies", "times"],
)
def test_other_jobs_are_recorded_once(job, tmp_path):
    if not isinstance(job, InterpolatedCardJob):
        extra("pyspiel", "openspiel")
    _, records = run_twice("cards", job, tmp_path)
    assert all(np.isfinite(record.value) for record in records)


def test_a_search_needs_two_simulations():
    with pytest.raises(InputError, match="2 games and simulations"):
        CardPlayJob(simulations=1)
    with pytest.raises(InputError, match="one of random, policies; got 'greedy'"):
        CardPlayJob(rollouts="greedy")
