"""Our particle filter against another package's on systems without a closed form.

The reference is what `particles` 0.4 found with 100 000 particles in each of 40 runs, by
benchmarks/peers/second_opinion.py; it needs NumPy below 2, and we need 2 or above, so its numbers are kept in a file
and not computed here. Estimates of the evidence p(y_1:t) are unbiased in both, and so are those of its product with the
mean of x_t, whatever the number of particles.
"""

from __future__ import annotations

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from paths import DATA
from tolerances import monte_carlo

import nbf

OPINION = json.loads((DATA / "second-opinion.json").read_text())
RUNS, PARTICLES = 400, 1024
DETECTS = 0.2
"""A bias of the evidence that the test would find, relative to it, and one of a mean, relative to their deviation."""


def growth(start, motion, sensor) -> nbf.Environment:
    """x' ~ N(x/2 + 25x/(1 + x²) + 8 cos(1.2 t), motion²), y ~ N(x'²/20, sensor²). Their first state is observed, ours
    is not: the first step stays where it is."""

    def transition(key, state, policy):
        x, time = state
        moved = x / 2 + 25 * x / (1 + x**2) + 8 * jnp.cos(1.2 * time) + motion * jax.random.normal(key)
        return jnp.stack([jnp.where(time > 0, moved, x), time + 1])

    return nbf.environment(
        init=lambda key: jnp.stack([start * jax.random.normal(key), 0.0]),
        transition=transition,
        observe=lambda key, state, next_state: next_state[0] ** 2 / 20 + sensor * jax.random.normal(key),
        log_likelihood=lambda y, state, next_state: norm.logpdf(y, next_state[0] ** 2 / 20, sensor),
        space=nbf.Box((-30.0, 0.0), (30.0, 20.0), bounded=False),
    )


def volatility(mu, rho, sigma) -> nbf.Environment:
    """x' ~ N(μ + ρ (x - μ), σ²), y ~ N(0, exp(x')). A stationary start is still one after a step."""
    return nbf.environment(
        init=lambda key: mu + sigma / jnp.sqrt(1 - rho**2) * jax.random.normal(key, (1,)),
        transition=lambda key, state, policy: mu + rho * (state - mu) + sigma * jax.random.normal(key, (1,)),
        observe=lambda key, state, next_state: jnp.exp(next_state[0] / 2) * jax.random.normal(key),
        log_likelihood=lambda y, state, next_state: norm.logpdf(y, 0.0, jnp.exp(next_state[0] / 2)),
        space=nbf.Box((-4.0,), (2.0,), bounded=False),
    )


SYSTEMS = {"growth": growth, "volatility": volatility}


@functools.cache
def runs(name) -> tuple[np.ndarray, np.ndarray]:
    """The belief's mean of x and log p(y_1:t) after each step of each of our runs."""
    environment = SYSTEMS[name](**OPINION[name]["parameters"])
    observations = jnp.asarray(OPINION[name]["observations"], jnp.float32)
    filter = nbf.ParticleFilter(PARTICLES, max_attempts=1)

    @jax.jit
    @jax.vmap
    def one(key):
        look = lambda state: jnp.exp(state.log_weights) @ state.states[:, 0]  # noqa: E731
        means, infos = nbf.run(filter, key, observations, environment, None, look=look)
        return means, jnp.cumsum(infos.log_evidence)

    means, log_evidence = one(jax.random.split(jax.random.key(11), RUNS))
    return np.asarray(means, np.float64), np.asarray(log_evidence, np.float64)


def opinions(name) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ours and theirs: means and log-evidence."""
    found = OPINION[name]
    return [runs(name), (np.asarray(found["means"]), np.asarray(found["log_evidence"]))]


@pytest.mark.sampled
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_evidence_is_that_of_another_package(name):
    """After every step."""
    reference = opinions(name)[1][1].mean(axis=0)
    ratios = [np.exp(log_evidence - reference) for _, log_evidence in opinions(name)]
    error = np.hypot(*(monte_carlo(ratio.std(axis=0), len(ratio)) for ratio in ratios))
    assert np.max(2 * error) < DETECTS, "too few runs for the power stated"
    ours, theirs = (ratio.mean(axis=0) for ratio in ratios)
    assert np.all(np.abs(ours - theirs) <= error), np.max(np.abs(ours - theirs) / error)


@pytest.mark.sampled
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_filtered_means_are_those_of_another_package(name):
    """Of x_t given y_1:t, after every step, by the delta method for a ratio of means."""
    reference = opinions(name)[1][1].mean(axis=0)
    means, errors = [], []
    for mean, log_evidence in opinions(name):
        weight = np.exp(log_evidence - reference)
        center = (weight * mean).mean(axis=0) / weight.mean(axis=0)
        residual = weight * (mean - center) / weight.mean(axis=0)
        means.append(center)
        errors.append(monte_carlo(residual.std(axis=0), len(mean)))
    error, gap = np.hypot(*errors), np.abs(means[0] - means[1])
    spread = means[1].std()
    assert np.max(2 * error) < DETECTS * spread, "too few runs for the power stated"
    assert np.all(gap <= error), np.max(gap / error)
