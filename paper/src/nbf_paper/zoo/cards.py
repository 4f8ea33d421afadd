"""A card deal: who holds which card.

Hidden: the holder of each of nine cards, three to each of three players; 1680 deals, and nothing moves. Seen: of a
random player how strong the hand is (the sum of its ranks, with noise), and of a random card a tip who holds it, right
half of the time. After the inference of bridge and of Skat programs (Ginsberg 2001; Kupferschmid, Helmert 2006).
Horizon 25. In the zoo because cards depend on each other through the deal: no belief over single cards will do.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import Observation
from nbf.environments.functional import One
from nbf.environments.listed import listed_environment
from nbf.filters.exact import ExactFilter
from nbf.spaces import Tokens
from nbf_paper.zoo.problem import Problem

CARDS, PLAYERS, HAND = 9, 3, 3
NOISE, RIGHT = 3.0, 0.5
"""Standard deviation of a hand's strength, and probability that a tip is right."""
CODE = PLAYERS ** np.arange(CARDS)[::-1]


@functools.cache
def deals() -> np.ndarray:
    """All of them, in the order of their codes."""
    every = np.array(list(itertools.product(range(PLAYERS), repeat=CARDS)), np.int32)
    counts = np.stack([(every == player).sum(axis=1) for player in range(PLAYERS)])
    return every[(counts == HAND).all(axis=0)]


def states() -> Int[Array, "deals cards"]:
    """All deals, one per row."""
    return jnp.asarray(deals())


def index(state: Int[Array, " cards"]) -> Int[Array, ""]:
    """The row of a deal in `states`."""
    codes = jnp.asarray(deals() @ CODE, jnp.int32)
    return jnp.clip(jnp.searchsorted(codes, jnp.sum(state * CODE)), 0, len(deals()) - 1).astype(jnp.int32)


def legal(prefix: Int[Array, " i"], context: Array | None) -> Array:
    """A player who holds fewer than three cards may get the next one."""
    return jnp.sum(prefix[:, None] == jnp.arange(PLAYERS), axis=0) < HAND


def strength(deal: Int[Array, " cards"], player: Int[Array, ""]) -> Float[Array, ""]:
    """The sum of the ranks of a player's cards."""
    return jnp.sum(jnp.where(deal == player, jnp.arange(CARDS), 0)).astype(jnp.float32)


def observe(key: Key[Array, ""], state: Array, next_state: Array) -> Observation:
    """Draw the strength of a random player's hand, with noise, and a tip who holds a random card."""
    player_key, noise_key, card_key, right_key, wrong_key = jax.random.split(key, 5)
    player = jax.random.randint(player_key, (), 0, PLAYERS)
    card = jax.random.randint(card_key, (), 0, CARDS)
    wrong = jax.random.randint(wrong_key, (), 1, PLAYERS)
    aside = jnp.where(jax.random.uniform(right_key) < RIGHT, 0, wrong)
    told = strength(next_state, player) + NOISE * jax.random.normal(noise_key)
    return {"player": player, "strength": told, "card": card, "tip": (next_state[card] + aside) % PLAYERS}


def log_likelihood(observation: Observation, state: Array, next_state: Array) -> Float[Array, ""]:
    """log density of a told strength, and of a tip."""
    right = next_state[observation["card"]] == observation["tip"]
    tip = jnp.log(jnp.where(right, RIGHT, (1 - RIGHT) / (PLAYERS - 1)))
    told = norm.logpdf(observation["strength"], strength(next_state, observation["player"]), NOISE)
    return tip + told - float(np.log(PLAYERS * CARDS))


def problem() -> Problem:
    """The problem, whose reference is exact."""
    world = listed_environment(
        states=states, index=index, observe=observe, log_likelihood=log_likelihood,
        space=Tokens(CARDS, PLAYERS, legal),
    )  # fmt: skip
    return Problem("cards", One(world, None), 25, ExactFilter(), "exact, 1680 states")
