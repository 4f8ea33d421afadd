"""Beyond the paper: the default `NeuralBayesianFilter`, each of its parts left out, and its rivals, at equal calls of
the simulator (docs/beyond.md).

Every domain lends its episodes, its trained models and its way of scoring. The rivals of a filter that expands
successors are Fearnhead and Clifford's particle filter, as they had it and choosing branches as ours does, and particle
filters of 512. Those of other sizes have jobs of their own, without a model: where calls cost next to nothing, larger
ones are the rivals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbf import prng
from nbf.contracts import BeliefModel
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches
from nbf.files.checkpoint import load_model
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.branching import BranchingFilter
from nbf.filters.neural.filter import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.models.belief_model import MODELS
from nbf_paper.config import GridworldConfig, TriangulationConfig
from nbf_paper.experiments import goofspiel, goofspiel_games, gridworld, triangulation
from nbf_paper.experiments.measured import measure_and_record
from nbf_paper.experiments.rows import Contender, records_by_step
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.experiments.training_runs import Counter
from nbf_paper.records import ALL, Record, run_key

VARIANTS: dict[str, dict[str, bool]] = {
    "default": {},
    "faithful": {"even_draws": False, "consistent": False, "expand": False},
    "even draws alone": {"consistent": False, "expand": False, "look_ahead": False},
    "consistent alone": {"even_draws": False, "expand": False},
    "never expanded": {"expand": False},
    "not consistent": {"consistent": False},
    "nothing carried": {"carry": False},
    "no look-ahead": {"look_ahead": False},
}
"""The default filter, the paper's, and the variants between them, as run keys name what each leaves out. `variant`
makes the filters."""
ON_THE_PLANE = ("default", "faithful", "even draws alone", "consistent alone", "not consistent", "no look-ahead")
"""Where there is nothing to expand and nothing that is carried; elsewhere there are no forecasts."""
CHOSEN = "branches chosen"
"""Fearnhead and Clifford's filter where it chooses branches as the default filter does, instead of points."""
MORE, MORE_CHOSEN = (2048, 8192), (32, 512, 2048)
"""More sizes of particle filters, and of those that choose branches."""
GAMES, LONG = ("k=5", "k=6", "k=7"), "-long"
GRIDS = (
    *(f"{size}-{dimension}D-{kind}" for kind in ("fixed", "random") for dimension in (2, 3) for size in (5, 8)),
    "8-2D-random-diffuse",
    f"8-2D-random{LONG}",
)
CONFIGS = (*GRIDS, *GAMES, "triangulation")
LONG_HORIZON = 200
CALLS = {"gridworld": (128, 32), "goofspiel": (64,), "triangulation": (32, 16)}
"""Calls of the simulator a step; the parts are left out one by one at the first."""
MODELS_OF = {"gridworld": "wide", "goofspiel": "autoregressive", "triangulation": "mixture"}
"""The arm of each domain whose models are taken."""
GAME_STEPS = 6000


def domain_of(config: str) -> str:
    return "goofspiel" if config in GAMES else config if config == "triangulation" else "gridworld"


def variant(name: str, model: BeliefModel, particles: int) -> NeuralBayesianFilter:
    """The filter of an arm of `VARIANTS`."""
    return NeuralBayesianFilter(model, particles, **VARIANTS[name])


def rows(config: str, model: BeliefModel) -> list[Contender]:
    """The filters of a configuration."""
    domain = domain_of(config)
    most, *fewer = CALLS[domain]
    found = [Contender(variant("default", model, n), "nbf", "default", n, n) for n in fewer]
    for arm in VARIANTS:
        if arm in ON_THE_PLANE if domain == "triangulation" else arm != "no look-ahead":
            found.append(Contender(variant(arm, model, most), "nbf", arm, most, most))
    found.append(Contender(ApproxBeliefs(model, 64, **_truth(domain)), "approx", "default", 0, 0))
    if domain != "triangulation":
        found.append(Contender(BranchingFilter(most, choose=False), "branching", "", most, most))
        found.append(Contender(BranchingFilter(most), "branching", CHOSEN, most, most))
    return found + _particle_filters(domain, (*fewer, most, 1024 if domain == "triangulation" else 512))


def rival_rows(config: str) -> list[Contender]:
    """The rivals of a configuration in other sizes."""
    domain = domain_of(config)
    found = _particle_filters(domain, MORE)
    if domain != "triangulation":
        found += [Contender(BranchingFilter(n), "branching", CHOSEN, n, n) for n in MORE_CHOSEN]
    return found


def _particle_filters(domain: str, sizes: Sequence[int]) -> list[Contender]:
    """On the plane with a kernel density."""
    smooth = domain == "triangulation"
    return [Contender(ParticleFilter(n), "pf-kde" if smooth else "pf", "", n, n, smooth=smooth) for n in sizes]


def _truth(domain: str) -> dict[str, Any]:
    if domain == "goofspiel":
        return {"truth": PrefixFilter()}
    return {"truth": triangulation.PointMassFilter(200)} if domain == "triangulation" else {}


@dataclass(frozen=True)
class BeyondJob:
    """One configuration and training seed: trained if it is not yet, evaluated, recorded."""

    config: str
    seed: int = 0
    episodes: int = 200
    steps: int | None = None
    """Gradient steps; None is what each domain takes."""
    rivals: bool = False
    """Whether the filters are the rivals in other sizes, which need no model, instead."""

    def __post_init__(self) -> None:
        if self.config not in CONFIGS:
            raise InputError(f"There is no configuration {self.config!r} here; choose from {', '.join(CONFIGS)}.")

    @property
    def evaluated(self) -> int:
        """How many episodes the evaluation counts, for each filter."""
        return self.episodes

    @property
    def title(self) -> str:
        return f"beyond {self.config}{', rivals,' if self.rivals else ''} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        domain = domain_of(self.config)
        rivals = {"particles": list(MORE), "chosen": list(MORE_CHOSEN)}
        filters = rivals if self.rivals else {"calls": list(CALLS[domain]), "variants": VARIANTS}
        return {
            "config": self.config, "seed": self.seed, "episodes": self.episodes, "steps": self.steps, **filters,
            "trained": self._game().settings if domain == "goofspiel" else self._plane().settings
            if domain == "triangulation" else {"arm": MODELS_OF[domain], "environment": self._grid().settings},
        }  # fmt: skip

    @property
    def key(self) -> str:
        """The name of this run in `runs.json`."""
        return run_key(f"{self.config}/{'rivals' if self.rivals else 'beyond'}/{self.seed}", self.settings)

    def _game(self) -> goofspiel.GoofspielJob:
        cards, steps = int(self.config.removeprefix("k=")), self.steps or GAME_STEPS
        policies = SelfPlayConfig(cards=cards)
        return goofspiel.GoofspielJob(
            cards, MODELS_OF["goofspiel"], self.seed, replace(goofspiel.TRAINING, steps=steps), selfplay=policies,
            pool_games=min(goofspiel.POOL_GAMES, max(64, steps)),
        )  # fmt: skip

    def _plane(self) -> triangulation.TriangulationJob:
        steps = triangulation.TRAINING.steps if self.steps is None else self.steps
        pool = triangulation.POOL_EPISODES if self.steps is None else min(triangulation.POOL_EPISODES, max(64, steps))
        training = replace(triangulation.TRAINING, steps=steps)
        return triangulation.TriangulationJob(
            MODELS_OF["triangulation"], self.seed, training=training, pool_episodes=pool
        )

    def _grid(self) -> GridworldConfig:
        """As the episodes are; the model is trained on short ones."""
        short = GridworldConfig.parse(self.config.removesuffix(LONG))
        return replace(short, horizon=LONG_HORIZON) if self.config.endswith(LONG) else short

    def check(self, runs: Path) -> None:
        """Raise if the model that is there was trained with other settings."""
        domain = domain_of(self.config)
        if self.rivals and domain != "goofspiel":
            return
        if domain == "gridworld":
            short = GridworldConfig.parse(self.config.removesuffix(LONG))
            gridworld.training_run(short, MODELS_OF[domain], self.seed, runs, steps=self.steps).check_same()
        else:
            (self._game() if domain == "goofspiel" else self._plane()).check(runs)

    def train(self, runs: Path) -> Path:
        """The path of the model."""
        domain = domain_of(self.config)
        if domain == "gridworld":
            short = GridworldConfig.parse(self.config.removesuffix(LONG))
            return gridworld.train(short, MODELS_OF[domain], self.seed, runs, steps=self.steps)
        return (self._game() if domain == "goofspiel" else self._plane()).train(runs)

    def run(self, results: Path, runs: Path, *, command: str, bar: Counter) -> bool:
        """Do what is not recorded yet; whether anything was to do."""

        def measure() -> list[Record]:
            filters = rival_rows(self.config) if self.rivals else self._rows(runs)
            score = {"gridworld": _gridworld, "goofspiel": _goofspiel, "triangulation": _triangulation}
            return score[domain_of(self.config)](self, filters, runs, bar)

        return measure_and_record(self, results, measure, command)

    def _rows(self, runs: Path) -> list[Contender]:
        return rows(self.config, load_model(self.train(runs), MODELS)[0])


def _records(
    job: BeyondJob, contenders: Sequence[Contender], bar: Counter, score: Callable[[Contender], np.ndarray]
) -> list[Record]:
    """Of every filter the divergences by step."""
    found: list[Record] = []
    for row in contenders:
        bar.describe(f"{job.title}: {row.label} {row.arm}")
        js = score(row)
        bar.advance(job.episodes)
        base = Record(
            experiment="beyond", config=job.config, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=job.seed, step=ALL, metric="js", value=0.0, se=None, episodes=job.episodes,
        )  # fmt: skip
        found += records_by_step(base, "js", js)
    return found


def _gridworld(job: BeyondJob, contenders: Sequence[Contender], runs: Path, bar: Counter) -> list[Record]:
    config = job._grid()
    keys = jax.random.split(prng.stream(job.seed, "beyond", job.config), job.episodes)
    family = gridworld.family_of(config, job.seed)
    tracks = jax.jit(jax.vmap(functools.partial(gridworld.track, family, config.horizon)))(keys)

    def score(row: Contender) -> np.ndarray:
        return in_batches(functools.partial(gridworld.scores, row.filter), (keys, tracks), batch=min(50, job.episodes))[
            0
        ]

    return _records(job, contenders, bar, score)


def _goofspiel(job: BeyondJob, contenders: Sequence[Contender], runs: Path, bar: Counter) -> list[Record]:
    game, batch = job._game(), min(50, job.episodes)
    keys = jax.random.split(prng.stream(job.seed, "beyond", job.config), job.episodes)
    family = game.config.family(game.pool(runs).split().random)
    games = in_batches(functools.partial(goofspiel_games.tracks, family), (keys,), batch=batch)

    def score(row: Contender) -> np.ndarray:
        if row.name == "approx" or row.name == "nbf":
            return goofspiel_games.belief_divergences(row.filter, keys, games, batch=batch)
        return in_batches(functools.partial(goofspiel_games.scores, row.filter), (keys, games), batch=batch)["js"]

    return _records(job, contenders, bar, score)


def _triangulation(job: BeyondJob, contenders: Sequence[Contender], runs: Path, bar: Counter) -> list[Record]:
    config, batch = TriangulationConfig(), min(10, job.episodes)
    keys = jax.random.split(prng.stream(job.seed, "beyond", job.config), job.episodes)
    make = jax.jit(jax.vmap(functools.partial(triangulation.track, config.family(), config.horizon, 200)))
    tracks = in_batches(make, (keys,), batch=batch)

    def score(row: Contender) -> np.ndarray:
        of = functools.partial(triangulation.scores, row.filter, row.smooth)
        return in_batches(of, (keys, tracks), batch=batch)[0]

    return _records(job, contenders, bar, score)
