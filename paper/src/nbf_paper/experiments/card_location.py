"""A policy-blind card-location network (Solinas, Rebstock, Buro 2019), and its fine-tuning by calls of the policy.

The network reads what the observer has seen, the own hand and all actions so far, and gives a weight for each card and
owner. Legal deals have a probability in proportion to the product of their weights, so that marginals, probabilities
and draws are exact (`nbf.spaces.deal_weights`). It is trained on the true deals of games between the training policies,
and knows nothing of the policies that it meets.

Belief fine-tuning (Sokota et al. 2022) does: at each action of an opponent, deals are drawn from the belief before it,
weighed by the policy's probability of the action, and the network's parameters follow the gradient of their
log probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.contracts import BeliefSource
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import TrickTaking
from nbf.models.networks import Perceptron
from nbf.resampling.weights import normalize
from nbf.spaces import Deals
from nbf.spaces.deal_weights import Weights, completions, deals, marginals
from nbf_paper.experiments.card_baselines import Found, History
from nbf_paper.experiments.card_games import OBSERVER, Watched, play


def seen(rules: TrickTaking, environments: HiddenHands, actions: Int[Array, " t"]) -> Float[Array, "inputs t"]:
    """What the observer knows after each action, as columns: the own hand and the card turned up; and for each action
    so far which it was, and who made it."""
    length, first = len(actions), jax.tree.map(lambda leaf: leaf[0], environments)
    turned_up = jax.nn.one_hot(first.game.turned_up, rules.cards)
    own = jnp.concatenate([first.game.hands[OBSERVER].astype(jnp.float32), turned_up])
    made = [jax.nn.one_hot(actions, rules.num_actions), jax.nn.one_hot(environments.game.player, rules.players)]
    history = jnp.concatenate(made, axis=1)
    so_far = jnp.tri(length)[:, :, None] * history
    everything = jnp.broadcast_to(own, (length, len(own)))
    return jnp.concatenate([everything, so_far.reshape(length, -1)], axis=1).T


class CardLocation(eqx.Module):
    """The network: from what is seen to the log weight of each card and owner."""

    network: Perceptron
    cards: int = eqx.field(static=True)

    def weights(
        self, inputs: Float[Array, "inputs *b"], allowed: Bool[Array, "*b cards owners"]
    ) -> Float[Array, "*b cards owners"]:
        """The weights of cards, zero where what is known rules an owner out."""
        logits = self.network(inputs)
        logits = jnp.moveaxis(logits, 0, -1).reshape(*logits.shape[1:], self.cards, -1)
        largest = jax.lax.stop_gradient(jnp.max(jnp.where(allowed, logits, -jnp.inf), axis=-1, keepdims=True))
        return jnp.where(allowed, jnp.exp(logits - largest), 0.0)


@dataclass(frozen=True)
class CardLocationConfig:
    """Config of a card-location network."""

    players: int
    suits: int
    ranks: int
    tricks: int
    length: int
    """Actions that it can read."""
    width: int = 256
    depth: int = 2

    def build(self, key: Key[Array, ""]) -> CardLocation:
        """A network with random parameters, whose last layer is zero: all legal deals are alike."""
        rules = TrickTaking(self.players, self.suits, self.ranks, self.tricks)
        inputs = 2 * rules.cards + self.length * (rules.num_actions + rules.players)
        size = rules.cards * rules.players
        network = Perceptron(key, inputs, size, width=self.width, depth=self.depth, zero_output=True)
        return CardLocation(network, rules.cards)


class Position(eqx.Module):
    """What a network learns from: all actions of a game."""

    inputs: Float[Array, "*b inputs t"]
    deal: Int[Array, "*b cards"]


class PlayedGames(BeliefSource):
    """Random games between policies, as one player sees them, with their true deals."""

    policies: Any
    """Leading axis: all policies, of which each player gets a random one."""
    rules: TrickTaking
    length: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], n: int) -> tuple[Position, Deals]:
        """One game, whatever n is."""
        player_key, game_key = jax.random.split(key)
        size = jax.tree.leaves(self.policies)[0].shape[0]
        chosen = jax.random.randint(player_key, (self.rules.players,), 0, size)
        players = jax.tree.map(lambda leaf: leaf[chosen], self.policies)
        start, environments, actions = play(self.rules, game_key, players, self.length)
        others = [start.hands[(OBSERVER + 1 + place) % self.rules.players] for place in range(self.rules.players - 1)]
        deal = jnp.select(others, list(range(len(others))), len(others)).astype(jnp.int32)
        return Position(seen(self.rules, environments, actions), deal), environments.space


def log_probs(weights: Weights, deal: Int[Array, "n cards"], quotas: tuple[int, ...]) -> Float[Array, " n"]:
    """The log probability of legal deals in proportion to the product of their weights."""
    held = jnp.take_along_axis(jnp.log(jnp.maximum(weights, 1e-30))[None], deal[:, :, None], axis=2)
    return jnp.sum(held, axis=(1, 2)) - completions(weights, quotas)[1]


def location_loss(model: CardLocation, key: Key[Array, ""], states: Position, space: Deals) -> Float[Array, ""]:
    """Minus the mean log probability of the true deal, over all actions of a batch of games."""

    def at(weights: Weights, deal: Int[Array, " cards"]) -> Float[Array, ""]:
        return log_probs(weights, deal[None], space.quotas)[0]

    weights = model.weights(jnp.moveaxis(states.inputs, 0, 1), jnp.asarray(space.allowed))
    return -jnp.mean(jax.vmap(lambda weights, deal: jax.vmap(at, (0, None))(weights, deal))(weights, states.deal))


class Located(eqx.Module):
    """The marginals that the network gives after each action, and how likely the true deal is. No call."""

    model: CardLocation
    rules: TrickTaking

    def __call__(self, key: Key[Array, ""], game: Watched) -> tuple[Found, Float[Array, " t"]]:
        space = game.environments.space
        weights = self.model.weights(seen(self.rules, game.environments, game.actions), jnp.asarray(space.allowed))
        found = jax.vmap(lambda weights: marginals(weights, space.quotas))(weights)
        told = jax.vmap(lambda weights: log_probs(weights, game.deal[None], space.quotas)[0])(weights)
        return (found, jnp.zeros(len(game.actions))), told


class FineTuned(eqx.Module):
    """Belief fine-tuning of the network: some calls at each action of an opponent, and gradient steps (Adam) at each
    action. The observer's own ones take no call: all deals explain them alike."""

    model: CardLocation
    rules: TrickTaking
    calls: int = eqx.field(static=True)
    rate: float
    """Learning rate."""
    steps: int = eqx.field(static=True)
    """Gradient steps at each action."""

    def __call__(self, key: Key[Array, ""], game: Watched) -> tuple[Found, Float[Array, " t"]]:
        history, space = History(game), game.environments.space
        inputs, quotas = seen(self.rules, game.environments, game.actions), space.quotas
        start, static = eqx.partition(self.model, eqx.is_inexact_array)
        optimizer = optax.adam(self.rate)

        def weights(parameters: Any, time: Int[Array, ""], allowed: Bool[Array, "cards owners"]) -> Weights:
            return eqx.combine(parameters, static).weights(inputs[:, time], allowed)

        def step(parameters: Any, pair: tuple[Array, Array]) -> tuple[Any, tuple[Array, Array]]:
            time, key = pair
            allowed = jnp.asarray(space.allowed)[time]
            before = weights(parameters, jnp.maximum(time - 1, 0), allowed)
            before = jnp.where(time > 0, before, allowed.astype(jnp.float32))
            drawn = deals(before, quotas, jax.random.uniform(key, (history.cards, self.calls)))
            acting = jnp.minimum(game.owner[time], history.holders - 1)
            own = jnp.take_along_axis(history.rows(drawn), acting[None, None], axis=1)[:, 0]
            shares, log_total = normalize(game.told[time][own])
            shares = jnp.where(log_total > -jnp.inf, jnp.exp(shares), 0.0)

            def loss(parameters: Any) -> Float[Array, ""]:
                return -shares @ log_probs(weights(parameters, time, allowed), drawn, quotas)

            def one(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
                parameters, state = carry
                updates, state = optimizer.update(jax.grad(loss)(parameters), state, parameters)
                return (optax.apply_updates(parameters, updates), state), None

            parameters, _ = jax.lax.scan(one, (parameters, optimizer.init(parameters)), None, length=self.steps)[0]
            after = weights(parameters, time, allowed)
            return parameters, (marginals(after, quotas), log_probs(after, game.deal[None], quotas)[0])

        keys = jax.random.split(key, len(game.actions))
        found, told = jax.lax.scan(step, start, (history.times(), keys))[1]
        return (found, self.calls * history.acts.astype(jnp.float32)), told
