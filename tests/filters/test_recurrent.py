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
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.files.checkpoint import load_model, save_model
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.filters.run import run
from nbf.models.belief_model import MODELS, BoxConfig, LatticeConfig, ModelConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.recurrent import RecurrentConfig
from nbf.testing import check_filter

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
    assert eqx.tree_equal(*jax.device_get((after, state)))
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
    assert eqx.tree_equal(*jax.device_get((after, state)))
    assert (bool(info.recovered), float(info.ess), float(info.log_evidence)) == (True, 0.0, -np.inf)


def test_a_model_comes_back_from_its_file(tmp_path):
    save_model(tmp_path / "model.safetensors", model(), SMALL)
    loaded, config, _ = load_model(tmp_path / "model.safetensors", MODELS)
    assert config == SMALL
    assert eqx.tree_equal(*jax.device_get((loaded, model())))


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
    with pytest.raises(InputError, match=r"needs the capability RecurrentModel.*RecurrentConfig"):
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
