"""The recurrent baseline: its mathematics against a loop by hand, what it learns, and its filter's contract."""

from __future__ import annotations

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constructors import small_grid, with_random_parameters
from test_experiments import drawn, goofspiel_job, run_twice
from tolerances import FLOAT

from nbf.contracts import BeliefSource
from nbf.environments.functional import One
from nbf.environments.goofspiel import GoofspielFamily
from nbf.environments.goofspiel_game import UniformPolicy
from nbf.errors import InputError
from nbf.evaluation.divergence import jensen_shannon
from nbf.files.checkpoint import load_model, save_model
from nbf.filters.exact import ExactFilter
from nbf.filters.neural.filter import NeuralBayesianFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.filters.run import run
from nbf.models.belief_model import MODELS, BoxConfig, LatticeConfig, ModelConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.recurrent import RecurrentConfig
from nbf.sources.prefixes import PrefixPosteriors
from nbf.testing import check_filter
from nbf.training.fit import FitConfig, fit
from nbf_paper.config import GoofspielConfig, GridworldConfig
from nbf_paper.experiments import gridworld, recurrent, requests

SMALL = ModelConfig(
    LatticeConfig((3, 3)), EnumeratedDecoderConfig(depth=0), RecurrentConfig(symbols=5, width=6), embedding=6
)
HEADED = replace(SMALL, encoder=RecurrentConfig(symbols=5, width=6, head_width=7, head_depth=1), embedding=4)
FLOW = DequantizedFlowConfig("nlsq", "normal", "coupling", layers=2, width=8, depth=1, importance_samples=4)


@functools.cache
def model(config=SMALL):
    return with_random_parameters(config.build, jax.random.key(3))


# --- the network ---------------------------------------------------------------------------------


def by_hand(layers, symbols, seen):
    """h of the last layer before and after each step, in NumPy, gate by gate."""
    sigmoid = lambda x: 1.0 / (1.0 + np.exp(-x))  # noqa: E731
    width = layers[0].recurrent.shape[1]
    hidden, cells = np.zeros((2, len(layers), width))
    found = [hidden[-1].copy()]
    for symbol, was_seen in zip(symbols, seen, strict=True):
        told = np.eye(5)[symbol]
        for place, layer in enumerate(layers if was_seen else ()):
            inputs, recurrent, bias = (
                np.asarray(part, np.float64) for part in (layer.inputs, layer.recurrent, layer.bias)
            )
            i, f, g, o = (inputs @ told + recurrent @ hidden[place] + bias).reshape(4, width)
            cells[place] = sigmoid(f) * cells[place] + sigmoid(i) * np.tanh(g)
            hidden[place] = told = sigmoid(o) * np.tanh(cells[place])
        found.append(hidden[-1].copy())
    return np.stack(found)


SYMBOLS, SEEN = np.asarray([0, 4, 2, 2, 1, 3, 0]), np.asarray([1, 1, 0, 1, 1, 0, 1], bool)


@pytest.mark.parametrize("seen", [None, SEEN], ids=["all seen", "some missing"])
def test_a_history_is_read_as_the_formula_says(seen):
    encoder = model().encoder
    found = eqx.filter_jit(encoder.embeddings)(
        jnp.asarray(SYMBOLS), model().space, seen if seen is None else jnp.asarray(seen)
    )
    np.testing.assert_allclose(found, by_hand(encoder.layers, SYMBOLS, SEEN | (seen is None)), **FLOAT)


def test_one_layer_is_the_one_of_equinox(key):
    """Whose gates stand in the same order."""
    ours, theirs = model().encoder.layers[0], eqx.filter_eval_shape(lambda: eqx.nn.LSTMCell(5, 6, key=key))
    theirs = eqx.tree_at(
        lambda cell: (cell.weight_ih, cell.weight_hh, cell.bias), theirs, (ours.inputs, ours.recurrent, ours.bias)
    )
    memory, inputs = jnp.linspace(-1.0, 1.0, 12).reshape(2, 6), jnp.arange(5.0)
    np.testing.assert_allclose(
        ours.step(memory, ours.project(inputs)), jnp.stack(theirs(inputs, (memory[0], memory[1]))), **FLOAT
    )


@pytest.mark.parametrize("config", [SMALL, HEADED], ids=["bare", "with a head"])
def test_the_filter_reads_step_by_step_what_the_network_reads_at_once(config, key):
    environment, policy = small_grid()
    filter, observations = RecurrentFilter(model(config)), jnp.asarray(SYMBOLS)
    look = functools.partial(run, filter, look=lambda state: state.embedding)
    found, info = eqx.filter_jit(look)(key, observations, environment, policy)
    start = filter.init(key, environment).embedding
    wanted = eqx.filter_jit(model(config).encoder.embeddings)(observations, model(config).space)
    np.testing.assert_allclose(jnp.concatenate([start[None], found]), wanted, **FLOAT)
    assert not np.any(info.recovered)


def test_environment_and_policy_make_no_difference(key):
    filter, observations = RecurrentFilter(model()), jnp.asarray(SYMBOLS)
    look = eqx.filter_jit(functools.partial(run, filter, key, observations, look=lambda state: state.embedding))
    others = [small_grid(), small_grid(error=0.1, temperature=3.0)]
    one, other = (look(*pair)[0] for pair in others)
    np.testing.assert_array_equal(one, other)
    walls = filter.belief(filter.init(key, others[0][0]), others[0][0]).log_probs(others[0][0].states())
    assert np.all(np.isfinite(walls))  # also on the obstacle, of which it is not told


def test_a_missing_observation_leaves_the_belief_as_it_is(key):
    environment, policy = small_grid()
    filter = RecurrentFilter(model())
    state, _ = filter.step(key, filter.init(key, environment), 3, environment, policy)
    after, info = filter.step(key, state, None, environment, policy)
    assert eqx.tree_equal(after, state)
    assert (float(info.log_evidence), int(info.attempts), bool(info.recovered)) == (0.0, 1, False)


def test_the_contract_but_for_impossible_observations_which_it_cannot_notice():
    report = check_filter(RecurrentFilter(model()), *small_grid())
    assert [check.name for check in report.failures] == ["zero likelihood"], str(report)
    assert all(check.passed is not None for check in report.checks)


def test_what_is_no_number_is_not_carried_on(key):
    """A context may be anything."""
    environment, policy = small_grid()
    config = replace(SMALL, encoder=RecurrentConfig(context=2, width=6))
    broken = lambda number: eqx.tree_at(  # noqa: E731
        lambda e: e.space.context, environment, jnp.full(2, number), is_leaf=lambda leaf: leaf is None
    )
    filter = RecurrentFilter(model(config))
    state, info = filter.step(key, filter.init(key, environment), 0, broken(1.0), policy)
    assert not info.recovered
    after, info = filter.step(key, state, 0, broken(jnp.nan), policy)
    assert eqx.tree_equal(after, state)
    assert (bool(info.recovered), float(info.ess), float(info.log_evidence)) == (True, 0.0, -np.inf)


# --- learning ------------------------------------------------------------------------------------


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
    return history, fit(built, OneHistory(history), training, key=jax.random.key(7), progress=False, loss=loss)


def test_one_episode_is_learned_by_heart(key):
    history, fitted = overfitted()
    environment, policy = small_grid(error=0.05, temperature=0.3)
    filter = RecurrentFilter(fitted.model)
    look = lambda state: jnp.exp(filter.belief(state, environment).log_probs(environment.states()))  # noqa: E731
    found, _ = eqx.filter_jit(functools.partial(run, filter, look=look))(key, history.observations, environment, policy)
    js = jax.vmap(jensen_shannon)(history.truth[1:], found)
    before, after = fitted.losses[[0, -1]] / len(history.truth)  # the loss is the sum over an episode's beliefs
    assert np.max(js) < before / 100.0, (js, before)
    np.testing.assert_allclose(np.mean(js), after, atol=before / 100.0)


def test_a_model_comes_back_from_its_file(tmp_path):
    _, fitted = overfitted()
    save_model(tmp_path / "model.safetensors", fitted.model, SMALL)
    loaded, config, _ = load_model(tmp_path / "model.safetensors", MODELS)
    assert config == SMALL
    assert eqx.tree_equal(loaded, fitted.model)


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
    fitted = fit(built, source, training, key=key, progress=False, loss=recurrent.sample_loss)
    assert fitted.losses[-1] < fitted.losses[0]


@pytest.mark.slow
def test_gridworld_is_recorded_once_and_drawn(tmp_path):
    scored = gridworld.EvaluationConfig(episodes=2)
    job = gridworld.GridworldJob(GridworldConfig.parse("5-2D-fixed"), "recurrent", 0, 20, scored)
    folder, records = run_twice("gridworld", job, tmp_path)
    assert {(record.filter, record.arm, record.particles, record.calls) for record in records} == {
        ("recurrent", "", 0, 0)
    }
    assert "Recurrent" in drawn("gridworld", folder).tables["gridworld-fixed"]
    model, about = requests.described(job.train(tmp_path / "runs"))
    assert (about["arm"], about["environment"]) == ("recurrent", "5-2D-fixed")
    rows = gridworld.contenders(job.config, "faithful", model, scored)
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


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "embedding", "message"),
    [
        (RecurrentConfig(), 32, r"read something.*got 0 and 0"),
        (RecurrentConfig(symbols=5, depth=0), 32, r"depth must be at least 1.*got 0"),
        (RecurrentConfig(symbols=5), 16, r"must be width, 32; got 16"),
        (RecurrentConfig(symbols=-1), 32, r"symbols must be at least 0; got -1"),
        (RecurrentConfig(symbols=5, width=0), 32, r"width must be at least 1; got 0"),
    ],
)
def test_networks_that_cannot_be_are_refused(encoder, embedding, message):
    with pytest.raises(InputError, match=message):
        replace(SMALL, encoder=encoder, embedding=embedding).build(jax.random.key(0))


def test_what_does_not_fit_is_refused_by_name(key):
    environment, policy = small_grid()
    other = model(ModelConfig(LatticeConfig((3, 3)), EnumeratedDecoderConfig(4, 0), embedding=2))
    with pytest.raises(InputError, match=r"needs a recurrent model.*MeanEncoder"):
        RecurrentFilter(other)
    with pytest.raises(InputError, match=r"embeds observations, not sets of states"):
        NeuralBayesianFilter(model(), 4).init(key, environment)
    told = RecurrentFilter(model(replace(SMALL, encoder=RecurrentConfig(context=2, width=6))))
    with pytest.raises(InputError, match=r"a context of 2 numbers; that of the space is None"):
        told.step(key, told.init(key, environment), 0, environment, policy)
    plane = ModelConfig(BoxConfig((0.0,), (1.0,)), MixtureConfig(), SMALL.encoder, embedding=6)
    with pytest.raises(InputError, match=r"trained for states of box"):
        RecurrentFilter(model(plane)).init(key, environment)
    with pytest.raises(InputError, match=r"reads symbols, 0..4; got float32"):
        model().encoder.read(model().encoder.start(), jnp.float32(1.0), model().space)


def test_a_loss_of_its_own_is_not_stopped_early(key):
    training = FitConfig(steps=20, batch=1, samples=2, patience=2)
    source = OneHistory(recurrent.History(jnp.zeros(2, jnp.int32), jnp.full((3, 9), 1.0 / 9.0)))
    with pytest.raises(InputError, match=r"patience and random_sets"):
        fit(model(), source, training, key=key, loss=recurrent.divergence_loss)
