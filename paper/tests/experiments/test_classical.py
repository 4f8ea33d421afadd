"""The classical filters against the exact one: what must agree agrees, what is drawn nears it as 1/√n."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from extras import extra
from kalman import kalman
from tolerances import FLOAT

from nbf.errors import InputError
from nbf_paper.experiments.classical import ClassicalEvaluation, ClassicalJob, SystemConfig, evaluate, tracks
from nbf_paper.records import ALL, read_records
from nbf_paper.report import classical as report

extra("cuthbertlib", "classical")

SIZES = ClassicalEvaluation(episodes=32, particles=(32, 512))
SYSTEM = SystemConfig(horizon=4)


class Bar:
    def describe(self, text: str) -> None: ...
    def advance(self, done: int) -> None: ...


@functools.cache
def records():
    return evaluate(ClassicalJob(0, SYSTEM, SIZES), Bar())


def value(filter, metric, particles=0):
    wanted = filter, particles, metric, ALL
    (found,) = (each for each in records() if (each.filter, each.particles, each.metric, each.step) == wanted)
    return found.value


def test_the_system_is_that_of_a_constant_velocity():
    """x' = x + ẋ·dt + a·dt²/2, ẋ' = ẋ + a·dt, with a drawn for each axis."""
    config = SystemConfig(interval=0.5, acceleration=2.0, reading=0.3)
    world = config.environment()
    state = np.array([1.0, 2.0, 3.0, -4.0])
    np.testing.assert_allclose(world.matrix @ state, [2.5, 0.0, 3.0, -4.0], **FLOAT)
    push = np.array([0.125, 0.0, 0.5, 0.0]), np.array([0.0, 0.125, 0.0, 0.5])
    wanted = sum(4.0 * np.outer(each, each) for each in push)
    np.testing.assert_allclose(world.step_root @ world.step_root.T, wanted, **FLOAT)
    np.testing.assert_allclose(world.sensor @ state, [1.0, 2.0], **FLOAT)


def test_the_reference_is_the_kalman_filter_of_float64():
    world = SYSTEM.environment()
    found = tracks(world, SYSTEM.horizon, jax.random.split(jax.random.key(0), 2))
    parts = {
        "A": world.matrix, "Q": world.step_root @ world.step_root.T, "C": world.sensor,
        "R": world.noise_root @ world.noise_root.T, "m0": world.start, "P0": world.start_root @ world.start_root.T,
    }  # fmt: skip
    parts = {name: np.asarray(part, np.float64) for name, part in parts.items()}
    for episode in range(2):
        mean, log_evidence = kalman(**parts, observations=np.asarray(found.observations[episode]), push=np.zeros(4))
        np.testing.assert_allclose(found.means[episode, -1], mean, **FLOAT)
        np.testing.assert_allclose(found.log_evidence[episode], log_evidence, **FLOAT)


@pytest.mark.slow
@pytest.mark.parametrize("metric", report.METRICS)
@pytest.mark.parametrize("filter", ["kalman", "ekf", "ukf", "ckf"])
def test_where_the_system_is_linear_all_of_these_are_exact(filter, metric):
    assert value(filter, metric) < 1e-3  # sums of some hundred float32 numbers that are whitened by a factor of ten


@pytest.mark.slow
@pytest.mark.parametrize("metric", report.METRICS)
@pytest.mark.parametrize("filter", ["enkf", "pf"])
def test_with_16_times_the_particles_errors_are_a_quarter(filter, metric):
    """Within a factor of two, for 32 particles are few. The logarithm of an evidence that is right on average is too
    low on average, by half the variance (Jensen): where that dominates, the error falls as 1/n, to a sixteenth."""
    few, many = (value(filter, metric, n) for n in SIZES.particles)
    assert 2.0 < few / many < (16.0 if metric == "log_evidence_error" else 8.0)


@pytest.mark.slow
def test_recorded_once_and_drawn(tmp_path):
    job, folder = ClassicalJob(0, SYSTEM, SIZES), tmp_path / "classical"
    job.check(tmp_path)
    assert job.run(folder, tmp_path, command="a test", bar=Bar())
    assert not job.run(folder, tmp_path, command="a test", bar=Bar())
    assert sorted(map(str, read_records(folder))) == sorted(map(str, records()))
    page = report.page(folder)
    page.figures["classical.png"]()
    for name in ("Kalman", "EKF", "UKF", "CKF", "EnKF (32)", "PF (512)"):
        assert name in page.tables["classical"]


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="at least 2; got episodes=1"):
        ClassicalEvaluation(episodes=1)
    with pytest.raises(InputError, match=r"particles=\(1,\)"):
        ClassicalEvaluation(particles=(1,))
