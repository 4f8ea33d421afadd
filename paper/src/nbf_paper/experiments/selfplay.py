"""Goofspiel policies by self-play (appendix, "Goofspiel Policy Generation")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from nbf import prng
from nbf.environments.goofspiel_game import CardPolicy, GameState, GoofspielGame
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.ppo import Decisions, Learner, PoolConfig

MOST_CARDS, WIDEST, DEEPEST = 1000, 1000, 10
"""Largest game and policies."""


@dataclass(frozen=True)
class SelfPlayConfig(PoolConfig):
    """How a pool of Goofspiel policies is made."""

    cards: int = 5
    standard: bool = False

    kind: ClassVar[str] = "nbf pool of Goofspiel policies"

    def __post_init__(self) -> None:
        if self.cards > MOST_CARDS or self.width > WIDEST or self.depth > DEEPEST:
            raise InputError(
                f"Self-play is for up to {MOST_CARDS} cards, policies of width {WIDEST} and depth {DEEPEST}; got "
                f"{self.cards}, {self.width} and {self.depth}."
            )
        GoofspielGame(self.cards, self.standard)
        super().__post_init__()

    @property
    def settings(self) -> dict[str, Any]:
        return {"cards": self.cards, "standard": self.standard, **super().settings}

    @property
    def title(self) -> str:
        return f"self-play, {self.cards} cards"

    @property
    def file(self) -> str:
        size = "" if self == SelfPlayConfig(cards=self.cards) else f"-{self.runs}x{self.checkpoints}"
        return f"goofspiel/pool-{self.cards}{size}.safetensors"

    @property
    def game(self) -> GoofspielGame:
        """The rules."""
        return GoofspielGame(self.cards, self.standard)

    @property
    def decisions(self) -> int:
        return self.game.rounds

    @property
    def size(self) -> Size:
        bids = self.games * self.game.rounds * self.epochs

        def demand(checkpoints: int) -> Demand:
            return demands.policies(self.cards, self.width, bids, self.runs * checkpoints)

        return Size("--checkpoints", self.checkpoints, demand)

    def stream(self, *names: str | int) -> Key[Array, ""]:
        return prng.stream(self.seed, "selfplay", self.cards, *names)

    def learner(self, key: Key[Array, ""]) -> Learner:
        policy_key, value_key = jax.random.split(key)
        policy = CardPolicy(policy_key, self.cards, width=self.width, depth=self.depth)
        policy = eqx.tree_at(lambda policy: policy.weights[-1], policy, 0.01 * policy.weights[-1])
        inputs = self.game.view_size
        value = Perceptron(value_key, inputs, 1, width=self.width, depth=self.depth, zero_output=True)
        return Learner(policy, value)

    def play(self, key: Key[Array, ""], learner: Learner, opponent: CardPolicy) -> Decisions:
        game = self.game
        deal_key, round_key = jax.random.split(key)
        start = jax.vmap(game.reset)(jax.random.split(deal_key, self.games))

        def step(state: GameState, key: Key[Array, ""]) -> tuple[GameState, tuple[Array, ...]]:
            keys = jax.random.split(key, (3, self.games))
            seen = [jax.vmap(game.view, (0, None))(state, player) for player in (0, 1)]
            choices = [
                jax.vmap(policy.log_probs)(view) for policy, view in zip((learner.policy, opponent), seen, strict=True)
            ]
            drawn = [jax.vmap(prng.categorical)(keys[i], jnp.exp(choices[i])) for i in (0, 1)]
            after, _ = jax.vmap(game.step)(keys[2], state, jnp.stack(drawn, axis=-1))
            log_probs = jnp.take_along_axis(choices[0], drawn[0][:, None], axis=1)[:, 0]
            return after, (seen[0], drawn[0], log_probs, learner.values(seen[0]))

        final, (views, cards, log_probs, values) = jax.lax.scan(step, start, jax.random.split(round_key, game.rounds))
        return Decisions.of((views,), cards, log_probs, values, jax.vmap(game.returns)(final)[:, 0], self)
