"""Hand inference in a small trick-taking game: how many calls of the opponents' policies each filter needs.

The game has 3 players, 3 suits of 8 cards and 5 tricks, so the exact posterior over all 11 million deals is known. The
error is that of the marginals, who holds which card, mean over the cards that are not settled by what is known, their
owners, and actions 4 to 12. Nothing is trained but the opponents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.environments.scripted_player import ScriptedPlayer
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.neural import EvenProposal, IndependentProposal, NeuralBayesianFilter, NoCorrection, Proposal
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf.spaces.deal_weights import marginals
from nbf_paper.experiments import card_baselines as baselines
from nbf_paper.experiments.card_baselines import Baseline, Found
from nbf_paper.experiments.card_games import Watched, random_network, watch
from nbf_paper.experiments.card_search import SearchPlayer
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.names import BASELINES_OF_CARDS, OPPONENTS, PREDICTED
from nbf_paper.pictures import write_picture
from nbf_paper.records import ALL, Record

FIRST, LAST = 4, 12
"""The actions that are scored; three bids come before."""
CALLS = (16, 32, 64, 128, 256)
"""Of the neural filter, at each action of an opponent."""
PICTURED = 64
"""Calls of the neural filter in the picture of a game."""
MODEL = "maximum entropy"


class CardRow(NamedTuple):
    """A filter with the names of its records."""

    run: Baseline
    name: str
    arm: str
    particles: int


def neural(calls: int, proposal: Proposal | None) -> Baseline:
    """The neural filter with the maximum-entropy model; None is the default proposal."""

    def run(key: Key[Array, ""], game: Watched) -> Found:
        first = jax.tree.map(lambda leaf: leaf[0], game.environments)
        model = MaximumEntropyDeals(first.space)
        filter = NeuralBayesianFilter(model, calls, proposal=proposal, correction=NoCorrection())

        def step(state: Any, inputs: tuple[Any, ...]) -> tuple[Any, Array]:
            key, action, environment = inputs
            state, _ = filter.update(key, state, action, environment, None)
            return state, marginals(model.weights(state.embedding, environment.space), environment.space.quotas)

        keys = jax.random.split(key, len(game.actions))
        found = jax.lax.scan(step, filter.init(key, first), (keys, game.actions, game.environments))[1]
        return found, calls * (game.owner < game.allowed.shape[1]).astype(jnp.float32)

    return run


def rows(few: bool = False) -> Iterator[CardRow]:
    """Every filter; `few`: of each kind one."""

    def some(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        return numbers[:1] if few else numbers

    yield CardRow(baselines.tables, "exact", "", 0)
    yield CardRow(baselines.uniform, "prior", "", 0)
    for calls in some(CALLS):
        yield CardRow(neural(calls, None), "nbf", "", calls)
    for calls in some((64, 256)):
        yield CardRow(neural(calls, EvenProposal()), "nbf", "even draws", calls)
        yield CardRow(neural(calls, IndependentProposal()), "nbf", "faithful", calls)
    for calls in some((128, 256, 512, 1024, 2048, 4096)):
        yield CardRow(baselines.policy_inference(calls), "policy-inference", "", calls)
        yield CardRow(baselines.hands_combined(calls), "policy-inference", "hands combined", calls)
    for calls in some((128, 256, 512, 1024)):
        yield CardRow(baselines.policy_inference(calls, smooth=True), "policy-inference", "interpolated", calls)
    for chains, moves in some(((8, 20), (16, 20), (32, 20), (32, 80))):
        yield CardRow(baselines.mcmc(chains, moves), "mcmc", f"{moves} swaps", chains)
    for count, moves in some(((32, 10), (64, 10), (64, 20), (128, 20), (256, 20))):
        yield CardRow(baselines.resample_move(count, moves), "resample-move", f"{moves} swaps", count)
    for count in some((256, 1024)):
        yield CardRow(baselines.resample_move(count, 0), "pf", "", count)


@eqx.filter_jit
def scores(run: Baseline, keys: Key[Array, " g"], games: Watched) -> tuple[Float[Array, "g t"], Float[Array, " g"]]:
    """Errors after each action, and calls for each action of an opponent."""

    def one(pair: tuple[Key[Array, ""], Watched]) -> tuple[Array, Array]:
        key, game = pair
        found, calls = run(key, game)
        return game.errors(found), jnp.sum(calls) / jnp.sum(game.owner < game.allowed.shape[1])

    return jax.lax.map(one, (keys, games))


@eqx.filter_jit
def _beliefs(key: Key[Array, ""], game: Watched) -> dict[str, Array]:
    return {"exact": game.truth, "nbf": neural(PICTURED, None)(key, game)[0]}


def _picture(key: Key[Array, ""], game: Watched) -> dict[str, np.ndarray]:
    """One game, action by action: beliefs about the unseen cards, and the truth."""
    unseen = np.asarray(game.unseen)
    found = {name: np.asarray(value)[:, unseen] for name, value in _beliefs(key, game).items()}
    found |= {"unseen": unseen, "deal": np.asarray(game.deal)[unseen], "actions": np.asarray(game.actions)}
    return found | {"players": np.asarray(game.environments.game.player), "cards": np.array([len(game.deal)])}


@dataclass(frozen=True)
class CardJob(PoolJob):
    """Every filter in games against one kind of opponents."""

    opponents: str
    seed: int = 0
    games: int = 96
    policies: TrickPoolConfig = field(default_factory=TrickPoolConfig)
    few: bool = False
    """One row of each kind alone: a quick run."""

    def __post_init__(self) -> None:
        if self.opponents not in OPPONENTS:
            raise InputError(f"The opponents are one of {', '.join(OPPONENTS)}; got {self.opponents!r}.")
        if self.games < 2:
            raise InputError(f"Two games at least are needed, for a standard error; got {self.games}.")

    @property
    def evaluated(self) -> int:
        return self.games

    @property
    def title(self) -> str:
        return f"cards, {self.opponents} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.opponents}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        made = {"policies": self.policies.settings} if self.needs_policies else {}
        rules = self.policies.rules
        sizes = {"players": rules.players, "suits": rules.suits, "ranks": rules.ranks, "tricks": rules.tricks}
        return {
            "opponents": self.opponents, "seed": self.seed, "environment": sizes, **made,
            "model": {"decoder": MODEL}, "evaluation": {"games": self.games, "first": FIRST, "last": LAST},
            **({"rows": "few"} if self.few else {}),
        }  # fmt: skip

    @property
    def needs_policies(self) -> bool:
        return self.opponents == OPPONENTS[0]

    def _players(self, runs: Path, key: Key[Array, ""]) -> Any:
        """The three players of each game."""
        rules, keys = self.policies.rules, jax.random.split(key, (self.games, self.policies.players))
        if self.opponents == "scripted":
            return eqx.filter_vmap(eqx.filter_vmap(lambda key: ScriptedPlayer.random(key, rules)))(keys)
        if self.opponents == "wide":
            return eqx.filter_vmap(eqx.filter_vmap(lambda key: random_network(key, rules)))(keys)
        if self.opponents == "search":
            return eqx.filter_vmap(eqx.filter_vmap(lambda key: SearchPlayer.random(key, rules)))(keys)
        held_out = self.held_out(runs)
        size = jax.tree.leaves(held_out)[0].shape[0]
        chosen = jax.random.randint(key, keys.shape[:2], 0, size)
        return jax.tree.map(lambda leaf: leaf[chosen], held_out)

    def watched(self, runs: Path) -> tuple[Watched, Key[Array, ""]]:
        """The games, and the key of the filters."""
        key = prng.stream(self.seed, "cards", self.opponents)
        player_key, game_key, filter_key = jax.random.split(key, 3)
        players, rules = self._players(runs, player_key), self.policies.rules
        keys = jax.random.split(game_key, self.games)
        made = eqx.filter_jit(lambda pairs: jax.lax.map(lambda pair: watch(rules, pair[0], pair[1], LAST), pairs))
        return made((keys, players)), filter_key

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        bar.describe(f"{self.title}: games")
        games, filter_key = self.watched(runs)
        errors, spent, records = {}, {}, self._deals(games)
        for number, row in enumerate(rows(self.few)):
            bar.describe(f"{self.title}: {row.name}({row.particles}) {row.arm}")
            found, calls = scores(row.run, jax.random.split(prng.fold_in(filter_key, number), self.games), games)
            errors[row[1:]], spent[row[1:]] = scored(found), float(np.mean(np.asarray(calls)))
            records += self.errors_of(row, errors[row[1:]], round(spent[row[1:]]))
            bar.advance(self.games)
        if self.opponents == OPPONENTS[0] and self.seed == 0:
            write_picture(results / "game.npz", _picture(filter_key, jax.tree.map(lambda leaf: leaf[0], games)))
        jax.clear_caches()
        return [*records, *self._worth(errors, spent)]

    def record_of(self, row: CardRow, calls: int, metric: str, value: Any, error: Any, step: Any = ALL) -> Record:
        """A number of a row."""
        return Record(
            experiment="cards", config=self.opponents, filter=row.name, arm=row.arm, particles=row.particles,
            calls=calls, seed=self.seed, step=step, metric=metric, value=float(value), se=float(error),
            episodes=self.games,
        )  # fmt: skip

    def errors_of(self, row: CardRow, errors: np.ndarray, calls: int) -> list[Record]:
        """The error of a row's marginals, over all actions and after each."""
        found = [self.record_of(row, calls, "marginal_error", *mean_and_error(errors.mean(axis=1)))]
        for place, (value, error) in enumerate(zip(*mean_and_error(errors), strict=True)):
            found.append(self.record_of(row, calls, "marginal_error", value, error, FIRST + place))
        return found

    def _deals(self, games: Watched) -> list[Record]:
        """How likely the true deal is in the exact posterior, and in the density with the same marginals."""
        exact, ceiling = CardRow(baselines.tables, "exact", "", 0), CardRow(baselines.tables, "approx", "", 0)
        pairs = ((exact, games.deal_log_prob), (ceiling, games.ceiling_log_prob))
        return [
            self.record_of(row, 0, "deal_log_prob", *mean_and_error(np.asarray(found)[:, FIRST - 1 :].mean(axis=1)))
            for row, found in pairs
        ]

    def _worth(self, errors: dict[Any, np.ndarray], spent: dict[Any, float]) -> list[Record]:
        """How many times the calls of NBF each kind of baseline needs for the same error."""
        kinds = {kind: [key for key in errors if kind_of(key) == kind] for kind in BASELINES_OF_CARDS}
        found = []
        for key in errors:
            if key[:2] != ("nbf", ""):
                continue
            row = CardRow(baselines.tables, *key)
            for kind, members in kinds.items():
                if len(members) < 2:
                    continue
                value, error = ratio(errors, spent, key, members)
                found.append(self.record_of(row, round(spent[key]), f"worth_{kind}", value, error))
        return found


def scored(errors: Any) -> np.ndarray:
    """Of errors after each action those that count."""
    return np.asarray(errors)[:, FIRST - 1 :]


def kind_of(key: tuple[str, str, int]) -> str:
    """The kind of a row."""
    name, arm, _ = key
    if arm.endswith(f", {PREDICTED}"):
        return f"{kind_of((name, arm.removesuffix(f', {PREDICTED}'), 0))}_{PREDICTED}"
    if name == "policy-inference" and arm:
        return arm.replace(" ", "_")
    return name.replace("-", "_")


def ratio(errors: dict[Any, np.ndarray], spent: dict[Any, float], ours: Any, theirs: list[Any]) -> tuple[float, float]:
    """The calls that a kind of baseline needs for the error of a row, over that row's calls, and its standard error.

    Between two budgets log calls is linear in log error; beyond the largest and the smallest one it is theirs, and the
    ratio a bound. The standard error is that of the jackknife over games.
    """
    mean = {key: errors[key].mean(axis=1) for key in (ours, *theirs)}
    count = len(mean[ours])

    def at(left_out: int | None) -> float:
        kept = np.arange(count) != left_out
        points = sorted((mean[key][kept].mean(), spent[key]) for key in theirs)
        logs = np.log(points)
        return float(np.exp(np.interp(np.log(mean[ours][kept].mean()), logs[:, 0], logs[:, 1])) / spent[ours])

    each = np.array([at(one) for one in range(count)])
    return at(None), float(np.sqrt((count - 1) * np.mean((each - each.mean()) ** 2)))
