"""What all evaluations share: a filter draws its own numbers, not those of the episode."""

from __future__ import annotations

import jax
import numpy as np
from tolerances import monte_carlo

from nbf import prng
from nbf.filters.particle import ParticleFilter
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments.gridworld import family_of, track
from nbf_paper.experiments.rows import filter_keys

EPISODES, PARTICLES = 400, 32


def starts_on_the_goal(keys, tracks) -> np.ndarray:
    """Whether any first particle of each episode is the goal, with the keys by which `run` starts a filter."""

    def one(key, track):
        particles = ParticleFilter(PARTICLES).init(jax.random.split(key)[0], track.environment).states
        return (particles == track.policy.goal).all(axis=1).any()

    return np.asarray(jax.jit(jax.vmap(one))(keys, tracks))


def test_first_particles_know_nothing_of_the_goal():
    """A particle starts on the goal as often as chance says; with the episode's own key it always did."""
    config = GridworldConfig.parse("5-2D-random")
    family = family_of(config, 0)
    keys = jax.random.split(prng.stream(0, "goals"), EPISODES)
    tracks = jax.jit(jax.vmap(lambda key: track(family, 2, key)))(keys)
    free = np.asarray(jax.vmap(lambda environment: environment.free.sum())(tracks.environment))
    expected = 1.0 - (1.0 - 1.0 / free) ** PARTICLES
    spread = np.sqrt(np.mean(expected * (1.0 - expected)))
    found = starts_on_the_goal(filter_keys(keys), tracks)
    assert abs(found.mean() - expected.mean()) < monte_carlo(spread, EPISODES)
    assert starts_on_the_goal(keys, tracks).all()
