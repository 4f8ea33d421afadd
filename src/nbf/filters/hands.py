"""The exact posterior over hidden hands of a small trick-taking game: a weight for each hand of each opponent.

An action depends on the hand of whoever makes it, and on nothing else that is hidden. So it changes the weights of that
player's hands alone, by one call of their policy for each hand.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf.beliefs.hands import HandBelief, hand_table
from nbf.contracts import Environment, Filter, FilterInfo, Observation, Policy
from nbf.environments.hidden_hands import HiddenHands
from nbf.errors import InputError
from nbf.resampling.likelihoods import is_invalid


class HandTableFilter(Filter):
    """Tracks the posterior over deals of `HiddenHands` exactly, with two or three players and up to 20 unseen cards."""

    def init(self, key: Key[Array, ""], environment: Environment) -> HandBelief:
        hidden = hidden_hands(environment)
        rules = hidden.rules
        own = hidden.own_cards()
        unseen = jnp.argsort(own, stable=True)[: rules.cards - rules.tricks - 1].astype(jnp.int32)
        hands = len(hand_table(len(unseen), rules.tricks)[1])
        return HandBelief.of(jnp.zeros((rules.players - 1, hands)), unseen, rules.cards, rules.tricks)[0]

    def update(
        self, key: Key[Array, ""], state: HandBelief, observation: Observation, environment: Environment, policy: Policy
    ) -> tuple[HandBelief, FilterInfo]:
        hidden = hidden_hands(environment)
        predicted = jnp.where(possible(state, hidden), state.log_weights, -jnp.inf)
        if observation is None:
            return _settled(state, predicted, predicted, jnp.int32(0))
        owner = hidden.owner
        held = jnp.asarray(hand_table(len(state.unseen), state.size)[0])
        nobody = state.holders

        def told(hand: Bool[Array, " unseen"]) -> Float[Array, ""]:
            deal = jnp.full(state.cards, nobody, jnp.int32).at[state.unseen].set(jnp.where(hand, owner, nobody))
            return hidden.log_likelihood(observation, deal, deal)

        log_likelihoods = jax.vmap(told)(held)
        wrong = is_invalid(log_likelihoods)
        seen = jnp.where(wrong, -jnp.inf, log_likelihoods)
        acting = jnp.arange(state.holders)[:, None] == owner
        return _settled(state, predicted, predicted + jnp.where(acting, seen, 0.0), jnp.sum(wrong, dtype=jnp.int32))

    def belief(self, state: HandBelief, environment: Environment) -> HandBelief:
        return state


def _settled(
    state: HandBelief, predicted: Float[Array, "holders hands"], after: Float[Array, "holders hands"], invalid: Array
) -> tuple[HandBelief, FilterInfo]:
    """The belief after an action, and what it told; if no deal explains it, what is possible without it."""
    belief, log_total = HandBelief.of(after, state.unseen, state.cards, state.size)
    explained = log_total > -jnp.inf

    def otherwise(_: None) -> HandBelief:
        known, log_known = HandBelief.of(predicted, state.unseen, state.cards, state.size)
        return jax.tree.map(lambda new, old: jnp.where(log_known > -jnp.inf, new, old), known, state)

    belief = jax.lax.cond(explained, lambda _: belief, otherwise, None)
    info = FilterInfo(
        ess=jnp.where(explained, jnp.asarray(after.shape[1], jnp.float32), 0.0),
        log_evidence=log_total,
        attempts=jnp.int32(1),
        recovered=~explained,
        invalid=invalid,
    )
    return belief, info


def possible(state: HandBelief, environment: HiddenHands) -> Bool[Array, "holders hands"]:
    """Find the hands that what is known allows.

    Args:
        state: Of the filter.
        environment: Of this step.

    Returns:
        For each holder and hand whether every card of it may be theirs, and no card that must be is missing.
    """
    held = jnp.asarray(hand_table(len(state.unseen), state.size)[0], jnp.float32)
    allowed = jnp.asarray(environment.space.allowed)[state.unseen]
    sure = allowed & (jnp.sum(allowed, axis=1, keepdims=True) == 1)
    wrong = held @ (~allowed).astype(jnp.float32) + (1.0 - held) @ sure.astype(jnp.float32)
    return (wrong == 0).T[:-1]


def hidden_hands(environment: Environment) -> HiddenHands:
    """See an environment as hidden hands of a game small enough for tables, or raise.

    Args:
        environment: Of this step.

    Returns:
        The same environment.
    """
    if not isinstance(environment, HiddenHands):
        raise InputError(
            f"A table of hands is for HiddenHands; got {type(environment).__name__}. Use ExactFilter, or a particle "
            "filter."
        )
    if environment.rules.players > 3:
        raise InputError(
            f"Tables of hands are for 2 or 3 players; the game has {environment.rules.players}. Use a particle filter, "
            "or a neural filter with MaximumEntropyDeals."
        )
    return environment
