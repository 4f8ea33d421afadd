"""Flow matching: closed forms of affine velocities, automatic differentiation, quadrature, SciPy's pairings."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agreement import assert_frequencies
from constructors import with_random_parameters
from scipy import linalg, stats
from scipy.optimize import linear_sum_assignment
from tolerances import FLOAT, monte_carlo

from nbf.errors import InputError
from nbf.models.belief_model import BoxConfig, ModelConfig
from nbf.models.flow_matching import FlowMatchingConfig, optimal_pairing
from nbf.models.set_encoder import MeanConfig
from nbf.spaces import Box, Lattice

CONDITION = 3
SPACE = Box((-2.0, 0.0), (4.0, 10.0), bounded=False)
FIXED = FlowMatchingConfig(width=8, depth=2, solver="fixed", steps=200)
COARSE = replace(FIXED, steps=50)
ADAPTIVE = replace(FIXED, solver="adaptive", rtol=1e-5, atol=1e-5)
each_solver = pytest.mark.parametrize("config", [FIXED, ADAPTIVE], ids=["fixed", "adaptive"])
each_coupling = pytest.mark.parametrize("coupling", ["independent", "ot"])
KINKS = {"rtol": 0, "atol": 5e-3}
"""What steps of 1/200 lose of a log density: the divergence of a network with ReLU jumps where a path crosses
a kink, by up to about one here, and a step across a jump is off by up to its length."""


def decoder_of(config, space=SPACE):
    """A decoder whose parameters are all random, the same for each config of the same sizes."""
    return with_random_parameters(lambda key: config.build(key, space, CONDITION), jax.random.key(3))


def a_condition(key):
    return jax.random.normal(key, (CONDITION,))


@eqx.filter_jit
def log_prob(decoder, condition, states, space=SPACE):
    return decoder.log_prob(condition, states, space)


@eqx.filter_jit
def draw(decoder, key, condition, n, space=SPACE):
    return decoder.sample(key, condition, n, space)


def some_states(key, n):
    return jax.vmap(SPACE.decode)(jax.random.normal(key, (n, 2)))


# Sampling and density


@functools.cache
def affine(config):
    """Without hidden layers the velocity is A·x + w·t + c(θ), and the flow has a closed form."""
    return decoder_of(replace(config, depth=0))


def gaussian(decoder, condition):
    """The mean and covariance that an affine velocity gives the states, by a matrix exponential."""
    weight, bias = (np.asarray(part[0], np.float64) for part in (decoder.network.weights, decoder.network.biases))
    generator = np.zeros((4, 4))  # of (x, t, 1)
    generator[:2, :3] = weight
    generator[:2, 3] = np.asarray(decoder.projection, np.float64) @ np.asarray(condition, np.float64) + bias
    generator[2, 3] = 1.0
    flow, scale = linalg.expm(generator)[:2], np.diag(SPACE.scale.astype(np.float64))
    return scale @ flow[:, 3] + SPACE.middle, scale @ flow[:, :2] @ flow[:, :2].T @ scale


@pytest.mark.slow
@each_solver
def test_an_affine_velocity_gives_its_gaussian(config, key):
    decoder, condition = affine(config), a_condition(key)
    mean, covariance = gaussian(decoder, condition)
    states = some_states(key, 20)
    np.testing.assert_allclose(
        log_prob(decoder, condition, states),
        stats.multivariate_normal(mean, covariance).logpdf(np.asarray(states)),
        **FLOAT,
    )
    n = 20_000 if config.solver == "fixed" else 4000
    drawn = np.asarray(draw(decoder, key, condition, n), np.float64)
    deviations = np.sqrt(np.diag(covariance))
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean), monte_carlo(deviations, n))
    # The product of two standard normal variables has a variance of at most 2.
    found = np.cov(drawn.T) / np.outer(deviations, deviations)
    wanted = covariance / np.outer(deviations, deviations)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=monte_carlo(np.sqrt(2.0), n))


@pytest.mark.slow
@each_solver
def test_the_density_is_that_of_the_flow_map_by_autodiff(config, key):
    """Of a map found another way: classical Runge-Kutta from state to base."""
    decoder, condition, steps = decoder_of(config), a_condition(key), 400

    def to_base(x):
        def velocity(x, time):
            return decoder.velocity(x, time, decoder.context(condition))

        def step(x, i):
            time, h = 1.0 - i / steps, -1.0 / steps
            a = velocity(x, time)
            b = velocity(x + h / 2 * a, time + h / 2)
            c = velocity(x + h / 2 * b, time + h / 2)
            d = velocity(x + h * c, time + h)
            return x + h / 6 * (a + 2 * b + 2 * c + d), None

        return jax.lax.scan(step, x, jnp.arange(steps))[0]

    states = some_states(key, 20)
    encoded = jax.vmap(SPACE.encode)(states)
    base, jacobian = jax.jit(jax.vmap(lambda x: (to_base(x), jax.jacfwd(to_base)(x))))(encoded)
    wanted = stats.norm.logpdf(base).sum(axis=1) + np.linalg.slogdet(jacobian)[1] - np.log(SPACE.scale).sum()
    assert np.abs(np.linalg.slogdet(jacobian)[1]).max() > 0.1
    np.testing.assert_allclose(log_prob(decoder, condition, states), wanted, **KINKS)


@pytest.mark.slow
def test_fixed_and_adaptive_steps_agree(key):
    one, other = decoder_of(FIXED), decoder_of(ADAPTIVE)
    condition, states = a_condition(key), some_states(key, 20)
    np.testing.assert_allclose(draw(one, key, condition, 20), draw(other, key, condition, 20), **KINKS)
    found = log_prob(other, condition, states)
    np.testing.assert_allclose(log_prob(one, condition, states), found, **KINKS)
    # A sample's adaptive steps are its own, whatever stands beside it.
    np.testing.assert_array_equal(log_prob(other, condition, states.at[7:].multiply(5.0))[:7], found[:7])


@functools.cache
def masses(cells=72, reach=6.0):
    """The mass of each cell of a grid over all that the random decoder's belief reaches, by the midpoint rule."""
    edges = np.linspace(-reach, reach, cells + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    states = points * SPACE.scale + SPACE.middle
    log_density = log_prob(decoder_of(COARSE), a_condition(jax.random.key(5)), jnp.asarray(states, jnp.float32))
    density = np.exp(np.asarray(log_density, np.float64))
    return edges, (density * np.prod(SPACE.scale) * (2 * reach / cells) ** 2).reshape(cells, cells)


@pytest.mark.slow
def test_the_density_integrates_to_one():
    """In the units of the states."""
    np.testing.assert_allclose(masses()[1].sum(), 1.0, **KINKS)


@pytest.mark.slow
def test_samples_have_the_density_it_says(key):
    edges, mass = masses()
    drawn = np.asarray(draw(decoder_of(COARSE), key, a_condition(jax.random.key(5)), 20_000), np.float64)
    coarse = mass.reshape(12, 6, 12, 6).sum(axis=(1, 3))
    counts = np.histogram2d(*((drawn - SPACE.middle) / SPACE.scale).T, bins=[edges[::6]] * 2)[0]
    assert counts.sum() == len(drawn)
    assert_frequencies(counts.ravel(), coarse.ravel() / coarse.sum(), detects=0.05)


def test_samples_stay_in_a_bounded_box(key):
    space = Box((-0.1, 0.0), (0.1, 5.0))
    drawn = draw(decoder_of(replace(FIXED, steps=2), space), key, a_condition(key), 200, space)
    assert np.all(jax.vmap(space.contains)(drawn))


# The objective


@each_coupling
def test_a_velocity_of_zero_misses_by_the_distance_to_the_noise(coupling, key):
    """A fresh decoder is at rest: the mean error is E|x1 - x0|², |x1|² + d for noise that knows nothing of x1,
    and less for noise that was chosen."""
    decoder = FlowMatchingConfig(coupling, width=8, depth=1).build(key, SPACE, CONDITION)
    draws, states = 4000, some_states(key, 6)[None]
    objective = jax.jit(jax.vmap(lambda key: decoder.objective(key, jnp.zeros((1, CONDITION)), states, SPACE)[0]))
    values = np.asarray(objective(jax.random.split(key, draws)), np.float64)
    wanted = -np.sum(np.square(jax.vmap(SPACE.encode)(states[0])), axis=1) - 2.0
    slack = monte_carlo(values.std(axis=0), draws)
    if coupling == "independent":
        np.testing.assert_array_less(np.abs(values.mean(axis=0) - wanted), slack)
    else:
        assert values.mean() > wanted.mean() + slack.max()


@pytest.mark.slow
@each_coupling
def test_a_belief_is_trained_on_its_own_samples_alone(coupling, key):
    decoder = decoder_of(replace(FIXED, coupling=coupling))
    conditions = jax.random.normal(key, (3, CONDITION))
    states = some_states(key, 24).reshape(3, 8, 2)
    objective = jax.jit(lambda conditions, states: decoder.objective(key, conditions, states, SPACE))
    values, others = objective(conditions, states), objective(conditions, states.at[1:].multiply(-3.0))
    assert values.shape == (3, 8)
    np.testing.assert_array_equal(values[0], others[0])
    assert not np.any(values[1:] == others[1:])
    gradient = jax.jit(jax.grad(lambda conditions: objective(conditions, states)[0].sum()))(conditions)
    assert np.all(gradient[0] != 0)
    np.testing.assert_array_equal(gradient[1:], np.zeros((2, CONDITION)))


def pairs_of(key, beliefs=5, n=12):
    targets, base = jax.random.normal(key, (2, beliefs, n, 2))
    return 0.3 * targets + jnp.arange(float(beliefs))[:, None, None], base


def cost_of(targets, base, pairing):
    paired = np.take_along_axis(np.asarray(base, np.float64), np.asarray(pairing)[..., None], axis=-2)
    return np.square(paired - np.asarray(targets, np.float64)).sum(axis=(-1, -2))


@pytest.mark.parametrize("group", [12, 100, 5], ids="groups of {}".format)
def test_a_pairing_is_a_permutation_of_least_cost(group, key):
    """Among each group of one belief's samples, the last of which may be smaller."""
    targets, base = pairs_of(key)
    pairing = np.asarray(jax.jit(functools.partial(optimal_pairing, group=group))(targets, base))
    rng = np.random.default_rng(0)
    for first in range(0, 12, group):
        block = slice(first, first + group)
        ours, theirs, chosen = targets[:, block], base[:, block], pairing[:, block] - first
        size = ours.shape[1]
        np.testing.assert_array_equal(np.sort(chosen, axis=1), np.tile(np.arange(size), (5, 1)))
        distances = np.square(np.asarray(ours)[:, :, None] - np.asarray(theirs)[:, None]).sum(axis=-1)
        least = [cost[linear_sum_assignment(cost)].sum() for cost in distances.astype(np.float64)]
        np.testing.assert_allclose(cost_of(ours, theirs, chosen), least, **FLOAT)
        for _ in range(20):
            other = np.stack([rng.permutation(size) for _ in range(5)])
            assert np.all(cost_of(ours, theirs, chosen) <= cost_of(ours, theirs, other) + FLOAT["atol"])


def test_a_pairing_does_not_see_other_beliefs(key):
    targets, base = pairs_of(key)
    together = optimal_pairing(targets, base, 12)
    one_by_one = [optimal_pairing(*belief, 12) for belief in zip(targets, base, strict=True)]
    mapped = jax.jit(jax.vmap(lambda targets, base: optimal_pairing(targets, base, 12)))(targets, base)
    np.testing.assert_array_equal(together, jnp.stack(one_by_one))
    np.testing.assert_array_equal(together, mapped)


def test_a_state_that_is_no_number_is_seen_in_its_objective(key):
    """And does not raise inside a compiled function."""
    decoder = decoder_of(replace(FIXED, coupling="ot"))
    states = some_states(key, 8).at[3].set(jnp.nan)[None]
    values = jax.jit(lambda states: decoder.objective(key, jnp.zeros((1, CONDITION)), states, SPACE))(states)[0]
    np.testing.assert_array_equal(np.isnan(values), np.arange(8) == 3)


@pytest.mark.slow
@each_coupling
def test_training_approaches_the_entropy(coupling, key):
    """Of a correlated Gaussian belief, in nats of the states' own units."""
    near = 0.1  # nats of KL, of 1.4 at the start; 300 small batches leave noise
    config = FlowMatchingConfig(coupling, width=16, depth=2)
    root, n = jnp.asarray([[1.2, 0.0], [1.5, 1.0]]), 64
    condition, optimizer = jnp.zeros((1, CONDITION)), optax.adam(optax.cosine_decay_schedule(2e-2, 300))
    parameters, static = eqx.partition(config.build(key, SPACE, CONDITION), eqx.is_inexact_array)

    def states_of(key, n):
        return jnp.asarray([2.0, 4.0]) + jax.random.normal(key, (n, 2)) @ root.T

    def step(carry, key):
        parameters, state = carry
        data, noise = jax.random.split(key)
        loss = lambda p: -eqx.combine(p, static).objective(noise, condition, states_of(data, n)[None], SPACE).mean()  # noqa: E731
        updates, state = optimizer.update(jax.grad(loss)(parameters), state)
        return (optax.apply_updates(parameters, updates), state), None

    start = (parameters, optimizer.init(parameters))
    (trained, _), _ = jax.jit(lambda start: jax.lax.scan(step, start, jax.random.split(key, 300)))(start)
    states = states_of(jax.random.fold_in(key, 1), 2000)
    truth = stats.multivariate_normal([2.0, 4.0], root @ root.T).logpdf(np.asarray(states))
    before, after = (
        np.mean(truth - np.asarray(log_prob(eqx.combine(p, static), condition[0], states)))
        for p in (parameters, trained)
    )
    assert before > 10 * near
    assert np.abs(after) < near


def assert_finite_gradients(function, inputs):
    for leaf in jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(function))(inputs)):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


@each_coupling
def test_gradients_of_the_objective_are_finite(coupling, key):
    decoder = decoder_of(replace(FIXED, coupling=coupling, depth=1))
    conditions, states = jax.random.normal(key, (2, CONDITION)), some_states(key, 8).reshape(2, 4, 2)
    assert_finite_gradients(
        lambda inputs: jnp.sum(inputs[0].objective(key, *inputs[1:], SPACE)), (decoder, conditions, states)
    )


@pytest.mark.slow
def test_gradients_of_the_density_are_finite(key):
    decoder = decoder_of(replace(FIXED, depth=1, steps=2))
    assert_finite_gradients(
        lambda inputs: jnp.sum(inputs[0].log_prob(*inputs[1:], SPACE)), (decoder, a_condition(key), some_states(key, 3))
    )


# What fits


@pytest.mark.slow
def test_it_is_a_decoder_of_a_belief_model(key):
    """With a context, and any encoder."""
    config = ModelConfig(
        BoxConfig((0.0,), (1.0,)),
        FlowMatchingConfig(width=4, depth=1, steps=2),
        MeanConfig(width=4, depth=1),
        embedding=2,
        context=1,
    )
    model = with_random_parameters(config.build, key)
    space = Box((0.0,), (1.0,), context=jnp.ones(1))

    @eqx.filter_jit
    def look(model, space):
        theta = model.embed(jnp.ones((5, 1)), jnp.zeros(5), space)
        states = model.sample(key, theta, 4, space)
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), (theta, states, space))
        return states, model.log_prob(theta, states, space), model.objective(key, *batch)

    states, log_probs, objective = look(model, space)
    assert states.shape == (4, 1)
    assert np.all(np.isfinite(log_probs))
    assert objective.shape == (2, 4)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"coupling": "sinkhorn"}, "coupling.*independent, ot.*sinkhorn"),
        ({"solver": "euler"}, "solver.*fixed, adaptive.*euler"),
        ({"rtol": 0.0}, "rtol.*0.0"),
        ({"atol": float("nan")}, "atol.*nan"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"ot_group": 0}, "ot_group must be at least 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_make_no_sense_are_refused(changes, match, key):
    config = ModelConfig(BoxConfig((0.0,), (1.0,)), replace(FIXED, **changes))
    with pytest.raises(InputError, match=match):
        eqx.filter_eval_shape(config.build, key)


def test_a_lattice_is_refused():
    with pytest.raises(InputError, match=r"Box.*lattice"):
        FlowMatchingConfig().check(Lattice((3, 3)))


def test_without_diffrax_the_extra_is_named(key, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(InputError, match=r"\[flow-matching\]"):
        FlowMatchingConfig().check(SPACE)
    with pytest.raises(InputError, match=r"\[flow-matching\]"):
        decoder_of(FIXED).sample(key, a_condition(key), 2, SPACE)
