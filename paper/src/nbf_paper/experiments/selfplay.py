"""Goofspiel policies by self-play (appendix, "Goofspiel Policy Generation"): PPO with action masks, on the device.

A policy is trained against its previous checkpoint; every checkpoint joins the pool. A few such runs, each from
scratch, make the pool. Proximal policy optimisation is that of Schulman et al. (arXiv 1707.06347) with generalised
advantages, and the settings are those of Stable-Baselines3, which the paper modified.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.environments.goofspiel import MOST_LISTED
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import BidPolicy, CardPolicy, GameState, GoofspielGame, UniformPolicy
from nbf.errors import InputError
from nbf.evaluation.divergence import jensen_shannon
from nbf.files.checkpoint import fill, named_leaves, read_file, remove_unfinished, write_file
from nbf.filters.prefixes import PrefixFilter
from nbf.filters.run import run
from nbf.models.networks import Perceptron
from nbf.training.progress import Progress

KIND = "nbf pool of Goofspiel policies"
SAVE_EVERY = 20.0
"""Seconds between two saves of a pool in progress."""


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
        return GoofspielGame(self.cards, self.standard)

    @property
    def games(self) -> int:
        """Games between two checkpoints."""
        return -(-self.timesteps // self.game.rounds)

    @property
    def minibatches(self) -> int:
        """In one epoch. What does not fill the last one waits for the next shuffle."""
        return max(1, self.games * self.game.rounds // self.minibatch)


class Learner(eqx.Module):
    """The policy that learns, and the value of a position to it."""

    policy: CardPolicy
    value: Perceptron

    @classmethod
    def new(cls, key: Key[Array, ""], config: SelfPlayConfig) -> Learner:
        """Starts as the uniform policy and the value 0."""
        policy_key, value_key = jax.random.split(key)
        policy = CardPolicy(policy_key, config.cards, width=config.width, depth=config.depth)
        policy = eqx.tree_at(lambda policy: policy.weights[-1], policy, 0.01 * policy.weights[-1])
        inputs = config.game.num_features
        value = Perceptron(value_key, inputs, 1, width=config.width, depth=config.depth, zero_output=True)
        return cls(policy, value)

    def values(self, features: Float[Array, "n f"]) -> Float[Array, " n"]:
        return self.value(features.T)[0]


class Bids(eqx.Module):
    """What a learner did in many positions, and how it turned out."""

    features: Float[Array, "n f"]
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
        seen = [jax.vmap(game.features, (0, None))(state, player) for player in (0, 1)]
        choices = [
            jax.vmap(policy.log_probs)(view) for policy, view in zip((learner.policy, opponent), seen, strict=True)
        ]
        drawn = [jax.vmap(prng.categorical)(keys[i], jnp.exp(choices[i])) for i in (0, 1)]
        after, _ = jax.vmap(game.step)(keys[2], state, jnp.stack(drawn, axis=-1))
        log_probs = jnp.take_along_axis(choices[0], drawn[0][:, None], axis=1)[:, 0]
        return after, (seen[0], drawn[0], log_probs, learner.values(seen[0]))

    final, (features, cards, log_probs, values) = jax.lax.scan(step, start, jax.random.split(round_key, game.rounds))
    rewards = jnp.zeros_like(values).at[-1].set(jax.vmap(game.returns)(final)[:, 0])
    gained = advantages(rewards, values, config.discount, config.trace)
    flat = (part.reshape(-1, *part.shape[2:]) for part in (features, cards, log_probs, gained, gained + values))
    return Bids(*flat)


def objective(learner: Learner, bids: Bids, config: SelfPlayConfig) -> Float[Array, ""]:
    """PPO's clipped loss of a minibatch, with the value's squared error and the entropy."""
    log_probs = jax.vmap(learner.policy.log_probs)(bids.features)
    taken = jnp.take_along_axis(log_probs, bids.cards[:, None], axis=1)[:, 0]
    ratio = jnp.exp(taken - bids.log_probs)
    gained = (bids.advantages - jnp.mean(bids.advantages)) / (jnp.std(bids.advantages) + 1e-8)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * gained, clipped * gained))
    value_loss = jnp.mean((bids.returns - learner.values(bids.features)) ** 2)
    return policy_loss + config.value_weight * value_loss - config.entropy_weight * jnp.mean(_entropy(log_probs))


def _entropy(log_probs: Float[Array, "*n k"]) -> Float[Array, "*n"]:
    return -jnp.sum(jnp.where(log_probs > -jnp.inf, jnp.exp(log_probs) * log_probs, 0.0), axis=-1)


def _optimizer(config: SelfPlayConfig) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(config.largest_gradient), optax.adam(config.learning_rate, eps=1e-5))


class Run(eqx.Module):
    """A run of self-play between two checkpoints."""

    learner: Learner
    state: Any
    """The optimizer's."""
    opponent: CardPolicy
    """The previous checkpoint."""


def start(config: SelfPlayConfig, number: int) -> Run:
    """A run at its beginning; its first opponent is itself."""
    learner = Learner.new(prng.stream(config.seed, "selfplay", config.cards, "start", number), config)
    return Run(learner, _optimizer(config).init(eqx.filter(learner, eqx.is_array)), learner.policy)


@eqx.filter_jit
def advance(config: SelfPlayConfig, key: Key[Array, ""], before: Run) -> Run:
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
    return Run(learner, state, learner.policy)


# --- the pool, one file --------------------------------------------------------------------------


class Split(eqx.Module):
    """The parts of a pool."""

    taught: CardPolicy
    random: CardPolicy
    """To test on, of the runs that were trained on."""
    run: CardPolicy
    """To test on, a run of its own."""


SPLITS = ("random", "run")
"""The parts to test on; the first is the paper's."""


class PolicyPool(eqx.Module):
    """The policies of all runs, in their order, with a leading axis on every leaf."""

    policies: CardPolicy
    config: SelfPlayConfig = eqx.field(static=True)
    seconds: float = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.policies.biases[0].shape[0]

    def run_of(self) -> Int[np.ndarray, " size"]:
        """Which run each policy comes from."""
        return np.arange(self.size) // self.config.checkpoints

    def split(self) -> Split:
        """Policies to train on, and two sets to test on.

        The last run is kept from training whole: nothing of it was ever seen. Of the other runs a quarter is kept,
        at random, as in the paper; a neighbour of each, nearly alike, was trained on.
        """
        if self.config.runs < 2 or self.size < 4:
            raise InputError(f"A split needs 4 policies, of 2 runs; got {self.size} of {self.config.runs}.")
        last = self.run_of() == self.config.runs - 1
        seen = np.random.default_rng(self.config.seed).permutation(np.flatnonzero(~last))
        quarter = max(1, len(seen) // 4)
        return Split(
            self.some(np.sort(seen[quarter:])), self.some(np.sort(seen[:quarter])), self.some(np.flatnonzero(last))
        )

    def some(self, numbers: Int[np.ndarray, " n"]) -> CardPolicy:
        """Only these policies."""
        return jax.tree.map(lambda leaf: leaf[numbers], self.policies)


@dataclass
class _Progress:
    """A pool in the making."""

    config: SelfPlayConfig
    policies: list[CardPolicy] = field(default_factory=list)
    run: Run | None = None
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *self.policies)
        notes = {"done": str(len(self.policies)), "seconds": repr(self.seconds)}
        write_file(path, named_leaves((stacked, self.run)), {**_identity(self.config), **notes})


def _identity(config: SelfPlayConfig) -> dict[str, str]:
    return {"kind": KIND, "config": json.dumps(config.settings)}


def _abstract(config: SelfPlayConfig, count: int) -> tuple[CardPolicy, Run]:
    """The shapes of a file's leaves."""
    last = eqx.filter_eval_shape(start, config, 0)
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), last.opponent)
    return stacked, last


def read_pool(path: Path, config: SelfPlayConfig | None = None) -> tuple[PolicyPool, Run]:
    """A pool from its file, finished or not; of one config, if one is given."""
    metadata, _ = read_file(path)
    if metadata.get("kind") != KIND:
        raise InputError(f"{path} holds no pool of Goofspiel policies: make one with `nbf-paper selfplay goofspiel`.")
    try:
        found = SelfPlayConfig(**json.loads(metadata["config"]))
        done, seconds = int(metadata["done"]), float(metadata["seconds"])
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is a damaged pool ({error}). Remove it to make it anew.") from error
    if not 1 <= done <= found.runs * found.checkpoints or max(found.width, found.cards) > 1000 or found.depth > 10:
        raise InputError(f"{path} is a damaged pool: {done} policies of {found}. Remove it to make it anew.")
    if config is not None and found != config:
        raise InputError(f"{path} was made with other settings ({found}, now {config}). Ask for its own, or remove it.")
    skeleton = _abstract(found, done)
    _, leaves = read_file(path, eqx.filter(skeleton, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)))
    policies, last = fill(skeleton, leaves, path)
    return PolicyPool(policies, found, seconds), last


def make_pool(config: SelfPlayConfig, path: Path, *, progress: bool = True) -> PolicyPool:
    """The pool of a file, made as far as it is not: stop it with Ctrl-C, call again to go on."""
    total, made = config.runs * config.checkpoints, _Progress(config)
    remove_unfinished(path)
    if path.exists():
        pool, made.run = read_pool(path, config)
        made.policies = [jax.tree.map(lambda leaf: np.asarray(leaf[i]), pool.policies) for i in range(pool.size)]  # noqa: B023
        made.seconds = pool.seconds
    title = f"self-play, {config.cards} cards"
    with Progress(title, total, len(made.policies), enabled=progress, unit="policy") as bar:
        saved = last = time.monotonic()
        try:
            while len(made.policies) < total:
                loop, number = divmod(len(made.policies), config.checkpoints)
                before = start(config, loop) if number == 0 or made.run is None else made.run
                key = prng.stream(config.seed, "selfplay", config.cards, "play", loop, number)
                after = made.run = jax.block_until_ready(advance(config, key, before))
                made.policies.append(jax.device_get(after.opponent))
                now = time.monotonic()
                made.seconds, last = made.seconds + now - last, now
                bar.update(len(made.policies))
                if now - saved > SAVE_EVERY and len(made.policies) < total:
                    made.save(path)
                    saved = time.monotonic()
        finally:
            if made.policies:
                made.save(path)
    return read_pool(path, config)[0]


# --- what a pool is like -------------------------------------------------------------------------


def match(game: GoofspielGame, key: Key[Array, ""], mine: BidPolicy, other: BidPolicy) -> tuple[Array, Array]:
    """The result of one game, and the mean entropy of our bids while there was a choice."""
    deal_key, round_key = jax.random.split(key)

    def step(state: GameState, key: Key[Array, ""]) -> tuple[GameState, tuple[Array, Array]]:
        keys = jax.random.split(key, 3)
        choices = [policy.log_probs(game.features(state, i)) for i, policy in enumerate((mine, other))]
        bids = jnp.stack([prng.categorical(keys[i], jnp.exp(choices[i])) for i in (0, 1)])
        return game.step(keys[2], state, bids)[0], (_entropy(choices[0]), jnp.sum(state.hands[0]) > 1)

    final, (entropies, free) = jax.lax.scan(step, game.reset(deal_key), jax.random.split(round_key, game.rounds))
    return game.returns(final)[0], jnp.sum(jnp.where(free, entropies, 0.0)) / jnp.maximum(jnp.sum(free), 1)


@eqx.filter_jit
def _matches(
    game: GoofspielGame, keys: Key[Array, "n games"], mine: Any, other: Any, shared: bool
) -> tuple[Array, Array]:
    """For each policy the mean over games against its opponent, or against one that all share."""

    def one(keys: Key[Array, " games"], mine: Any, other: Any) -> tuple[Array, Array]:
        results, entropies = jax.vmap(lambda key: match(game, key, mine, other))(keys)
        return jnp.mean(results), jnp.mean(entropies)

    return jax.vmap(one, (0, 0, None if shared else 0))(keys, mine, other)


@eqx.filter_jit
def _divergences(game: GoofspielGame, keys: Key[Array, " n"], mine: Any, other: Any) -> Float[Array, " n"]:
    """How far apart the beliefs are that two policies induce about the same game, played by the first: mean JS."""

    def one(key: Key[Array, ""], mine: CardPolicy, other: CardPolicy) -> Float[Array, ""]:
        first = jax.tree.map(lambda leaf: leaf[None], mine)
        environments, policies, outcomes, _ = GoofspielFamily(first, game).episode(key)
        wrong = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (game.rounds, *leaf.shape)), other)
        beliefs = [
            run(PrefixFilter(), key, outcomes, environments, each, changing=True)[0] for each in (policies, wrong)
        ]
        return jnp.mean(jax.vmap(jensen_shannon)(*beliefs))

    return jax.vmap(one)(keys, mine, other)


def describe(pool: PolicyPool, *, games: int = 64, pairs: int = 256) -> dict[str, Any]:
    """How a pool is: entropy of the policies, their results against a random player and against the first policy of
    their run, by checkpoint; and how far apart the beliefs are that two of its policies induce.

    A result is the mean of 1 for a win, 0 for a draw and -1 for a loss.
    """
    game, config = pool.config.game, pool.config
    key = prng.stream(config.seed, "selfplay", config.cards, "report")
    keys = jax.random.split(key, (pool.size, games))
    first = pool.some(pool.run_of() * config.checkpoints)
    random, entropy = _matches(game, keys, pool.policies, UniformPolicy(), True)
    against_first, _ = _matches(game, keys, pool.policies, first, False)
    found = {
        "policies": pool.size, "seconds": round(pool.seconds, 1), "entropy": np.asarray(entropy).tolist(),
        "against_random": np.asarray(random).tolist(), "against_first": np.asarray(against_first).tolist(),
    }  # fmt: skip
    if config.cards <= MOST_LISTED:
        rng = np.random.default_rng(config.seed)
        one = rng.integers(pool.size - 1, size=pairs)
        others = {"neighbours": one + 1, "any": rng.integers(pool.size, size=pairs)}
        pair_keys = jax.random.split(jax.random.fold_in(key, 1), pairs)
        for name, other in others.items():
            js = _divergences(game, pair_keys, pool.some(one), pool.some(other))
            found[f"belief_js_{name}"] = float(jnp.mean(js))
    return found
