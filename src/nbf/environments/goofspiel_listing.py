"""All states of a small game of Goofspiel, listed: the shorter ones first, those of one length in lexicographic order.

The states after a round are then the branches of those before it, in order.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from nbf.environments.goofspiel_game import GoofspielGame


@dataclass(frozen=True)
class Listing:
    """The states of a game, and tables to find one of them."""

    states: Int[np.ndarray, "states k"]
    starts: Int[np.ndarray, " lengths"]
    """Where the states of each length begin."""
    radix: Int[np.ndarray, "lengths k"]
    """For each length and place of a symbol: how far the index moves when the rank of that symbol rises by one."""
    hands: Bool[np.ndarray, "lengths hands k"]
    """For each length: the possible hands, the sets of cards that a state of it lacks; padded with empty rows."""
    branches: tuple[Int[np.ndarray, "_ _"], ...]
    """For each length but the last, and each state of it: hand · k + card of each of its branches."""


@functools.cache
def listing(game: GoofspielGame) -> Listing:
    """List the states of a game, once for each game.

    Args:
        game: The rules.

    Returns:
        The states and their tables.
    """
    k, first = game.cards, game.cards - game.rounds
    blocks, branches, starts = [], [], np.zeros(k + 1, np.int32)
    radix = np.zeros((k + 1, k), np.int32)
    hands = np.zeros((k + 1, math.comb(k, k // 2), k), bool)
    for length in range(first, k + 1):
        prefixes = np.asarray(list(itertools.permutations(range(k), length)), np.int32)
        starts[length] = sum(len(block) for block in blocks)
        blocks.append(np.pad(prefixes, ((0, 0), (0, k - length)), constant_values=k))
        radix[length, :length] = [math.perm(k - 1 - place, length - 1 - place) for place in range(length)]
        sets = {held: row for row, held in enumerate(itertools.combinations(range(k), k - length))}
        for held, row in sets.items():
            hands[length, row, list(held)] = True
        if length < k:
            rests = [tuple(sorted(set(range(k)) - set(prefix))) for prefix in prefixes.tolist()]
            branches.append(np.asarray([[sets[rest] * k + card for card in rest] for rest in rests], np.int32))
    return Listing(np.concatenate(blocks), starts, radix, hands, tuple(branches))
