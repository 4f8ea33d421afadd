"""Exact posteriors over the hidden information of an OpenSpiel game, by enumeration: for tests, not for speed.

    game = pyspiel.load_game("kuhn_poker")
    posterior = information_state_posterior(game, uniform, player=0, information_state="1pb")

p(h | I) ∝ Π p(chance) · Π π(others), over all histories h in the information state I of `player`. The player's own
actions are part of I, so their probabilities cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, no_type_check

from nbf.errors import InputError

Probabilities = Mapping[int, float]
"""Action -> probability; actions that are not listed have probability zero."""
GamePolicy = Mapping[str, Probabilities] | Callable[[Any, int], Probabilities]
"""The policy of all players: a mapping from information state string to probabilities, or a function `(state, player)
-> probabilities` such as OpenSpiel's `policy.action_probabilities`."""

SUM_TOLERANCE = 1e-6
"""How far probabilities may be from summing to one: networks compute in float32."""
LIMIT = 1_000_000
"""Histories that are enumerated before a game counts as too large: about a minute."""


@no_type_check  # as choices
def uniform(state: Any, player: int) -> dict[int, float]:
    """Give every legal action the same probability: a `GamePolicy`.

    Args:
        state: OpenSpiel's state.
        player: The player who acts.

    Returns:
        The probability of each legal action.
    """
    actions = state.legal_actions(player)
    return {action: 1.0 / len(actions) for action in actions}


def information_state_posterior(
    game: Any, policy: GamePolicy, player: int, information_state: str, *, limit: int = LIMIT
) -> dict[tuple[int, ...], float]:
    """Compute the exact posterior over histories at an information state.

    Args:
        game: A finite OpenSpiel game, sequential or simultaneous, with perfect recall.
        policy: The policy of all players.
        player: Whose information state it is.
        information_state: `state.information_state_string(player)` of a state in which the player acts, or of the end.
        limit: Histories to enumerate, at most.

    Returns:
        The probability of each history (its actions, including those of chance).
    """
    if not 0 <= player < game.num_players():
        raise InputError(f"The game {game} has players 0..{game.num_players() - 1}; got player={player}.")
    found: dict[tuple[int, ...], float] = {}
    pending, seen = [(game.new_initial_state(), 1.0)], 0
    while pending:
        state, reach = pending.pop()
        seen += 1
        if seen > limit:
            raise InputError(
                f"The game {game} has more than limit={limit} reachable histories; choose a smaller one or raise limit."
            )
        over = state.is_terminal()
        acts = over or state.is_simultaneous_node() or state.current_player() == player
        # With perfect recall no later history can have the same information state.
        if acts and state.information_state_string(player) == information_state:
            found[tuple(state.history())] = reach
        elif not over:
            pending.extend((child, reach * chance) for child, chance in _children(state, policy, player))
    total = math.fsum(found.values())
    if not total > 0:
        raise InputError(
            f"No history of positive probability has the information state {information_state!r} of player {player} "
            f"among {seen} of the game {game}; compare with state.information_state_string({player})."
        )
    return {history: reach / total for history, reach in found.items()}


def _children(state: Any, policy: GamePolicy, player: int) -> Iterator[tuple[Any, float]]:
    """All reachable next states, and for each the probability of the actions of chance and of the other players."""
    if state.is_chance_node():
        for action, chance in state.chance_outcomes():
            yield state.child(action), chance
    elif state.is_simultaneous_node():
        each_one = range(state.get_game().num_players())
        for joint in product(*(choices(state, policy, each, own=each == player) for each in each_one)):
            child = state.clone()
            child.apply_actions([action for action, _ in joint])
            yield child, math.prod(chance for _, chance in joint)
    else:
        mover = state.current_player()
        for action, chance in choices(state, policy, mover, own=mover == player):
            yield state.child(action), chance


@no_type_check  # called for each of many histories: checks of types at run time would be most of the tests' time
def choices(state: Any, policy: GamePolicy, player: int, *, own: bool = False) -> list[tuple[int, float]]:
    """List the actions of a player that are possible.

    Args:
        state: OpenSpiel's state.
        policy: Of the player; an error if it is no distribution over legal actions.
        player: Who acts.
        own: Whether it is the player whose belief it is, whose actions count as 1.

    Returns:
        Pairs of an action and its probability, above 0.
    """
    # In a simultaneous move, OpenSpiel has players without a choice take action 0.
    legal = state.legal_actions(player) or [0]
    if own or len(legal) == 1:
        return [(action, 1.0) for action in legal]
    name = state.information_state_string(player)
    if isinstance(policy, Mapping) and name not in policy:
        raise InputError(f"The policy says nothing about the information state {name!r} of player {player}.")
    probabilities = policy[name] if isinstance(policy, Mapping) else policy(state, player)
    sound = all(chance >= 0 for chance in probabilities.values()) and probabilities.keys() <= set(legal)
    if not sound or not abs(math.fsum(probabilities.values()) - 1.0) <= SUM_TOLERANCE:
        raise InputError(
            f"The policy of player {player} at {name!r} must give the legal actions {legal} probabilities of 0 or more "
            f"that sum to 1; got {dict(probabilities)}."
        )
    return [(action, chance) for action, chance in probabilities.items() if chance > 0]
