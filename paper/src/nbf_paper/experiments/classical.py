"""The classical filters where the posterior is known in closed form: a point moves in the plane with nearly constant
velocity, and its position is observed with noise (Bar-Shalom, Li, Kirubarajan 2001, section 6.2).

State (x, y, ẋ, ẏ). The Kalman filter is exact. For every other filter we measure the errors of its mean and covariance,
in units of the exact covariance, and the error of the log evidence of a whole episode.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import Filter, FilterState
from nbf.environments.linear_gaussian import LinearGaussian
from nbf.environments.rollout import rollout
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.filters.gaussian import (
    CubatureKalmanFilter,
    EnsembleKalmanFilter,
    ExtendedKalmanFilter,
    KalmanFilter,
    UnscentedKalmanFilter,
)
from nbf.filters.linearization import import_cuthbertlib
from nbf.filters.particle import ParticleFilter
from nbf.filters.run import run
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow, filter_keys, records_by_step
from nbf_paper.records import ALL, Record

TOGETHER = 65_536
"""Particles of all episodes that are filtered in one batch."""


@dataclass(frozen=True)
class SystemConfig:
    """Nearly constant velocity in the plane."""

    interval: float = 1.0
    """Time of a step."""
    acceleration: float = 0.1
    """Standard deviation of the acceleration, constant within a step, along each axis."""
    reading: float = 0.5
    """Standard deviation of a reading of the position, along each axis."""
    start: tuple[float, float] = (1.0, 0.5)
    """Standard deviations of the first position and of the first velocity, along each axis."""
    horizon: int = 20

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "interval": self.interval,
            "acceleration": self.acceleration,
            "reading": self.reading,
            "start": self.start,
            "horizon": self.horizon,
        }

    def environment(self) -> LinearGaussian:
        """The system."""
        both, nothing = np.eye(2), np.zeros((2, 2))
        moves = np.block([[both, self.interval * both], [nothing, both]])
        push = np.concatenate([0.5 * self.interval**2 * both, self.interval * both])
        step = self.acceleration**2 * push @ push.T
        sensor, noise = np.concatenate([both, nothing], axis=1), self.reading**2 * both
        spread = np.diag(np.repeat(np.square(self.start), 2))
        return LinearGaussian(moves, step, sensor, noise, np.zeros(4), spread)


@dataclass(frozen=True)
class ClassicalEvaluation:
    """How the filters are scored."""

    episodes: int = 500
    """Every filter sees the same ones."""
    particles: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    """Sizes of the particle filters and of the ensembles."""

    def __post_init__(self) -> None:
        if self.episodes < 2 or min(self.particles, default=2) < 2:
            raise InputError(
                "episodes and every entry of particles must be at least 2; "
                f"got episodes={self.episodes}, particles={self.particles}."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {"episodes": self.episodes, "particles": self.particles}


def filter_rows(settings: ClassicalEvaluation) -> list[FilterRow]:
    """Every filter of the table."""
    rows = [
        FilterRow(KalmanFilter(), "kalman", "", 0, 0), FilterRow(ExtendedKalmanFilter(), "ekf", "", 0, 0),
        FilterRow(UnscentedKalmanFilter(), "ukf", "", 0, 0), FilterRow(CubatureKalmanFilter(), "ckf", "", 0, 0),
    ]  # fmt: skip
    rows += [FilterRow(EnsembleKalmanFilter(n), "enkf", "", n, n) for n in settings.particles]
    return rows + [FilterRow(ParticleFilter(n), "pf", "", n, n) for n in settings.particles]


class KalmanTrack(eqx.Module):
    """One episode, and the exact posteriors and log evidence."""

    observations: Float[Array, "steps k"]
    means: Float[Array, "steps d"]
    covariances: Float[Array, "steps d d"]
    log_evidence: Float[Array, ""]


def moments(
    filter: Filter, key: Key[Array, ""], observations: Float[Array, "steps k"], environment: LinearGaussian
) -> tuple[Float[Array, "steps d"], Float[Array, "steps d d"], Float[Array, ""]]:
    """Mean and covariance of the belief after every step, and the log evidence of all observations."""

    def look(state: FilterState) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        belief = filter.belief(state, environment)
        mean = belief.expectation(lambda x: x)
        return mean, belief.expectation(lambda x: jnp.outer(x - mean, x - mean))

    (means, covariances), info = run(filter, key, observations, environment, None, look=look)
    return means, covariances, jnp.sum(info.log_evidence)


def track(environment: LinearGaussian, horizon: int, key: Key[Array, ""]) -> KalmanTrack:
    """A random episode."""
    _, observations = rollout(key, environment, None, horizon)
    return KalmanTrack(observations, *moments(KalmanFilter(), key, observations, environment))


@eqx.filter_jit
def tracks(environment: LinearGaussian, horizon: int, keys: Key[Array, " episodes"]) -> KalmanTrack:
    """Random episodes."""
    return jax.vmap(functools.partial(track, environment, horizon))(keys)


@eqx.filter_jit
def scores(
    filter: Filter, environment: LinearGaussian, keys: Key[Array, " episodes"], tracks: KalmanTrack
) -> dict[str, Float[Array, "episodes *steps"]]:
    """After every step the errors of mean and covariance, in coordinates in which the exact posterior is standard
    normal: |m|/√d and |P - I|/√d (Frobenius). And the error of the log evidence of each episode."""

    def one(key: Key[Array, ""], track: KalmanTrack) -> dict[str, Array]:
        means, covariances, log_evidence = moments(filter, key, track.observations, environment)
        root = jnp.linalg.cholesky(track.covariances)
        d = means.shape[-1]
        apart = jax.scipy.linalg.solve_triangular(root, (means - track.means)[..., None], lower=True)
        half = jax.scipy.linalg.solve_triangular(root, covariances, lower=True)
        whitened = jax.scipy.linalg.solve_triangular(root, jnp.swapaxes(half, -1, -2), lower=True)
        return {
            "mean_error": jnp.sqrt(jnp.sum(apart**2, axis=(-2, -1)) / d),
            "covariance_error": jnp.sqrt(jnp.sum((whitened - jnp.eye(d)) ** 2, axis=(-2, -1)) / d),
            "log_evidence_error": jnp.abs(log_evidence - track.log_evidence),
        }

    return jax.vmap(one)(keys, tracks)


def evaluate(job: ClassicalJob, bar: Counter) -> list[Record]:
    """Records of every filter on fresh episodes; all filters see the same ones."""
    settings, environment = job.evaluation, job.config.environment()
    keys = jax.random.split(prng.stream(job.seed, "classical"), settings.episodes)
    episodes = tracks(environment, job.config.horizon, keys)
    records: list[Record] = []
    for row in filter_rows(settings):
        bar.describe(f"{job.title}: {row.label}")
        batch = max(1, min(settings.episodes, TOGETHER // max(1, row.particles)))
        score = functools.partial(scores, row.filter, environment)
        found = in_batches(score, (filter_keys(keys), episodes), batch=batch, advance=bar.advance)
        base = Record(
            experiment="classical", config="constant-velocity", filter=row.name, arm="", particles=row.particles,
            calls=row.calls, seed=job.seed, step=ALL, metric="log_evidence_error", value=0.0, se=None,
            episodes=settings.episodes,
        )  # fmt: skip
        for metric in ("mean_error", "covariance_error"):
            records += records_by_step(base, metric, found[metric])
        mean, error = mean_and_error(found["log_evidence_error"])
        records.append(replace(base, value=float(mean), se=float(error)))
    return records


@dataclass(frozen=True)
class ClassicalJob(Job):
    """All filters on the episodes of one seed. Nothing is trained."""

    seed: int = 0
    config: SystemConfig = field(default_factory=SystemConfig)
    evaluation: ClassicalEvaluation = field(default_factory=ClassicalEvaluation)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"classical seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"environment": self.config.settings, "seed": self.seed, "evaluation": self.evaluation.settings}

    @property
    def label(self) -> str:
        return f"classical/{self.seed}"

    def check(self, runs: Path) -> None:
        import_cuthbertlib()

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        return evaluate(self, bar)
