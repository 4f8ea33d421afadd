"""Teachers made of copies of few states are replaced."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import nbf
from nbf.environments.functional import One
from nbf.fitting.teacher import checked, reference_of
from nbf.sources.filtered import FilterPosteriors


def still(noise):
    """A hidden number that never moves, read with that noise."""
    return nbf.environment(
        init=lambda key: jax.random.normal(key, (1,)),
        transition=lambda key, state, policy: state,
        observe=lambda key, state, next_state: next_state[0] + noise * jax.random.normal(key),
        log_likelihood=lambda observation, state, next_state: -0.5 * ((observation - next_state[0]) / noise) ** 2,
        space=nbf.Box((-4.0,), (4.0,), bounded=False),
    )


def test_a_teacher_whose_particles_are_copies_is_replaced(key):
    """A particle filter of a number that never moves ends with copies of few states, whatever its ESS."""
    world = still(0.05)
    source = FilterPosteriors(nbf.ParticleFilter(64), One(world, None), 12)
    better, name, _ = checked(key, source, "a particle filter of 64", world, replaceable=True)
    assert isinstance(better, FilterPosteriors)
    assert isinstance(better.filter, nbf.RegularizedParticleFilter)
    assert "different states left" in name
    same, name, quality = checked(key, source, "mine", world, replaceable=False)
    assert same is source
    assert quality.distinct is not None
    assert quality.distinct < 4
    assert name == f"mine with {quality.distinct} different states left in the poorest of its beliefs"


def test_a_teacher_of_many_states_stays(key):
    world = still(100.0)
    source = FilterPosteriors(nbf.ParticleFilter(64), One(world, None), 2)
    same, name, quality = checked(key, source, "mine", world, replaceable=True)
    assert same is source
    assert name == "mine"
    assert quality.distinct == 64


def drifting():
    """A place that moves with noise, and a wind that does not; its third number is 0 or 1 from the start."""

    def init(key):
        place_key, mode_key = jax.random.split(key)
        mode = jax.random.bernoulli(mode_key).astype(jnp.float32)
        return jnp.append(jax.random.normal(place_key, (2,)), mode)

    return nbf.environment(
        init=init,
        transition=lambda key, state, policy: state.at[0].add(state[1] + 0.3 * jax.random.normal(key)),
        observe=lambda key, state, next_state: next_state[0] + 0.1 * jax.random.normal(key),
        log_likelihood=lambda observation, state, next_state: -0.5 * ((observation - next_state[0]) / 0.1) ** 2,
        space=nbf.Box((-9.0, -4.0, 0.0), (9.0, 4.0, 1.0), bounded=False),
    )


def test_a_constant_among_numbers_that_move_is_counted_by_itself(key):
    """All particles differ, since they move with noise, and yet few winds are left."""
    world = drifting()
    source = FilterPosteriors(nbf.ParticleFilter(256), One(world, None), 16)
    _, _, quality = checked(key, source, "mine", world, replaceable=False)
    state, _ = source.posterior(key)
    assert len(np.unique(np.asarray(state.states), axis=0)) > 100
    assert quality.distinct is not None
    assert quality.distinct < 25
    better, _, _ = checked(key, source, "mine", world, replaceable=True)
    assert isinstance(reference_of(better), nbf.RegularizedParticleFilter)


def test_a_number_with_few_values_from_the_start_is_no_copy(key):
    world = drifting()
    source = FilterPosteriors(nbf.ParticleFilter(256), One(world, None), 1)
    _, _, quality = checked(key, source, "mine", world, replaceable=True)
    assert quality.distinct is not None
    assert quality.distinct > 25
