"""Exact posteriors over deals to train on: those of games between policies of a pool.

A belief is known through samples of it, and through samples of the same belief given what the next action shows to be
allowed: what a filter decodes its embedding to before it weighs that action.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int8, Key

from nbf import prng
from nbf.beliefs.hands import HandBelief, hand_table
from nbf.contracts import BeliefSource
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.errors import InputError
from nbf.files.checkpoint import fill, named_leaves, read_file, write_file
from nbf.filters.hands import HandTableFilter, possible
from nbf.spaces import Deals
from nbf.training.loss import random_log_weights
from nbf.training.progress import Progress
from nbf_paper.experiments.card_games import play
from nbf_paper.experiments.trick_policies import TrickPoolConfig


class DealSamples(eqx.Module):
    """Samples of one belief, the owner of each card; with further leading axes, of many beliefs."""

    now: Int8[Array, "*b n cards"]
    """Of the belief."""
    then: Int8[Array, "*b m cards"]
    """Of the belief given what will be allowed after the next action."""


PART = 8
"""Games that are made together, and kept in one file."""
BLOCK = 102
"""Hands whose weights are first summed when one is drawn; it divides the 8568 hands of the small game."""


def samples(key: Key[Array, ""], belief: HandBelief, n: int) -> Int[Array, "n cards"]:
    """`HandBelief.sample` of two holders, in a fifth of the time: the second hand is drawn by blocks of hands."""
    first_key, block_key, hand_key = jax.random.split(key, 3)
    bits, log_weights = jnp.asarray(hand_table(len(belief.unseen), belief.size)[1]), belief.log_weights[1]
    size = BLOCK if len(bits) % BLOCK == 0 else len(bits)
    weights = jnp.exp(log_weights - jnp.max(log_weights)).reshape(-1, size)
    first = prng.categoricals(first_key, belief.probs[0], n)
    apart = (bits.reshape(-1, size) & bits[first][:, None, None]) == 0
    blocks = jnp.sum(jnp.where(apart, weights, 0.0), axis=2)
    block = jax.vmap(prng.categorical)(jax.random.split(block_key, n), blocks)
    within = jnp.where(jnp.take_along_axis(apart, block[:, None, None], axis=1)[:, 0], weights[block], 0.0)
    second = block * size + jax.vmap(prng.categorical)(jax.random.split(hand_key, n), within)
    return belief.deals(jnp.stack([first, second], axis=1))


class HandGames(eqx.Module):
    """The exact beliefs of one player of random games: before the first action, and after each."""

    policies: Any
    """Leading axis: all policies, of which each player gets a random one."""
    rules: TrickTaking
    length: int = eqx.field(static=True)
    """Actions after which there is a belief."""
    later: int = eqx.field(static=True)
    """Samples of each belief given what will be allowed."""

    def episode(self, key: Key[Array, ""], n: int) -> tuple[DealSamples, Deals]:
        """Sample all beliefs of one game.

        Args:
            key: Random key.
            n: Samples of each belief.

        Returns:
            The samples; and the spaces, which allow what the next action shows, and whose context is what was allowed
            when the belief arose.
        """
        player_key, game_key, key = jax.random.split(key, 3)
        size = jax.tree.leaves(self.policies)[0].shape[0]
        chosen = jax.random.randint(player_key, (self.rules.players,), 0, size)
        players = jax.tree.map(lambda leaf: leaf[chosen], self.policies)
        _, environments, actions = play(self.rules, game_key, players, self.length + 1)
        exact, first = HandTableFilter(), jax.tree.map(lambda leaf: leaf[0], environments)
        start = exact.init(key, first)
        nobody = self.rules.players - 1
        free = jnp.zeros((self.rules.cards, nobody + 1), bool).at[:, nobody].set(True).at[start.unseen].set(True)

        def step(carry: tuple[HandBelief, Array], inputs: tuple[HiddenHands, Array, Array]) -> tuple[Any, Any]:
            belief, allowed = carry
            environment, action, key = inputs
            now_key, then_key = jax.random.split(key)
            known = jnp.where(possible(belief, environment), belief.log_weights, -jnp.inf)
            later, _ = HandBelief.of(known, belief.unseen, belief.cards, belief.size)
            drawn = samples(now_key, belief, n), samples(then_key, later, self.later)
            after, _ = exact.update(key, belief, action, environment, None)
            found = DealSamples(*(deals.astype(jnp.int8) for deals in drawn))
            now = jnp.asarray(environment.space.allowed)
            space = Deals(now, environment.space.quotas, allowed.astype(jnp.float32).ravel())
            return (after, now), (found, space)

        keys: Int[Array, " t"] = jax.random.split(key, self.length + 1)
        return jax.lax.scan(step, (start, free), (environments, actions, keys))[1]


class StoredBeliefs(BeliefSource):
    """Samples of many beliefs, made once and drawn many times; their order is random."""

    states: DealSamples
    """Leading axis: beliefs."""
    spaces: Deals
    """The same."""

    def sample(self, key: Key[Array, ""], n: int) -> tuple[DealSamples, Deals]:
        belief_key, first_key = jax.random.split(key)
        beliefs, samples = self.states.now.shape[:2]
        belief = jax.random.randint(belief_key, (), 0, beliefs)
        chosen = (jax.random.randint(first_key, (), 0, samples) + jnp.arange(n)) % samples
        states = DealSamples(self.states.now[belief, chosen], self.states.then[belief])
        return states, jax.tree.map(lambda leaf: leaf[belief], self.spaces)


@dataclass(frozen=True)
class DealBeliefConfig:
    """Which beliefs a model over deals is trained on: those of the first games of a random sequence."""

    policies: TrickPoolConfig
    games: int = 256
    length: int = 12
    """Actions of a game."""
    samples: int = 320
    """Of each belief."""
    later: int = 32
    """Of each belief, given what will be allowed."""

    def __post_init__(self) -> None:
        if not 0 < self.length < self.policies.rules.length:
            raise InputError(
                f"A game has {self.policies.rules.length} actions, and beliefs after all but the last to train on; got "
                f"length={self.length}."
            )

    @property
    def settings(self) -> dict[str, Any]:
        """All that the beliefs depend on."""
        sizes = {"games": self.games, "length": self.length, "samples": self.samples, "later": self.later}
        return {"policies": self.policies.settings, **sizes}

    def make(self, policies: Any, folder: Path) -> StoredBeliefs:
        """Make the beliefs of games between these policies, in files of `PART` games: one that is there is read."""
        source = HandGames(jax.tree.map(jnp.asarray, policies), self.policies.rules, self.length, self.later)
        key = prng.stream(self.policies.seed, "cards", "beliefs")
        # The source is an argument, since XLA would fold its policies for minutes if they were constants.
        one = eqx.filter_jit(lambda source, keys: jax.vmap(lambda key: source.episode(key, self.samples))(keys))
        shape = eqx.filter_eval_shape(
            lambda: jax.vmap(lambda k: source.episode(k, self.samples))(jax.random.split(key, PART))
        )
        settings = {name: value for name, value in self.settings.items() if name != "games"}  # parts of any number fit
        parts, identity = [], {"kind": "nbf beliefs over deals", "config": json.dumps(settings)}
        with Progress("exact beliefs", self.games, 0, unit="game") as bar:
            for first in range(0, self.games, PART):
                path = folder / f"beliefs-{first}.safetensors"
                if path.exists():
                    metadata, leaves = read_file(path, eqx.filter(shape, lambda leaf: hasattr(leaf, "dtype")))
                    if metadata.get("config") != identity["config"]:
                        raise InputError(f"{path} holds beliefs of other settings. Remove it to make them anew.")
                    parts.append(fill(shape, leaves, path))
                else:
                    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(first + jnp.arange(PART))
                    parts.append(jax.device_get(one(source, keys)))
                    write_file(path, named_leaves(parts[-1]), identity)
                bar.update(min(first + PART, self.games))

        def joined(*leaves: Any) -> Array:
            whole = np.concatenate([np.asarray(leaf) for leaf in leaves])[: self.games]
            return jnp.asarray(whole.reshape(-1, *whole.shape[2:]))

        return StoredBeliefs(*jax.tree.map(joined, *parts))


def deal_loss(model: Any, key: Key[Array, ""], states: DealSamples, space: Deals) -> Float[Array, ""]:
    """Minus the mean log probability of samples, given the embedding of others: the loss of a batch of beliefs.

    What is embedded is `now` but for as many samples as `then` has, and of half of the beliefs a random weighted part
    of it. Of every second belief the samples that are scored are of the belief in what was allowed when it arose, of
    the others given what will be allowed.
    """
    held_out = states.then.shape[1]
    beliefs, n = states.now.shape[0], states.now.shape[1] - held_out
    noisy = jax.vmap(lambda key: random_log_weights(key, n))(jax.random.split(key, beliefs))
    log_weights = jnp.where((jnp.arange(beliefs) % 4 < 2)[:, None], noisy, 0.0)
    embedded = states.now[:, :n].astype(jnp.int32)
    embeddings = jax.vmap(lambda states, log_weights: model.embed(states, log_weights))(embedded, log_weights)
    same = jnp.arange(beliefs) % 2 == 0
    scored = jnp.where(same[:, None, None], states.now[:, n:], states.then).astype(jnp.int32)
    assert space.context is not None
    before = space.context.reshape(space.allowed.shape) > 0
    allowed = jnp.where(same[:, None, None], before, space.allowed)
    space = eqx.tree_at(lambda space: space.allowed, space, allowed)
    return -jnp.mean(model.objective(key, embeddings, scored, space))
