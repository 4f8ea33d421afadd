"""The paper's figure "Goofspiel": Jensen-Shannon divergence by round in games of four to seven cards.

How beliefs are compared is told in `goofspiel_games`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nbf import prng
from nbf.contracts import BeliefSource
from nbf.environments.goofspiel import MOST_LISTED
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.recurrent import RecurrentFilter
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.belief_model import BeliefEmbeddingModel, ModelConfig, TokensConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.set_encoder import MeanConfig
from nbf.sources.pool import BeliefPool
from nbf.sources.prefixes import PrefixPosteriors
from nbf.training.config import FitConfig
from nbf.training.progress import Progress
from nbf_paper.config import GoofspielConfig
from nbf_paper.experiments import demands, recurrent
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.goofspiel_evaluation import (
    TOLD,
    Extra,
    GoofspielEvaluation,
    by_entropy,
    filter_rows,
    microseconds,
)
from nbf_paper.experiments.goofspiel_games import embeddings, exact_samples, model_divergences, scores, tracks
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.policy_pool import SPLITS, PolicyPool
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.rows import FilterRow, filter_keys, records_by_step, with_training_seconds
from nbf_paper.experiments.selfplay import SelfPlayConfig
from nbf_paper.experiments.settings import model_settings, training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.names import LUMPED
from nbf_paper.records import ALL, Record


@dataclass(frozen=True)
class GoofspielArm:
    """A decoder, and whether the model is given the public history as context."""

    decoder: DequantizedFlowConfig | AutoregressiveConfig
    context: bool = False


FLOW = DequantizedFlowConfig(
    "nlsq", "normal", "coupling", layers=8, width=128, depth=4, noise_width=48, noise_depth=2, importance_samples=64
)
"""The paper's, with the sizes of its table."""
ARMS = {
    "faithful": GoofspielArm(FLOW),
    "paper": GoofspielArm(replace(FLOW, noise_conditioned=False)),
    "autoregressive": GoofspielArm(AutoregressiveConfig(width=256)),
    "autoregressive-context": GoofspielArm(AutoregressiveConfig(width=256), context=True),
    "recurrent": GoofspielArm(replace(FLOW, width=64)),
}
"""`faithful` is the paper's model, `paper` the same to the letter: its noise is not conditioned on θ, its learning rate
is constant. `recurrent` is the paper's baseline; the others sample legal sequences only. The arm `lumped` has no model:
see `goofspiel_lumped`."""
EMBEDDING, ENCODER = 48, MeanConfig(width=128, depth=3)
TRAINING = FitConfig(steps=150_000, batch=64, samples=64, optimizer="nadam", learning_rate=1e-3, schedule="cosine")
POOL_GAMES, POOL_SAMPLES = 8192, 128
"""Games whose beliefs are drawn repeatedly in training, and the samples that are kept of each belief: making a new
belief for every draw would add half to the cost of training."""


def records_of(
    job: GoofspielJob, split: str, row: FilterRow, found: dict[str, np.ndarray], extra: Extra
) -> list[Record]:
    """The records of one filter."""
    base = Record(
        experiment="goofspiel", config=job.tested(split), filter=row.name, arm=row.arm, particles=row.particles,
        calls=row.calls, seed=job.seed, step=ALL, metric="js", value=0.0, se=None, episodes=job.evaluation.episodes,
    )  # fmt: skip
    metrics = ("js", *TOLD.get(row.name, ()))
    records = [record for metric in metrics for record in records_by_step(base, metric, found[metric])]
    return records + [replace(base, metric=name, value=value, se=se) for name, (value, se) in extra.items()]


def evaluate(
    job: GoofspielJob, model: BeliefEmbeddingModel, split: str, pool: PolicyPool, bar: Counter
) -> list[Record]:
    """Records of every filter of an arm in fresh games of the test policies; all filters see the same games."""
    settings, batch, name = job.evaluation, min(50, job.evaluation.episodes), job.tested(split)
    keys = jax.random.split(prng.stream(job.seed, "goofspiel", name, "evaluation"), settings.episodes)
    title = f"goofspiel {name} {job.arm} seed {job.seed}"
    bar.describe(f"{title}: truth")
    family = job.config.family(getattr(pool.split(), split))
    games = in_batches(functools.partial(tracks, family), (keys,), batch=batch, advance=bar.advance)
    records, own = list[Record](), filter_keys(keys)
    for row in filter_rows(job.arm, model, job.cards, settings):
        bar.describe(f"{title}: {row.label}")
        key = prng.stream(job.seed, "goofspiel", name, row.label, "importance")
        if isinstance(row.filter, ApproxBeliefs | NeuralBayesianFilter | RecurrentFilter):
            embed = functools.partial(embeddings, row.filter, row.particles or settings.approx_samples)
            embedded, found = in_batches(embed, (own, games), batch=batch, advance=bar.advance)
            found["js"] = model_divergences(model, settings.importance_samples, key, embedded, games)
        else:
            found = in_batches(functools.partial(scores, row.filter), (own, games), batch=batch, advance=bar.advance)
        extra = by_entropy("js", found["js"], games.entropy)
        if not isinstance(row.filter, ApproxBeliefs):
            told = games.environments, games.policies, games.observations
            extra["us_per_update"] = microseconds(row.filter, key, *told), None
        records += records_of(job, split, row, found, extra)
    if job.arm == "faithful":
        draw = functools.partial(exact_samples, settings.exact_samples)
        found = in_batches(draw, (own, games.truth), batch=batch)
        hands = math.comb(job.cards, job.cards // 2)
        emp = FilterRow(PrefixFilter(), "emp", "", settings.exact_samples, hands)
        spread = by_entropy("entropy", games.entropy[:, None], games.entropy)
        records += records_of(job, split, emp, found, {**by_entropy("js", found["js"], games.entropy), **spread})
    return records


@dataclass(frozen=True)
class GoofspielJob(PoolJob):
    """One training seed of one arm, in games of so many cards."""

    cards: int
    arm: str = "faithful"
    seed: int = 0
    training: FitConfig = TRAINING
    evaluation: GoofspielEvaluation = field(default_factory=GoofspielEvaluation)
    selfplay: SelfPlayConfig | None = None
    """How the policies are made; None for the paper's settings."""
    pool_games: int = POOL_GAMES
    """Games whose beliefs are trained on."""

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise InputError(f"There is no arm {self.arm!r} for goofspiel; choose from {', '.join((*ARMS, LUMPED))}.")
        if not 3 <= self.cards <= MOST_LISTED:
            raise InputError(f"cards must be 3 to {MOST_LISTED}, for a posterior that is listed; got {self.cards}.")
        if self.policies.cards != self.cards:
            raise InputError(f"The policies are for {self.policies.cards} cards, the game has {self.cards}.")

    @property
    def config(self) -> GoofspielConfig:
        """The game."""
        return GoofspielConfig(self.cards)

    @property
    def name(self) -> str:
        """The game's name in records."""
        return self.config.name

    def tested(self, split: str) -> str:
        """A configuration's name: `k=6`, or `k=6-run` where the test policies come from a run of their own."""
        return self.name + ("" if split == SPLITS[0] else f"-{split}")

    @property
    def policies(self) -> SelfPlayConfig:
        """How the policies are made."""
        return self.selfplay or SelfPlayConfig(cards=self.cards)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    def sizes(self) -> list[Size]:
        _, *others = super().sizes()
        return [Size("--episodes", self.evaluated, functools.partial(demands.games, self.cards)), *others]

    @property
    def title(self) -> str:
        return f"goofspiel {self.name} {self.arm} seed {self.seed}"

    @property
    def model(self) -> ModelConfig:
        """The config of the model."""
        arm, game = ARMS[self.arm], self.config.game
        if self.arm == "recurrent":
            assert isinstance(arm.decoder, DequantizedFlowConfig)
            return recurrent.goofspiel_model(self.config, arm.decoder)
        history = game.rounds * (2 * game.cards + 3) + game.cards  # see `Consistent.context`
        space = TokensConfig(game.cards, game.cards + 1)
        return ModelConfig(space, arm.decoder, ENCODER, EMBEDDING, context=history if arm.context else 0)

    def source(self, runs: Path) -> BeliefSource:
        """The beliefs to train on: all beliefs of many games between the training policies. The recurrent arm draws new
        games instead."""
        posteriors = PrefixPosteriors(self.config.family(self.pool(runs).split().training), self.config.horizon)
        if self.arm == "recurrent":
            return recurrent.GameHistories(posteriors)
        with Progress(f"{self.title}: beliefs", self.pool_games, 0, unit="game") as bar:
            key = prng.stream(self.seed, "goofspiel", self.name, "pool")
            return BeliefPool.of_episodes(
                posteriors, key, episodes=self.pool_games, samples=POOL_SAMPLES, advance=bar.advance
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "environment": self.config.settings, "arm": self.arm, "seed": self.seed,
            "pool": None if self.arm == "recurrent" else [self.pool_games, POOL_SAMPLES],
            "model": model_settings(self.model),
            "policies": self.policies.settings, "training": training_settings(self.training),
            "evaluation": self.evaluation.settings,
        }  # fmt: skip

    @property
    def label(self) -> str:
        return f"{self.name}/{self.arm}/{self.seed}"

    def training_run(self, runs: Path) -> TrainingRun:
        folder = runs / "goofspiel" / self.name / f"{self.arm}-{self.seed}"
        environment = {"name": self.name, **self.config.settings, "policies": self.policies.settings}
        source: Callable[[], BeliefSource] = functools.partial(self.source, runs)
        loss = recurrent.sample_loss if self.arm == "recurrent" else None
        stream = ("goofspiel", self.name, self.arm)
        return TrainingRun(folder, self.model, self.training, source, environment, self.seed, stream, self.title, loss)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        training, pool = self.training_run(runs), self.pool(runs)
        model = training.load()
        assert isinstance(model, BeliefEmbeddingModel)
        records = [record for split in SPLITS for record in evaluate(self, model, split, pool, bar)]
        return with_training_seconds(records, training.timing()[0])


def training_of(arm: str) -> FitConfig:
    """The training of the model of an arm."""
    if arm == "recurrent":
        return recurrent.GOOFSPIEL_TRAINING
    return replace(TRAINING, schedule="constant") if arm == "paper" else TRAINING
