"""Models with a context: it reaches encoder and decoder, in the order and for the belief that it belongs to."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import EMBEDDING, ENCODERS, small_grid, with_random_parameters
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.filters.neural import BranchProposal, NeuralBayesianFilter
from nbf.models.belief_model import LatticeConfig, ModelConfig
from nbf.models.enumerated import EnumeratedDecoderConfig
from nbf.models.set_encoder import MeanConfig
from nbf.spaces import Box, Lattice
from nbf.training.loss import batch_loss

SHAPE = (3, 3)
CONTEXT = 2
HERE, THERE = jnp.asarray([1.5, -0.5]), jnp.asarray([-1.0, 2.0])
POINTS = jnp.asarray(Lattice(SHAPE).points())


def config(context, depth=1):
    decoder = EnumeratedDecoderConfig(width=8, depth=depth)
    return ModelConfig(LatticeConfig(SHAPE), decoder, MeanConfig(width=8, depth=1), EMBEDDING, context)


@functools.cache
def model_with(context):
    return with_random_parameters(config(context).build, jax.random.key(5))


def space_in(context):
    return Lattice(SHAPE, context=context)


@eqx.filter_jit
def embed(model, space, states=POINTS[:4]):
    return model.embed(states, jnp.zeros(len(states)), space)


@eqx.filter_jit
def log_probs(model, theta, space):
    return model.log_prob(theta, POINTS, space)


# What a context reaches


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_sees_the_context_beside_each_state(name, key):
    """As if every state were its encoding followed by the context: a box's states, which are their own encoding."""
    encoder = ENCODERS[name](key, 2 + CONTEXT)
    plain = Box((-1.0,) * 4, (1.0,) * 4, bounded=False)
    call = eqx.filter_jit(lambda encoder, states, space: encoder(states, jnp.arange(4.0), space))
    found = [call(encoder, POINTS[:4], space_in(context)) for context in (HERE, THERE)]
    for theta, context in zip(found, (HERE, THERE), strict=True):
        beside = np.concatenate([(np.asarray(POINTS[:4]) + 0.5) / 1.5 - 1.0, np.tile(context, (4, 1))], axis=1)
        np.testing.assert_allclose(theta, call(encoder, jnp.asarray(beside, jnp.float32), plain), **FLOAT)
    assert np.abs(found[0] - found[1]).max() > 0.05


def test_a_decoder_is_conditioned_on_the_embedding_followed_by_the_context():
    """In NumPy: the softmax of the network's output."""
    model, theta = model_with(CONTEXT), np.linspace(-1.0, 1.0, EMBEDDING)
    found = [log_probs(model, jnp.asarray(theta, jnp.float32), space_in(context)) for context in (HERE, THERE)]
    (first, last), (start, end) = model.decoder.network.weights, model.decoder.network.biases
    for actual, context in zip(found, (HERE, THERE), strict=True):
        hidden = np.asarray(first, np.float64) @ np.append(theta, context) + np.asarray(start)
        logits = np.asarray(last, np.float64) @ np.maximum(hidden, 0.0) + np.asarray(end)
        np.testing.assert_allclose(actual, logits - np.log(np.exp(logits).sum()), **FLOAT)
    assert np.abs(found[0] - found[1]).max() > 0.1


@pytest.mark.parametrize("context", [HERE, THERE], ids=["here", "there"])
def test_samples_are_drawn_in_the_context(context, key):
    model, theta = model_with(CONTEXT), jnp.linspace(-1.0, 1.0, EMBEDDING)
    probs = [np.exp(log_probs(model, theta, space_in(other))) for other in (HERE, THERE)]
    assert 0.5 * np.abs(probs[0] - probs[1]).sum() > 0.1
    draw = eqx.filter_jit(lambda model, key, space: model.sample(key, theta, 10_000, space))
    cells = np.ravel_multi_index(tuple(np.asarray(draw(model, key, space_in(context))).T), SHAPE)
    truth = np.exp(log_probs(model, theta, space_in(context)))
    assert_frequencies(np.bincount(cells, minlength=9), truth, detects=0.05)


def test_a_model_with_a_context_embeds_in_it_also_when_prepared():
    model = model_with(CONTEXT)
    found = [embed(model, space_in(context)) for context in (HERE, THERE)]
    assert np.abs(found[0] - found[1]).max() > 0.05
    for theta, context in zip(found, (HERE, THERE), strict=True):
        np.testing.assert_allclose(embed(model.prepared(), space_in(context)), theta, **FLOAT)


def test_a_model_without_a_context_ignores_that_of_the_space(key):
    model = model_with(0)
    theta = embed(model, Lattice(SHAPE))
    for form in (model, model.prepared()):
        np.testing.assert_allclose(embed(form, space_in(HERE)), theta, **FLOAT)
    np.testing.assert_array_equal(log_probs(model, theta, space_in(HERE)), log_probs(model, theta, Lattice(SHAPE)))
    draw = eqx.filter_jit(lambda model, space: model.sample(key, theta, 5, space))
    np.testing.assert_array_equal(draw(model, space_in(HERE)), draw(model, Lattice(SHAPE)))


# Contexts that do not fit

USES = {
    "embed": lambda model, space, key: model.embed(POINTS, jnp.zeros(9), space),
    "sample": lambda model, space, key: model.sample(key, jnp.zeros(EMBEDDING), 2, space),
    "log_prob": lambda model, space, key: model.log_prob(jnp.zeros(EMBEDDING), POINTS, space),
    "objective": lambda model, space, key: model.objective(
        key, jnp.zeros((1, EMBEDDING)), POINTS[None], jax.tree.map(lambda leaf: leaf[None], space)
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("context", [None, jnp.zeros(1), jnp.zeros(3)], ids=["none", "shorter", "longer"])
def test_a_context_that_is_missing_or_of_another_size_is_refused(use, context, key):
    given = 0 if context is None else len(context)
    with pytest.raises(InputError, match=f"context of {CONTEXT} numbers; the space has {given}:"):
        USES[use](model_with(CONTEXT), space_in(context), key)


def test_a_model_that_is_given_no_space_has_no_context():
    with pytest.raises(InputError, match="the space has 0:"):
        model_with(CONTEXT).embed(POINTS, jnp.zeros(9))


# Training


def test_each_belief_of_a_batch_is_trained_in_its_own_context(key):
    """The loss of three beliefs, against each by itself."""
    model = model_with(CONTEXT)
    states = jax.random.randint(key, (3, 6, 2), 0, 3)
    contexts = jax.random.normal(key, (3, CONTEXT))
    legal = jnp.ones((3, 9), bool)
    spaces = jax.vmap(lambda legal, context: Lattice(SHAPE, legal, context))(legal, contexts)
    values = []
    for belief in range(3):
        space = Lattice(SHAPE, legal[belief], contexts[belief])
        scores = np.asarray(log_probs(model, embed(model, space, states[belief, :3]), space))
        values.append(scores[np.ravel_multi_index(tuple(np.asarray(states[belief, 3:]).T), SHAPE)])
    loss = eqx.filter_jit(batch_loss)
    np.testing.assert_allclose(loss(model, key, states, spaces), -np.mean(values), **FLOAT)
    shifted = eqx.tree_at(lambda space: space.context, spaces, jnp.roll(contexts, 1, axis=0))
    assert abs(loss(model, key, states, shifted) + np.mean(values)) > 1e-3


# Filtering

init = eqx.filter_jit(lambda filter, key, environment: filter.init(key, environment))
believed = eqx.filter_jit(lambda filter, state, environment: filter.belief(state, environment).log_probs(POINTS))


def grid_in(context):
    """Without walls, so that the space has nothing but its context."""
    environment, policy = small_grid()
    return eqx.tree_at(lambda environment: environment.space, environment, space_in(context)), policy


def cell(index):
    return jax.nn.one_hot(index, 9)


@functools.cache
def obedient():
    """A filter whose model believes whatever cell the context names, and embeds nothing else."""
    model = with_random_parameters(config(9, depth=0).build, jax.random.key(6))
    weights = jnp.concatenate([jnp.zeros((9, EMBEDDING)), 50.0 * jnp.eye(9)], axis=1)
    last = lambda model: (model.decoder.network.weights, model.decoder.network.biases)  # noqa: E731
    model = eqx.tree_at(last, model, ((weights,), (jnp.zeros(9),)))
    return NeuralBayesianFilter(model, 8, proposal=BranchProposal(carry=None))


@pytest.mark.slow
def test_a_filter_samples_in_the_context_in_which_its_embedding_was_made(key):
    """The belief before the step lies at the old context's cell, the particles one move away from it, and the
    belief after the step at the new context's."""
    filter, (old, policy), (new, _) = obedient(), grid_in(cell(0)), grid_in(cell(8))
    before = init(filter, key, old)
    np.testing.assert_array_equal(before.context, cell(0))
    after, _ = filter.step(key, before, jnp.asarray(4), new, policy)
    there = np.exp(after.particles.log_weights) > FLOAT["atol"]  # elsewhere the model believes e^-50
    assert np.all(np.asarray(after.particles.states)[there].sum(axis=1) <= 1)
    np.testing.assert_array_equal(after.context, cell(8))
    for state, environment, where in ((before, new, 0), (before, old, 0), (after, old, 8), (after, new, 8)):
        probs = np.exp(believed(filter, state, environment))
        np.testing.assert_allclose(probs, np.eye(9)[where], **FLOAT)


def test_a_filter_refuses_an_environment_without_its_context(key):
    filter, (with_context, policy), (without, _) = obedient(), grid_in(cell(0)), grid_in(None)
    with pytest.raises(InputError, match="context of 9 numbers; the space has 0:"):
        init(filter, key, without)
    state = init(filter, key, with_context)
    with pytest.raises(InputError, match="context of 9 numbers; the space has 0:"):
        filter.step(key, state, jnp.asarray(4), without, policy)


@pytest.mark.slow
def test_a_filter_of_a_model_without_a_context_does_not_mind_if_one_comes_or_goes(key):
    filter = NeuralBayesianFilter(model_with(0), 8)
    (with_context, policy), (without, _) = grid_in(HERE), grid_in(None)
    gone, _ = filter.step(key, init(filter, key, with_context), jnp.asarray(4), without, policy)
    come, _ = filter.step(key, init(filter, key, without), jnp.asarray(4), with_context, policy)
    np.testing.assert_allclose(gone.embedding, come.embedding, **FLOAT)
    assert gone.context is None
    np.testing.assert_array_equal(come.context, HERE)
