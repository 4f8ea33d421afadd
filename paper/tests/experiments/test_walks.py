"""The agent of Triangulation: what it chooses, and that a better belief brings it nearer to the origin."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tolerances import monte_carlo

from nbf.environments.triangulation import DIRECTIONS, TriangulationFamily
from nbf.errors import InputError
from nbf.filters.point_mass import PointMassFilter
from nbf_paper.experiments.walks import SCAN, STOP, WalkConfig, choose, walk

WORLD = TriangulationFamily().environment()


@pytest.mark.parametrize("mean", [(3.0, 1.0), (-3.0, 1.0), (0.2, -0.3), (1.0, 2.0), (0.1, 0.2), (-0.24, 0.0)])
def test_a_sure_agent_takes_the_move_that_brings_the_mean_nearest_or_stops(mean):
    action = int(choose(jnp.asarray(mean), jnp.asarray(0.1), WORLD, 0.75))
    after = np.asarray(mean) + 0.5 * np.asarray(DIRECTIONS)
    nearest = np.linalg.norm(after, axis=1).argmin()
    assert action == (nearest if np.linalg.norm(after[nearest]) < np.linalg.norm(mean) else STOP)


def test_an_unsure_agent_scans():
    assert int(choose(jnp.asarray([3.0, 1.0]), jnp.asarray(0.76), WORLD, 0.75)) == SCAN


def walks(filter, settings, world, key, count=64):
    return eqx.filter_jit(lambda key: jax.vmap(lambda key: walk(filter, settings, world, key))(key))(
        jax.random.split(key, count)
    )


@pytest.mark.slow
def test_with_the_truth_the_agent_comes_near_and_stops(key):
    found = walks(PointMassFilter(50), WalkConfig(), WORLD, key)
    assert np.all(found.stopped)
    # The mean is within 0.25 of the origin on each axis; the belief about it is 0.75 wide at most.
    assert float(jnp.sqrt(jnp.mean(found.distance**2))) < 0.75 + 0.25 * np.sqrt(2)
    actions = np.asarray(found.actions)
    assert np.all((actions[:, 1:] == STOP) | (actions[:, :-1] != STOP))  # stopping is for good
    assert np.all(actions[:, 0] == SCAN)  # at first it knows nothing


def test_an_agent_that_is_never_sure_stays_where_it_started(key):
    found = walks(PointMassFilter(10), WalkConfig(steps=3, unsure=1e-6), WORLD, key, 400)
    assert np.all(np.asarray(found.actions) == SCAN)
    assert not np.any(found.stopped)
    square = np.asarray(found.distance, np.float64) ** 2  # of a uniform start: 2 · 25 / 3 in the mean
    assert abs(square.mean() - 50 / 3) < monte_carlo(square.std(), len(square))


def test_impossible_settings_are_refused():
    with pytest.raises(InputError, match="unsure above 0"):
        WalkConfig(unsure=0.0)
    with pytest.raises(InputError, match="steps of at least 1"):
        WalkConfig(steps=0)
