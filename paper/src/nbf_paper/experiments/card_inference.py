"""Filters over hidden hands without an embedding: by the rules alone, and policy inference.

Policy inference remembers what was seen, and weighs fresh deals when a belief is asked for.

Rebstock et al. 2019: all deals that what is known allows are drawn alike, and each counts as much as the whole history
is likely under it. A deal costs a call of a policy for each action of an opponent so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.beliefs.model import EXPECTATION_DRAWS
from nbf.beliefs.particles import ParticleBelief
from nbf.contracts import Belief, Environment, Filter, FilterInfo, Observation, Policy, State
from nbf.environments.hidden_hands import HiddenHands
from nbf.environments.trick_taking import Game
from nbf.errors import InputError
from nbf.filters.checks import check_counts
from nbf.spaces import Deals
from nbf.spaces.deal_weights import completions, deals, marginals

CHUNK = 64
"""Deals that are drawn and weighed at once: calls are made in whole chunks, of which the last may be larger than
needed."""


class Remembered(NamedTuple):
    """The opponents' actions so far."""

    key: Key[Array, ""]
    seen: Int[Array, ""]
    """How many."""
    games: Game
    """Before each action; leading axis of the longest history on every leaf."""
    actions: Int[Array, " longest"]
    policies: Any
    """Of each opponent; leading axis on every leaf."""

    def log_likelihoods(self, environment: HiddenHands, dealt: Int[Array, "n cards"]) -> Float[Array, " n"]:
        """Of all actions, under deals: a call for each action and deal."""

        def told(place: Int[Array, ""], total: Float[Array, " n"]) -> Float[Array, " n"]:
            game, action = jax.tree.map(lambda leaf: leaf[place], (self.games, self.actions))
            past = HiddenHands(environment.space, environment.rules, game, environment.policy, environment.observer)
            policy = jax.tree.map(lambda leaf: leaf[past.owner], self.policies)
            past = eqx.tree_at(lambda past: past.policy, past, policy)
            return total + jax.vmap(lambda deal: past.log_likelihood(action, deal, deal))(dealt)

        return jax.lax.fori_loop(0, self.seen, told, jnp.zeros(len(dealt)))


class InferredBelief(Belief):
    """Fresh deals, weighed by the whole history."""

    particles: ParticleBelief
    used: Bool[Array, " n"]
    """Which of them the calls were enough for."""
    remembered: Remembered
    environment: HiddenHands

    def sample(self, key: Key[Array, ""], n: int) -> State:
        return self.particles.sample(key, n)

    def log_prob(self, state: State) -> Float[Array, ""]:
        """How likely a draw is this deal, over fresh deals and draws, estimated by the deals at hand.

        It is among N of M deals with a probability of N/M, and is then drawn in proportion to its weight: with
        N/M · w/(w + the weights of N - 1 others).
        """
        space: Deals = self.environment.space
        own = self.remembered.log_likelihoods(self.environment, state[None])[0]
        kept = self.used & (jnp.arange(len(self.used)) > 0)
        others = jax.nn.logsumexp(jnp.where(kept, self.particles.log_weights, -jnp.inf))
        log_deals = completions(space.allowed.astype(jnp.float32), space.quotas)[1]
        found = jnp.log(jnp.sum(self.used)) - log_deals + own - jnp.logaddexp(own, others)
        return jnp.where(space.contains(state) & (own > -jnp.inf), found, -jnp.inf)

    def expectation(self, function: Callable[[State], Any]) -> Any:
        return self.particles.expectation(function)


class EqualDeals(Belief):
    """All deals that what is known allows are equally likely."""

    space: Deals

    def sample(self, key: Key[Array, ""], n: int) -> State:
        uniform = jax.random.uniform(key, (self.space.cards, n))
        return deals(self.space.allowed.astype(jnp.float32), self.space.quotas, uniform)

    def log_prob(self, state: State) -> Float[Array, ""]:
        count = completions(self.space.allowed.astype(jnp.float32), self.space.quotas)[1]
        return jnp.where(self.space.contains(state), -count, -jnp.inf)

    def marginals(self) -> Float[Array, "cards owners"]:
        """Who holds each card, and how likely."""
        return marginals(self.space.allowed.astype(jnp.float32), self.space.quotas)

    def expectation(self, function: Callable[[State], Any]) -> Any:
        """By as many draws as a model's belief has."""
        found = jax.vmap(function)(self.sample(jax.random.key(0), EXPECTATION_DRAWS))
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), found)


class RulesAlone(Filter):
    """Learns what the rules tell, and nothing from how anybody plays.

    A filter that takes the opponents for random players is another one: what is played tells how much else was legal.
    """

    def init(self, key: Key[Array, ""], environment: Environment) -> Int[Array, ""]:
        return jnp.int32(0)

    def update(
        self, key: Key[Array, ""], state: Int[Array, ""], observation: Observation, environment: Environment,
        policy: Policy,
    ) -> tuple[Int[Array, ""], FilterInfo]:  # fmt: skip
        return state + 1, FilterInfo(jnp.float32(0.0), jnp.float32(0.0), jnp.int32(1), jnp.bool_(False))

    def belief(self, state: Int[Array, ""], environment: Environment) -> EqualDeals:
        return EqualDeals(_hidden(environment).space)


class PolicyInference(Filter):
    """Remembers the game; its belief is that of fresh deals, as many as the calls allow."""

    calls: int = eqx.field(static=True)
    """Of the opponents' policies, for each belief."""

    def __check_init__(self) -> None:
        check_counts("Policy inference", calls=self.calls)

    def init(self, key: Key[Array, ""], environment: Environment) -> Remembered:
        hidden = _hidden(environment)
        longest, holders = hidden.rules.length, hidden.rules.players - 1

        def repeated(tree: Any, count: int) -> Any:
            return jax.tree.map(lambda leaf: jnp.stack([leaf] * count), tree)

        actions = jnp.zeros(longest, jnp.int32)
        return Remembered(key, jnp.int32(0), repeated(hidden.game, longest), actions, repeated(hidden.policy, holders))

    def update(
        self, key: Key[Array, ""], state: Remembered, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[Remembered, FilterInfo]:
        """Remember an action of an opponent. Nothing is weighed here, so nothing is told either."""
        hidden = _hidden(environment)
        info = FilterInfo(jnp.float32(self.calls), jnp.float32(0.0), jnp.int32(1), jnp.bool_(False))
        if observation is None:
            return state, info

        def put(into: Any, place: Int[Array, ""], part: Any) -> Any:
            return jax.tree.map(lambda leaf, new: leaf.at[place].set(new), into, part)

        games, actions = put((state.games, state.actions), state.seen, (hidden.game, observation))
        after = Remembered(key, state.seen + 1, games, actions, put(state.policies, hidden.owner, hidden.policy))
        own = hidden.game.player == hidden.observer
        return jax.tree.map(lambda old, new: jnp.where(own, old, new), state, after), info

    def belief(self, state: Remembered, environment: Environment) -> InferredBelief:
        hidden = _hidden(environment)
        space, count = hidden.space, jnp.maximum(self.calls // jnp.maximum(state.seen, 1), 2)
        chunks = -(-self.calls // CHUNK) + 1

        def one(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            number, drawn, log_weights = carry
            uniform = jax.random.uniform(jax.random.fold_in(state.key, number), (space.cards, CHUNK))
            some = deals(space.allowed.astype(jnp.float32), space.quotas, uniform)
            told = state.log_likelihoods(hidden, some)
            return number + 1, drawn.at[number].set(some), log_weights.at[number].set(told)

        start = jnp.int32(0), jnp.zeros((chunks, CHUNK, space.cards), jnp.int32), jnp.zeros((chunks, CHUNK))
        _, drawn, told = jax.lax.while_loop(lambda carry: carry[0] * CHUNK < count, one, start)
        used = jnp.arange(chunks * CHUNK) < count
        told = jnp.where(used, told.ravel(), -jnp.inf)
        told = jnp.where(jnp.max(told) > -jnp.inf, told, jnp.where(used, 0.0, -jnp.inf))  # else by the rules alone
        return InferredBelief(ParticleBelief(drawn.reshape(-1, space.cards), told), used, state, hidden)


def _hidden(environment: Environment) -> HiddenHands:
    if not isinstance(environment, HiddenHands):
        raise InputError(f"Policy inference is for HiddenHands; got {type(environment).__name__}.")
    return environment
