"""The width of a kernel that is chosen on episodes: narrow for modes far apart, wide for one Gaussian."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import nbf
from nbf.environments.triangulation import TriangulationFamily
from nbf.errors import InputError
from nbf.fitting.trust import SCALES


def place(apart, noise, seen):
    """A number near one of two places, which hardly moves; of it something is seen."""
    return nbf.environment(
        init=lambda key: jnp.where(jax.random.bernoulli(key), apart, -apart) + 0.2 * jax.random.normal(key, (1,)),
        transition=lambda key, state, policy: state + 0.02 * jax.random.normal(key, (1,)),
        observe=lambda key, state, next_state: seen(next_state[0]) + noise * jax.random.normal(key),
        log_likelihood=lambda observation, state, next_state: -0.5 * ((observation - seen(next_state[0])) / noise) ** 2,
        space=nbf.Box((-8.0,), (8.0,), bounded=False),
    )


TWO, ONE = place(6.0, 0.1, jnp.abs), place(0.0, 0.5, lambda state: state)


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
