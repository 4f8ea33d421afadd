"""ISMCTS of OpenSpiel with different beliefs about the hidden hands, on duplicate deals.

Player 0 searches; the others play policies of a run of self-play that nothing was tuned on. Every belief plays the same
deals, and differs in the resampler alone. OpenSpiel's own resampler is no belief: it leaves the cards that were not
dealt where they are, which a player cannot know.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from nbf import prng
from nbf.adapters.oh_hell import OhHellResampler, deal_filter
from nbf.environments.hidden_hands import PlayPolicy
from nbf.environments.trick_taking import Game, TrickTaking
from nbf.errors import InputError, MissingExtraError, missing_extra
from nbf.evaluation.batches import mean_and_error
from nbf.filters.hands import HandTableFilter
from nbf_paper.experiments.job import Counter
from nbf_paper.experiments.pool_job import PoolJob
from nbf_paper.experiments.trick_policies import TrickPoolConfig
from nbf_paper.records import ALL, Record

CALLS = 64
"""Of the neural filter."""
SEARCHER = 0


class Played(NamedTuple):
    """One game."""

    points: float
    ratios: list[float]
    """log of how much likelier the true deal is drawn than by the rules alone, at each decision."""
    seconds: list[float]
    """Of each decision."""


def spiel() -> Any:
    """OpenSpiel, or an error that names the extra."""
    try:
        import pyspiel
    except ModuleNotFoundError as error:
        raise MissingExtraError(missing_extra(error, "ISMCTS") or str(error)) from error
    return pyspiel


@eqx.filter_jit
def _chosen(rules: TrickTaking, key: Key[Array, ""], game: Game, policy: PlayPolicy) -> Int[Array, ""]:
    log_probs = policy.log_probs(rules.view(game, game.hands[game.player]), rules.legal(game))
    return prng.categorical(key, jnp.exp(log_probs))


@eqx.filter_jit
def _next(rules: TrickTaking, game: Game, action: Int[Array, ""]) -> Game:
    return rules.play(game, action)


def game_of(rules: TrickTaking) -> Any:
    """OpenSpiel's game with these rules."""
    return spiel().load_game(
        f"oh_hell(players={rules.players},num_suits={rules.suits},num_cards_per_suit={rules.ranks},"
        f"num_tricks_fixed={rules.tricks})"
    )


def play(
    rules: TrickTaking, key: Key[Array, ""], policies: dict[int, PlayPolicy], belief: OhHellResampler | None,
    by_rules: OhHellResampler, simulations: int, seed: int,
) -> Played:  # fmt: skip
    """One game of ISMCTS with a belief; None is OpenSpiel's own resampler. `by_rules` knows the rules alone."""
    from open_spiel.python.algorithms import ismcts, mcts

    open_spiel = game_of(rules)
    random = np.random.RandomState(seed)
    bot = ismcts.ISMCTSBot(
        open_spiel, mcts.RandomRolloutEvaluator(1, random), 2.0 * rules.bonus, simulations, random_state=random
    )
    if belief is not None:
        bot.set_resampler(belief)
    deal_key, play_key = jax.random.split(key)
    deck_key, dealer_key = jax.random.split(deal_key)
    deck = np.asarray(jax.random.permutation(deck_key, rules.cards))
    dealer = int(jax.random.randint(dealer_key, (), 0, rules.players))
    game, state = rules.dealt(jnp.asarray(deck), jnp.int32(dealer)), open_spiel.new_initial_state()
    for action in (rules.tricks, dealer, *deck[: rules.players * rules.tricks + 1]):
        state.apply_action(int(action))
    ratios, seconds, number = list[float](), list[float](), 0
    while not state.is_terminal():
        mover = state.current_player()
        if mover == SEARCHER:
            if belief is not None:
                ratios.append(belief.log_prob(state, SEARCHER) - by_rules.log_prob(state, SEARCHER))
            start = time.perf_counter()
            action = int(bot.step(state))
            seconds.append(time.perf_counter() - start)
        else:
            action = int(_chosen(rules, prng.fold_in(play_key, jnp.int32(number)), game, policies[mover]))
        game, number = _next(rules, game, jnp.int32(action)), number + 1
        state.apply_action(action)
    return Played(state.returns()[SEARCHER], ratios or [0.0], seconds)


class Uniform(eqx.Module):
    """Plays any legal action: under it a belief is what the rules allow."""

    def log_probs(self, view: Array, legal: Array) -> Array:
        return jnp.log(legal / jnp.sum(legal))


@dataclass(frozen=True)
class CardPlayJob(PoolJob):
    """The same deals with each belief."""

    seed: int = 0
    games: int = 300
    simulations: int = 300
    policies: TrickPoolConfig = field(default_factory=TrickPoolConfig)

    def __post_init__(self) -> None:
        if min(self.games, self.simulations) < 2:
            raise InputError(f"2 games and simulations at least are needed; got {self.games} and {self.simulations}.")

    @property
    def evaluated(self) -> int:
        return 4 * self.games

    @property
    def title(self) -> str:
        return f"ISMCTS at cards seed {self.seed}"

    @property
    def label(self) -> str:
        return f"ISMCTS-{self.simulations}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "opponents": "self-play", "seed": self.seed, "policies": self.policies.settings,
            "evaluation": {"games": self.games, "simulations": self.simulations, "calls": CALLS},
        }  # fmt: skip

    def check(self, runs: Path) -> None:
        spiel()
        super().check(runs)

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        rules, held_out = self.policies.rules, self.held_out(runs)
        size = jax.tree.leaves(held_out)[0].shape[0]
        key = prng.stream(self.seed, "cards", "play")
        chosen = np.asarray(jax.random.randint(key, (self.games, rules.players), 0, size))
        by_rules = OhHellResampler(game_of(rules), Uniform(), HandTableFilter())
        found: dict[tuple[str, int], list[Played]] = {}
        for name, calls, make in self._beliefs(rules):
            bar.describe(f"{self.title}: {name}")

            def one(number: int, simulations: int, make: Any = make) -> Played:
                policies = {
                    seat: jax.tree.map(lambda leaf: leaf[chosen[number, seat]], held_out)  # noqa: B023
                    for seat in range(rules.players)
                }
                return play(rules, prng.fold_in(key, number), policies, make(policies), by_rules, simulations, number)

            one(0, 2)  # what there is to compile is compiled here
            found[name, calls] = []
            for number in range(self.games):
                found[name, calls].append(one(number, self.simulations))
                bar.advance(1)
        return self._records(found)

    def _beliefs(self, rules: TrickTaking) -> list[tuple[str, int, Callable[[Any], OhHellResampler | None]]]:
        game, ours = game_of(rules), deal_filter(rules, CALLS)
        return [
            ("openspiel", 0, lambda policies: None),
            ("prior", 0, lambda policies: OhHellResampler(game, Uniform(), HandTableFilter())),
            ("nbf", CALLS, lambda policies: OhHellResampler(game, policies, ours)),
            ("exact", 0, lambda policies: OhHellResampler(game, policies, HandTableFilter())),
        ]

    def _records(self, found: dict[tuple[str, int], list[Played]]) -> list[Record]:
        blind = np.array([game.points for game in found["prior", 0]])
        records = []
        for (name, calls), games in found.items():
            points = np.array([game.points for game in games])
            scores = {"points": points, "decision_ms": np.array([1e3 * np.mean(game.seconds) for game in games])}
            if name != "prior":
                scores["points_lead"] = points - blind
            if name in ("nbf", "exact"):
                scores["true_deal_ratio"] = np.array([np.mean(game.ratios) for game in games])
            for metric, values in scores.items():
                value, error = (float(number) for number in mean_and_error(values))
                config = f"ISMCTS ({self.simulations})"
                records.append(Record(
                    "cards-play", config, name, "", calls, calls, self.seed, ALL, metric, value, error, self.games
                ))  # fmt: skip
        return records
