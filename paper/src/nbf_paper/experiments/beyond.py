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
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.branching import BranchingFilter
from nbf.filters.neural import (
    BranchProposal,
    EvenProposal,
    IndependentProposal,
    NeuralBayesianFilter,
    NoCorrection,
)
from nbf.filters.particle import ParticleFilter
from nbf.filters.prefixes import PrefixFilter
from nbf_paper.config import GridworldConfig, TriangulationConfig
from nbf_paper.experiments import goofspiel, goofspiel_games, gridworld, triangulation
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import Contender, records_by_step
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.names import GRIDWORLD_NAMES, LONG, LONG_ENDING, TRIANGULATION, domain_of
from nbf_paper.records import ALL, Record

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
GAMES = ("k=5", "k=6", "k=7")
CONFIGS = (*GRIDWORLD_NAMES, LONG, *GAMES, TRIANGULATION)
LONG_HORIZON = 200
CALLS = {"gridworld": (128, 32), "goofspiel": (64,), "triangulation": (32, 16)}
"""Calls of the simulator a step; the parts are left out one by one at the first."""
MODELS_OF = {"gridworld": "wide", "goofspiel": "autoregressive", "triangulation": "mixture"}
"""The arm of each domain whose models are taken."""
GAME_STEPS = 6000


def variant(name: str, model: BeliefModel, particles: int) -> NeuralBayesianFilter:
    """The filter of an arm of `VARIANTS`."""
    proposal = {
        "faithful": IndependentProposal(),
        "even draws alone": EvenProposal(),
        "consistent alone": IndependentProposal(),
        "never expanded": EvenProposal(),
        "nothing carried": BranchProposal(carry=None),
        "no look-ahead": EvenProposal(),
    }.get(name)
    correction = NoCorrection() if name in ("faithful", "even draws alone", "not consistent") else None
    return NeuralBayesianFilter(model, particles, proposal=proposal, correction=correction)


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
class BeyondJob(Job):
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
        return self.episodes

    @property
    def title(self) -> str:
        return f"beyond {self.config}{', rivals,' if self.rivals else ''} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        domain = domain_of(self.config)
        rivals = {"particles": list(MORE), "chosen": list(MORE_CHOSEN)}
        filters = rivals if self.rivals else {"calls": list(CALLS[domain]), "variants": VARIANTS}
        return {
            "config": self.config, "seed": self.seed, "episodes": self.episodes, "steps": self.steps, **filters,
            "trained": self._game().settings if domain == "goofspiel" else self._plane().settings
            if domain == "triangulation" else {"arm": MODELS_OF[domain], "environment": self._grid().settings},
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"{self.config}/{'rivals' if self.rivals else 'beyond'}/{self.seed}"

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
        short = GridworldConfig.parse(self.config.removesuffix(LONG_ENDING))
        return replace(short, horizon=LONG_HORIZON) if self.config.endswith(LONG_ENDING) else short

    def _training(self, runs: Path) -> TrainingRun:
        """Of the domain's model, which `measure` trains if it is not there."""
        if domain_of(self.config) == "gridworld":
            short = GridworldConfig.parse(self.config.removesuffix(LONG_ENDING))
            return gridworld.training_run(short, MODELS_OF["gridworld"], self.seed, runs, steps=self.steps)
        return self._other().training_run(runs)

    def _other(self) -> goofspiel.GoofspielJob | triangulation.TriangulationJob:
        """The job of another domain that trains the model."""
        return self._game() if domain_of(self.config) == "goofspiel" else self._plane()

    def check(self, runs: Path) -> None:
        domain = domain_of(self.config)
        if domain == "goofspiel":
            self._game().check(runs)
        elif not self.rivals:
            self._training(runs).check_same()

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        filters = rival_rows(self.config) if self.rivals else self._rows(runs)
        score = {"gridworld": _gridworld, "goofspiel": _goofspiel, "triangulation": _triangulation}
        return score[domain_of(self.config)](self, filters, runs, bar)

    def _rows(self, runs: Path) -> list[Contender]:
        training = self._training(runs)
        training.train()
        return rows(self.config, training.load())


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
