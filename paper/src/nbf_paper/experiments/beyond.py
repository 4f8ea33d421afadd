"""Beyond the paper: the default `NeuralBayesianFilter`, each of its parts left out, and its baselines, at equal numbers
of simulator calls (paper/docs/beyond.md).

Episodes, trained models and scores are those of each domain's own experiment. Where transition probabilities are known,
the baselines are Fearnhead and Clifford's particle filter, in its original form and with the default filter's selection
of branches, and particle filters of 512. Larger baselines, which need no model, have jobs of their own: where simulator
calls are cheap, they are the fair comparison. So have the controls: the prior, the default filter with a model that was
not trained, and on the plane a particle filter with the privileges of the default filter (look-ahead among candidates
from its own kernel density).
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
from nbf.filters.exact import ExactFilter
from nbf.filters.neural import (
    BranchProposal,
    EvenProposal,
    IndependentProposal,
    LookAheadProposal,
    NeuralBayesianFilter,
    NoCorrection,
)
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.filters.prediction import PredictionFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.regularized import RegularizedParticleFilter
from nbf_paper.config import GridworldConfig, TriangulationConfig
from nbf_paper.experiments import goofspiel, goofspiel_games, gridworld, triangulation
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import FilterRow, filter_keys, records_by_step
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.names import GAMES, GRIDWORLD_NAMES, LONG, LONG_ENDING, TRIANGULATION, domain_of
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
"""The variants in Triangulation, where no branches are selected or carried; elsewhere nothing looks ahead."""
CHOSEN = "branches chosen"
"""Fearnhead and Clifford's filter with the default filter's selection of branches, instead of points."""
MORE, MORE_CHOSEN = (2048, 8192), (32, 512, 2048)
"""Further sizes of particle filters, and of those that select branches."""
CONFIGS = (*GRIDWORLD_NAMES, LONG, *GAMES, TRIANGULATION)
LONG_HORIZON = 200
CALLS = {"gridworld": (128, 32), "goofspiel": (64,), TRIANGULATION: (32, 16)}
"""Simulator calls per update; the variants are scored at the first number."""
MODELS_OF = {"gridworld": "wide", "goofspiel": "autoregressive", TRIANGULATION: "mixture"}
"""The arm of each domain whose model is used."""
GAME_STEPS = 6000
PARTS = {"neural": "beyond", "baselines": "rivals", "controls": "controls"}
"""The parts of a configuration, each a job of its own, and how run keys name them."""
UNTRAINED = "untrained, default"
"""The default filter with a model that was not trained: what it reaches is not the model's merit."""


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


def filter_rows(config: str, model: BeliefModel) -> list[FilterRow]:
    """The filters of a configuration."""
    domain = domain_of(config)
    most, *fewer = CALLS[domain]
    found = [FilterRow(variant("default", model, n), "nbf", "default", n, n) for n in fewer]
    for arm in VARIANTS:
        if arm in ON_THE_PLANE if domain == TRIANGULATION else arm != "no look-ahead":
            found.append(FilterRow(variant(arm, model, most), "nbf", arm, most, most))
    found.append(FilterRow(ApproxBeliefs(model, 64, **_truth(domain)), "approx", "default", 0, 0))
    if domain != TRIANGULATION:
        found.append(FilterRow(BranchingFilter(most, choose=False), "branching", "", most, most))
        found.append(FilterRow(BranchingFilter(most), "branching", CHOSEN, most, most))
    return found + _particle_filters(domain, (*fewer, most, 1024 if domain == TRIANGULATION else 512))


def baseline_rows(config: str) -> list[FilterRow]:
    """The baselines of a configuration, in other sizes."""
    domain = domain_of(config)
    found = _particle_filters(domain, MORE)
    if domain != TRIANGULATION:
        found += [FilterRow(BranchingFilter(n), "branching", CHOSEN, n, n) for n in MORE_CHOSEN]
    return found


def control_rows(config: str, untrained: BeliefModel) -> list[FilterRow]:
    """What the default filter is to be compared with on any problem; none of it is trained."""
    domain = domain_of(config)
    truth = _truth(domain).get("truth", ExactFilter())
    found = [FilterRow(PredictionFilter(truth), "prior", "", 0, 0)]
    for n in CALLS[domain]:
        found.append(FilterRow(NeuralBayesianFilter(untrained, n), "nbf", UNTRAINED, n, n))
        if domain == TRIANGULATION:
            filter = RegularizedParticleFilter(n, candidates=LookAheadProposal().candidates)
            found.append(FilterRow(filter, "pf-regularized", "look-ahead", n, n))
    return found


def _particle_filters(domain: str, sizes: Sequence[int]) -> list[FilterRow]:
    """Particle filters; in Triangulation their beliefs are kernel densities."""
    smooth = domain == TRIANGULATION
    return [FilterRow(ParticleFilter(n), "pf-kde" if smooth else "pf", "", n, n, smooth=smooth) for n in sizes]


def _truth(domain: str) -> dict[str, Any]:
    if domain == "goofspiel":
        return {"truth": PrefixFilter()}
    return {"truth": PointMassFilter(200)} if domain == TRIANGULATION else {}


@dataclass(frozen=True)
class BeyondJob(Job):
    """One configuration and training seed, with a model of the domain's own experiment."""

    config: str
    seed: int = 0
    episodes: int = 200
    steps: int | None = None
    """Gradient steps; None for the domain's own number."""
    part: str = "neural"
    """Of `PARTS`; only the first one needs a trained model."""

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise InputError(f"There is no part {self.part!r}; choose from {', '.join(PARTS)}.")
        if self.config not in CONFIGS:
            raise InputError(f"There is no configuration {self.config!r} here; choose from {', '.join(CONFIGS)}.")

    @property
    def evaluated(self) -> int:
        return self.episodes

    @property
    def title(self) -> str:
        return f"beyond {self.config}{f', {self.part},' if self.part != 'neural' else ''} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        domain = domain_of(self.config)
        trained = {"arm": MODELS_OF[domain], "environment": self.grid.settings} if domain == "gridworld" else None
        of_part = {
            "neural": {"calls": list(CALLS[domain]), "variants": VARIANTS},
            "baselines": {"particles": list(MORE), "chosen": list(MORE_CHOSEN)},
            "controls": {"calls": list(CALLS[domain]), "controls": ["prior", "untrained", "pf-regularized"]},
        }
        return {
            "config": self.config,
            "seed": self.seed,
            "episodes": self.episodes,
            "steps": self.steps,
            "trained": trained or self.trainer.settings,
            **of_part[self.part],
        }

    @property
    def label(self) -> str:
        return f"{self.config}/{PARTS[self.part]}/{self.seed}"

    @property
    def grid(self) -> GridworldConfig:
        """The Gridworld configuration of the episodes; the model is trained on short ones."""
        short = GridworldConfig.parse(self.config.removesuffix(LONG_ENDING))
        return replace(short, horizon=LONG_HORIZON) if self.config.endswith(LONG_ENDING) else short

    @property
    def trainer(self) -> gridworld.GridworldJob | goofspiel.GoofspielJob | triangulation.TriangulationJob:
        """The job of the domain's own experiment that trains the model."""
        domain = domain_of(self.config)
        return self.game if domain == "goofspiel" else self._plane() if domain == TRIANGULATION else self._grid()

    @property
    def game(self) -> goofspiel.GoofspielJob:
        """The trainer in Goofspiel."""
        cards, steps = int(self.config.removeprefix("k=")), self.steps or GAME_STEPS
        return goofspiel.GoofspielJob(
            cards, MODELS_OF["goofspiel"], self.seed, replace(goofspiel.TRAINING, steps=steps),
            selfplay=SelfPlayConfig(cards=cards), pool_games=min(goofspiel.POOL_GAMES, max(64, steps)),
        )  # fmt: skip

    def _plane(self) -> triangulation.TriangulationJob:
        training, pool = triangulation.TRAINING, triangulation.POOL_EPISODES
        if self.steps is not None:
            training, pool = replace(training, steps=self.steps), min(pool, max(64, self.steps))
        arm = MODELS_OF[TRIANGULATION]
        return triangulation.TriangulationJob(arm, self.seed, training=training, pool_episodes=pool)

    def _grid(self) -> gridworld.GridworldJob:
        names, arms = [self.config.removesuffix(LONG_ENDING)], [MODELS_OF["gridworld"]]
        (job,) = gridworld.trained_jobs(names, arms, [self.seed], self.steps, gridworld.GridworldEvaluation())
        return job

    def check(self, runs: Path) -> None:
        if self.part == "neural" or domain_of(self.config) == "goofspiel":  # whose policies are needed in any case
            self.trainer.check(runs)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        if self.part == "baselines":
            rows = baseline_rows(self.config)
        elif self.part == "controls":
            config = self.trainer.training_run(runs).model
            rows = control_rows(self.config, config.build(prng.stream(self.seed, "beyond", "untrained")))
        else:
            training = self.trainer.training_run(runs)
            training.train()
            rows = filter_rows(self.config, training.load())
        score = {"gridworld": _gridworld, "goofspiel": _goofspiel, TRIANGULATION: _triangulation}
        return score[domain_of(self.config)](self, rows, runs, bar)


def _records(
    job: BeyondJob, rows: Sequence[FilterRow], bar: Counter, score: Callable[[FilterRow], np.ndarray]
) -> list[Record]:
    """The divergences of every filter by step."""
    found: list[Record] = []
    for row in rows:
        bar.describe(f"{job.title}: {row.label} {row.arm}")
        js = score(row)
        bar.advance(job.episodes)
        base = Record(
            experiment="beyond", config=job.config, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.calls, seed=job.seed, step=ALL, metric="js", value=0.0, se=None, episodes=job.episodes,
        )  # fmt: skip
        found += records_by_step(base, "js", js)
    return found


def _gridworld(job: BeyondJob, rows: Sequence[FilterRow], runs: Path, bar: Counter) -> list[Record]:
    config = job.grid
    keys = jax.random.split(prng.stream(job.seed, "beyond", job.config), job.episodes)
    family = gridworld.family_of(config, job.seed)
    tracks = jax.jit(jax.vmap(functools.partial(gridworld.track, family, config.horizon)))(keys)
    own = filter_keys(keys)

    def score(row: FilterRow) -> np.ndarray:
        batch = min(50, job.episodes)
        return in_batches(functools.partial(gridworld.scores, row.filter), (own, tracks), batch=batch)[0]

    return _records(job, rows, bar, score)


def _goofspiel(job: BeyondJob, rows: Sequence[FilterRow], runs: Path, bar: Counter) -> list[Record]:
    game, batch = job.game, min(50, job.episodes)
    keys = jax.random.split(prng.stream(job.seed, "beyond", job.config), job.episodes)
    family = game.config.family(game.pool(runs).split().random)
    games = in_batches(functools.partial(goofspiel_games.tracks, family), (keys,), batch=batch)
    own = filter_keys(keys)

    def score(row: FilterRow) -> np.ndarray:
        if row.name == "approx" or row.name == "nbf":
            return goofspiel_games.belief_divergences(row.filter, own, games, batch=batch)
        return in_batches(functools.partial(goofspiel_games.scores, row.filter), (own, games), batch=batch)["js"]

    return _records(job, rows, bar, score)


def _triangulation(job: BeyondJob, rows: Sequence[FilterRow], runs: Path, bar: Counter) -> list[Record]:
    config, batch = TriangulationConfig(), min(10, job.episodes)
    keys = jax.random.split(prng.stream(job.seed, "beyond", job.config), job.episodes)
    make = jax.jit(jax.vmap(functools.partial(triangulation.track, config.family(), config.horizon, 200)))
    tracks = in_batches(make, (keys,), batch=batch)
    own = filter_keys(keys)

    def score(row: FilterRow) -> np.ndarray:
        of = functools.partial(triangulation.scores, row.filter, row.smooth)
        return in_batches(of, (own, tracks), batch=batch)[0]

    return _records(job, rows, bar, score)
