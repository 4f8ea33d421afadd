"""ISMCTS of OpenSpiel with each belief about the hidden hands, on duplicate deals: what is run and recorded.

Leaves are played out at random, or by the known policies. In the latter search every belief has the same time for a
decision: what it costs, in simulations, is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.adapters.oh_hell import OhHellResampler, deal_filter
from nbf.environments.hidden_hands import PlayPolicy
from nbf.environments.trick_taking import Game, TrickTaking
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.hands import HandTableFilter
from nbf_paper.experiments.card_inference import PolicyInference, RulesAlone
from nbf_paper.experiments.card_play import Played, game_of, play, spiel
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.records import ALL, Record

CALLS = 64
"""Of the neural filter, for each action of an opponent."""
INFERENCE = (512, 4096)
"""Calls of policy inference, for each decision."""
LANES = 8
"""Rollouts of a leaf by the policies."""
COSTS = {"nbf": 14, "policy-inference 512": 5, "policy-inference 4096": 8}
"""What the belief of a decision costs, in simulations with rollouts by the policies: ratios of processor time within
one run of `python -m benchmarks.card_decisions`. The prior and the ceiling cost nothing here."""
ROLLOUTS = ("random", "policies")
CHECKED = 100
"""Games in which beliefs are compared with the exact posterior."""
UNCHECKED = ("openspiel", "exact")
"""What has no error to measure."""


class PolicyRollouts:
    """Values leaves of OpenSpiel's search by the means of games that known policies play out."""

    def __init__(self, rules: TrickTaking, policies: Mapping[int, PlayPolicy], seed: int):
        self.rules = rules
        self.policies = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(policies[seat] for seat in sorted(policies)))
        self.key, self.number = jax.random.key(seed), 0

    def evaluate(self, state: Any) -> Float[np.ndarray, " players"]:
        """The mean points of all players."""
        rules, history = self.rules, state.history()
        begun = 2 + rules.players * rules.tricks + 1
        dealt, made = history[2:begun], history[begun:]
        rest = [card for card in range(rules.cards) if card not in dealt]
        self.number += 1
        numbers = [self.number, history[1], len(made), *dealt, *rest, *made, *[0] * (rules.length - len(made))]
        return np.asarray(_played_out(rules, self.policies, self.key, jnp.asarray(numbers, jnp.int32)))

    def prior(self, state: Any) -> list[tuple[int, float]]:
        """All legal actions alike."""
        legal = state.legal_actions(state.current_player())
        return [(action, 1.0 / len(legal)) for action in legal]


@eqx.filter_jit
def _played_out(
    rules: TrickTaking, policies: Any, key: Key[Array, ""], numbers: Int[Array, " numbers"]
) -> Float[Array, " players"]:
    """Mean points. The numbers: which leaf it is, the dealer, the length of the history, the deck, the history."""
    number, dealer, count = numbers[:3]
    deck, actions = numbers[3 : 3 + rules.cards], numbers[3 + rules.cards :]
    now = jax.lax.fori_loop(0, count, lambda time, game: rules.play(game, actions[time]), rules.dealt(deck, dealer))

    def step(carry: tuple[Game, Array]) -> tuple[Game, Array]:
        games, key = carry
        key, draw_key = jax.random.split(key)

        def chosen(game: Game, key: Key[Array, ""]) -> Int[Array, ""]:
            policy: PlayPolicy = jax.tree.map(lambda leaf: leaf[game.player], policies)
            seen, legal = rules.view(game, game.hands[game.player]), rules.legal(game)
            return prng.categorical(key, jnp.exp(policy.log_probs(seen, legal)))

        made = jax.vmap(chosen)(games, jax.random.split(draw_key, LANES))
        return jax.vmap(rules.play)(games, made), key

    games = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (LANES, *leaf.shape)), now)
    games, _ = jax.lax.while_loop(
        lambda carry: carry[0].time[0] < rules.length, step, (games, jax.random.fold_in(key, number))
    )
    return jnp.mean(jax.vmap(rules.returns)(games), axis=0)


class KnownDeal(OhHellResampler):
    """Knows the deal, which no player does: what there is to gain at most."""

    def __call__(self, state: Any, player: int) -> Any:
        return state.clone()


@dataclass(frozen=True)
class CardPlayJob(PoolJob):
    """The same deals with each belief."""

    seed: int = 0
    games: int = 300
    simulations: int = 300
    rollouts: str = "random"
    policies: TrickPoolConfig = field(default_factory=TrickPoolConfig)

    def __post_init__(self) -> None:
        if self.rollouts not in ROLLOUTS:
            raise InputError(f"Rollouts are one of {', '.join(ROLLOUTS)}; got {self.rollouts!r}.")
        if min(self.games, self.simulations) < 2:
            raise InputError(f"2 games and simulations at least are needed; got {self.games} and {self.simulations}.")

    @property
    def by_policies(self) -> bool:
        """Whether leaves are played out by the policies, and each belief has the same time."""
        return self.rollouts == "policies"

    @property
    def config(self) -> str:
        """Of the records."""
        return f"ISMCTS ({self.simulations}){', rollouts by policies' if self.by_policies else ''}"

    @property
    def evaluated(self) -> int:
        return 6 * self.games

    @property
    def title(self) -> str:
        return f"cards, {self.config} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.config}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        calls = {"nbf": CALLS, "policy inference": INFERENCE}
        more = {"lanes": LANES, "costs": COSTS} if self.by_policies else {}
        count = {"games": self.games, "simulations": self.simulations, "rollouts": self.rollouts}
        return {
            "opponents": "self-play", "seed": self.seed, "policies": self.policies.settings,
            "evaluation": {**count, "calls": calls, **more},
        }  # fmt: skip

    def check(self, runs: Path) -> None:
        spiel()
        super().check(runs)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        rules, held_out = self.policies.rules, self.held_out(runs)
        size = jax.tree.leaves(held_out)[0].shape[0]
        key = prng.stream(self.seed, "cards", "play")
        chosen = np.asarray(jax.random.randint(key, (self.games, rules.players), 0, size))
        seats = [
            {seat: jax.tree.map(lambda leaf: leaf[chosen[game, seat]], held_out) for seat in range(rules.players)}  # noqa: B023
            for game in range(self.games)
        ]
        open_spiel, found = game_of(rules), dict[tuple[str, int], list[Played]]()
        for (name, calls), make in self._beliefs(rules).items():
            bar.describe(f"{self.title}: {name}({calls})")
            cost = COSTS.get(f"{name} {calls}" if name == "policy-inference" else name, 0) if self.by_policies else 0
            simulations = max(self.simulations - cost, 2)

            def one(number: int, simulations: int, make: Any = make, name: str = name) -> Played:
                policies, checked = seats[number], self._checks(name, number)
                return play(
                    rules, prng.fold_in(key, number), policies, make(policies), simulations, number,
                    evaluator=PolicyRollouts(rules, policies, number) if self.by_policies else None,
                    truth=OhHellResampler(open_spiel, policies, HandTableFilter()) if checked else None,
                )  # fmt: skip

            one(0, 2)  # what there is to compile is compiled here
            found[name, calls] = []
            for number in range(self.games):
                found[name, calls].append(one(number, simulations))
                bar.advance(1)
        return self._records(found)

    def _checks(self, name: str, number: int) -> bool:
        """Whether a belief is compared with the exact posterior in a game."""
        return name not in UNCHECKED and not self.by_policies and number < CHECKED

    def _beliefs(self, rules: TrickTaking) -> dict[tuple[str, int], Callable[[Any], OhHellResampler | None]]:
        game, ours, tables = game_of(rules), deal_filter(rules, CALLS), HandTableFilter()

        def inferred(calls: int) -> Callable[[Any], OhHellResampler]:
            # All deals of a decision are drawn at once: each draw would make its calls anew.
            return lambda policies: OhHellResampler(game, policies, PolicyInference(calls), samples=self.simulations)

        return {
            ("prior", 0): lambda policies: OhHellResampler(game, policies, RulesAlone()),
            ("nbf", CALLS): lambda policies: OhHellResampler(game, policies, ours),
            **{("policy-inference", calls): inferred(calls) for calls in INFERENCE},
            ("exact", 0): lambda policies: OhHellResampler(game, policies, tables),
            **(
                {("known", 0): lambda policies: KnownDeal(game, policies, RulesAlone())}
                if self.by_policies
                else {("openspiel", 0): lambda policies: None}
            ),
        }

    def _records(self, found: dict[tuple[str, int], list[Played]]) -> list[Record]:
        blind, records = np.array([game.points for game in found["prior", 0]]), []
        for (name, calls), games in found.items():
            for metric, values in self._scores(name, games, blind).items():
                value, error = (float(number) for number in mean_and_error(values))
                records.append(Record(
                    "cards-play", self.config, name, "", calls, calls, self.seed, ALL, metric, value, error, len(values)
                ))  # fmt: skip
        return records

    def _scores(self, name: str, games: list[Played], blind: np.ndarray) -> dict[str, np.ndarray]:
        """What is measured of a belief, by metric: a number for each game. `blind` are the points with the prior."""
        points = np.array([game.points for game in games])
        scores = {"points": points}
        if name != "prior":
            scores["points_lead"] = points - blind
        if name in ("nbf", "policy-inference", "exact"):
            scores["true_deal_ratio"] = np.array([np.mean(game.ratios) for game in games])
        if name not in UNCHECKED and not self.by_policies:
            scores["decision_error"] = np.array([np.mean(game.errors) for game in games[:CHECKED] if game.errors])
        return scores


@dataclass(frozen=True)
class CardPlayTimesJob(CardPlayJob):
    """How long the decisions of the first games take: a job of its own, since only times need an idle machine."""

    timed: ClassVar[bool] = True
    games: int = 20

    @property
    def title(self) -> str:
        return f"{super().title}: times"

    @property
    def label(self) -> str:
        return f"{self.config}/times/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "measured": "times"}

    def _checks(self, name: str, number: int) -> bool:
        return False

    def _scores(self, name: str, games: list[Played], blind: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "decision_ms": np.array([1e3 * np.mean(game.seconds) for game in games]),
            "resampler_ms": np.array([1e3 * game.resampling for game in games]),
        }
