"""The share that a model earns beside a kernel, against mixtures whose shares are known; teachers made of copies."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fits import untrained_on_a_line
from scipy import stats
from tolerances import monte_carlo

import nbf
from nbf.contracts import BeliefSource
from nbf.environments.functional import One
from nbf.errors import InputError
from nbf.filters.neural import Shares
from nbf.fitting.shares import LEAST, best_share, earned_shares
from nbf.fitting.teacher import checked
from nbf.models.tabular import TabularModel
from nbf.sources.filtered import FilterPosteriors
from nbf.spaces import Lattice

CELLS = Lattice((5,))


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_the_share_of_a_mixture_is_found(share):
    """Samples of s N(0, 1) + (1 - s) N(3, 1)."""
    random = np.random.default_rng(7)
    samples = np.where(
        random.random((100, 40)) < share, random.normal(size=(100, 40)), random.normal(3.0, 1.0, (100, 40))
    )
    found = best_share(stats.norm.logpdf(samples), stats.norm.logpdf(samples, 3.0))
    assert abs(found - share) < monte_carlo(np.sqrt(share * (1 - share)) * 1.5, samples.size) + 0.01


def test_a_density_that_fails_has_the_least_share():
    good, bad = np.zeros((3, 4)), np.full((3, 4), -np.inf)
    assert best_share(good, bad) == pytest.approx(1 - LEAST)
    assert best_share(bad, good) == pytest.approx(LEAST)
    # What neither can tell says nothing.
    assert best_share(np.vstack([good, bad]), np.vstack([bad, bad])) == pytest.approx(1 - LEAST)


class Placed(BeliefSource):
    """One cell of five, known for certain."""

    def sample(self, key, n):
        return jnp.broadcast_to(jax.random.randint(key, (1,), 0, 5), (n, 1)), CELLS


def test_a_perfect_model_earns_all_of_it(key):
    """Where a belief is one cell, a table is exact, and a kernel leaks into its neighbours."""
    found = earned_shares(key, TabularModel(CELLS), Placed(), sizes=(4, 8), beliefs=4, batch=4)
    assert found.sizes == (4.0, 8.0)
    assert found.model == pytest.approx((1 - LEAST, 1 - LEAST))
    with pytest.raises(InputError, match="one size"):
        earned_shares(key, TabularModel(CELLS), Placed(), sizes=())


def test_a_fitted_model_keeps_its_shares(tmp_path):
    shares = Shares((8.0, 32.0), (0.25, 0.75))
    file = tmp_path / "model.safetensors"
    dataclasses.replace(untrained_on_a_line(), shares=shares).save(file)
    loaded = nbf.FittedModel.load(file)
    assert loaded.shares == shares
    assert loaded.filter(8).shares == shares
    assert "25% from 8, 75% from 32" in str(loaded)


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
