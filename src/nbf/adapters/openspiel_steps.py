"""A step of an OpenSpiel game as one player sees it: functions of n histories, for `nbf.host_environment`.

What may follow a history x up to the end of the step is listed, where that is not too much. Then a step draws one that
agrees with what was seen, by p(x' | x, seen), and its likelihood is p(seen | x): the same joint distribution as that of
the game, with less variance, since nothing is drawn in vain. Where it is too much, the step is drawn from the game and
its likelihood is 1 or 0.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, no_type_check

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from nbf.adapters.openspiel_histories import NONE, Cache, Players, Probability, Replays, Seat, rules_alone
from nbf.errors import InputError

KEPT_LISTS = 2**18
"""Continuations that are kept between the draw of a step and its likelihood."""
AT_ONCE = 256
"""Histories whose continuations are listed together: all of their states are held at once."""
OTHER = np.zeros(4, np.int32)
"""Whatever is not what was seen."""


class Step(NamedTuple):
    """What is known of a step: the parameters of its environment."""

    action: Int[Any, ""]
    """The observer's, at the beginning of the step; `NONE` if it was not the observer's turn."""
    seen: Int[Any, " 4"]
    """The digest of what the observer sees at its end."""
    given: Any
    """Whether states move to where this is seen; else they move as the game goes."""
    policy: PyTree
    """Of the other players: the number of one, or parameters."""


class Continuations(NamedTuple):
    """What may follow a history, and agrees with what was seen."""

    actions: tuple[tuple[int, ...], ...]
    probs: Float[np.ndarray, " k"]
    """Of each, given that it agrees."""
    log_total: float
    """log p(seen | x); -inf also where the history is not one that the step can begin with."""


class _Node(NamedTuple):
    """A state that is reached from the history with some number."""

    place: int
    state: Any
    path: tuple[int, ...]
    prob: float


Ask = Callable[[Sequence[Any]], list[list[Probability]]]
"""The possible actions of other players in n states."""


@no_type_check  # as Seat
class Turns:
    """The functions of n histories. They can be sent to other processes.

    Arguments of the methods:
        rng: Random generator.
        n: How many states.
        states: n histories, as rows.
        next_states: n histories, as rows.
        policy: Of `Filter.step`; None, since the environment has the policy.
        observation: A digest.
        step: Of the environment.
    """

    def __init__(self, seat: Seat, players: Players, limit: int) -> None:
        self.seat, self.players, self.limit = seat, players, limit
        self._begin()

    def _begin(self) -> None:
        self._replays, self._lists, self._lock = Replays(self.seat), Cache(KEPT_LISTS), threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def init(self, rng: np.random.Generator, n: int, step: Step) -> Int[np.ndarray, "n length"]:
        """Begin n games: nothing has happened."""
        return np.full((n, self.seat.length), self.seat.padding, np.int32)

    def transition(
        self, rng: np.random.Generator, states: np.ndarray, policy: Any, step: Step
    ) -> Int[np.ndarray, "n length"]:
        """Move n histories to the end of the step."""
        if policy is not None:
            raise InputError(
                "The policy of the other players belongs to the environment: pass `view.at(seen, policy=...)` as the "
                f"environment of the step, and None as its policy; got {policy!r}."
            )
        with self._lock:
            lists, luck = self.continuations(states, step), rng.random(len(states))
            moved, drawn = np.array(states, np.int32), []
            for place, found in enumerate(lists):
                if found is None:
                    drawn.append(place)
                elif found.actions:
                    chosen = int(np.searchsorted(np.cumsum(found.probs), luck[place] * found.probs.sum(), "right"))
                    tail = found.actions[min(chosen, len(found.actions) - 1)]
                    moved[place] = self._longer(states[place], tail)
            starts = {place: self._start(states[place], step) for place in drawn}
            for place, tail in self._drawn(rng, starts, step).items():
                moved[place] = self._longer(states[place], tail)
        return moved

    def observe(
        self, rng: np.random.Generator, states: np.ndarray, next_states: np.ndarray, step: Step
    ) -> Int[np.ndarray, "n 4"]:
        """Tell what the observer sees; in the environment of what was seen, whether it is that."""
        with self._lock:
            luck, seen = rng.random(len(states)), np.asarray(step.seen)
            rows = []
            for place, found in enumerate(self.continuations(states, step)):
                if found is not None:
                    rows.append(seen if np.log(luck[place]) < found.log_total else OTHER)
                    continue
                state = self._later(states[place], next_states[place])
                rows.append(OTHER if state is None else np.frombuffer(self.seat.digest(state), np.int32))
        return np.stack(rows)

    def log_likelihood(
        self, observation: np.ndarray, states: np.ndarray, next_states: np.ndarray, step: Step
    ) -> Float[np.ndarray, " n"]:
        """Compute the log probability of what was seen."""
        other, seen = np.array_equal(observation, OTHER), np.asarray(observation, np.int32).tobytes()
        if step.given and not other and not np.array_equal(observation, step.seen):
            raise InputError(
                "The observation is not the one that the environment of this step was made for: take both from the "
                "same `Seen`, as in filter.step(key, state, seen.observation, view.at(seen), None)."
            )
        with self._lock:
            found = []
            for row, after, few in zip(states, next_states, self.continuations(states, step), strict=True):
                if few is None:
                    state = self._later(row, after)
                    told = OTHER.tobytes() if state is None else self.seat.digest(state)
                    found.append(0.0 if told == seen else -math.inf)
                elif other:
                    found.append(math.log1p(-math.exp(few.log_total)) if few.log_total < 0 else -math.inf)
                else:
                    found.append(few.log_total if self._follows(row, after, few) else -math.inf)
        return np.array(found, np.float32)

    def _follows(self, row: np.ndarray, after: np.ndarray, few: Continuations) -> bool:
        before, later = self.seat.actions(row), self.seat.actions(after)
        if before is None or later is None or later[: len(before)] != before:
            return False
        return tuple(later[len(before) :]) in few.actions

    def _later(self, row: np.ndarray, after: np.ndarray) -> Any:
        """The state of a history that another goes on to; None if it does not."""
        before, later = self.seat.actions(row), self.seat.actions(after)
        state = None if later is None else self._replays(later)
        if before is None or later is None or state is None or later[: len(before)] != before:
            return None
        return state if len(later) > len(before) or state.is_terminal() else None

    def _longer(self, row: np.ndarray, tail: tuple[int, ...]) -> np.ndarray:
        return self.seat.row([*(self.seat.actions(row) or []), *tail]) if tail else np.array(row, np.int32)

    def _start(self, row: np.ndarray, step: Step) -> tuple[Any, tuple[int, ...]] | None:
        """The state after the observer's own action, if there is one; None if the step cannot begin here."""
        actions, own = self.seat.actions(row), int(step.action)
        state = None if actions is None else self._replays(actions)
        if state is None:
            return None
        if state.is_terminal():
            return state, ()
        if self.seat.is_own(state) != (own != NONE):
            return None
        if own == NONE:
            return state, ()
        return (state.child(own), (own,)) if own in state.legal_actions() else None

    def continuations(self, states: np.ndarray, step: Step) -> list[Continuations | None]:
        """List what may follow each history; None where it was too much, or nothing was seen."""
        if not step.given:
            return [None] * len(states)
        about = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(step))
        keys = [(row.tobytes(), about) for row in states]
        found = {key: self._lists.get(key) for key in keys}
        new = {key: row for key, row in zip(keys, states, strict=True) if found[key] is None}
        if new:
            self.players.check(step.policy)
            rows = list(new.values())
            parts = (self._listed(rows[first : first + AT_ONCE], step) for first in range(0, len(rows), AT_ONCE))
            for key, made in zip(new, itertools.chain.from_iterable(parts), strict=True):
                found[key] = (made,)
                self._lists.put(key, (made,), 1 if made is None else 1 + len(made.actions))
        return [found[key][0] for key in keys]

    def _listed(self, rows: Sequence[np.ndarray], step: Step) -> list[Continuations | None]:
        starts = {place: self._start(row, step) for place, row in enumerate(rows)}
        made = self._expanded(starts, step, lambda states: self.players(states, step.policy))
        again = {place: starts[place] for place, one in made.items() if one is not None and not one.actions}
        # Where the policy excludes what was seen, histories go on by the rules, so that a filter can recover.
        for place, one in self._expanded(again, step, rules_alone).items():
            made[place] = None if one is None else one._replace(log_total=-math.inf)
        return [made[place] for place in range(len(rows))]

    def _expanded(self, starts: dict[int, Any], step: Step, ask: Ask) -> dict[int, Continuations | None]:
        """All that may follow, level by level, and of it what agrees."""
        ends: dict[int, list[_Node]] = {place: [] for place in starts}
        visited, seen = dict.fromkeys(starts, 0), np.asarray(step.seen, np.int32).tobytes()
        nodes = [_Node(place, start[0], start[1], 1.0) for place, start in starts.items() if start is not None]
        while nodes:
            within = []
            for node in nodes:
                visited[node.place] += 1
                if not self._ended(node):
                    within.append(node)
                elif self.seat.digest(node.state) == seen:
                    ends[node.place].append(node)
            within = [node for node in within if visited[node.place] <= self.limit]
            nodes = [
                _Node(node.place, node.state.child(action), (*node.path, action), node.prob * prob)
                for node, choices in zip(within, self._possible([node.state for node in within], ask), strict=True)
                for action, prob in choices
            ]
        return {place: None if visited[place] > self.limit else _given(found) for place, found in ends.items()}

    def _ended(self, node: _Node) -> bool:
        return node.state.is_terminal() or bool(node.path and self.seat.stops(node.state))

    def _possible(self, states: list[Any], ask: Ask) -> list[list[Probability]]:
        """The possible actions of chance and of the others in each state."""
        played = [place for place, state in enumerate(states) if not state.is_chance_node()]
        told = dict(zip(played, ask([states[place] for place in played]) if played else [], strict=True))
        return [told[place] if place in told else state.chance_outcomes() for place, state in enumerate(states)]

    def _drawn(self, rng: np.random.Generator, starts: dict[int, Any], step: Step) -> dict[int, tuple[int, ...]]:
        """What follows each history as the game goes."""
        if starts:
            self.players.check(step.policy)
        nodes = {place: _Node(place, start[0], start[1], 1.0) for place, start in starts.items() if start is not None}
        while True:
            within = [node for node in nodes.values() if not self._ended(node)]
            if not within:
                return {place: node.path for place, node in nodes.items()}
            possible = self._possible([node.state for node in within], lambda states: self.players(states, step.policy))
            for node, choices, luck in zip(within, possible, rng.random(len(within)), strict=True):
                total = np.cumsum([prob for _, prob in choices])
                chosen = min(int(np.searchsorted(total, luck * total[-1], "right")), len(choices) - 1)
                action = int(choices[chosen][0])
                nodes[node.place] = _Node(node.place, node.state.child(action), (*node.path, action), 1.0)


@no_type_check  # as Seat
def _given(ends: Sequence[_Node]) -> Continuations:
    """Continuations that agree with what was seen."""
    probs = np.array([node.prob for node in ends], np.float64)
    total = math.fsum(probs)
    if not total > 0:
        return Continuations((), probs, -math.inf)
    return Continuations(tuple(node.path for node in ends), probs / total, min(math.log(total), 0.0))
