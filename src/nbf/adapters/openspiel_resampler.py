"""Beliefs for OpenSpiel's ISMCTS: a resampler for any sequential game, which knows the others' policies.

    resampler = OpenSpielResampler(game, policy, nbf.ParticleFilter(1000))
    bot = ismcts.ISMCTSBot(game, evaluator, uct_c=2.0, max_simulations=100)
    bot.set_resampler(resampler)

OpenSpiel's own, `state.resample_from_infostate`, is there for some games only, and asks nobody how the others play.
This one draws histories from a filter's belief, which follows the game.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from nbf.adapters.openspiel_histories import BatchedPolicy
from nbf.adapters.openspiel_views import GameView, Seen, from_openspiel
from nbf.contracts import Belief, Environment, Filter, FilterState
from nbf.errors import InputError

ATTEMPTS = 3
"""How often a game is followed from its start at most, where no history of the belief agrees with what was seen."""


class OpenSpielResampler:
    """Draws states that agree with what a player has seen: `bot.set_resampler(resampler)`.

    One resampler serves any number of players and games: a history that does not go on from the last one is followed
    anew. `recovered` counts the steps that no history explained: the policy that was given is not the one that was
    played, or the filter has too few particles.
    """

    def __init__(
        self, game: Any, policy: Any, filter: Filter, *, samples: int = 128, seed: int = 0, **options: Any
    ) -> None:
        """Make a resampler.

        Args:
            game: OpenSpiel's game.
            policy: Of the others: one, as in `from_openspiel`.
            filter: Any filter of histories, such as `nbf.ParticleFilter(1000)`.
            samples: Histories that are drawn at once; further calls at the same decision use those that are left.
            seed: Of the draws.
            **options: Of `from_openspiel`.
        """
        if samples < 1:
            raise InputError(f"samples must be at least 1; got {samples}.")
        if isinstance(policy, list | tuple) and not isinstance(policy, BatchedPolicy):
            raise InputError(
                "A resampler takes one policy, not a list: where players differ, a function (state, player) -> "
                "{action: probability} can tell them apart."
            )
        self.filter, self.recovered = filter, 0
        self._game, self._policy, self._options, self._samples = game, policy, options, samples
        self._key = jax.random.key(seed)
        self._views: dict[int, GameView] = {}
        self._followed: dict[int, tuple[list[Seen], FilterState, Environment]] = {}
        self._drawn: dict[int, tuple[list[int], list[Any]]] = {}

    def view(self, player: int) -> GameView:
        """See the game as a player does.

        Args:
            player: Which.

        Returns:
            The view that its filter uses.
        """
        if player not in self._views:
            self._views[player] = from_openspiel(self._game, player, self._policy, **self._options)
        return self._views[player]

    def __call__(self, state: Any, player: int) -> Any:
        """Draw a state.

        Args:
            state: OpenSpiel's state, in which the player acts.
            player: Whose information the state agrees with.

        Returns:
            A state in which this player has seen the same.
        """
        history, (before, left) = list(state.history()), self._drawn.get(player, ([], []))
        if before != history or not left:
            left = self._draw(state, player)
            self._drawn[player] = history, left
        return left.pop()

    def belief(self, state: Any, player: int) -> Belief:
        """Follow a game, and give the belief that histories are drawn from.

        Args:
            state: OpenSpiel's state, in which the player acts.
            player: Whose belief it is.

        Returns:
            The belief over histories: rows, as those of the view.
        """
        _, now, environment = self._follow(state, player)
        return self.filter.belief(now, environment)

    def _follow(self, state: Any, player: int) -> tuple[list[Seen], FilterState, Environment]:
        view = self.view(player)
        view.check_state(state)
        if not view.seat.is_own(state):
            raise InputError(
                f"A resampler draws where the player is to act; player {state.current_player()} acts after "
                f"{state.history()}, not {player}."
            )
        steps = view.follow(state)
        known, now, environment = self._followed.get(player, ([], None, view.environment))
        if now is None or not all(_alike(one, other) for one, other in zip(known, [*steps, None], strict=False)):
            known, now, environment = [], self.filter.init(self._next_key(), view.environment), view.environment
        for seen in steps[len(known) :]:
            environment = view.at(seen)
            now, info = self.filter.step(self._next_key(), now, seen.observation, environment, None)
            self.recovered += int(info.recovered)
        self._followed[player] = steps, now, environment
        return self._followed[player]

    def _draw(self, state: Any, player: int) -> list[Any]:
        """States in which the player has seen the same."""
        for _ in range(ATTEMPTS):
            steps, now, environment = self._follow(state, player)
            if not steps:
                return [state.clone()]  # nothing is hidden yet
            view = self.view(player)
            rows = np.asarray(self.filter.belief(now, environment).sample(self._next_key(), self._samples))
            found = [view.replayed(row) for row in rows]
            kept = [one for one in found if one is not None and view.agrees(one, steps[-1])]
            if kept:
                return kept
            del self._followed[player]  # follow the game again, with other random numbers
        raise InputError(
            f"{ATTEMPTS} times none of {self._samples} histories of the belief agreed with what player {player} has "
            f"seen after {state.history()}; {self.recovered} steps so far had no explanation. Give the filter more "
            "particles, or a policy under which what the others did is possible."
        )

    def _next_key(self) -> Any:
        self._key, key = jax.random.split(self._key)
        return key


def _alike(one: Seen, other: Seen | None) -> bool:
    return other is not None and one.action == other.action and np.array_equal(one.observation, other.observation)
