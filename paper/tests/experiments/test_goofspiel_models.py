"""Belief models of Goofspiel and their scores: flows over sequences, posteriors of all depths, divergences."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from card_games import episodes, network_pool, tracked
from constructors import EMBEDDING, with_random_parameters
from tolerances import FLOAT, WEIGHT_SIGMA, monte_carlo

from nbf.capabilities import Episodic
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import GoofspielGame
from nbf.errors import InputError
from nbf.filters.prefixes import PrefixFilter
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import ModelConfig, TokensConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.set_encoder import MeanConfig
from nbf.sources.prefixes import PrefixPosteriors
from nbf.spaces import Lattice, Tokens
from nbf_paper.experiments import goofspiel, goofspiel_games
from nbf_paper.experiments.choices import Amount, Goofspiel
from nbf_paper.experiments.goofspiel_evaluation import GoofspielEvaluation
from nbf_paper.experiments.policy_pool import pool_path
from nbf_paper.experiments.selfplay import SelfPlayConfig

GAME = GoofspielGame(3)
FAMILY = GoofspielFamily(network_pool(3), GAME)
SMALL: dict[str, Any] = {"layers": 2, "width": 8, "depth": 1, "noise_width": 8, "noise_depth": 1}
CONDITION = jnp.asarray([0.5, -1.0, 2.0])
QUADRATURE = 3e-3
"""What a Gauss-Legendre rule loses at the box's edges, where a flow's density may be steep."""


# --- flows over sequences ------------------------------------------------------------------------


def flow(space, **more):
    config = DequantizedFlowConfig("nlsq", "normal", "coupling", **SMALL, **more)
    return with_random_parameters(lambda key: config.build(key, space, EMBEDDING), jax.random.key(2), scale=0.2)


@eqx.filter_jit
def looked_at(decoder, space, states, key):
    return decoder.log_prob(CONDITION, states, space), decoder.sample(key, CONDITION, 50, space)


@functools.cache
def both():
    """log probabilities and draws of one flow, over tokens by importance samples and over a lattice by quadrature."""
    tokens, lattice = Tokens(2, 3), Lattice((3, 3))
    states, key = jnp.asarray(lattice.points()), jax.random.key(4)
    estimated = looked_at(flow(tokens, importance_samples=4096), tokens, states, key)
    return estimated, looked_at(flow(lattice, quadrature=24), lattice, states, key)


@pytest.mark.slow
def test_sequences_are_cells_of_a_lattice():
    """With the same parameters it draws the same, and its probabilities agree within the estimate's error."""
    (estimates, drawn), (exact, cells) = both()
    np.testing.assert_array_equal(drawn, cells)
    decoder, states = flow(Tokens(2, 3), importance_samples=1), jnp.asarray(Lattice((3, 3)).points())
    single = lambda key: decoder.log_prob_estimate(key, CONDITION, states, Tokens(2, 3), 1)  # noqa: E731
    weights = np.exp(jax.jit(jax.vmap(single))(jax.random.split(jax.random.key(5), 2000)))
    assert weights.sum(axis=1).std() < WEIGHT_SIGMA
    error = monte_carlo(weights.std(axis=0), 4096, k=5) + QUADRATURE
    np.testing.assert_array_less(np.abs(np.exp(estimates) - np.exp(exact)), error)


def test_an_estimated_probability_is_the_same_every_time():
    tokens, states = Tokens(2, 3), jnp.asarray(Lattice((3, 3)).points())
    again, _ = looked_at(flow(tokens, importance_samples=4096), tokens, states, jax.random.key(99))
    np.testing.assert_array_equal(both()[0][0], again)


def test_a_lattice_may_ask_for_the_estimate_too():
    lattice = Lattice((3, 3))
    found, _ = looked_at(
        flow(lattice, importance_samples=4096), lattice, jnp.asarray(lattice.points()), jax.random.key(4)
    )
    np.testing.assert_allclose(found, both()[0][0], **FLOAT)


REFUSED = {
    "many dimensions": (DequantizedFlowConfig(), Tokens(7, 8), "quadrature.*at most 3.*importance_samples"),
    "one symbol": (DequantizedFlowConfig(importance_samples=4), Tokens(1, 8), "dimension 1"),
    "a condition of nothing": (
        DequantizedFlowConfig(noise="uniform", noise_conditioned=False),
        Tokens(2, 3),
        "noise_conditioned.*leave it out",
    ),
    "fewer than none": (DequantizedFlowConfig(importance_samples=-1), Tokens(2, 3), "importance_samples.*-1"),
}


@pytest.mark.parametrize(("config", "space", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(config, space, message):
    with pytest.raises(InputError, match=message):
        config.check(space)


def test_the_faithful_arm_is_the_papers_table():
    model = goofspiel.GoofspielJob(7).model
    assert (model.embedding, model.context, model.encoder) == (48, 0, MeanConfig(128, 3))
    assert model.space.build().signature == "tokens(7, 8)"
    skeleton = eqx.filter_eval_shape(model.build, jax.random.key(0)).decoder
    assert skeleton.base == "normal"
    assert [leaf.shape for leaf in skeleton.flow.networks.biases] == [(8, 128)] * 4 + [(8, 5 * 7)]
    assert [leaf.shape for leaf in skeleton.noise.networks.biases] == [(1, 48)] * 2 + [(1, 2 * 7)]
    training = goofspiel.TRAINING
    assert (training.batch, training.samples, training.steps) == (64, 64, 150_000)
    assert (training.optimizer, training.learning_rate) == ("nadam", 1e-3)


def test_the_paper_arm_is_the_papers_text():
    """θ enters every layer but that of the noise, and the learning rate is constant."""
    decoder = eqx.filter_eval_shape(goofspiel.GoofspielJob(7, "paper").model.build, jax.random.key(0)).decoder
    assert decoder.noise.projection.shape == (1, 48, 7)
    assert decoder.flow.projection.shape == (8, 128, 48)
    assert goofspiel.training_of("paper") == replace(goofspiel.TRAINING, schedule="constant")


@pytest.mark.parametrize("cards", [3, 5])
def test_the_context_is_as_long_as_the_public_history(cards):
    game = GoofspielGame(cards)
    family = GoofspielFamily(network_pool(cards), game)
    environment, _ = eqx.filter_eval_shape(family.sample, jax.random.key(0))
    assert goofspiel.GoofspielJob(cards, "autoregressive-context").model.context == environment.space.context.shape[0]


# --- posteriors of all depths --------------------------------------------------------------------


@functools.cache
def games():
    return goofspiel_games.tracks(FAMILY, jax.random.split(jax.random.key(3), 6))


class Replayed(Episodic):
    """A family that always plays the same game."""

    game: tuple

    def sample(self, key):
        raise NotImplementedError

    def episode(self, key):
        return self.game


@functools.cache
def replayed():
    """A game, and the posterior of every depth by the filter, each in its own row."""
    environments, policies, observations, states = episodes(FAMILY, jax.random.split(jax.random.key(1), 1))
    after, _ = tracked(PrefixFilter(), environments, policies, observations)
    game = jax.tree.map(lambda leaf: leaf[0], (environments, policies, observations, states))
    first = jnp.exp(jax.tree.map(lambda leaf: leaf[0], game[0]).initial_log_probs())
    return game, np.concatenate([first[None], after[0]])


@pytest.mark.slow
def test_one_pass_makes_the_posteriors_of_all_depths(key):
    game, rows = replayed()
    found, _ = eqx.filter_jit(PrefixPosteriors.posteriors)(PrefixPosteriors(Replayed(game), GAME.rounds), key)
    np.testing.assert_allclose(found, rows.sum(axis=0), **FLOAT)


@pytest.mark.slow
def test_draws_are_from_the_posterior_of_a_depth_that_is_uniform(key):
    game, rows = replayed()
    source, draw = PrefixPosteriors(Replayed(game), GAME.rounds), 4
    sample = eqx.filter_jit(lambda source, keys: jax.vmap(lambda key: source.sample(key, draw))(keys))
    states, space = sample(source, jax.random.split(key, 3000))
    index = jax.vmap(jax.tree.map(lambda leaf: leaf[0], game[0]).index)
    # The draws of one set share their depth: only one of each is independent of the others.
    counts = np.bincount(index(states[:, 0]), minlength=rows.shape[1])
    assert_frequencies(counts, rows.mean(axis=0), detects=0.08)
    legal = jax.vmap(lambda states, space: jax.vmap(space.contains)(states))(states, space)
    assert np.all(legal)
    lengths = np.sum(np.asarray(states) < GAME.cards, axis=2)
    assert np.all(lengths == lengths[:, :1])


@pytest.mark.slow
def test_an_episode_has_draws_of_every_depth(key):
    game, rows = replayed()
    source, n = PrefixPosteriors(Replayed(game), GAME.rounds), 2000
    states, spaces = eqx.filter_jit(lambda source, key: source.episode(key, n))(source, key)
    index = jax.vmap(jax.tree.map(lambda leaf: leaf[0], game[0]).index)
    for depth, row in enumerate(rows):
        assert_frequencies(np.bincount(index(states[depth]), minlength=len(row)), row, detects=0.08)
    legal = jax.vmap(lambda states, space: jax.vmap(space.contains)(states))(
        states[1:], jax.tree.map(lambda leaf: leaf[1:], spaces)
    )
    assert np.all(legal)


@pytest.mark.parametrize("horizon", [-1, 3])
def test_depths_that_there_are_not_are_refused(horizon, key):
    with pytest.raises(InputError, match=f"horizon.*{horizon}"):
        eqx.filter_eval_shape(lambda key: PrefixPosteriors(FAMILY, horizon).posteriors(key), key)


# --- divergences ---------------------------------------------------------------------------------


def js_over_all_sequences(model, log_prob, embedding, truth, environment):
    """JS by listing all 4³ sequences, possible or not, in float64; what the listing lacks has no true mass."""
    everything = np.asarray(list(itertools.product(range(4), repeat=3)), np.int32)
    q = np.exp(np.asarray(log_prob(embedding, jnp.asarray(everything), environment.space), np.float64))
    listed = {tuple(state): mass for state, mass in zip(np.asarray(environment.states()).tolist(), truth, strict=True)}
    p = np.asarray([listed.get(tuple(state), 0.0) for state in everything.tolist()], np.float64)
    p, q = p / p.sum(), q / q.sum()
    half = lambda a, b: np.sum(a[a > 0] * np.log(2 * a[a > 0] / (a + b)[a > 0])) / 2  # noqa: E731
    return half(p, q) + half(q, p)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flow", "autoregressive"])
def test_the_divergence_is_that_over_all_sequences(kind, key):
    """Illegal mass of a flow included, which lies in one bin."""
    decoder, samples = AutoregressiveConfig(width=8, depth=1), 1
    if kind == "flow":
        decoder, samples = DequantizedFlowConfig("nlsq", "normal", "coupling", **SMALL, quadrature=10), 1024
    config = ModelConfig(TokensConfig(3, 4), decoder, MeanConfig(8, 1), EMBEDDING)
    model = with_random_parameters(config.build, jax.random.key(7), scale=0.2)
    found = np.asarray(jax.random.normal(key, (6, GAME.rounds, EMBEDDING)))
    result = goofspiel_games.model_divergences(model, samples, key, found, games())
    log_prob = eqx.filter_jit(model.log_prob)
    expected = np.asarray(
        [
            [
                js_over_all_sequences(model, log_prob, found[e, r], games().truth[e, r], environment)
                for r in range(GAME.rounds)
                for environment in [jax.tree.map(lambda leaf: leaf[e, r], games().environments)]  # noqa: B023
            ]
            for e in range(6)
        ]
    )
    assert expected.std() > 0.01
    # The slope of JS in a probability q above the true one is log(2 q / (p + q)) / 2, at most half of log 2.
    error = np.log(2.0) / 2.0 * float(monte_carlo(WEIGHT_SIGMA, samples)) + QUADRATURE
    slack = error if kind == "flow" else FLOAT["atol"]
    np.testing.assert_allclose(result, expected, rtol=FLOAT["rtol"], atol=slack)


def test_every_state_with_weight_is_looked_at_once():
    rng = np.random.default_rng(0)
    truth = rng.random((5, 100)) * (rng.random((5, 100)) < np.asarray([0.0, 0.05, 0.32, 0.64, 1.0])[:, None])
    owner, table = goofspiel_games.chunks(truth)
    assert table.shape == (len(owner), goofspiel_games.CHUNK)
    pairs = [(belief, state) for belief, row in zip(owner, table, strict=True) for state in row if state >= 0]
    assert sorted(pairs) == sorted(zip(*np.nonzero(truth > goofspiel_games.NEGLIGIBLE), strict=True))
    assert np.all(np.bincount(owner, minlength=5) == -(-(truth > 0).sum(axis=1) // goofspiel_games.CHUNK))


def test_one_exact_sample_of_two_even_states_is_as_far_as_it_must_be(key):
    """JS of (1/2, 1/2) and (1, 0) is 3/4 log 4/3, whichever state is drawn."""
    truth = jnp.zeros((3, 2, 10)).at[:, :, 4:6].set(0.5)
    found = goofspiel_games.exact_samples(1, jax.random.split(key, 3), truth)["js"]
    np.testing.assert_allclose(found, np.full((3, 2), 0.75 * np.log(4 / 3)), **FLOAT)


def test_many_exact_samples_come_near(key):
    """The mean of JS of n samples of k even states is near (k - 1) / (8 n)."""
    truth = jnp.zeros((100, 2, 10)).at[:, :, 4:8].set(0.25)
    found = np.asarray(goofspiel_games.exact_samples(1000, jax.random.split(key, 100), truth)["js"])
    expected = 3 / 8000
    np.testing.assert_allclose(found.mean(), expected, rtol=0, atol=monte_carlo(expected, 200) + expected / 20)


# --- jobs ----------------------------------------------------------------------------------------


def test_the_defaults_are_the_papers_four_games():
    jobs = [job for job in Goofspiel().jobs(Amount([0, 1])) if isinstance(job, goofspiel.GoofspielJob)]
    assert [(job.name, job.seed) for job in jobs] == [(f"k={k}", seed) for k in (4, 5, 6, 7) for seed in (0, 1)]
    assert len({job.key for job in jobs}) == 8
    assert {job.evaluation for job in jobs} == {GoofspielEvaluation()}
    assert {job.policies.checkpoints * job.policies.runs for job in jobs} == {512}


def test_a_short_training_has_fewer_policies_in_a_file_of_its_own():
    (job,) = Goofspiel(cards=(4,)).jobs(Amount([0], steps=1000))
    assert isinstance(job, goofspiel.GoofspielJob)
    assert job.policies == SelfPlayConfig(cards=4, checkpoints=5)
    assert pool_path(Path("runs"), job.policies) == Path("runs/goofspiel/pool-4-4x5.safetensors")
    assert pool_path(Path("runs"), SelfPlayConfig(cards=4)) == Path("runs/goofspiel/pool-4.safetensors")


def test_an_evaluation_of_nothing_is_refused():
    for name, value in (("episodes", 1), ("exact_samples", 0), ("importance_samples", 0)):
        with pytest.raises(InputError, match=f"{name} must be at least"):
            replace(GoofspielEvaluation(), **{name: value})
    with pytest.raises(InputError, match="policies are for 5 cards"):
        goofspiel.GoofspielJob(4, selfplay=SelfPlayConfig(cards=5))
