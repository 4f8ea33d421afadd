"""Histories of an OpenSpiel game as rows of numbers, the states behind them, and what follows from them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int

from nbf.adapters.openspiel import choices
from nbf.errors import InputError

Clock = Literal["own", "public"]
"""Which steps an observer counts: its own turns, or every action of anybody."""
NONE = -1
"""No action."""
KEPT_STATES = 2**14
"""Game states that are kept, so that a history is not played from its start again."""
Probability = tuple[int, float]


class BatchedPolicy(NamedTuple):
    """A policy of the other players that looks at many states at once.

    Args:
        function: `function(states, parameters)` gives probabilities of shape (n, actions of the game), for n states of
            OpenSpiel, each with another player to act.
        parameters: A pytree of numbers that may change by the step; None if there is none.
    """

    function: Callable[[Sequence[Any], Any], Any]
    parameters: Any = None


@no_type_check  # as Seat
class Players:
    """What the others may do: one policy, or several of which the number of one is chosen at each step.

    Args:
        given: An OpenSpiel policy, a `GamePolicy`, a `BatchedPolicy`, or a list of policies that are not batched.
    """

    def __init__(self, given: Any) -> None:
        several = isinstance(given, list | tuple) and not isinstance(given, BatchedPolicy)
        self.given = tuple(given) if several else given
        for each in self.given if several else (given,):
            batched = isinstance(each, BatchedPolicy) and not several
            if not (batched or callable(each) or hasattr(each, "keys")):
                raise InputError(
                    "A policy is one of OpenSpiel's, a function (state, player) -> {action: probability}, a mapping "
                    "from information states to such, or a BatchedPolicy; a list has policies that are not batched; "
                    f"got {each!r}."
                )
        if several and not self.given:
            raise InputError("A list of policies needs at least 1; got none.")
        self.count = len(self.given) if several else None
        self.default = np.int32(0) if several else given.parameters if isinstance(given, BatchedPolicy) else None

    def __call__(self, states: Sequence[Any], chosen: Any) -> list[list[Probability]]:
        """Find what may be done in each of n states.

        Args:
            states: OpenSpiel's; in each a player acts.
            chosen: The number of the policy, or the parameters of the batched one.

        Returns:
            For each state its possible actions and their probabilities.
        """
        if isinstance(self.given, BatchedPolicy):
            return _batched(self.given, states, chosen) if states else []
        policy: Any = self.given[int(chosen)] if isinstance(self.given, tuple) else self.given
        return [choices(state, policy, state.current_player()) for state in states]

    def check(self, chosen: Any) -> None:
        """Raise unless something can be chosen.

        Args:
            chosen: The number of a policy, or parameters.
        """
        if self.count is not None and not (np.shape(chosen) == () and 0 <= int(chosen) < self.count):
            raise InputError(f"There are {self.count} policies: choose one by its number from 0; got {chosen!r}.")
        if self.count is None and (chosen is None) != (self.default is None):
            wanted = "no choice" if self.default is None else "parameters of its own at each step"
            raise InputError(f"The policy that was given takes {wanted}; got {chosen!r}.")


def _batched(policy: BatchedPolicy, states: Sequence[Any], parameters: Any) -> list[list[Probability]]:
    actions = states[0].get_game().num_distinct_actions()
    table = np.asarray(policy.function(states, parameters), np.float64)
    if table.shape != (len(states), actions):
        raise InputError(
            f"The batched policy gave an array of shape {table.shape} for {len(states)} states of a game with "
            f"{actions} actions; {(len(states), actions)} is expected."
        )
    listed = [dict(enumerate(row.tolist())) for row in table]
    return [
        choices(state, lambda state, player, row=row: {a: p for a, p in row.items() if p != 0}, state.current_player())
        for state, row in zip(states, listed, strict=True)
    ]


@no_type_check  # as Seat
def rules_alone(states: Sequence[Any]) -> list[list[Probability]]:
    """List every legal action, all alike.

    Args:
        states: OpenSpiel's; in each a player acts.

    Returns:
        For each state its legal actions and their probabilities.
    """
    legal = [state.legal_actions() for state in states]
    return [[(action, 1.0 / len(each)) for action in each] for each in legal]


@no_type_check  # called for each of many histories: checks of types at run time would be most of the tests' time
@dataclasses.dataclass(frozen=True)
class Seat:
    """A place at a game: who watches, and what is seen."""

    game: Any
    observer: int
    clock: Clock
    sees: Callable[[Any, int], str]
    """What the observer knows in a state."""
    length: int
    """Actions of a history at most."""

    @functools.cached_property
    def padding(self) -> int:
        """The symbol that follows a history's last action."""
        return max(self.game.num_distinct_actions(), self.game.max_chance_outcomes())

    def is_own(self, state: Any) -> bool:
        """Tell whether the observer acts in a state.

        Args:
            state: OpenSpiel's.

        Returns:
            Whether it is the observer's turn.
        """
        return not state.is_terminal() and state.current_player() == self.observer

    def stops(self, state: Any) -> bool:
        """Tell whether a step ends in a state.

        Args:
            state: OpenSpiel's, reached in the step.

        Returns:
            Whether this is its end.
        """
        return self.clock == "public" or state.is_terminal() or state.current_player() == self.observer

    def digest(self, state: Any) -> bytes:
        """Write what the observer sees as 16 bytes: equal where the same is seen.

        Args:
            state: OpenSpiel's.

        Returns:
            The digest; of an observation `np.frombuffer(it, np.int32)`.
        """
        text = self.sees(state, self.observer)
        if not isinstance(text, str):
            raise InputError(f"`sees(state, player)` gives a string; got a {type(text).__name__}.")
        told = f"{int(state.is_terminal())}{int(self.is_own(state))}{text}"
        return hashlib.blake2b(told.encode(), digest_size=16).digest()

    def row(self, actions: Sequence[int]) -> Int[np.ndarray, " length"]:
        """Write a history as a row, with padding.

        Args:
            actions: All of them.

        Returns:
            The row.
        """
        if len(actions) > self.length:
            raise InputError(
                f"A history of {self.game} has {len(actions)} actions, more than length={self.length}: pass a larger "
                f"`length`, up to {self.game.max_history_length()}."
            )
        row = np.full(self.length, self.padding, np.int32)
        row[: len(actions)] = actions
        return row

    def actions(self, row: Int[np.ndarray, " length"]) -> list[int] | None:
        """Read the actions of a row.

        Args:
            row: A history.

        Returns:
            Its actions; None if it is none.
        """
        symbols = row.tolist()
        count = symbols.index(self.padding) if self.padding in symbols else len(symbols)
        return symbols[:count] if symbols.count(self.padding) == len(symbols) - count else None


@no_type_check  # as Seat
class Cache:
    """The least recently used entries are dropped first."""

    def __init__(self, most: int) -> None:
        self.most, self.size, self._kept = most, 0, OrderedDict()

    def get(self, key: Hashable) -> Any:
        """Look an entry up.

        Args:
            key: Of the entry.

        Returns:
            The entry; None if there is none.
        """
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        return None

    def put(self, key: Hashable, value: Any, size: int = 1) -> None:
        """Keep an entry.

        Args:
            key: Of the entry.
            value: Not None.
            size: What it counts for.
        """
        if key in self._kept:
            self.size -= self._kept.pop(key)[1]
        self._kept[key] = value, size
        self.size += size
        while self.size > self.most and len(self._kept) > 1:
            self.size -= self._kept.popitem(last=False)[1][1]


@no_type_check  # as Seat
class Replays:
    """Game states of histories. They are kept, and must not be changed.

    Args:
        seat: Of the observer.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat, self._kept = seat, Cache(KEPT_STATES)

    def __call__(self, actions: Sequence[int]) -> Any:
        """Play a history.

        Args:
            actions: All of them.

        Returns:
            The state; None where an action is not legal.
        """
        path = tuple(actions)
        state, known = None, len(path) + 1
        while state is None and known > 0:
            known -= 1
            state = self._kept.get(path[:known])
        if state is None:
            state = self.seat.game.new_initial_state()
        if known == len(path) and path:
            return state
        for action in path[known:]:
            # Not every game of OpenSpiel checks its actions.
            if action not in state.legal_actions():
                return None
            state = state.child(action)
        self._kept.put(path, state)
        return state
