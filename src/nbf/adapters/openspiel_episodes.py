"""Random games of OpenSpiel as episodes to train and evaluate on: `nbf.fit(episodes)`, `nbf.compare`."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from nbf.adapters.openspiel import choices, uniform
from nbf.adapters.openspiel_histories import NONE
from nbf.adapters.openspiel_steps import Step
from nbf.adapters.openspiel_views import GameView
from nbf.capabilities import Episodic
from nbf.contracts import Environment, Policy
from nbf.environments.host import Like
from nbf.environments.host_calls import Simulator, host_call
from nbf.errors import InputError


class OpenSpielEpisodes(Episodic):
    """Games between an observer and the other players of a view. Of several policies of the others one is drawn for
    each game, and known to the filter.

    A game that is over before the last step goes on without anything happening; a longer one is cut.
    """

    view: GameView = eqx.field(static=True)
    given: bool = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    simulator: Simulator = eqx.field(static=True)
    like: Like = eqx.field(static=True)

    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        environments, _, _, _ = self.episode(key)
        return jax.tree.map(lambda leaf: leaf[0], environments), None

    def episode(self, key: Key[Array, ""]) -> tuple[Environment, Policy, Int[Array, "steps 4"], Int[Array, "_ length"]]:
        played = host_call(self.simulator, "init", self.like.shapes(), key, (), ())
        policy = self._policy(played["policy"])
        policies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.steps, *jnp.shape(leaf))), policy)
        parameters = Step(played["action"], played["seen"], jnp.full(self.steps, self.given), policies)
        first = self.view.environment

        def at(parameters: Step, features: Any) -> Environment:
            space = dataclasses.replace(first.space, context=features)
            return dataclasses.replace(first, parameters=parameters, space=space)

        environments = jax.vmap(at)(parameters, played.get("features"))
        return environments, None, played["seen"], played["history"]

    def _policy(self, number: Int[Array, ""]) -> Any:
        default = self.view.players.default
        return number if self.view.players.count is not None else jax.tree.map(jnp.asarray, default)


def openspiel_episodes(view: GameView, steps: int, own: Any = uniform, *, given: bool = True) -> OpenSpielEpisodes:
    """Make a family of random games.

    Args:
        view: The game as the observer sees it, with the policies of the others.
        steps: Of an episode.
        own: How the observer plays: an OpenSpiel policy, or a function `(state, player) -> {action: probability}`.
        given: As in `GameView.at`. With False the prior of a comparison has seen nothing but own actions; with True
            states move to what was seen, also those of the prior.

    Returns:
        The family.
    """
    if steps < 1:
        raise InputError(f"An episode has at least 1 step; got {steps}.")
    games = _Games(view, steps, own)
    simulator = Simulator({"init": games.play}, batched=True, chunk=None, executor=None)
    return OpenSpielEpisodes(view, given, steps, simulator, Like.of(games.play(np.random.default_rng(0), 1)))


@dataclasses.dataclass(frozen=True)
class _Games:
    view: GameView
    steps: int
    own: Any

    def play(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        """Play n games, and tell what is seen in each step of each."""
        seat, players = self.view.seat, self.view.players
        chosen = rng.integers(players.count or 1, size=n)
        states = [seat.game.new_initial_state() for _ in range(n)]
        while going := [place for place in range(n) if not states[place].is_terminal()]:
            for place, possible in zip(going, self._possible(states, going, chosen), strict=True):
                weights = np.cumsum([prob for _, prob in possible])
                drawn = min(int(np.searchsorted(weights, rng.random() * weights[-1], "right")), len(possible) - 1)
                states[place].apply_action(int(possible[drawn][0]))
        told = [self._told(state) for state in states]
        made = {name: np.stack([each[name] for each in told]) for name in told[0]}
        return made | {"policy": chosen.astype(np.int32)}

    def _possible(self, states: list[Any], going: list[int], chosen: np.ndarray) -> list[list[tuple[int, float]]]:
        """What may happen next in each game; policies are asked about all of them together."""
        seat, players, found = self.view.seat, self.view.players, {}
        for place in going:
            if states[place].is_chance_node():
                found[place] = states[place].chance_outcomes()
            elif seat.is_own(states[place]):
                found[place] = choices(states[place], self.own, seat.observer)
        rest = [place for place in going if place not in found]
        for number in set(chosen[rest].tolist()):
            few = [place for place in rest if chosen[place] == number]
            asked = players([states[place] for place in few], number if players.count is not None else players.default)
            found.update(zip(few, asked, strict=True))
        return [found[place] for place in going]

    def _told(self, state: Any) -> dict[str, np.ndarray]:
        steps = self.view.follow(state)[: self.steps]
        steps += [steps[-1]._replace(action=NONE)] * (self.steps - len(steps))
        told = {
            "action": np.array([step.action for step in steps], np.int32),
            "seen": np.stack([step.observation for step in steps]),
            "history": np.stack([self.view.seat.row([]), *(step.history for step in steps)]),
        }
        features = [step.features for step in steps if step.features is not None]
        return told | ({"features": np.stack(features)} if features else {})
