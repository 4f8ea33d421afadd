"""The width of a kernel that is chosen on episodes: narrow for modes far apart, wide for one Gaussian."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import nbf
from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.fitting.trust import SCALES


def seen(state, world):
    """Near two places, how far it is from the middle; near one, where it is."""
    return jnp.where(world["apart"] > 0, jnp.abs(state[0]), state[0])


def place(apart, noise):
    """A number near one of two places, which hardly moves. One program for all of them."""
    return nbf.environment(
        init=lambda key, world: (
            jnp.where(jax.random.bernoulli(key), 1.0, -1.0) * world["apart"] + 0.2 * jax.random.normal(key, (1,))
        ),
        transition=lambda key, state, policy, world: state + 0.02 * jax.random.normal(key, (1,)),
        observe=lambda key, state, next_state, world: seen(next_state, world) + world["noise"] * jax.random.normal(key),
        log_likelihood=lambda observation, state, next_state, world: (
            -0.5 * ((observation - seen(next_state, world)) / world["noise"]) ** 2
        ),
        parameters={"apart": jnp.float32(apart), "noise": jnp.float32(noise)},
        space=nbf.Box((-8.0,), (8.0,), bounded=False),
    )


TWO = place(6.0, 0.1)
ONE = replace(TWO, parameters=place(0.0, 0.5).parameters)


def test_modes_far_apart_have_narrow_kernels():
    """Silverman's width follows the distance of the modes; that of each is 40 times less."""
    found = nbf.tuned(nbf.RegularizedParticleFilter(32), TWO, horizon=3, episodes=4, progress=False)
    assert found.smoother.scale == SCALES[-1]
    assert found.num_particles == 32


def test_one_gaussian_has_wider_ones():
    found = nbf.tuned(nbf.RegularizedParticleFilter(32), ONE, horizon=3, episodes=4, progress=False)
    assert found.smoother.scale > SCALES[-1]


def test_what_cannot_be_tuned_is_refused(unchecked):
    with pytest.raises(InputError, match="RegularizedParticleFilter"):
        nbf.tuned(nbf.ParticleFilter(8), ONE)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1 step"):
        nbf.tuned(nbf.RegularizedParticleFilter(8), ONE, horizon=0)
    with pytest.raises(InputError, match="nothing to tune"):
        nbf.tuned(nbf.RegularizedParticleFilter(8), TriangulationFamily())
