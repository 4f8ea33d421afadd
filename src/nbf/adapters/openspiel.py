"""The truth about hidden information in an OpenSpiel game, by enumeration: an oracle, not a hot path.

    game = pyspiel.load_game("kuhn_poker")
    posterior = information_state_posterior(game, uniform, player=0, information_state="1pb")

p(h | I) ∝ Π p(chance) · Π π(others), over every history h that `player` cannot tell from the others of I. What
`player` did stands in I itself and cancels out, whatever their policy was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from nbf.errors import InputError

Probabilities = Mapping[int, float]
"""Action -> probability; an action that is not listed is never taken."""
GamePolicy = Mapping[str, Probabilities] | Callable[[Any, int], Probabilities]
"""Of everyone: information state string -> probabilities, or `(state, player) -> probabilities`, as which OpenSpiel's
`policy.action_probabilities` serves too."""

SUM_TOLERANCE = 1e-6
"""How far probabilities may be from summing to one: policies of networks come in float32."""
LIMIT = 1_000_000
"""Histories that are looked at before the game is said to be too large; about a minute."""


def uniform(state: Any, player: int) -> dict[int, float]:
    """The policy that takes every legal action alike."""
    actions = state.legal_actions(player)
    return {action: 1.0 / len(actions) for action in actions}


def information_state_posterior(
    game: Any, policy: GamePolicy, player: int, information_state: str, *, limit: int = LIMIT
) -> dict[tuple[int, ...], float]:
    """The probability of every history (the actions, chance's included) at an information state of `player`.

    `information_state` is OpenSpiel's `information_state_string(player)`, at a point where the player acts or the game
    is over. The game may be sequential or simultaneous, and must end; after `limit` histories it counts as too large.
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
                f"The game {game} has more than limit={limit} histories that can be reached; enumerate a smaller one."
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
    """Every next state that can be reached, and the probability of the others' and chance's part in it."""
    if state.is_chance_node():
        for action, chance in state.chance_outcomes():
            yield state.child(action), chance
    elif state.is_simultaneous_node():
        choices = [_choices(state, policy, each, own=each == player) for each in range(state.get_game().num_players())]
        for joint in product(*choices):
            child = state.clone()
            child.apply_actions([action for action, _ in joint])
            yield child, math.prod(chance for _, chance in joint)
    else:
        mover = state.current_player()
        for action, chance in _choices(state, policy, mover, own=mover == player):
            yield state.child(action), chance


def _choices(state: Any, policy: GamePolicy, player: int, *, own: bool) -> list[tuple[int, float]]:
    """A player's actions with their probabilities; one's own count as certain."""
    # In a simultaneous move OpenSpiel has those without a choice do action 0.
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
