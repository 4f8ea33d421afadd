"""Goofspiel policies by self-play (appendix, "Goofspiel Policy Generation"): PPO with action masks, on the device.

A policy is trained against its previous checkpoint, and every checkpoint joins the pool. A few runs from scratch make
the pool. Proximal policy optimisation is that of Schulman et al. (arXiv 1707.06347) with generalised advantage
estimation; the settings are those of Stable-Baselines3, which the paper modified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.environments.goofspiel_game import CardPolicy, GameState, GoofspielGame
from nbf.errors import InputError
from nbf.models.networks import Perceptron
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size

MOST_CARDS, WIDEST, DEEPEST = 1000, 1000, 10
"""Largest game and policies."""


@dataclass(frozen=True)
class SelfPlayConfig:
    """How a pool is made; the defaults are the paper's and, where it is silent, Stable-Baselines3's."""

    cards: int = 5
    standard: bool = False
    runs: int = 4
    """Runs of self-play, each from scratch."""
    checkpoints: int = 128
    """Policies that a run leaves."""
    timesteps: int = 4096
    """Bids of the learner between two checkpoints, rounded up to whole games."""
    epochs: int = 10
    """Passes over those bids."""
    minibatch: int = 64
    learning_rate: float = 3e-4
    discount: float = 0.99
    trace: float = 0.95
    """λ of the generalised advantages."""
    clip: float = 0.2
    value_weight: float = 0.5
    largest_gradient: float = 0.5
    entropy_weight: float = 0.0
    width: int = 64
    depth: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.cards > MOST_CARDS or self.width > WIDEST or self.depth > DEEPEST:
            raise InputError(
                f"Self-play is for up to {MOST_CARDS} cards, policies of width {WIDEST} and depth {DEEPEST}; got "
                f"{self.cards}, {self.width} and {self.depth}."
            )
        GoofspielGame(self.cards, self.standard)
        for name in ("runs", "checkpoints", "timesteps", "epochs", "minibatch", "width", "depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be above 0; got {self.learning_rate}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "cards": self.cards,
            "standard": self.standard,
            "runs": self.runs,
            "checkpoints": self.checkpoints,
            "timesteps": self.timesteps,
            "epochs": self.epochs,
            "minibatch": self.minibatch,
            "learning_rate": self.learning_rate,
            "discount": self.discount,
            "trace": self.trace,
            "clip": self.clip,
            "value_weight": self.value_weight,
            "largest_gradient": self.largest_gradient,
            "entropy_weight": self.entropy_weight,
            "width": self.width,
            "depth": self.depth,
            "seed": self.seed,
        }

    @property
    def game(self) -> GoofspielGame:
        """The rules."""
        return GoofspielGame(self.cards, self.standard)

    @property
    def games(self) -> int:
        """Games between two checkpoints."""
        return -(-self.timesteps // self.game.rounds)

    @property
    def size(self) -> Size:
        """What grows with the policies of a run."""
        bids = self.games * self.game.rounds * self.epochs

        def demand(checkpoints: int) -> Demand:
            return demands.policies(self.cards, self.width, bids, self.runs * checkpoints)

        return Size("--checkpoints", self.checkpoints, demand)

    @property
    def minibatches(self) -> int:
        """Minibatches of one epoch; bids that do not fill the last one are left out of the epoch."""
        return max(1, self.games * self.game.rounds // self.minibatch)


class Learner(eqx.Module):
    """The learning policy and its value function."""

    policy: CardPolicy
    value: Perceptron

    @classmethod
    def new(cls, key: Key[Array, ""], config: SelfPlayConfig) -> Learner:
        """A learner that starts near the uniform policy, with value 0."""
        policy_key, value_key = jax.random.split(key)
        policy = CardPolicy(policy_key, config.cards, width=config.width, depth=config.depth)
        policy = eqx.tree_at(lambda policy: policy.weights[-1], policy, 0.01 * policy.weights[-1])
        inputs = config.game.view_size
        value = Perceptron(value_key, inputs, 1, width=config.width, depth=config.depth, zero_output=True)
        return cls(policy, value)

    def values(self, views: Float[Array, "n view"]) -> Float[Array, " n"]:
        """The values of some positions, given the views of the player."""
        return self.value(views.T)[0]


class Bids(eqx.Module):
    """The bids of a learner in many positions, with advantages and returns."""

    views: Float[Array, "n view"]
    cards: Int[Array, " n"]
    log_probs: Float[Array, " n"]
    advantages: Float[Array, " n"]
    returns: Float[Array, " n"]


def advantages(
    rewards: Float[Array, "t n"], values: Float[Array, "t n"], discount: float, trace: float
) -> Float[Array, "t n"]:
    """Generalised advantages of games that end after the last of t rounds (Schulman et al., arXiv 1506.02438)."""
    after = jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])
    errors = rewards + discount * after - values

    def step(later: Array, error: Array) -> tuple[Array, Array]:
        now = error + discount * trace * later
        return now, now

    return jax.lax.scan(step, jnp.zeros_like(values[0]), errors, reverse=True)[1]


def play(config: SelfPlayConfig, key: Key[Array, ""], learner: Learner, opponent: CardPolicy) -> Bids:
    """Many games of a learner against an opponent."""
    game = config.game
    deal_key, round_key = jax.random.split(key)
    start = jax.vmap(game.reset)(jax.random.split(deal_key, config.games))

    def step(state: GameState, key: Key[Array, ""]) -> tuple[GameState, tuple[Array, ...]]:
        keys = jax.random.split(key, (3, config.games))
        seen = [jax.vmap(game.view, (0, None))(state, player) for player in (0, 1)]
        choices = [
            jax.vmap(policy.log_probs)(view) for policy, view in zip((learner.policy, opponent), seen, strict=True)
        ]
        drawn = [jax.vmap(prng.categorical)(keys[i], jnp.exp(choices[i])) for i in (0, 1)]
        after, _ = jax.vmap(game.step)(keys[2], state, jnp.stack(drawn, axis=-1))
        log_probs = jnp.take_along_axis(choices[0], drawn[0][:, None], axis=1)[:, 0]
        return after, (seen[0], drawn[0], log_probs, learner.values(seen[0]))

    final, (views, cards, log_probs, values) = jax.lax.scan(step, start, jax.random.split(round_key, game.rounds))
    rewards = jnp.zeros_like(values).at[-1].set(jax.vmap(game.returns)(final)[:, 0])
    gained = advantages(rewards, values, config.discount, config.trace)
    flat = (part.reshape(-1, *part.shape[2:]) for part in (views, cards, log_probs, gained, gained + values))
    return Bids(*flat)


def objective(learner: Learner, bids: Bids, config: SelfPlayConfig) -> Float[Array, ""]:
    """PPO's clipped loss of a minibatch, with the squared error of the value and the entropy bonus."""
    log_probs = jax.vmap(learner.policy.log_probs)(bids.views)
    taken = jnp.take_along_axis(log_probs, bids.cards[:, None], axis=1)[:, 0]
    ratio = jnp.exp(taken - bids.log_probs)
    gained = (bids.advantages - jnp.mean(bids.advantages)) / (jnp.std(bids.advantages) + 1e-8)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * gained, clipped * gained))
    value_loss = jnp.mean((bids.returns - learner.values(bids.views)) ** 2)
    return policy_loss + config.value_weight * value_loss - config.entropy_weight * jnp.mean(entropy(log_probs))


def entropy(log_probs: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    """Entropy in nats of the distributions of log probabilities, some of which may be -inf."""
    return -jnp.sum(jnp.where(log_probs > -jnp.inf, jnp.exp(log_probs) * log_probs, 0.0), axis=-1)


def _optimizer(config: SelfPlayConfig) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(config.largest_gradient), optax.adam(config.learning_rate, eps=1e-5))


class SelfPlayRun(eqx.Module):
    """A run of self-play between two checkpoints."""

    learner: Learner
    state: Any
    """The optimizer's state."""
    opponent: CardPolicy
    """The previous checkpoint."""


def start(config: SelfPlayConfig, number: int) -> SelfPlayRun:
    """A run at its beginning; its first opponent is itself."""
    learner = Learner.new(prng.stream(config.seed, "selfplay", config.cards, "start", number), config)
    return SelfPlayRun(learner, _optimizer(config).init(eqx.filter(learner, eqx.is_array)), learner.policy)


@eqx.filter_jit
def advance(config: SelfPlayConfig, key: Key[Array, ""], before: SelfPlayRun) -> SelfPlayRun:
    """From one checkpoint to the next."""
    play_key, shuffle_key = jax.random.split(key)
    bids = play(config, play_key, before.learner, before.opponent)
    count, size = config.minibatches, min(config.minibatch, len(bids.cards))

    def epoch(carry: tuple[Learner, Any], key: Key[Array, ""]) -> tuple[tuple[Learner, Any], None]:
        chosen = jax.random.permutation(key, len(bids.cards))[: count * size].reshape(count, size)
        return jax.lax.scan(minibatch, carry, chosen)

    def minibatch(carry: tuple[Learner, Any], chosen: Int[Array, " m"]) -> tuple[tuple[Learner, Any], None]:
        learner, state = carry
        part = jax.tree.map(lambda leaf: leaf[chosen], bids)
        gradient = jax.grad(objective)(learner, part, config)
        updates, state = _optimizer(config).update(gradient, state)
        return (eqx.apply_updates(learner, updates), state), None

    keys = jax.random.split(shuffle_key, config.epochs)
    (learner, state), _ = jax.lax.scan(epoch, (before.learner, before.state), keys)
    return SelfPlayRun(learner, state, learner.policy)
