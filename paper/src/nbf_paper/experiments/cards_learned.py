"""Hand inference with what is learned: a decoder that knows which cards go together, and networks that see no policy.

The games are those of `cards`, so that the rows stand in the same tables. Everything is trained on games between the
training policies of self-play alone: those of the held-out run, scripted players and wide networks are new to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.hands import HandBelief
from nbf.contracts import BeliefModel
from nbf.evaluation.batches import mean_and_error
from nbf.files.checkpoint import load_model
from nbf.filters.neural import NeuralBayesianFilter, NoCorrection
from nbf.models.autoregressive_deals import AutoregressiveDeals, AutoregressiveDealsConfig
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.spaces.deal_weights import marginals
from nbf.training.config import FitConfig
from nbf_paper.experiments import card_baselines as baselines
from nbf_paper.experiments.card_baselines import Found, History
from nbf_paper.experiments.card_beliefs import DealBeliefConfig, deal_loss, samples
from nbf_paper.experiments.card_games import Watched
from nbf_paper.experiments.card_location import CardLocationConfig, FineTuned, Located, PlayedGames, location_loss
from nbf_paper.experiments.cards import FIRST, LAST, CardJob, CardRow
from nbf_paper.experiments.demands import Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.policy_pool import make_pool, pool_path
from nbf_paper.experiments.settings import training_settings
from nbf_paper.experiments.training_runs import TrainingRun
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.records import Record

LEARNED = "learned"
TRAINED = 0
"""The seed of all training: seeds of a job are of its games alone."""
CALLS = (64, 256)
COMPARED = (64,)
"""Calls with which the probability of the true deal is also measured for the decoder of largest entropy."""
EMBEDDED = 512
"""Samples of the exact posterior that are embedded for the ceiling."""
DECODER = FitConfig(steps=600, batch=16, samples=288, optimizer="adam", learning_rate=5e-3, schedule="cosine")
LOCATION = FitConfig(steps=3000, batch=32, samples=2, optimizer="adam", learning_rate=2e-3, schedule="cosine")
"""A batch is of games, all actions of each."""
FINE_TUNING = {512: (3e-3, 32), 4096: (3e-3, 32)}
"""Calls at each action: learning rate and gradient steps, the best of those tried (1e-4 to 3e-3, 4 to 64 steps,
not every pair of them) in 24 games between training policies."""


class Tracked(eqx.Module):
    """The neural filter with a model over deals: marginals of its embedding after each action, and how likely the true
    deal is."""

    model: AutoregressiveDeals | MaximumEntropyDeals
    calls: int = eqx.field(static=True)

    def __call__(self, key: Key[Array, ""], game: Watched) -> tuple[Found, Float[Array, " t"]]:
        first, model = jax.tree.map(lambda leaf: leaf[0], game.environments), self.model
        filter = NeuralBayesianFilter(model, self.calls, correction=NoCorrection())

        def step(state: Any, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Array, Array]]:
            key, action, environment = inputs
            state, _ = filter.update(key, state, action, environment, None)
            space = environment.space
            found = marginals(model.weights(state.embedding, space), space.quotas)
            return state, (found, model.log_prob(state.embedding, game.deal[None], space)[0])

        keys = jax.random.split(key, len(game.actions))
        found, told = jax.lax.scan(step, filter.init(key, first), (keys, game.actions, game.environments))[1]
        return (found, self.calls * (game.owner < game.allowed.shape[1]).astype(jnp.float32)), told


class Ceiling(eqx.Module):
    """How likely the true deal is where the exact posterior itself is embedded, and decoded."""

    model: BeliefModel

    def __call__(self, key: Key[Array, ""], game: Watched) -> Float[Array, " t"]:
        history = History(game)

        def at(pair: tuple[Int[Array, ""], Key[Array, ""]]) -> Float[Array, ""]:
            time, key = pair
            known = jnp.where(game.allowed[time], history.sums[time], -jnp.inf)
            belief, _ = HandBelief.of(known, game.unseen, history.cards, history.size)
            space = jax.tree.map(lambda leaf: leaf[time], game.environments.space)
            embedding = self.model.embed(samples(key, belief, EMBEDDED), jnp.zeros(EMBEDDED), space)
            return self.model.log_prob(embedding, game.deal[None], space)[0]

        return jax.lax.map(at, (history.times(), jax.random.split(key, len(game.actions))))


@eqx.filter_jit
def scored(run: Any, keys: Key[Array, " g"], games: Watched) -> tuple[Array, Array, Array]:
    """Errors after each action, calls for each action of an opponent, and the log probability of the true deal."""

    def one(pair: tuple[Key[Array, ""], Watched]) -> tuple[Array, Array, Array]:
        (found, calls), told = run(pair[0], pair[1])
        return pair[1].errors(found), jnp.sum(calls) / jnp.sum(pair[1].owner < pair[1].allowed.shape[1]), told

    return jax.lax.map(one, (keys, games))


@eqx.filter_jit
def ceilings(run: Ceiling, keys: Key[Array, " g"], games: Watched) -> Float[Array, "g t"]:
    """`Ceiling` of each game."""
    return jax.lax.map(lambda pair: run(*pair), (keys, games))


@dataclass(frozen=True)
class BothTrainings:
    """The decoder's training, and the network's."""

    decoder: TrainingRun
    location: TrainingRun

    def train(self) -> Path:
        """Train what is not trained; returns the path of the decoder's model."""
        self.location.train()
        return self.decoder.train()

    def check_same(self) -> None:
        """Raise if there is a model already that was trained with other settings."""
        self.decoder.check_same()
        self.location.check_same()

    def timing(self) -> tuple[float, list[float]]:
        """Seconds of both trainings, and the decoder's loss curve."""
        seconds, curve = self.decoder.timing()
        return seconds + self.location.timing()[0], curve


@dataclass(frozen=True)
class LearnedCardJob(Job):
    """What is learned, in games against one kind of opponents."""

    opponents: str
    seed: int = 0
    games: int = 96
    policies: TrickPoolConfig = field(default_factory=TrickPoolConfig)
    few: bool = False
    """Little training, and one row of each kind: a quick run."""

    def __post_init__(self) -> None:
        _ = self.plain

    @property
    def plain(self) -> CardJob:
        """The job that has the same games."""
        return CardJob(self.opponents, self.seed, self.games, self.policies, self.few)

    @property
    def beliefs(self) -> DealBeliefConfig:
        """What the decoder is trained on."""
        length = min(LAST, self.policies.rules.length - 1)
        if self.few:
            return DealBeliefConfig(self.policies, games=8, length=length, samples=16, later=4)
        return DealBeliefConfig(self.policies, length=length)

    @property
    def decoder(self) -> tuple[AutoregressiveDealsConfig, FitConfig]:
        """The decoder's config, and its training's."""
        quotas, cards = (self.policies.tricks,) * (self.policies.players - 1), self.policies.rules.cards
        if self.few:
            small = AutoregressiveDealsConfig(cards, quotas, width=4, depth=1)
            return small, FitConfig(steps=20, batch=4, samples=12, optimizer="adam", learning_rate=1e-3)
        return AutoregressiveDealsConfig(cards, quotas), DECODER

    @property
    def location(self) -> tuple[CardLocationConfig, FitConfig]:
        """The network's config, and its training's."""
        made = self.policies
        sizes = made.players, made.suits, made.ranks, made.tricks, LAST
        if self.few:
            fewer = FitConfig(steps=20, batch=4, samples=2, optimizer="adam", learning_rate=1e-3)
            return CardLocationConfig(*sizes, width=8, depth=1), fewer
        return CardLocationConfig(*sizes), LOCATION

    @property
    def evaluated(self) -> int:
        return self.games

    @property
    def title(self) -> str:
        return f"cards, learned, {self.opponents} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"learned/{self.opponents}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        decoder, location = self.decoder, self.location
        shown = lambda config, *names: {name: getattr(config, name) for name in names}  # noqa: E731
        return {
            "opponents": self.opponents, "seed": self.seed, "training_seed": TRAINED, "beliefs": self.beliefs.settings,
            "model": {"decoder": LEARNED, **shown(decoder[0], "width", "depth", "largest")},
            "training": training_settings(decoder[1]),
            "network": {**shown(location[0], "width", "depth"), "training": training_settings(location[1])},
            "evaluation": {"games": self.games, "first": FIRST, "last": LAST},
            **({"rows": "few"} if self.few else {"fine_tuning": {str(k): list(v) for k, v in FINE_TUNING.items()}}),
        }  # fmt: skip

    def sizes(self) -> list[Size]:
        return [*super().sizes(), self.policies.size]

    def check(self, runs: Path) -> None:
        self.plain.check(runs)
        super().check(runs)

    def training_run(self, runs: Path) -> BothTrainings:
        end = "-few" if self.few else ""
        folder, stored = runs / "cards" / f"learned{end}", runs / "cards" / f"beliefs{end}"

        def policies() -> Any:
            pool = make_pool(self.policies, pool_path(runs, self.policies))
            return jax.tree.map(jnp.asarray, pool.split().training)

        def run(name: str, pair: tuple[Any, FitConfig], source: Any, loss: Any) -> TrainingRun:
            return TrainingRun(
                folder / name, *pair, source, {"policies": self.policies.settings}, TRAINED,
                ("cards", name), f"cards, {name}", loss,
            )  # fmt: skip

        games = lambda: PlayedGames(policies(), self.policies.rules, LAST)  # noqa: E731
        return BothTrainings(
            run("decoder", self.decoder, lambda: self.beliefs.make(policies(), stored), deal_loss),
            run("location", self.location, games, location_loss),
        )

    def rows(self, training: BothTrainings) -> Iterator[tuple[Any, CardRow]]:
        """Every filter, with the names of its records."""
        model = _loaded(training.decoder, AutoregressiveDealsConfig)
        network, rules = _loaded(training.location, CardLocationConfig), self.policies.rules
        for calls in CALLS[: 1 if self.few else None]:
            yield Tracked(model, calls), _named("nbf", LEARNED, calls)
        for calls in COMPARED[: 1 if self.few else None]:
            yield Tracked(MaximumEntropyDeals(model.space), calls), _named("nbf", "", calls)
        yield Located(network, rules), _named("card-location", "policy-blind", 0)
        for calls, (rate, steps) in list(FINE_TUNING.items())[: 1 if self.few else None]:
            tuned = FineTuned(network, rules, calls, rate, steps)
            yield tuned, _named("fine-tuned", "card-location network", calls)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        training, filter_key = self.training_run(runs), prng.stream(self.seed, "cards", "learned", self.opponents)
        bar.describe(f"{self.title}: games")
        games, records = self.plain.watched(runs)[0], []
        for number, (run, row) in enumerate(self.rows(training)):
            bar.describe(f"{self.title}: {row.name}({row.particles}) {row.arm}")
            keys = jax.random.split(prng.fold_in(filter_key, number), self.games)
            errors, calls, told = (np.asarray(part) for part in scored(run, keys, games))
            spent = round(float(np.mean(calls)))
            if (row.name, row.arm) != ("nbf", ""):  # whose errors `cards` has
                records += self.plain.errors_of(row, errors[:, FIRST - 1 :], spent)
            records.append(self._likely(row, spent, told))
            bar.advance(self.games)
        keys = jax.random.split(prng.fold_in(filter_key, 1000), self.games)
        ceiling = Ceiling(_loaded(training.decoder, AutoregressiveDealsConfig))
        row = _named("approx", LEARNED, 0)
        return [*records, self._likely(row, 0, np.asarray(ceilings(ceiling, keys, games)))]

    def _likely(self, row: CardRow, calls: int, told: np.ndarray) -> Record:
        value, error = mean_and_error(told[:, FIRST - 1 :].mean(axis=1))
        return self.plain.record_of(row, calls, "deal_log_prob", value, error)


def _named(name: str, arm: str, particles: int) -> CardRow:
    """The names of a row's records; what is run is not the row's own."""
    return CardRow(baselines.tables, name, arm, particles)


def _loaded(run: TrainingRun, kind: type) -> Any:
    return load_model(run.path, {kind.__name__: kind})[0]
