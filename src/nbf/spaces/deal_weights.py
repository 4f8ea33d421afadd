"""Distributions over deals in which a deal's probability is a product of weights of its cards: sums, marginals, draws.

Sums over all deals are recursions over the cards, whose state is how many cards each owner has so far: no more than the
product of the quotas + 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Weights = Float[Array, "cards owners"]
"""w: zero where a card cannot be held."""
Grid = Float[Array, "*counts"]
"""A number for each count of cards that the owners, but the last, may have so far."""


def completions(weights: Weights, quotas: tuple[int, ...]) -> tuple[Float[Array, "cards_1 *counts"], Float[Array, ""]]:
    """Sum over the deals of all cards from each one on.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.

    Returns:
        For each card, and after the last, the sum for each count of cards before it, up to a factor; and the log of the
        sum over all deals.
    """
    end = jnp.zeros([quota + 1 for quota in quotas]).at[tuple(quotas)].set(1.0)

    def step(after: Grid, card: Float[Array, " owners"]) -> tuple[Grid, tuple[Grid, Float[Array, ""]]]:
        now = card[-1] * after + sum(card[owner] * _one_more(after, owner) for owner in range(len(quotas)))
        scale = jnp.max(now)
        now = now / jnp.where(scale > 0, scale, 1.0)
        return now, (now, jnp.log(scale))

    first, (sums, scales) = jax.lax.scan(step, end, weights, reverse=True)
    return jnp.concatenate([sums, end[None]]), jnp.sum(scales) + jnp.log(first[(0,) * len(quotas)])


def marginals(weights: Weights, quotas: tuple[int, ...]) -> Weights:
    """Compute who holds each card, and how likely.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.

    Returns:
        The probability of each owner for each card; NaN if no deal has a weight.
    """
    after, _ = completions(weights, quotas)
    start = jnp.zeros([quota + 1 for quota in quotas]).at[(0,) * len(quotas)].set(1.0)

    def step(before: Grid, inputs: tuple[Float[Array, " owners"], Grid]) -> tuple[Grid, Float[Array, " owners"]]:
        card, rest = inputs
        parts = [card[owner] * jnp.sum(before * _one_more(rest, owner)) for owner in range(len(quotas))]
        held = jnp.stack([*parts, card[-1] * jnp.sum(before * rest)])
        now = card[-1] * before + sum(card[owner] * _one_less(before, owner) for owner in range(len(quotas)))
        return now / jnp.max(now), held / jnp.sum(held)

    return jax.lax.scan(step, start, (weights, after[1:]))[1]


def deals(weights: Weights, quotas: tuple[int, ...], uniform: Float[Array, "cards n"]) -> Int[Array, "n cards"]:
    """Draw deals in proportion to the product of their weights.

    Args:
        weights: Of the cards.
        quotas: Cards of each owner but the last.
        uniform: A number between 0 and 1 for each card and draw.

    Returns:
        The owner of each card, in each draw.
    """
    after, _ = completions(weights, quotas)
    flat, strides = after.reshape(len(after), -1), jnp.asarray(owner_strides(quotas))

    def step(place: Int[Array, " n"], inputs: tuple[Array, Array, Array]) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
        card, rest, uniform = inputs
        ways = owner_ways(card, rest, place, quotas)
        sums = jnp.cumsum(ways, axis=0)
        # By rounding the last sum may not be reached; an owner who cannot hold the card is never taken.
        owner = jnp.argmax((sums > uniform * sums[-1]) & (ways > 0), axis=0).astype(jnp.int32)
        return place + strides[owner], owner

    start = jnp.zeros(uniform.shape[1], jnp.int32)
    return jax.lax.scan(step, start, (weights, flat[1:], uniform))[1].T


def owner_strides(quotas: tuple[int, ...]) -> Int[np.ndarray, " owners"]:
    """Compute by how much the place in a flattened grid of counts moves when an owner gets a card.

    Args:
        quotas: Cards of each owner but the last.

    Returns:
        The stride of each owner; 0 for the last one, whose cards are not counted.
    """
    sides = [quota + 1 for quota in quotas]
    return np.append(np.cumprod([1, *sides[:0:-1]])[::-1], 0).astype(np.int32)


def owner_ways(
    card: Float[Array, " owners"], rest: Float[Array, " places"], place: Int[Array, " n"], quotas: tuple[int, ...]
) -> Float[Array, "owners n"]:
    """Weigh the owners of one card, given how many cards each has so far.

    Args:
        card: Its weights.
        rest: Sums over the deals of all cards after it, for each place in the flattened grid of counts.
        place: Where n deals of the cards before it are in that grid.
        quotas: Cards of each owner but the last.

    Returns:
        In proportion to the probability of each owner; zero for one who can hold no more.
    """
    strides = owner_strides(quotas)
    ways = []
    for owner, quota in enumerate(quotas):
        full = (place // strides[owner]) % (quota + 1) == quota
        following = jnp.minimum(place + strides[owner], rest.shape[0] - 1)
        ways.append(jnp.where(full, 0.0, card[owner] * rest[following]))
    return jnp.stack([*ways, card[-1] * rest[place]])


def _one_more(grid: Grid, owner: int) -> Grid:
    """The numbers at one card more of an owner; zero where that is too many."""
    inner = jax.lax.slice_in_dim(grid, 1, grid.shape[owner], axis=owner)
    return jnp.concatenate([inner, jnp.zeros_like(jax.lax.slice_in_dim(grid, 0, 1, axis=owner))], axis=owner)


def _one_less(grid: Grid, owner: int) -> Grid:
    """The numbers at one card less of an owner; zero where there is none."""
    inner = jax.lax.slice_in_dim(grid, 0, grid.shape[owner] - 1, axis=owner)
    return jnp.concatenate([jnp.zeros_like(jax.lax.slice_in_dim(grid, 0, 1, axis=owner)), inner], axis=owner)
