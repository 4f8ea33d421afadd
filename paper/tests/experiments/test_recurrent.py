"""The recurrent baseline of the paper: what it learns, of which sizes it is, and what is recorded of it."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid, with_random_parameters
from jobs import drawn, goofspiel_job, run_twice
from tolerances import FLOAT

from nbf.contracts import BeliefSource
from nbf.environments.functional import One
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import UniformPolicy
from nbf.errors import InputError
from nbf.evaluation.divergence import jensen_shannon
from nbf.filters.exact import ExactFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.filters.run import run
from nbf.models.belief_model import LatticeConfig, ModelConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.recurrent import RecurrentConfig
from nbf.sources.prefixes import PrefixPosteriors
from nbf.training.config import FitConfig
from nbf.training.fit import train
from nbf_paper.config import GoofspielConfig, GridworldConfig
from nbf_paper.experiments import gridworld, model_files, recurrent

SMALL = ModelConfig(
    LatticeConfig((3, 3)), EnumeratedDecoderConfig(depth=0), RecurrentConfig(symbols=5, width=6), embedding=6
)
FLOW = DequantizedFlowConfig("nlsq", "normal", "coupling", layers=2, width=8, depth=1, importance_samples=4)


@functools.cache
def model(config=SMALL):
    return with_random_parameters(config.build, jax.random.key(3))


def test_the_loss_is_the_divergence_and_has_a_gradient_where_the_truth_is_zero(key):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    p = rng.dirichlet(np.full(9, 0.3), 5).astype(np.float32)
    p[:, :3] = 0.0
    p, logits = p / p.sum(axis=1, keepdims=True), np.float32(30.0 * rng.normal(size=(5, 9)))

    @jax.jit
    def found(logits):
        log_q = jax.nn.log_softmax(logits)
        truth = jnp.asarray(p)
        return jnp.sum(recurrent.divergence(truth, log_q)), jax.vmap(jensen_shannon)(truth, jnp.exp(log_q))

    loss, wanted = found(logits)
    np.testing.assert_allclose(loss, np.sum(wanted), **FLOAT)
    gradient = jax.jit(jax.grad(lambda logits: found(logits)[0]))(-1e3 * np.eye(9, dtype=np.float32)[:5])
    assert np.all(np.isfinite(gradient))


@eqx.filter_jit
def histories(key, environment, policy):
    return recurrent.ExactHistories(One(environment, policy), 5).sample(key, 2)


def test_the_histories_are_those_of_the_exact_filter(key):
    environment, policy = small_grid()
    history, _ = histories(key, environment, policy)
    truth, _ = eqx.filter_jit(functools.partial(run, ExactFilter()))(key, history.observations, environment, policy)
    np.testing.assert_allclose(history.truth[1:], truth, **FLOAT)
    np.testing.assert_allclose(history.truth[0], np.exp(environment.initial_log_probs()), **FLOAT)


class OneHistory(BeliefSource):
    """The same episode over and over."""

    history: recurrent.History

    def sample(self, key, n):
        return self.history, small_grid()[0].space


@functools.cache
def overfitted():
    environment, policy = small_grid(error=0.05, temperature=0.3)
    history, _ = histories(jax.random.key(5), environment, policy)
    training = FitConfig(steps=600, batch=1, samples=2, optimizer="adam", learning_rate=2e-2)
    built = with_random_parameters(SMALL.build, jax.random.key(6), scale=0.3)
    loss = recurrent.divergence_loss
    return history, train(built, OneHistory(history), training, key=jax.random.key(7), progress=False, loss=loss)


def test_one_episode_is_learned_by_heart(key):
    history, fitted = overfitted()
    environment, policy = small_grid(error=0.05, temperature=0.3)
    filter = RecurrentFilter(fitted.model)
    look = lambda state: jnp.exp(filter.belief(state, environment).log_probs(environment.states()))  # noqa: E731
    found, _ = eqx.filter_jit(functools.partial(run, filter, look=look))(key, history.observations, environment, policy)
    js = jax.jit(jax.vmap(jensen_shannon))(history.truth[1:], found)
    before, after = fitted.losses[[0, -1]] / len(history.truth)  # the loss is the sum over an episode's beliefs
    assert np.max(js) < before / 100.0, (js, before)
    np.testing.assert_allclose(np.mean(js), after, atol=before / 100.0)


GAME = GoofspielConfig(3)
GAMES = GoofspielFamily(UniformPolicy(), GAME.game)


def test_a_game_is_read_round_by_round_as_it_is_at_once(key):
    """What the model of Goofspiel reads is the public record, which environments have by round."""
    filter = RecurrentFilter(model(recurrent.goofspiel_model(GAME, FLOW)))

    @eqx.filter_jit
    def found(filter, key):
        environments, policies, observations, _ = GAMES.episode(key)
        look = functools.partial(run, filter, look=lambda state: state.embedding, changing=True)
        return look(key, observations, environments, policies)[0], filter.model.encoder.embeddings(
            observations, environments.space
        )

    step_by_step, at_once = found(filter, key)
    np.testing.assert_allclose(step_by_step, at_once[1:], **FLOAT)
    assert np.abs(step_by_step[0] - step_by_step[1]).max() > 1e-3


@pytest.mark.slow
def test_goofspiel_is_learned(key):
    source = recurrent.GameHistories(PrefixPosteriors(GAMES, GAME.horizon))
    built = with_random_parameters(recurrent.goofspiel_model(GAME, FLOW).build, key, scale=0.1)
    training = FitConfig(steps=60, batch=16, samples=8, optimizer="nadam", learning_rate=3e-3)
    fitted = train(built, source, training, key=key, progress=False, loss=recurrent.sample_loss)
    assert fitted.losses[-1] < fitted.losses[0]


@pytest.mark.slow
def test_gridworld_is_recorded_once_and_drawn(tmp_path):
    scored = gridworld.GridworldEvaluation(episodes=2)
    job = gridworld.GridworldJob(GridworldConfig.parse("5-2D-fixed"), "recurrent", 0, 20, scored)
    folder, records = run_twice("gridworld", job, tmp_path)
    assert {(record.filter, record.arm, record.particles, record.calls) for record in records} == {
        ("recurrent", "", 0, 0)
    }
    assert "Recurrent" in drawn("gridworld", folder).tables["gridworld-fixed"]
    model, about = model_files.described(job.training_run(tmp_path / "runs").path)
    assert (about["arm"], about["environment"]) == ("recurrent", "5-2D-fixed")
    rows = gridworld.filter_rows(job.config, "faithful", model, scored)
    assert {row.name for row in rows} == {"recurrent", "pf", "exact"}


@pytest.mark.slow
def test_goofspiel_is_recorded_once_and_drawn(tmp_path):
    job = goofspiel_job("recurrent")
    folder, records = run_twice("goofspiel", job, tmp_path)
    assert {(record.filter, record.arm, record.calls) for record in records} == {("recurrent", "", 0)}
    assert {"js", "legality"} <= {record.metric for record in records}
    assert "Recurrent" in drawn("goofspiel", folder).tables["goofspiel"]


@pytest.mark.parametrize("name", ["5-2D-fixed", "8-3D-random"])
def test_the_sizes_of_the_paper(name):
    config = GridworldConfig.parse(name)
    built = eqx.filter_eval_shape(recurrent.gridworld_model(config).build, jax.random.key(0))
    assert [layer.recurrent.shape for layer in built.encoder.layers] == [(128, 32), (128, 32)]
    assert built.decoder.network.weights[0].shape == (config.size**config.dimension, 32)
    training = recurrent.GRIDWORLD_TRAINING["recurrent"]
    assert (training.steps, training.batch, training.optimizer, training.learning_rate) == (100_000, 32, "adagrad", 0.1)


def test_a_loss_of_its_own_is_not_stopped_early(key):
    training = FitConfig(steps=20, batch=1, samples=2, patience=2)
    source = OneHistory(recurrent.History(jnp.zeros(2, jnp.int32), jnp.full((3, 9), 1.0 / 9.0)))
    with pytest.raises(InputError, match=r"patience and random_sets"):
        train(model(), source, training, key=key, loss=recurrent.divergence_loss)
