"""Games of a small trick-taking game as one player sees them, with the exact posterior after each action.

The tables behind the exact posterior hold the probability of each observed action under each hand. Baselines that weigh
deals look them up there, and count the calls of the policy that they stand for.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.beliefs.hands import hand_table
from nbf.environments.hidden_hands import HiddenHands, PlayPolicy
from nbf.environments.trick_taking import Game, TrickTaking
from nbf.filters.hands import HandTableFilter, possible
from nbf.models.maximum_entropy import MaximumEntropyDeals
from nbf_paper.experiments.trick_policies import PlayNetwork

OBSERVER = 0
"""The player who watches."""


class Watched(eqx.Module):
    """The first actions of a game, as the observer sees them, and the truth."""

    environments: HiddenHands
    """Of each action."""
    actions: Int[Array, " t"]
    deal: Int[Array, " cards"]
    """Who was dealt each card."""
    unseen: Int[Array, " unseen"]
    """Cards that the observer did not see at first."""
    told: Float[Array, "t hands"]
    """log probability of each action under each hand of whoever made it; 0 for the observer's own."""
    allowed: Bool[Array, "t holders hands"]
    """Which hands what is known allows, after each action."""
    truth: Float[Array, "t cards owners"]
    """The exact marginals after each action."""
    deal_log_prob: Float[Array, " t"]
    """log probability of the true deal in the exact posterior."""
    ceiling_log_prob: Float[Array, " t"]
    """The same in the distribution of largest entropy with the exact marginals: the ceiling of a filter that keeps
    marginals alone."""

    @property
    def owner(self) -> Int[Array, " t"]:
        """Who made each action, as an owner of a deal."""
        return jax.vmap(lambda environment: environment.owner)(self.environments)

    @property
    def open_cards(self) -> Bool[Array, "t cards"]:
        """Cards whose owner is not settled by what is known."""
        return jnp.sum(self.environments.space.allowed, axis=2) > 1

    def errors(self, marginals: Float[Array, "t cards owners"]) -> Float[Array, " t"]:
        """The mean absolute error of marginals over open cards and their owners, after each action."""
        apart = jnp.mean(jnp.abs(marginals - self.truth), axis=2)
        return jnp.sum(jnp.where(self.open_cards, apart, 0.0), axis=1) / jnp.maximum(
            jnp.sum(self.open_cards, axis=1), 1
        )


def play(rules: TrickTaking, key: Key[Array, ""], players: Any, length: int) -> tuple[Game, HiddenHands, Array]:
    """The first actions of a random game: its start, the environments that the observer sees, and the actions.

    `players` is a policy whose leaves have a leading axis, of the players.
    """
    deal_key, play_key = jax.random.split(key)

    def step(game: Game, key: Key[Array, ""]) -> tuple[Game, tuple[HiddenHands, Array]]:
        policy: PlayPolicy = jax.tree.map(lambda leaf: leaf[game.player], players)
        log_probs = policy.log_probs(rules.view(game, game.hands[game.player]), rules.legal(game))
        action = prng.categorical(key, jnp.exp(log_probs))
        return rules.play(game, action), (HiddenHands.of(rules, game, action, policy, OBSERVER), action)

    start = rules.deal(deal_key)
    return start, *jax.lax.scan(step, start, jax.random.split(play_key, length))[1]


def deal_of(start: Game) -> Int[Array, " cards"]:
    """Who was dealt each card in a game that has just begun, as an owner of the observer's deals."""
    players = len(start.hands)
    others = [start.hands[(OBSERVER + 1 + place) % players] for place in range(players - 1)]
    return jnp.select(others, list(range(len(others))), len(others)).astype(jnp.int32)


def watch(rules: TrickTaking, key: Key[Array, ""], players: Any, length: int) -> Watched:
    """Play a game, and find the truth about it."""
    start, environments, actions = play(rules, key, players, length)
    exact, first = HandTableFilter(), jax.tree.map(lambda leaf: leaf[0], environments)
    begin = exact.init(key, first)
    held = jnp.asarray(hand_table(len(begin.unseen), rules.tricks)[0])
    deal, nobody = deal_of(start), rules.players - 1
    model = MaximumEntropyDeals(first.space, smoothing=0.0)

    def step(state: Any, inputs: tuple[HiddenHands, Array]) -> tuple[Any, tuple[Array, ...]]:
        environment, action = inputs

        def told(hand: Bool[Array, " unseen"]) -> Float[Array, ""]:
            owner = jnp.where(hand, environment.owner, nobody)
            made = jnp.full(rules.cards, nobody, jnp.int32).at[begin.unseen].set(owner)
            return environment.log_likelihood(action, made, made)

        after, _ = exact.update(key, state, action, environment, None)
        truth = after.marginals()
        ceiling = model.log_prob(truth.ravel(), deal[None], environment.space)[0]
        found = jax.vmap(told)(held), possible(state, environment), truth, after.log_prob(deal), ceiling
        return after, found

    found = jax.lax.scan(step, begin, (environments, actions))[1]
    return Watched(environments, actions, deal, begin.unseen, *found)


def random_network(key: Key[Array, ""], rules: TrickTaking, width: int = 256, sharpness: float = 6.0) -> PlayNetwork:
    """A wide network that was never trained, with sharp preferences: an opponent unlike those of self-play."""
    from nbf.models.networks import Perceptron

    network = Perceptron(key, rules.view_size, rules.num_actions, width=width, depth=2)
    return PlayNetwork(eqx.tree_at(lambda net: net.weights[-1], network, sharpness * network.weights[-1]))
