"""The paper's figure "Goofspiel": Jensen-Shannon divergence by round in games of four to seven cards.

A model's belief is compared on the states that the true posterior gives weight to; all that it gives to other states,
possible or not, is one further bin. That is the divergence over all sequences: where the truth has no mass, only the
total counts. Beside the paper's filters stands the histogram of exact samples, which no set of as many particles beats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.contracts import BeliefModel, BeliefSource, Filter
from nbf.environments.goofspiel import MOST_LISTED
from nbf.environments.rollout import at_step
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches, mean_and_error, update_microseconds
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
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
from nbf_paper.experiments import recurrent
from nbf_paper.experiments.goofspiel_games import Track, embeddings, exact_samples, model_divergences, scores, tracks
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import Contender, records_by_step, with_training_seconds
from nbf_paper.experiments.selfplay import SPLITS, Pool, SelfPlayConfig, make_pool, read_pool
from nbf_paper.experiments.settings import model_settings, training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.records import ALL, Record


@dataclass(frozen=True)
class Arm:
    """A decoder, and whether it and the encoder are told the public history."""

    decoder: DequantizedFlowConfig | AutoregressiveConfig
    context: bool = False


FLOW = DequantizedFlowConfig(
    "nlsq", "normal", "coupling", layers=8, width=128, depth=4, noise_width=48, noise_depth=2, importance_samples=64
)
"""The paper's, with the sizes of its table."""
ARMS = {
    "faithful": Arm(FLOW),
    "autoregressive": Arm(AutoregressiveConfig(width=256)),
    "autoregressive-context": Arm(AutoregressiveConfig(width=256), context=True),
    "recurrent": Arm(replace(FLOW, width=64)),
}
"""`faithful` is the paper's, and `recurrent` its baseline; the others write legal sequences only."""
EMBEDDING, ENCODER = 48, MeanConfig(width=128, depth=3)
TRAINING = FitConfig(steps=150_000, batch=64, samples=64, optimizer="nadam", learning_rate=1e-3, schedule="cosine")
POOL_GAMES, POOL_SAMPLES = 8192, 128
"""Games whose beliefs are drawn again and again, and the samples that are kept of each: to make a new belief for
every draw costs half as much as to learn from it."""
TIMED_UPDATES = 300


@dataclass(frozen=True)
class EvaluationConfig:
    """How the filters are scored."""

    episodes: int = 500
    """Games per training seed; every filter sees the same ones."""
    particle_filters: tuple[int, ...] = (64, 128, 256, 512)
    neural_filters: tuple[int, ...] = (64,)
    approx_samples: int = 64
    exact_samples: int = 64
    """Of the histogram of exact samples."""
    importance_samples: int = 64
    """Draws by which the probability of a state under a flow is estimated."""

    def __post_init__(self) -> None:
        for name, least in (("episodes", 2), ("exact_samples", 1), ("importance_samples", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}; got {getattr(self, name)}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "episodes": self.episodes,
            "particle_filters": self.particle_filters,
            "neural_filters": self.neural_filters,
            "approx_samples": self.approx_samples,
            "exact_samples": self.exact_samples,
            "importance_samples": self.importance_samples,
        }


def contenders(arm: str, model: BeliefModel, cards: int, settings: EvaluationConfig) -> list[Contender]:
    """Every filter of the figure: those without a model belong to the faithful arm's run."""
    if arm == "recurrent":
        return [Contender(RecurrentFilter(model), "recurrent", "", 0, 0)]
    exact, hands = PrefixFilter(), math.comb(cards, cards // 2)
    rows = [Contender(ApproxBeliefs(model, settings.approx_samples, truth=exact), "approx", arm, 0, hands)]
    rows += [Contender(NeuralBayesianFilter.faithful(model, n), "nbf", arm, n, n) for n in settings.neural_filters]
    if arm == "faithful":
        rows += [Contender(ParticleFilter(n), "pf", "", n, n) for n in settings.particle_filters]
        rows += [Contender(exact, "exact", "", 0, hands)]
    return rows


# --- the evaluation ------------------------------------------------------------------------------


def microseconds(filter: Filter, key: Key[Array, ""], games: Track) -> float:
    """Of one update in the first game, over and over."""
    game = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), games)
    told = jax.device_put((game.environments, game.policies))
    rounds = [at_step(told, time, changing=True) for time in range(len(game.observations))]
    steps = np.arange(TIMED_UPDATES + 1) % len(rounds)
    keys = jax.random.split(key, len(steps))
    inputs = [(key, int(game.observations[step]), *rounds[step]) for key, step in zip(keys, steps, strict=True)]
    return update_microseconds(filter.step, filter.init(key, rounds[0][0]), inputs)


TOLD = {"nbf": ("legality", "zero_weight", "ess"), "pf": ("zero_weight", "ess"), "approx": ("legality",),
        "recurrent": ("legality",)}  # fmt: skip
"""What is recorded of a filter besides JS: of a model's draws the share that is legal (the length, the cards and the
outcomes of that round), and of rounds the share in which every weight was zero at first."""


Extra = dict[str, tuple[float, float | None]]


def by_entropy(
    metric: str, values: Float[np.ndarray, "episodes rounds"], entropy: Float[np.ndarray, " episodes"]
) -> Extra:
    """The mean, with its standard error, in the half of the games in which the opponent bids most nearly without
    chance, and in the other half."""
    order = np.argsort(entropy)
    halves = {"sharp": order[: len(order) // 2], "diffuse": order[len(order) // 2 :]}
    found = {name: mean_and_error(values[half].mean(axis=1)) for name, half in halves.items()}
    return {f"{metric}_{name}": (float(mean), float(error)) for name, (mean, error) in found.items()}


def records_of(
    job: GoofspielJob, split: str, row: Contender, found: dict[str, np.ndarray], extra: Extra
) -> list[Record]:
    """What is recorded of a filter."""
    base = Record(
        experiment="goofspiel", config=job.tested(split), filter=row.name, arm=row.arm, particles=row.particles,
        calls=row.calls, seed=job.seed, step=ALL, metric="js", value=0.0, se=None, episodes=job.evaluation.episodes,
    )  # fmt: skip
    metrics = ("js", *TOLD.get(row.name, ()))
    records = [record for metric in metrics for record in records_by_step(base, metric, found[metric])]
    return records + [replace(base, metric=name, value=value, se=se) for name, (value, se) in extra.items()]


def evaluate(job: GoofspielJob, model: BeliefEmbeddingModel, split: str, pool: Pool, bar: Counter) -> list[Record]:
    """Records of every filter of an arm in fresh games of some test policies; all filters see the same ones."""
    settings, batch, name = job.evaluation, min(50, job.evaluation.episodes), job.tested(split)
    keys = jax.random.split(prng.stream(job.seed, "goofspiel", name, "evaluation"), settings.episodes)
    title = f"goofspiel {name} {job.arm} seed {job.seed}"
    bar.describe(f"{title}: truth")
    family = job.config.family(getattr(pool.split(), split))
    games = in_batches(functools.partial(tracks, family), (keys,), batch=batch, advance=bar.advance)
    records: list[Record] = []
    for row in contenders(job.arm, model, job.cards, settings):
        bar.describe(f"{title}: {row.label}")
        key = prng.stream(job.seed, "goofspiel", name, row.label, "importance")
        if isinstance(row.filter, ApproxBeliefs | NeuralBayesianFilter | RecurrentFilter):
            embed = functools.partial(embeddings, row.filter, row.particles or settings.approx_samples)
            embedded, found = in_batches(embed, (keys, games), batch=batch, advance=bar.advance)
            found["js"] = model_divergences(model, settings.importance_samples, key, embedded, games)
        else:
            found = in_batches(functools.partial(scores, row.filter), (keys, games), batch=batch, advance=bar.advance)
        extra = by_entropy("js", found["js"], games.entropy)
        if not isinstance(row.filter, ApproxBeliefs):
            extra["us_per_update"] = microseconds(row.filter, key, games), None
        records += records_of(job, split, row, found, extra)
    if job.arm == "faithful":
        draw = functools.partial(exact_samples, settings.exact_samples)
        found = in_batches(draw, (keys, games.truth), batch=batch)
        hands = math.comb(job.cards, job.cards // 2)
        emp = Contender(PrefixFilter(), "emp", "", settings.exact_samples, hands)
        spread = by_entropy("entropy", games.entropy[:, None], games.entropy)
        records += records_of(job, split, emp, found, {**by_entropy("js", found["js"], games.entropy), **spread})
    return records


@dataclass(frozen=True)
class GoofspielJob(Job):
    """One training seed of one arm in games of so many cards: trained, evaluated, recorded."""

    cards: int
    arm: str = "faithful"
    seed: int = 0
    training: FitConfig = TRAINING
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    selfplay: SelfPlayConfig | None = None
    """How the policies are made; None is the paper's way."""
    pool_games: int = POOL_GAMES
    """Games whose beliefs are trained on."""

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise InputError(f"There is no arm {self.arm!r} for goofspiel; choose from {', '.join(ARMS)}.")
        if not 3 <= self.cards <= MOST_LISTED:
            raise InputError(f"cards must be 3 to {MOST_LISTED}, for a posterior that is listed; got {self.cards}.")
        if self.policies.cards != self.cards:
            raise InputError(f"The policies are for {self.policies.cards} cards, the game has {self.cards}.")

    @property
    def config(self) -> GoofspielConfig:
        return GoofspielConfig(self.cards)

    @property
    def name(self) -> str:
        return self.config.name

    def tested(self, split: str) -> str:
        """A configuration's name: `k=6`, or `k=6-run` where the test policies come from a run of their own."""
        return self.name + ("" if split == SPLITS[0] else f"-{split}")

    @property
    def policies(self) -> SelfPlayConfig:
        return self.selfplay or SelfPlayConfig(cards=self.cards)

    @property
    def evaluated(self) -> int:
        return self.evaluation.episodes

    @property
    def title(self) -> str:
        return f"goofspiel {self.name} {self.arm} seed {self.seed}"

    @property
    def model(self) -> ModelConfig:
        arm, game = ARMS[self.arm], self.config.game
        if self.arm == "recurrent":
            assert isinstance(arm.decoder, DequantizedFlowConfig)
            return recurrent.goofspiel_model(self.config, arm.decoder)
        history = game.rounds * (2 * game.cards + 3) + game.cards  # see `Consistent.context`
        space = TokensConfig(game.cards, game.cards + 1)
        return ModelConfig(space, arm.decoder, ENCODER, EMBEDDING, context=history if arm.context else 0)

    def pool(self, runs: Path) -> Pool:
        """The policies, made if they are not there yet."""
        return make_pool(self.policies, pool_path(runs, self.policies))

    def source(self, runs: Path) -> BeliefSource:
        """The beliefs to train on: all of many games between policies that are not tested on; for the recurrent arm,
        new games all the time."""
        posteriors = PrefixPosteriors(self.config.family(self.pool(runs).split().taught), self.config.horizon)
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

    def check(self, runs: Path) -> None:
        super().check(runs)
        path = pool_path(runs, self.policies)
        if path.exists():
            read_pool(path, self.policies)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        training, pool = self.training_run(runs), self.pool(runs)
        model = training.load()
        assert isinstance(model, BeliefEmbeddingModel)
        records = [record for split in SPLITS for record in evaluate(self, model, split, pool, bar)]
        return with_training_seconds(records, training.timing()[0])


def training_of(arm: str) -> FitConfig:
    """How the model of an arm is trained."""
    return recurrent.GOOFSPIEL_TRAINING if arm == "recurrent" else TRAINING


def pool_path(runs: Path, config: SelfPlayConfig) -> Path:
    """Where the policies of a config lie."""
    usual = SelfPlayConfig(cards=config.cards)
    size = "" if config == usual else f"-{config.runs}x{config.checkpoints}"
    return runs / "goofspiel" / f"pool-{config.cards}{size}.safetensors"
