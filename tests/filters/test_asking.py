"""A filter that is asked for states and told where they went is the filter that moves them itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from deal_worlds import world as static_world
from tolerances import FLOAT

import nbf
from nbf.errors import InputError
from nbf.filters.surrogate import Surrogate
from nbf.models.kernel import BoxKernelConfig
from nbf.models.maximum_entropy import MaximumEntropyDeals

N = 12
READING = np.asarray([0.7], np.float32)


def reading(observation, state, next_state):
    return -2.0 * jnp.sum((observation - next_state[:1]) ** 2)


def difference(observation, state, next_state):
    """Of the state before the step as well."""
    return -2.0 * jnp.sum((observation - next_state[:1] + 0.1 * state[:1]) ** 2)


def plane(log_likelihood=reading):
    return nbf.environment(
        init=lambda key: jax.random.normal(key, (2,)),
        transition=lambda key, state, policy: 0.9 * state + 0.3 * jax.random.normal(key, (2,)),
        observe=lambda key, state, next_state: next_state[:1],
        log_likelihood=log_likelihood,
        space=nbf.Box((-3.0, -2.0), (3.0, 2.0), bounded=False),
    )


MODEL = BoxKernelConfig((-3.0, -2.0), (3.0, 2.0), bounded=False, landmarks=8, candidates=32, herded=16)
WHOLE, DIFFERENCE = plane(), plane(difference)


def filters():
    model = MODEL.build(jax.random.key(0))
    return {
        "particle": (nbf.ParticleFilter(N), WHOLE),
        "regularised": (nbf.RegularizedParticleFilter(N, surrogate=Surrogate(points=32)), WHOLE),
        "neural, regenerating": (nbf.NeuralBayesianFilter(model, N), WHOLE),
        "neural, even": (nbf.NeuralBayesianFilter(model, N), DIFFERENCE),
        "neural, faithful": (nbf.NeuralBayesianFilter.faithful(model, N), DIFFERENCE),
    }


def moved(environment, asked):
    """With the keys of `step`."""
    return jax.vmap(environment.transition, (0, 0, None))(asked.keys, asked.states, asked.policy)


def close(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, **FLOAT)


@pytest.mark.parametrize(
    "name", ["particle", "regularised", "neural, regenerating", "neural, even", "neural, faithful"]
)
def test_ask_and_tell_are_step(name, key):
    filter, environment = filters()[name]
    state = filter.init(key, environment)
    for number in range(2):
        step_key = jax.random.fold_in(key, number)
        expected, info = filter.step(step_key, state, READING, environment, None)
        asked = filter.ask(step_key, state, environment)
        assert asked.num_states == N
        assert isinstance(asked.states, np.ndarray)
        after, told = filter.tell(state, asked, moved(environment, asked), observation=READING)
        close(after, expected)
        close((told.ess, told.log_evidence, told.recovered), (info.ess, info.log_evidence, info.recovered))
        assert told.missing == 0
        state = expected


def test_told_likelihoods_are_those_of_the_environment(key):
    filter, environment = filters()["neural, even"]
    state = filter.init(key, environment)
    asked = filter.ask(key, state, environment)
    children = np.asarray(moved(environment, asked))
    likelihoods = jax.vmap(difference, (None, 0, 0))(READING, asked.states, children)
    after, told = filter.tell(state, asked, children, likelihoods)
    expected, _ = filter.tell(state, asked, children, observation=READING)
    close(after, expected)
    predicted, info = filter.tell(state, asked, children)
    unseen, _ = filter.step(key, state, None, environment, None)
    close(predicted, unseen)
    assert info.log_evidence == 0.0
    assert np.isfinite(told.log_evidence)


def test_missing_states_have_no_weight(key):
    """Half of the states are lost: the weights of the others are as they were, and the numbers of the lost ones do not
    matter."""
    filter, environment = filters()["particle"]
    state = filter.init(key, environment)
    asked = filter.ask(key, state, environment)
    children, likelihoods = np.asarray(moved(environment, asked)), np.linspace(-1.0, 0.0, N)
    lost = np.arange(N) % 2 == 0
    after, info = filter.tell(state, asked, children, likelihoods, missing=lost)
    other = np.where(lost[:, None], np.nan, children), np.where(lost, np.nan, likelihoods)
    again, _ = filter.tell(state, asked, *other, missing=lost)
    weights = np.exp(np.asarray(after.log_weights))
    assert info.missing == N // 2
    assert not info.recovered
    np.testing.assert_array_equal(weights[lost], 0.0)
    np.testing.assert_allclose(weights[~lost], np.exp(likelihoods[~lost]) / np.exp(likelihoods[~lost]).sum(), **FLOAT)
    np.testing.assert_allclose(again.log_weights, after.log_weights, **FLOAT)
    gone, info = filter.tell(state, asked, children, likelihoods, missing=np.ones(N, bool))
    assert info.recovered
    assert np.isfinite(np.asarray(gone.log_weights)).all()


def test_states_that_never_move_are_weighed_elsewhere(key):
    environment = static_world()
    filter = nbf.NeuralBayesianFilter(MaximumEntropyDeals(environment.space), N)
    state, seen = filter.init(key, environment), np.int32(0)
    expected, _ = filter.step(key, state, seen, environment, None)
    asked = filter.ask(key, state, environment, observation=seen)
    assert asked.keys is None
    likelihoods = jax.vmap(environment.log_likelihood, (None, 0, 0))(seen, asked.states, asked.states)
    close(filter.tell(state, asked, None, likelihoods)[0], expected)
    with pytest.raises(InputError, match="give `ask` the observation"):
        filter.ask(key, state, environment)


def test_the_generator_follows_from_the_key(key):
    filter, environment = filters()["particle"]
    state = filter.init(key, environment)
    one, other = (filter.ask(each, state, environment) for each in (key, jax.random.fold_in(key, 1)))
    assert one.rng().random() == one.rng().random() != other.rng().random()


WRONG = {
    "no children": (lambda asked: (None, np.zeros(N)), "where the states were moved to"),
    "another count": (lambda asked: (asked.states[1:], np.zeros(N)), r"shape \(11, 2\), where \(12, 2\)"),
    "another tree": (lambda asked: ({"x": asked.states}, np.zeros(N)), "built as"),
    "another type": (lambda asked: (asked.states.astype(complex), np.zeros(N)), "complex128"),
    "too few likelihoods": (lambda asked: (asked.states, np.zeros(3)), "for each of the 12 states"),
    "likelihoods of another type": (lambda asked: (asked.states, np.array(["a"] * N)), "`log_likelihoods`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_told(name, key):
    filter, environment = filters()["particle"]
    state = filter.init(key, environment)
    asked = filter.ask(key, state, environment)
    made, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        filter.tell(state, asked, *made(asked))


def test_told_likelihoods_do_not_weigh_what_was_not_simulated(key):
    for name in ("regularised", "neural, regenerating"):
        filter, environment = filters()[name]
        state = filter.init(key, environment)
        asked = filter.ask(key, state, environment)
        with pytest.raises(InputError, match="told likelihoods are not enough"):
            filter.tell(state, asked, asked.states, np.zeros(N))


def test_missing_whole_numbers_need_likelihoods(key):
    cells = nbf.listed_environment(
        observe=lambda key, state, next_state: jnp.int32(0),
        log_likelihood=lambda observation, state, next_state: jnp.zeros(()),
        space=nbf.Lattice((3, 3)),
        symbols=1,
    )
    filter = nbf.ParticleFilter(N)
    state = filter.init(key, cells)
    asked = filter.ask(key, state, cells)
    with pytest.raises(InputError, match="whole numbers"):
        filter.tell(state, asked, asked.states, observation=np.int32(0), missing=np.arange(N) == 0)
    _, info = filter.tell(state, asked, asked.states, np.zeros(N), missing=np.arange(N) == 0)
    assert info.missing == 1
