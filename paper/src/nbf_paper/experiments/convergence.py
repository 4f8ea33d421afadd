"""The paper's theorem "NBF Consistency" and its corollary: sup_t |μ̂_t - E[f(x_t)]| falls as n^(-1/2).

The environment is finite and after any step anything may be observed (ε-positivity), the model embeds a belief as its
own table of probabilities, and μ̂ is line 7 of Algorithm 1. f is a coordinate of the state, from -1 to 1; `sup_error` is
the largest error over coordinates and steps of an episode. `sup_tv` is the total variation between the weighted
particles and the posterior, which bounds the error of every f with values in [0, 1]. A learned model follows the rate
until its own error dominates; then its curve stays level.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import Family, Filter, FilterState, State
from nbf.environments.gridworld import GoalPolicy, Gridworld
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error
from nbf.files.shipped import shipped_model
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.run import run
from nbf.models.tabular import TabularModel
from nbf.spaces import Lattice
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.gridworld import GridTrack, family_of, sizes_of, track
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import filter_keys
from nbf_paper.names import EXAMPLE
from nbf_paper.records import ALL, Record

MakeFilter = Callable[[int], Filter]
"""n -> a filter of n particles."""
TOGETHER = 65_536
"""Particles of all episodes that are filtered in one batch."""


@dataclass(frozen=True)
class FilterFamily:
    """A family of filters, and its name in records."""

    filter: str
    make: Callable[[GridworldConfig], MakeFilter]


def _perfect(config: GridworldConfig) -> TabularModel:
    return TabularModel(Lattice(config.shape))


ARMS: Mapping[str, FilterFamily] = {
    "tabular": FilterFamily("nbf", lambda config: functools.partial(NeuralBayesianFilter.faithful, _perfect(config))),
    "tabular-default": FilterFamily("nbf", lambda config: functools.partial(NeuralBayesianFilter, _perfect(config))),
    "faithful": FilterFamily(
        "nbf", lambda config: functools.partial(NeuralBayesianFilter.faithful, shipped_model(f"{config.name}-faithful"))
    ),
    "pf": FilterFamily("pf", lambda config: ParticleFilter),
}
"""`tabular` is the theorem's: Algorithm 1 with a perfect model. `tabular-default` is the library's own variant of the
algorithm with that model, `faithful` Algorithm 1 with the paper's model as shipped, `pf` a particle filter. A further
variant of the neural filter is checked by adding its line."""


@dataclass(frozen=True)
class ConvergenceEvaluation:
    """How the rate is measured."""

    episodes: int = 200
    """Every filter sees the same ones."""
    particles: tuple[int, ...] = tuple(2**power for power in range(4, 15))
    slope_from: int = 1024
    """The rate is asymptotic, and fitted to this many particles and more: with few, errors saturate."""
    bootstraps: int = 2000
    """Bootstrap samples of the episodes; the interval is the middle 95% of their slopes."""

    def __post_init__(self) -> None:
        if self.episodes < 2 or self.bootstraps < 2:
            raise InputError(
                "An interval needs at least 2 episodes and 2 bootstraps; "
                f"got episodes={self.episodes}, bootstraps={self.bootstraps}."
            )
        if sum(n >= self.slope_from for n in self.particles) < 2 or min(self.particles) < 1:
            raise InputError(
                f"A slope needs at least 2 particle counts from slope_from={self.slope_from} on, all of at least 1; "
                f"got particles={self.particles}."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes,
            "particles": self.particles,
            "slope_from": self.slope_from,
            "bootstraps": self.bootstraps,
        }


@runtime_checkable
class Estimating(Protocol):
    """A filter with its own estimate of an expectation, such as line 7 of Algorithm 1."""

    def estimate(self, state: FilterState, function: Callable[[State], Any], /) -> Any: ...


@eqx.filter_jit
def episodes(family: Family, horizon: int, keys: Key[Array, " episodes"]) -> GridTrack:
    """Random episodes with their exact posteriors."""
    return jax.vmap(functools.partial(track, family, horizon))(keys)


@eqx.filter_jit
def sup_errors(
    filter: Filter, keys: Key[Array, " episodes"], tracks: GridTrack
) -> tuple[Float[Array, " episodes"], Float[Array, " episodes"]]:
    """The largest error over the steps of each episode: of the worst coordinate, and in total variation."""

    def one(key: Key[Array, ""], track: GridTrack) -> tuple[Float[Array, ""], Float[Array, ""]]:
        environment, space = track.environment, track.environment.space

        def functions(state: State) -> tuple[Float[Array, " d"], Float[Array, " cells"]]:
            return space.encode(state), jax.nn.one_hot(space.index(state), space.size)

        def look(state: FilterState) -> tuple[Float[Array, " d"], Float[Array, " cells"]]:
            if isinstance(filter, Estimating):
                return filter.estimate(state, functions)
            return filter.belief(state, environment).expectation(functions)

        (means, probs), _ = run(filter, key, track.observations, environment, track.policy, look=look)
        wanted = track.truth @ jax.vmap(space.encode)(environment.states())
        variation = jnp.sum(jnp.abs(probs - track.truth), axis=1) / 2.0
        return jnp.max(jnp.abs(means - wanted)), jnp.max(variation)

    return jax.vmap(one)(keys, tracks)


def positivity(environment: Gridworld, policy: GoalPolicy) -> Float[Array, ""]:
    """The largest ε for which T(x)[x']·H(x, x')[y] >= ε for every successor x' of every state x, and every y."""
    moves = jnp.exp(jax.vmap(environment.offset_log_probs, (0, None))(environment.states(), policy))
    moves = jnp.where((moves > 0) & environment.free[:, None], moves, jnp.inf)
    wrong = environment.error / (environment.num_symbols - 1)
    return jnp.min(moves) * jnp.minimum(wrong, 1.0 - environment.error)


def slope(
    particles: np.ndarray, errors: Float[np.ndarray, "episodes counts"], bootstraps: int, seed: int
) -> tuple[float, Float[np.ndarray, " bootstraps"]]:
    """The least-squares slope of log mean error against log n, and the slopes of the bootstrap samples."""
    if not np.all(errors.mean(axis=0) > 0):
        raise InputError("A slope needs errors above 0; with some number of particles all episodes had none.")
    place = np.log(particles) - np.log(particles).mean()

    def fitted(means: Float[np.ndarray, "resampled counts"]) -> Float[np.ndarray, " resampled"]:
        return np.log(means) @ place / (place @ place)

    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(errors), np.full(len(errors), 1.0 / len(errors)), size=bootstraps)
    resampled = np.maximum(drawn @ errors / len(errors), np.finfo(np.float64).tiny)
    return float(fitted(errors.mean(axis=0, keepdims=True))[0]), fitted(resampled)


def evaluate(job: ConvergenceJob, bar: Counter) -> list[Record]:
    """Records of one family of filters: errors for each n, and the rate at which they fall."""
    settings, config = job.evaluation, job.config
    keys = jax.random.split(prng.stream(job.seed, "convergence", config.name), settings.episodes)
    tracks = episodes(family_of(config, job.seed), config.horizon, keys)
    base = Record(
        experiment="convergence", config=config.name, filter=job.family.filter,
        arm="" if job.arm == "pf" else job.arm, particles=0, calls=0, seed=job.seed, step=ALL, metric="epsilon",
        value=float(np.min(eqx.filter_jit(jax.vmap(positivity))(tracks.environment, tracks.policy))), se=None,
        episodes=settings.episodes,
    )  # fmt: skip
    make, records, found = job.family.make(config), [base], []
    for n in settings.particles:
        bar.describe(f"{job.title}: n = {n}")
        batch = max(1, min(settings.episodes, TOGETHER // n))
        errors = in_batches(
            functools.partial(sup_errors, make(n)), (filter_keys(keys), tracks), batch=batch, advance=bar.advance
        )
        found.append(errors)
        for metric, values in zip(("sup_error", "sup_tv"), errors, strict=True):
            mean, error = mean_and_error(values)
            row = replace(base, particles=n, calls=n, metric=metric, value=float(mean), se=float(error))
            records.append(row)
    fitted = np.asarray(settings.particles) >= settings.slope_from
    for place, metric in enumerate(("slope", "slope_tv")):
        errors = np.stack([each[place] for each in found], axis=1)[:, fitted].astype(np.float64)
        value, resampled = slope(np.asarray(settings.particles)[fitted], errors, settings.bootstraps, job.seed)
        records.append(replace(base, metric=metric, value=value, se=float(resampled.std(ddof=1))))
        for name, end in zip(("low", "high"), np.percentile(resampled, (2.5, 97.5)), strict=True):
            records.append(replace(base, metric=f"{metric}_{name}", value=float(end)))
    return records


@dataclass(frozen=True)
class ConvergenceJob(Job):
    """One family of filters on the episodes of one seed. Nothing is trained."""

    arm: str = "tabular"
    seed: int = 0
    config: GridworldConfig = field(default_factory=lambda: GridworldConfig.parse(EXAMPLE))
    evaluation: ConvergenceEvaluation = field(default_factory=ConvergenceEvaluation)
    make: MakeFilter | None = None
    """Makes the filters of your own arm; None for those of `ARMS`."""

    def __post_init__(self) -> None:
        if self.make is None and self.arm not in ARMS:
            raise InputError(f"There is no arm {self.arm!r} for convergence; choose from {', '.join(ARMS)}.")

    @property
    def family(self) -> FilterFamily:
        """The filters that are measured."""
        make = self.make
        return ARMS[self.arm] if make is None else FilterFamily("nbf", lambda config: make)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"convergence {self.arm} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.settings, "arm": self.arm, "seed": self.seed,
            "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"{self.config.name}/{self.arm}/{self.seed}"

    def sizes(self) -> list[Size]:
        evaluation, horizon = self.evaluation, self.config.horizon

        def demand(most: int) -> Demand:
            total = sum(min(n, most) for n in evaluation.particles)
            return demands.particles(most, total, horizon, evaluation.episodes)

        return [
            *sizes_of(self.config, evaluation.episodes, None),
            Size("--particles", max(evaluation.particles), demand),
        ]

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        return evaluate(self, bar)
