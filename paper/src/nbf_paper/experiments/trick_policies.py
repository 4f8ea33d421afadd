"""Policies of trick-taking games by self-play: opponents whose hands are inferred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf import prng
from nbf.environments.goofspiel_game import legal_log_probs
from nbf.environments.trick_taking import Game, TrickTaking
from nbf.models.networks import Perceptron
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.ppo import Decisions, Learner, PoolConfig

POINTS = 10.0
"""Points of one unit of reward: the bonus for a bid that was met."""


class PlayNetwork(eqx.Module):
    """Bids and plays by a perceptron of what the player sees, with a softmax over the legal actions."""

    network: Perceptron

    def log_probs(self, view: Float[Array, " view"], legal: Bool[Array, " actions"]) -> Float[Array, " actions"]:
        return legal_log_probs(self.network(view), legal)


@dataclass(frozen=True)
class TrickPoolConfig(PoolConfig):
    """How a pool of policies for a trick-taking game is made."""

    timesteps: int = 16384
    minibatch: int = 256
    entropy_weight: float = 0.01
    """Without it bids become certain before play is any good."""
    players: int = 3
    suits: int = 3
    ranks: int = 8
    tricks: int = 5

    kind: ClassVar[str] = "nbf pool of policies for a trick-taking game"

    def __post_init__(self) -> None:
        TrickTaking(self.players, self.suits, self.ranks, self.tricks)
        super().__post_init__()

    @property
    def settings(self) -> dict[str, Any]:
        game = {"players": self.players, "suits": self.suits, "ranks": self.ranks, "tricks": self.tricks}
        return {**game, **super().settings}

    @property
    def rules(self) -> TrickTaking:
        """The rules."""
        return TrickTaking(self.players, self.suits, self.ranks, self.tricks)

    @property
    def title(self) -> str:
        return f"self-play, {self.players} players, {self.suits} × {self.ranks} cards, {self.tricks} tricks"

    @property
    def file(self) -> str:
        usual = TrickPoolConfig(players=self.players, suits=self.suits, ranks=self.ranks, tricks=self.tricks)
        size = "" if self == usual else f"-{self.runs}x{self.checkpoints}-{self.width}-{self.seed}"
        return f"cards/pool-{self.players}-{self.suits}x{self.ranks}-{self.tricks}{size}.safetensors"

    @property
    def decisions(self) -> int:
        return 1 + self.tricks

    @property
    def size(self) -> Size:
        made = self.games * self.decisions * self.epochs

        def demand(checkpoints: int) -> Demand:
            return demands.policies(self.rules.view_size, self.width, made, self.runs * checkpoints)

        return Size("--checkpoints", self.checkpoints, demand)

    def stream(self, *names: str | int) -> Key[Array, ""]:
        return prng.stream(self.seed, "selfplay", self.rules.view_size, "tricks", *names)

    def learner(self, key: Key[Array, ""]) -> Learner:
        policy_key, value_key = jax.random.split(key)
        inputs, outputs, width, depth = self.rules.view_size, self.rules.num_actions, self.width, self.depth
        policy = Perceptron(policy_key, inputs, outputs, width=width, depth=depth)
        policy = eqx.tree_at(lambda policy: policy.weights[-1], policy, 0.01 * policy.weights[-1])
        value = Perceptron(value_key, inputs, 1, width=width, depth=depth, zero_output=True)
        return Learner(PlayNetwork(policy), value)

    def play(self, key: Key[Array, ""], learner: Learner, opponent: PlayNetwork) -> Decisions:
        rules = self.rules
        deal_key, play_key = jax.random.split(key)
        start = jax.vmap(rules.deal)(jax.random.split(deal_key, self.games))

        def step(games: Game, key: Key[Array, ""]) -> tuple[Game, tuple[Array, ...]]:
            hands = jax.vmap(lambda game: game.hands[game.player])(games)
            views, legal = jax.vmap(rules.view)(games, hands), jax.vmap(rules.legal)(games)
            both = [jax.vmap(policy.log_probs)(views, legal) for policy in (learner.policy, opponent)]
            chosen = jnp.where((games.player == 0)[:, None], *both)  # the learner is player 0; who deals is random
            actions = jax.vmap(prng.categorical)(jax.random.split(key, self.games), jnp.exp(chosen))
            taken = jnp.take_along_axis(chosen, actions[:, None], axis=1)[:, 0]
            return jax.vmap(rules.play)(games, actions), (games.player, views, legal, actions, taken)

        final, (players, *made) = jax.lax.scan(step, start, jax.random.split(play_key, rules.length))
        # The learner decides once in the bidding and once in each trick.
        own = jnp.argsort(players != 0, axis=0, stable=True)[: self.decisions]
        views, legal, actions, log_probs = (
            jnp.take_along_axis(part, own.reshape(*own.shape, *(1,) * (part.ndim - 2)), axis=0) for part in made
        )
        values = learner.values(views.reshape(-1, views.shape[-1])).reshape(own.shape)
        results = jax.vmap(rules.returns)(final)[:, 0] / POINTS
        return Decisions.of((views, legal), actions, log_probs, values, results, self)
