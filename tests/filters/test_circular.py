"""Filters of a heading: where the circle is cut makes no difference, or the filter refuses it."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import FLOAT

import nbf
from nbf.filters.gaussian import EnsembleKalmanFilter, ExtendedKalmanFilter, KalmanFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.spaces import Box

HEADINGS = Box((-jnp.pi,), (jnp.pi,), circular=(0,))


@functools.cache
def compass():
    """A heading turns at random, and a compass reads it; all of it is turned by the parameter."""

    def log_likelihood(seen, state, next_state, turn):
        apart = (seen - next_state[0] + jnp.pi) % (2 * jnp.pi) - jnp.pi
        return jax.scipy.stats.norm.logpdf(apart, 0.0, 0.3)

    return nbf.environment(
        init=lambda key, turn: turn + 0.5 * jax.random.normal(key, (1,)),
        transition=lambda key, state, policy, turn: HEADINGS.nearest(state + 0.3 * jax.random.normal(key, (1,))),
        observe=lambda key, state, next_state, turn: next_state[0] + 0.3 * jax.random.normal(key),
        log_likelihood=log_likelihood,
        space=HEADINGS,
        parameters=jnp.asarray(0.0),
    )


def test_a_regularized_filter_does_not_see_the_seam(key):
    """The same episode, turned by half a turn, has the same evidence and the same density, turned."""
    filter = nbf.RegularizedParticleFilter(32)
    observations = jnp.asarray([0.2, -0.1, 0.4, 0.1])
    found = []
    for turn in (0.0, np.pi):
        world = dataclasses.replace(compass(), parameters=jnp.asarray(turn, jnp.float32))
        state = filter.init(key, world)
        log_evidence = 0.0
        for number, seen in enumerate(observations):
            state, info = filter.step(jax.random.fold_in(key, number), state, seen + turn, world, None)
            log_evidence += float(info.log_evidence)
        grid = jnp.linspace(-1.0, 1.0, 9)[:, None] + turn
        found.append([log_evidence, *np.asarray(filter.belief(state, world).log_probs(grid))])
    np.testing.assert_allclose(found[1], found[0], rtol=10 * FLOAT["rtol"], atol=1e-3)
    assert np.argmax(found[0][1:]) in (3, 4, 5, 6)


@pytest.mark.parametrize(
    ("filter", "instead"),
    [
        (KalmanFilter(), "circular coordinates.*RegularizedParticleFilter"),
        (ExtendedKalmanFilter(), "circular coordinates.*RegularizedParticleFilter"),
        (EnsembleKalmanFilter(8), "circular coordinates.*RegularizedParticleFilter"),
        (PointMassFilter(8), "particle filter"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_filters_without_circles_refuse_them(filter, instead, key):
    with pytest.raises(nbf.InputError, match=instead):
        filter.init(key, compass())
