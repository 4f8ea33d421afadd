"""Hand inference with the whole deck, scored by what is foretold: the opponents' next action, and who holds each card.

The next action is foretold by the mean probability that the acting player's policy gives it, over as many deals of each
belief; these calls are not the filter's. Marginals are calibrated if of the cards that a player holds with probability
p a share p is theirs. A hundredth of each belief is the prior's here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.environments.trick_taking import TrickTaking
from nbf.evaluation.batches import mean_and_error
from nbf_paper.experiments import cards_large
from nbf_paper.experiments import cards_large_baselines as baselines
from nbf_paper.experiments.card_games import OBSERVER
from nbf_paper.experiments.cards_large import (
    DRAWS,
    SHARE,
    Believed,
    LargeCardJob,
    LargeRow,
    Method,
    Seen,
    card_scores,
    games_of,
    prior,
)
from nbf_paper.experiments.job import Counter
from nbf_paper.names import CALIBRATION_BINS, FORECASTS, PREDICTED, WHOLE_DECK
from nbf_paper.records import ALL, Record

STREAM = 1000
"""The number of the first baseline's random stream: beyond those of `LargeCardJob`."""


def true_deal(key: Key[Array, ""], game: Seen) -> Believed:
    """Knows the deal: what there is to know."""
    held = jax.nn.one_hot(game.deal, game.environments.space.owners)
    count = len(cards_large.ACTIONS)
    return Believed(jnp.stack([held] * count), jnp.tile(game.deal, (count, DRAWS, 1)), jnp.zeros(()))


def baseline_rows(few: bool) -> Iterator[LargeRow]:
    """Baselines that `LargeCardJob` has not; `few`: of each kind one."""

    def some(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        return numbers[:1] if few else numbers

    for chains, moves in some(((8, 20), (32, 20), (32, 80))):
        yield LargeRow(baselines.mcmc(chains, moves), "mcmc", f"{moves} swaps", chains)
    for count, moves in some(((32, 10), (128, 20))):
        yield LargeRow(baselines.resample_move(count, moves), "resample-move", f"{moves} swaps", count)
    for calls in some((128, 512, 4096)):
        yield LargeRow(baselines.policy_inference(calls), "policy-inference", PREDICTED, calls)
    for calls in some((16, 64, 256)):
        yield LargeRow(baselines.kept_predictions(calls), "policy-inference", "predictions kept", calls)


def rows(few: bool, rules: TrickTaking) -> Iterator[tuple[int, LargeRow]]:
    """Every filter, with the number of its random stream: those of `LargeCardJob` have the same one as there."""
    yield from enumerate(cards_large.rows(few, rules))
    yield from enumerate(baseline_rows(few), STREAM)
    yield STREAM - 1, LargeRow(true_deal, "true-deal", "", 0)


class Forecast(NamedTuple):
    """How a belief did in a game."""

    cards: Float[Array, " k"]
    """log probability of the true owner of a card, after each of `ACTIONS`."""
    action: Float[Array, " k_1"]
    """log probability of the opponents' next action, after each of `ACTIONS` but the last."""
    bins: Float[Array, "bins 3"]
    """For each bin of probabilities: how many there were, their sum, and how many came true."""
    calls: Float[Array, ""]


@eqx.filter_jit
def forecasts(run: Method, keys: Key[Array, " g"], games: Seen) -> Forecast:
    """Of each game."""

    def one(pair: tuple[Key[Array, ""], Seen]) -> Forecast:
        key, game = pair
        found, blind = run(key, game), prior(prng.fold_in(key, jnp.int32(2)), game)
        probs = (1.0 - SHARE) * found.marginals + SHARE * blind.marginals
        foretold = (1.0 - SHARE) * next_action(found, game) + SHARE * next_action(blind, game)
        return Forecast(card_scores(probs, game), jnp.log(foretold), reliability(probs, game), found.calls)

    return jax.lax.map(one, (keys, games))


def next_action(found: Believed, game: Seen) -> Float[Array, " k_1"]:
    """The probability of the opponents' next action, after each of `ACTIONS` but the last."""
    theirs = game.environments.game.player != OBSERVER

    def after(time: int, dealt: Array) -> Float[Array, ""]:
        number = time + jnp.argmax(theirs[time:])
        environment, action = jax.tree.map(lambda leaf: leaf[number], game[:2])
        return jnp.mean(jnp.exp(jax.vmap(lambda deal: environment.log_likelihood(action, deal, deal))(dealt)))

    return jnp.stack([after(time, found.deals[place]) for place, time in enumerate(cards_large.ACTIONS[:-1])])


def reliability(probs: Float[Array, "k cards owners"], game: Seen) -> Float[Array, "bins 3"]:
    """Probabilities by bins: those of every card that is not settled and everyone who may hold it."""
    allowed = game.environments.space.allowed[np.asarray(cards_large.ACTIONS) - 1]
    counted = allowed & (jnp.sum(allowed, axis=2, keepdims=True) > 1)
    true = jax.nn.one_hot(game.deal, probs.shape[-1])
    place = jnp.clip((probs * CALIBRATION_BINS).astype(jnp.int32), 0, CALIBRATION_BINS - 1)
    numbers = jnp.where(counted[..., None], jnp.stack([jnp.ones_like(probs), probs, true + 0.0 * probs], axis=-1), 0.0)
    return jnp.zeros((CALIBRATION_BINS, 3)).at[place.ravel()].add(numbers.reshape(-1, 3))


def calibration_error(bins: np.ndarray) -> float:
    """The expected calibration error: how far mean and share are apart in a bin, mean over all probabilities."""
    return float(np.abs(bins[:, 1] - bins[:, 2]).sum() / bins[:, 0].sum())


def gap(bins: np.ndarray, place: int) -> float:
    """By how much more came true than was foretold, in one bin."""
    count, told, true = bins[place]
    return float((true - told) / count) if count else 0.0


def jackknife(bins: np.ndarray, statistic: Any) -> tuple[float, float]:
    """A statistic of all games, from the bins of each, and its standard error over games."""
    total, count = bins.sum(axis=0), len(bins)
    each = np.array([statistic(total - one) for one in bins])
    return statistic(total), float(np.sqrt((count - 1) * np.mean((each - each.mean()) ** 2)))


@dataclass(frozen=True)
class LargeForecastJob(LargeCardJob):
    """Every filter in the games of `LargeCardJob`, and what each foretells."""

    @property
    def title(self) -> str:
        return f"cards, the whole deck, forecasts, seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{FORECASTS}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        kernel = {"points": baselines.POINTS, "reach": baselines.REACH, "ridge": baselines.RIDGE}
        return {
            "opponents": "self-play", "seed": self.seed, "policies": self.policies.settings,
            "evaluation": {
                "games": self.games, "actions": cards_large.ACTIONS, "share": SHARE, "draws": DRAWS,
                "bins": CALIBRATION_BINS,
            },
            "interpolation": kernel, **({"rows": "few"} if self.few else {}),
        }  # fmt: skip

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        bar.describe(f"{self.title}: games")
        games, key = games_of(self.policies.rules, self.held_out(runs), self.seed, self.games)
        records = list[Record]()
        for number, row in rows(self.few, self.policies.rules):
            bar.describe(f"{self.title}: {row.name}({row.particles}) {row.arm}")
            keys = jax.random.split(prng.fold_in(key, jnp.int32(number)), self.games)
            found = jax.tree.map(np.asarray, forecasts(row.run, keys, games))
            records += self._records(row, found, new=number >= STREAM)
            bar.advance(self.games)
        jax.clear_caches()
        return records

    def _records(self, row: LargeRow, found: Any, *, new: bool) -> list[Record]:
        """What a row has foretold, by the `Forecast` of each game; of a new baseline also its score of cards."""
        calls, actions = round(float(found.calls.mean())), cards_large.ACTIONS

        def record(config: str, metric: str, value: Any, error: Any, step: Any = ALL) -> Record:
            return Record(
                "cards", config, row.name, row.arm, row.particles, calls, self.seed, step, metric, float(value),
                float(error), self.games,
            )  # fmt: skip

        records = [record(FORECASTS, "next_action_log_prob", *mean_and_error(found.action.mean(axis=1)))]
        for place, time in enumerate(actions[:-1]):
            records.append(record(FORECASTS, "next_action_log_prob", *mean_and_error(found.action[:, place]), time))
        if row.name == "true-deal":
            return records
        records.append(record(FORECASTS, "calibration_error", *jackknife(found.bins, calibration_error)))
        for place in np.flatnonzero(found.bins[..., 0].sum(axis=0)).tolist():
            value, error = jackknife(found.bins, lambda bins, place=place: gap(bins, place))
            records.append(record(FORECASTS, f"gap_{place}", value, error))
        if new:
            records.append(record(WHOLE_DECK, "card_log_score", *mean_and_error(found.cards.mean(axis=1))))
            for place, time in enumerate(actions):
                records.append(record(WHOLE_DECK, "card_log_score", *mean_and_error(found.cards[:, place]), time))
        return records
