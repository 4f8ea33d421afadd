"""The autoregressive decoder against tables over all K^L sequences."""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import assert_frequencies
from constructors import EMBEDDING, with_random_parameters
from tolerances import FLOAT

from nbf.errors import InputError
from nbf.models.autoregressive import LARGEST_TRIANGULAR, AutoregressiveConfig, inverse_cdf
from nbf.models.belief_model import LatticeConfig, ModelConfig, TokensConfig
from nbf.spaces import Box, Lattice, Tokens

CONTEXT = jnp.asarray([1.0, 0.0, 1.0])


def no_symbol_twice(prefix, context):
    return ~jnp.any(prefix[:, None] == jnp.arange(4), axis=0)


def as_the_context_says(prefix, context):
    """The context marks what may come first; then a symbol at least as large as the last."""
    return context > 0.5 if len(prefix) == 0 else jnp.arange(3) >= prefix[-1]


def one_choice(prefix, context):
    """Everything but one symbol is masked: x_i = i."""
    return jnp.arange(3) == len(prefix)


SPACES = {
    "one symbol": Tokens(1, 5),
    "everything": Tokens(3, 3),
    "permutations": Tokens(3, 4, no_symbol_twice),
    "context": Tokens(4, 3, as_the_context_says, CONTEXT),
    "one choice": Tokens(3, 3, one_choice),
}
ALLOWED = {
    "one symbol": lambda x: True,
    "everything": lambda x: True,
    "permutations": lambda x: len(set(x)) == len(x),
    "context": lambda x: x[0] != 1 and list(x) == sorted(x),
    "one choice": lambda x: tuple(x) == (0, 1, 2),
}
"""What `legal` of each space means, in Python."""
each_space = pytest.mark.parametrize("name", SPACES)
CONDITION = jnp.asarray([0.7, -1.2, 0.4])


def build(key, space, depth=2):
    config = AutoregressiveConfig(width=8, depth=depth)
    return with_random_parameters(lambda key: config.build(key, space, EMBEDDING), key, scale=1.0)


@functools.cache
def decoder_of(name, depth=2):
    return build(jax.random.key(3), SPACES[name], depth)


def sequences(space):
    return np.array(list(itertools.product(range(space.categories), repeat=space.length)), np.int32)


@eqx.filter_jit
def log_prob(decoder, condition, states, space):
    return decoder.log_prob(condition, states, space)


@eqx.filter_jit
def draw(decoder, key, condition, space, n=20_000):
    return decoder.sample(key, condition, n, space)


def assert_legal(name, states):
    for x in np.unique(states, axis=0).tolist():
        assert all(0 <= symbol < SPACES[name].categories for symbol in x)
        assert ALLOWED[name](x)


def table(name, condition=CONDITION):
    """log probability of every sequence, as an array with an axis for each place."""
    space = SPACES[name]
    values = log_prob(decoder_of(name), condition, jnp.asarray(sequences(space)), space)
    return np.asarray(values, np.float64).reshape((space.categories,) * space.length)


@each_space
def test_probabilities_sum_to_one_over_the_legal_sequences_and_others_have_none(name):
    values = table(name).ravel()
    legal = np.array([ALLOWED[name](x) for x in sequences(SPACES[name]).tolist()])
    assert legal.sum() > 0
    assert np.all(np.isfinite(values[legal]))
    assert np.all(values[~legal] == -np.inf)
    np.testing.assert_allclose(np.exp(values).sum(), 1.0, **FLOAT)
    assert legal.sum() == 1 or np.exp(values[legal]).std() > 1e-3


@pytest.mark.parametrize("name", ["one symbol", "everything", "permutations", "context"])
def test_samples_are_legal_and_have_the_probabilities_it_says(name, key):
    space = SPACES[name]
    states = np.asarray(draw(decoder_of(name), key, CONDITION, space))
    assert states.shape == (20_000, space.length)
    assert states.dtype == np.int32
    assert_legal(name, states)
    cells = np.ravel_multi_index(tuple(states.T), (space.categories,) * space.length)
    probs = np.exp(table(name)).ravel()
    assert_frequencies(np.bincount(cells, minlength=len(probs)), probs, detects=0.05)


@pytest.mark.parametrize("depth", [0, 2])
def test_a_place_depends_on_all_earlier_symbols_and_on_no_later_one(depth, key):
    """By automatic differentiation of the logits, at enough beliefs that every unit is on for some."""
    decoder, space, beliefs = decoder_of("context", depth), SPACES["context"], 100
    symbols = jnp.tile(jax.nn.one_hot(jnp.asarray([0, 2, 1]), 3)[..., None, None], (1, 1, beliefs, 1))
    logits = lambda symbols: jnp.sum(decoder.logits(conditions, symbols), axis=(2, 3))  # noqa: E731
    conditions = jax.random.normal(key, (EMBEDDING, beliefs))
    slopes = np.abs(jax.jit(jax.jacrev(logits))(symbols))  # place, symbol, of place, of symbol, belief, 1
    depends = slopes.max(axis=(1, 3, 4, 5)) > 0
    np.testing.assert_array_equal(depends, np.tri(space.length, space.length - 1, -1, dtype=bool))


def test_what_is_legal_later_does_not_change_what_came_before():
    """The marginal of the first two symbols is the same whatever the third may be."""
    free = np.exp(table("everything")).sum(axis=2)
    legal = lambda prefix, context: (jnp.arange(3) == context[0]) | (len(prefix) < 2)  # noqa: E731
    for third in range(3):
        space = Tokens(3, 3, legal, jnp.asarray([float(third)]))
        values = log_prob(decoder_of("everything"), CONDITION, jnp.asarray(sequences(space)), space)
        forced = np.exp(np.asarray(values, np.float64)).reshape(3, 3, 3)
        np.testing.assert_allclose(forced[:, :, third], free, **FLOAT)


def test_a_mask_renormalises_each_conditional():
    """From the tables of an unmasked decoder: its conditionals, restricted to what is legal and normalised."""
    space = SPACES["permutations"]
    decoder = decoder_of("permutations")
    free = np.exp(np.asarray(log_prob(decoder, CONDITION, jnp.asarray(sequences(space)), Tokens(3, 4)), np.float64))
    free = free.reshape(4, 4, 4)
    first, second = free.sum(axis=(1, 2)), free.sum(axis=2)
    expected = np.zeros((4, 4, 4))
    for i, j, k in itertools.permutations(range(4), 3):
        after = [s for s in range(4) if s != i]
        last = [s for s in after if s != j]
        expected[i, j, k] = first[i] * second[i, j] / second[i, after].sum() * free[i, j, k] / free[i, j, last].sum()
    np.testing.assert_allclose(np.exp(table("permutations")), expected, **FLOAT)


def test_one_symbol_is_a_softmax_of_a_network():
    decoder = decoder_of("one symbol")
    np.testing.assert_allclose(table("one symbol"), jax.nn.log_softmax(decoder.biases(CONDITION)), **FLOAT)


def test_different_embeddings_are_different_beliefs():
    assert np.abs(np.exp(table("everything")) - np.exp(table("everything", -CONDITION))).max() > 1e-2


def test_a_fresh_decoder_is_uniform_over_what_is_legal(key):
    space = SPACES["permutations"]
    decoder = eqx.filter_jit(lambda key: AutoregressiveConfig(8, 1).build(key, space, EMBEDDING))(key)
    states = jnp.asarray(list(itertools.permutations(range(4), 3)))
    np.testing.assert_allclose(log_prob(decoder, CONDITION, states, space), np.full(24, -np.log(24)), **FLOAT)


@eqx.filter_jit
@eqx.filter_value_and_grad
def objective(decoder, conditions, states, spaces):
    values = decoder.objective(jax.random.key(0), conditions, states, spaces)
    return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0))


def test_the_objective_is_the_log_probability_of_each_belief_in_its_own_space(key):
    contexts = jnp.asarray([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    spaces = jax.vmap(lambda context: Tokens(4, 3, as_the_context_says, context))(contexts)
    decoder, states = decoder_of("context"), jnp.asarray(sequences(SPACES["context"]))
    conditions = jnp.stack([CONDITION, -CONDITION])
    values = eqx.filter_jit(decoder.objective)(key, conditions, jnp.stack([states] * 2), spaces)
    for condition, context, row in zip(conditions, contexts, values, strict=True):
        alone = log_prob(decoder, condition, states, Tokens(4, 3, as_the_context_says, context))
        np.testing.assert_allclose(row, alone, **FLOAT)
    assert np.isfinite(values[0, 0])
    assert values[1, 0] == -np.inf


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["everything", "permutations", "context", "one choice"])
@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_gradients_are_finite_for_legal_and_illegal_states_and_for_large_embeddings(name, size, key):
    space, decoder = SPACES[name], decoder_of(name)
    states = jnp.asarray(sequences(space))[None]
    batch = jax.tree.map(lambda leaf: leaf[None], space)
    value, gradient = objective(decoder, size * CONDITION[None], states, batch)
    assert np.isfinite(value)
    for leaf in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(leaf))
    assert_legal(name, draw(decoder, key, size * CONDITION, space))


def test_the_mean_score_is_zero():
    """Σ p ∇ log p = ∇ Σ p = 0, over the legal sequences."""
    space, decoder = SPACES["permutations"], decoder_of("permutations")
    states = jnp.asarray(list(itertools.permutations(range(4), 3)))
    scores = np.asarray(jax.jit(jax.jacfwd(lambda theta: decoder.log_prob(theta, states, space)))(CONDITION))
    probs = np.exp([table("permutations")[tuple(x)] for x in states.tolist()])
    assert np.abs(scores).max() > 0.1
    np.testing.assert_allclose(probs @ scores, np.zeros(EMBEDDING), **FLOAT)


@pytest.mark.parametrize("size", [3, LARGEST_TRIANGULAR + 2])
def test_an_inverse_cdf_never_gives_what_has_no_probability(size):
    """Even for a draw of exactly 0 or 1, probabilities that underflow, and columns with a single positive entry."""
    rng = np.random.default_rng(0)
    probs = rng.random((size, 400)) ** 8 * (rng.random((size, 400)) < 0.5) * 10.0 ** rng.integers(-30, 1, (size, 400))
    probs[rng.integers(size, size=400), np.arange(400)] = 1.0
    probs[:, :size] = np.eye(size)
    find = jax.jit(inverse_cdf)
    for uniform in (0.0, 0.5, 1.0 - 2.0**-24, 1.0):
        drawn = find(np.full(400, uniform, np.float32), probs.astype(np.float32))
        assert np.all(probs.astype(np.float32)[drawn, np.arange(400)] > 0)
    weights = np.tile(np.asarray([[1.0], [0.0], [3.0]], np.float32), (1, 4))
    exact = find(np.asarray([0.0, 0.24, 0.26, 0.9], np.float32), weights)
    np.testing.assert_array_equal(exact, [0, 0, 2, 2])


@pytest.mark.slow
def test_it_learns_a_belief_whose_symbols_depend_on_each_other(key):
    """Each symbol but the first repeats the one before it: from log 27, the cross-entropy comes near log 3."""
    space = Tokens(3, 3)
    states = jnp.repeat(jnp.arange(3), 3).reshape(1, 3, 3)

    @jax.jit
    def train(key):
        arrays, static = eqx.partition(AutoregressiveConfig(8, 1).build(key, space, 1), eqx.is_array)
        loss = lambda a: -jnp.mean(eqx.combine(a, static).objective(key, jnp.ones((1, 1)), states, space))  # noqa: E731

        def step(arrays, _):
            value, gradient = jax.value_and_grad(loss)(arrays)
            return jax.tree.map(lambda leaf, slope: leaf - 0.3 * slope, arrays, gradient), value

        return jax.lax.scan(step, arrays, length=400)[1]

    losses = np.asarray(train(key))
    np.testing.assert_allclose(losses[0], np.log(27), **FLOAT)
    # A twentieth of the gap of 2 log 3 is left after 400 steps of plain gradient descent.
    assert np.log(3) <= losses[-1] < np.log(3) + 0.05 * 2 * np.log(3)


# Bad input


def nothing(prefix, context):
    return jnp.zeros(3, bool)


def dead_end(prefix, context):
    return jnp.full(3, len(prefix) < 1)


def test_a_space_that_allows_nothing_is_an_error_outside_jit_and_never_nan_inside(key):
    decoder, space = build(key, Tokens(2, 3), depth=0), Tokens(2, 3, dead_end)
    with pytest.raises(InputError, match="allows no symbol as the first"):
        AutoregressiveConfig().check(Tokens(2, 3, nothing))
    with pytest.raises(InputError, match="allows no symbol as the first"):
        decoder.log_prob(CONDITION, jnp.zeros((2, 2), jnp.int32), Tokens(2, 3, nothing))
    with pytest.raises(InputError, match="allows no symbol after 0"):
        decoder.sample(key, CONDITION, 2, Tokens(2, 3, nothing))
    states = draw(decoder, key, CONDITION, space, 10)
    assert not np.any(jax.jit(jax.vmap(space.contains))(states))
    value, gradient = objective(decoder, CONDITION[None], states[None], space)
    assert value == 0  # all of them were -inf
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_symbols_that_do_not_exist_have_no_probability():
    states = jnp.asarray([[0, 3, 0], [-1, 0, 0], [0, 0, 99]])
    values = log_prob(decoder_of("everything"), CONDITION, states, SPACES["everything"])
    np.testing.assert_array_equal(values, np.full(3, -np.inf))


@pytest.mark.parametrize("space", [Tokens(3, 4), Tokens(4, 3), Lattice((3, 3)), Box((0.0,) * 3, (1.0,) * 3)])
def test_a_decoder_refuses_another_space_than_its_own(space, key):
    with pytest.raises(InputError, match=r"for tokens\(3, 3\)"):
        decoder_of("everything").sample(key, CONDITION, 2, space)


def test_states_of_another_length_are_refused():
    with pytest.raises(InputError, match="has 3 symbols; got 2"):
        decoder_of("everything").log_prob(CONDITION, jnp.zeros((5, 2), jnp.int32), SPACES["everything"])


@pytest.mark.parametrize("space", [Lattice((3, 3)), Box((0.0,), (1.0,))])
def test_a_config_refuses_what_is_not_made_of_tokens(space):
    with pytest.raises(InputError, match="does not fit"):
        AutoregressiveConfig().check(space)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(LatticeConfig((3, 3)), AutoregressiveConfig()), "does not fit lattice"),
        (ModelConfig(TokensConfig(6, 4), AutoregressiveConfig(width=4)), "width must be at least 5"),
        (ModelConfig(TokensConfig(6, 4), AutoregressiveConfig(width=0)), "width must be at least 1"),
        (ModelConfig(TokensConfig(6, 4), AutoregressiveConfig(depth=-1)), "depth must be at least 0"),
        (ModelConfig(TokensConfig(3, 0), AutoregressiveConfig()), "categories"),
    ],
)
def test_misfits_are_refused(config, message, key):
    with pytest.raises(InputError, match=message):
        config.build(key)
