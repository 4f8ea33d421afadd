"""The checker of filters and models is checked, and the statistics that it rests on: what is sound passes, what is
broken on purpose is caught by the check whose business it is."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Float, Int
from scipy import stats
from tolerances import EXACT, SEED, monte_carlo
from worlds import three_rooms

import nbf
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import BeliefModel, Filter
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf.testing import check_filter, check_model
from nbf.testing.statistics import Reference, balance, worst_frequency

K = 3
BEYOND = 1e-3
"""Mass of the reference's tails beyond the grid of a quadrature, and the error of that."""


def failed(report) -> list[str]:
    return [check.name for check in report.failures]


# --- filters -------------------------------------------------------------------------------------


class Odd(Filter):
    """A particle filter with faults to choose from."""

    evidence: Float[Array, ""]
    """Added to the log evidence."""
    attempts: Int[Array, ""]
    """Times the attempts."""
    weight: Float[Array, ""]
    """Added to the log weights."""
    silent: Bool[Array, ""]
    """Does not say when it recovered."""

    def init(self, key, environment):
        return nbf.ParticleFilter(8, max_attempts=1).init(key, environment)

    def update(self, key, state, observation, environment, policy):
        state, info = nbf.ParticleFilter(8, max_attempts=1).update(key, state, observation, environment, policy)
        state = state._replace(log_weights=state.log_weights + self.weight)
        evidence, attempts = info.log_evidence + self.evidence, info.attempts * self.attempts
        recovered = info.recovered & ~self.silent
        return state, dataclasses.replace(info, log_evidence=evidence, attempts=attempts, recovered=recovered)

    def belief(self, state, environment):
        return ParticleBelief(state.states, state.log_weights)


def odd(**changes):
    usual = {"evidence": 0.0, "attempts": 1, "weight": 0.0, "silent": False}
    return Odd(**{name: jnp.asarray(value) for name, value in (usual | changes).items()})


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"evidence": jnp.nan}, ["scan", "step"]),
        ({"attempts": 0}, ["scan", "step"]),
        ({"weight": jnp.nan}, ["scan", "step"]),
        ({"evidence": 0.5}, ["missing observation"]),
        ({"silent": True}, ["zero likelihood"]),
    ],
)
def test_a_filter_passes_unless_it_is_odd(changes, expected):
    report = check_filter(odd(**changes), three_rooms(), jnp.asarray(0.1))
    assert failed(report) == expected, str(report)


# --- models --------------------------------------------------------------------------------------


class Tilted(BeliefModel):
    """A tabular model with faults to choose from."""

    space: Lattice
    by_place: Float[Array, ""]
    by_size: Float[Array, ""]
    outside: Int[Array, ""]
    total: Float[Array, ""]
    tilt: Float[Array, ""]

    def embed(self, states, log_weights, space=None):
        n = len(log_weights)
        table = TabularModel(self.space).embed(states, log_weights + self.by_place * jnp.arange(n))
        return table + self.by_size * n

    def sample(self, key, embedding, n, space):
        return TabularModel(self.space).sample(key, embedding, n, space) + self.outside

    def log_prob(self, embedding, states, space):
        tilted = jax.nn.softmax(jnp.log(embedding) + self.tilt * jnp.arange(self.space.size))
        return jnp.log(tilted[jax.vmap(self.space.index)(states)]) + self.total

    def objective(self, key, embeddings, states, space):
        return jax.vmap(self.log_prob)(embeddings, states, space)

    def prepared(self):
        return self


@pytest.mark.parametrize(
    ("fault", "value", "expected"),
    [
        ("total", 0.0, []),
        ("by_place", 0.5, ["embed: order"]),
        ("by_size", 0.1, ["embed: size", "embed: padding"]),
        ("outside", 9, ["samples are states"]),
        ("total", 0.3, ["probabilities sum to one"]),
        ("tilt", 1.0, ["samples agree with log_prob"]),
        ("total", jnp.nan, ["log_prob is a number", "objective"]),
    ],
)
def test_a_model_passes_unless_it_is_tilted(fault, value, expected):
    usual = {"by_place": 0.0, "by_size": 0.0, "outside": 0, "total": 0.0, "tilt": 0.0}
    faults = {name: jnp.asarray(part) for name, part in (usual | {fault: value}).items()}
    model = Tilted(Lattice((K,)), **faults)
    report = check_model(model, Lattice((K,)))
    assert set(expected) <= set(failed(report)), str(report)
    assert bool(expected) != report.passed


def test_a_model_of_another_space_is_caught():
    assert failed(check_model(TabularModel(Lattice((3,))), Lattice((4,)))) == ["space"]


# --- statistics ----------------------------------------------------------------------------------


def rows_of(draws):
    return np.asarray(draws, np.float32).astype(np.float64)[:, None]


def test_the_reference_is_a_distribution_with_the_density_it_says():
    rng = np.random.default_rng(SEED)
    draws = np.where(rng.random(128) < 0.25, 0.0, rng.normal(2.0, 0.5, size=128))  # a quarter is exactly zero
    reference = Reference(rows_of(draws), np.array([True]))
    grid = np.linspace(-20.0, 20.0, 16_001)[1::2]  # without zero itself
    smooth = np.exp(reference.log_density(grid[:, None])).sum() * (grid[1] - grid[0])
    atom = np.exp(reference.log_density(np.zeros((1, 1))))[0]
    np.testing.assert_allclose(atom, np.mean(draws == 0.0), **EXACT)
    np.testing.assert_allclose(smooth + atom, 1.0, rtol=0, atol=BEYOND)
    sampled = reference.sample(rng, 20_000)[:, 0]
    np.testing.assert_allclose(np.mean(sampled == 0.0), atom, rtol=0, atol=monte_carlo(0.5, 20_000))
    below = np.exp(reference.log_density(grid[grid < 1.5][:, None])).sum() * (grid[1] - grid[0]) + atom
    np.testing.assert_allclose(np.mean(sampled < 1.5), below, rtol=0, atol=BEYOND + monte_carlo(0.5, 20_000))


@pytest.mark.parametrize("log_factor", [0.0, 1.0, -1.0], ids=["right", "too high", "too low"])
def test_a_density_is_accused_if_and_only_if_it_is_wrong_by_the_factor_stated(log_factor):
    rng, accused, runs, n = np.random.default_rng(SEED), 0, 40, 1024
    law = stats.gamma(2.0)
    for _ in range(runs):
        reference = Reference(rows_of(law.rvs(128, random_state=rng)), np.array([True]))
        ours, theirs = rows_of(law.rvs(n, random_state=rng)), reference.sample(rng, n)
        log_q = reference.log_density(ours), reference.log_density(theirs)
        log_p = law.logpdf(ours[:, 0]), law.logpdf(theirs[:, 0])
        factor = balance(log_p, log_q)[3]
        one, other, allowed, _ = balance(tuple(part + log_factor * np.log(factor) for part in log_p), log_q)
        accused += abs(one - other) > allowed
    assert accused == (0 if log_factor == 0 else runs)


def test_frequencies_are_accused_of_what_is_impossible_and_of_little_else():
    rng, probs = np.random.default_rng(SEED), np.array([0.6, 0.399, 0.001, 0.0])
    for _ in range(200):
        assert worst_frequency(rng.multinomial(4096, probs).astype(float), probs) is None
    assert worst_frequency(np.array([2458.0, 1633.0, 4.0, 1.0]), probs) == (3, 1 / 4096)
    worst = worst_frequency(np.array([2000.0, 2092.0, 4.0, 0.0]), probs)
    assert worst is not None
    assert worst[0] in (0, 1)
