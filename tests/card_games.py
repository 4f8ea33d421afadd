"""What the tests of Goofspiel share: policies, games that are given, episodes and filters on them, compiled."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from constructors import with_random_parameters

from nbf.environments.goofspiel_game import NONE, CardPolicy, GameState, GoofspielGame
from nbf.filters.run import run

SMALL = GoofspielGame(4)


def network_pool(cards, size=6):
    return with_random_parameters(
        lambda key: jax.vmap(lambda key: CardPolicy(key, cards, width=8))(jax.random.split(key, size)),
        jax.random.key(2),
    )


@eqx.filter_jit
def episodes(family, keys):
    return jax.vmap(family.episode)(keys)


@eqx.filter_jit
def tracked(filter, environments, policies, observations):
    """The states of a filter after each step of many episodes."""
    one = lambda *episode: run(filter, jax.random.key(0), episode[2], *episode[:2], changing=True)  # noqa: E731
    return jax.vmap(one)(environments, policies, observations)


@functools.partial(jax.jit, static_argnums=0)
def replayed(game, hands, deck, prizes, bids):
    """Many given games: each player's view before every round, the state after it, and the outcomes."""

    def one(hands, deck, prizes, bids):
        nothing = jnp.zeros((2, game.cards), bool)
        state = GameState(hands, deck, jnp.int32(NONE), nothing, jnp.int32(0))
        found = []
        for number in range(game.rounds):
            prize = prizes[number]
            state = GameState(state.hands, deck & (jnp.arange(game.cards) != prize), prize, state.won, state.round)
            deck = state.deck
            view = jnp.stack([game.view(state, player) for player in range(2)])
            state, outcome = game.step(jax.random.key(0), state, bids[number])
            found.append((view, state, outcome))
        return jax.tree.map(lambda *parts: jnp.stack(parts), *found)

    return jax.vmap(one)(hands, deck, prizes, bids)
