"""OpenSpiel: any sequential game as one player sees it, filtered.

    game = pyspiel.load_game("phantom_ttt")
    view = from_openspiel(game, observer=0, policy=opponent)        # an OpenSpiel policy, or several, or a batched one
    filter = nbf.ParticleFilter(1000)
    state = filter.init(key, view.environment)
    for seen in view.follow(game_state):                            # what the observer has seen up to now
        state, info = filter.step(key, state, seen.observation, view.at(seen), None)

A state is a history: the actions of all players and of chance, padded to one length. A step goes to the observer's next
turn, or to the end of the game (`clock="own"`), and what is seen then is the observer's information state. So the
belief after it is the posterior over histories at that information state. Where the number of actions made so far is
public, say `clock="public"`: each action is then a step, which is cheaper and has less variance.

What is known of a step is part of its environment, as in `HiddenHands`: the observer's own action, what was seen, and
the policy of the others, which may change by the step. The chance of what the others were seen to do is the likelihood
(`nbf.adapters.openspiel_steps`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from nbf.adapters.openspiel_histories import NONE, Clock, Players, Seat
from nbf.adapters.openspiel_steps import OTHER, Step, Turns
from nbf.environments.host import HostEnvironment, host_environment
from nbf.errors import InputError
from nbf.spaces import Tokens

LIMIT = 1000
"""Continuations of one history that are listed at most."""


class Seen(NamedTuple):
    """What the observer sees at the end of a step."""

    action: int
    """The observer's own, at the beginning of the step; -1 if it was not the observer's turn."""
    observation: Int[np.ndarray, " 4"]
    """A digest of what is seen: the observation of the environment."""
    features: Float[np.ndarray, " c"] | None
    """The same as OpenSpiel's tensor, on which a model may condition."""
    history: Int[np.ndarray, " length"]
    """The true state, which only a referee knows: for scores."""


class Told(NamedTuple):
    """Histories as sequences of symbols: after the padding there is nothing else, and what the observer knows is so."""

    padding: int
    known: int
    """The first numbers of the context, one for each place: its symbol divided by the padding, or -1 where it is not
    known. 0: the context does not tell."""

    def __call__(self, prefix: Int[Array, " i"], context: Any) -> Bool[Array, " K"]:
        """Say which symbols may follow a prefix."""
        symbols, place = jnp.arange(self.padding + 1), prefix.shape[0]
        free = symbols >= 0 if place == 0 else (symbols == self.padding) | (prefix[-1] != self.padding)
        if not self.known:
            return free
        told = jnp.round(context[place] * self.padding)
        return jnp.where(told >= 0, symbols == told, free)


@dataclasses.dataclass(frozen=True, eq=False)
class GameView:
    """A game as one player sees it. `from_openspiel` makes it."""

    environment: HostEnvironment
    """Of the first step, before anything is seen: filters begin in it."""
    turns: Turns
    """The functions of the environment."""
    tensor: bool
    """Whether models are told OpenSpiel's tensor."""
    reveals: Callable[[Any], bool] | None

    @property
    def seat(self) -> Seat:
        """Who watches what."""
        return self.turns.seat

    @property
    def players(self) -> Players:
        """The policies of the others."""
        return self.turns.players

    def follow(self, state: Any) -> list[Seen]:
        """Go through a game: what the observer has seen in each step so far.

        Args:
            state: OpenSpiel's state, up to now. Of what the observer cannot see only `Seen.history` tells.

        Returns:
            One entry for each step.
        """
        self.check_state(state)
        now, done, told, steps, own = self.seat.game.new_initial_state(), [], [], [], NONE
        for action in state.history():
            own_turn = self.seat.is_own(now)
            own = action if own_turn and own == NONE else own
            told.append(action if own_turn or (self.reveals is not None and self.reveals(now)) else NONE)
            now.apply_action(action)
            done.append(action)
            if self.seat.stops(now):
                steps.append(self._seen(now, own, done, told))
                own = NONE
        return steps

    def check_state(self, state: Any) -> None:
        """Raise unless a state is one of this game.

        Args:
            state: OpenSpiel's.
        """
        if str(state.get_game()) != str(self.seat.game):
            raise InputError(f"The view is of {self.seat.game}; got a state of {state.get_game()}.")

    def _seen(self, state: Any, own: int, done: list[int], told: list[int]) -> Seen:
        features = _features(self.seat, self.tensor, state, told)
        return Seen(own, np.frombuffer(self.seat.digest(state), np.int32), features, self.seat.row(done))

    def at(self, seen: Seen, policy: PyTree = None, *, given: bool = True) -> HostEnvironment:
        """Make the environment of a step.

        Args:
            seen: At its end.
            policy: Of the others in this step: the number of one of several, or the parameters of a batched one; None:
                the first, or those that it came with.
            given: Whether states move to where this is seen, with its probability as the likelihood. False: they move
                as the game goes, as for a step of which nothing was seen (an observation of None).

        Returns:
            The environment.
        """
        policy = self.players.default if policy is None else policy
        self.players.check(policy)
        step = Step(np.int32(seen.action), np.asarray(seen.observation), np.bool_(given), policy)
        space = self.environment.space
        if seen.features is not None:
            space = dataclasses.replace(space, context=jnp.asarray(seen.features))
        return dataclasses.replace(self.environment, parameters=jax.tree.map(jnp.asarray, step), space=space)

    def agrees(self, state: Any, seen: Seen) -> bool:
        """Tell whether the observer sees something in a state.

        Args:
            state: OpenSpiel's.
            seen: What.

        Returns:
            Whether it is that.
        """
        return self.seat.digest(state) == seen.observation.tobytes()

    def replayed(self, history: Int[np.ndarray | Array, " length"]) -> Any:
        """Play a history that may be none, as one that a model has drawn.

        Args:
            history: A state of the environment.

        Returns:
            OpenSpiel's state; None where an action is not legal.
        """
        actions, state = self.seat.actions(np.asarray(history)), self.seat.game.new_initial_state()
        for action in actions if actions is not None else [NONE]:
            if action not in state.legal_actions():
                return None
            state.apply_action(action)
        return state

    def state(self, history: Int[np.ndarray | Array, " length"]) -> Any:
        """Play a history.

        Args:
            history: A state of the environment.

        Returns:
            OpenSpiel's state.
        """
        state = self.replayed(history)
        if state is None:
            raise InputError(
                f"{np.asarray(history).tolist()} is no history of {self.seat.game}, padded with {self.seat.padding}: "
                "one of its actions is not legal when it is made."
            )
        return state


def from_openspiel(
    game: Any,
    observer: int,
    policy: Any,
    *,
    clock: Clock = "own",
    sees: Callable[[Any, int], str] | None = None,
    reveals: Callable[[Any], bool] | None = None,
    length: int | None = None,
    limit: int = LIMIT,
    **options: Any,
) -> GameView:
    """See a sequential game as one of its players does.

    Args:
        game: `pyspiel.load_game(...)`. Simultaneous moves: `pyspiel.convert_to_turn_based(game)`.
        observer: Which player.
        policy: Of the other players: an OpenSpiel `policy.Policy`, a function `(state, player) -> {action:
            probability}`, a mapping from information states to such, or a `BatchedPolicy`, whose parameters may change
            by the step; or a list of policies, of which the number of one is chosen at each step.
        clock: "own": a step ends when the observer is to act, or the game is over. "public": each action, of chance
            too, is a step. Say it only where the observer knows how many actions were made, or a belief knows it too.
        sees: `sees(state, player)`, a string: what the observer knows in a state; None: the information state, or where
            a game has none, the observation.
        reveals: `reveals(state)`: whether the observer sees which action is made in a state, where the clock is public;
            None: own actions alone. Models then never draw what is known to be otherwise. Say it only where it is true.
        length: Actions of a history at most; None: as many as the game allows.
        limit: Ways in which one history may go on in a step that are listed at most. Beyond it a way is drawn, and may
            turn out not to agree with what was seen.
        **options: `chunk`, `executor` of `nbf.host_environment`.

    Returns:
        The game as the observer sees it.
    """
    _check(game, observer, clock, reveals, length, limit)
    sees, tensor = _sight(game, sees)
    seat = Seat(game, observer, clock, sees, game.max_history_length() if length is None else length)
    turns = Turns(seat, Players(policy), limit)
    start = _features(seat, tensor, game.new_initial_state(), [])
    known = seat.length if clock == "public" else 0
    space = Tokens(
        seat.length, seat.padding + 1, Told(seat.padding, known), None if start is None else jnp.asarray(start)
    )
    first = Step(np.int32(NONE), OTHER, np.bool_(False), turns.players.default)
    environment = host_environment(
        init=turns.init, transition=turns.transition, observe=turns.observe, log_likelihood=turns.log_likelihood,
        space=space, parameters=first, **options,
    )  # fmt: skip
    return GameView(environment, turns, tensor, reveals)


@no_type_check  # as Seat
def information_state(state: Any, player: int) -> str:
    """Tell OpenSpiel's information state.

    Args:
        state: OpenSpiel's state.
        player: Whose.

    Returns:
        It, as a string.
    """
    return state.information_state_string(player)


@no_type_check  # as Seat
def observation(state: Any, player: int) -> str:
    """Tell OpenSpiel's observation.

    Args:
        state: OpenSpiel's state.
        player: Whose.

    Returns:
        It, as a string.
    """
    return state.observation_string(player)


def _sight(game: Any, sees: Callable[[Any, int], str] | None) -> tuple[Callable[[Any, int], str], bool]:
    """What tells what a player sees, and whether models are told OpenSpiel's tensor."""
    kind = game.get_type()
    if sees is not None:
        return sees, False  # the tensor might tell more
    if not kind.provides_information_state_string and not kind.provides_observation_string:
        raise InputError(f"{game} tells no player what it sees: pass `sees(state, player)`, which gives a string.")
    known = information_state if kind.provides_information_state_string else observation
    return known, kind.provides_information_state_tensor or kind.provides_observation_tensor


def _features(seat: Seat, tensor: bool, state: Any, told: list[int]) -> Float[np.ndarray, " c"] | None:
    """What models are told: the known symbol of each place, if the clock is public, and OpenSpiel's tensor."""
    parts = [_tensor(state, seat.observer)] if tensor else []
    if seat.clock == "public":
        symbols = np.full(seat.length, seat.padding, np.float32)
        symbols[: len(told)] = told[: seat.length]
        parts.insert(0, np.where(symbols < 0, -1.0, symbols / seat.padding).astype(np.float32))
    return np.concatenate(parts) if parts else None


def _tensor(state: Any, player: int) -> Float[np.ndarray, " c"]:
    """What a player sees, as numbers."""
    known = state.get_game().get_type().provides_information_state_tensor
    return np.asarray(state.information_state_tensor(player) if known else state.observation_tensor(player), np.float32)


def _check(game: Any, observer: int, clock: str, reveals: Any, length: int | None, limit: int) -> None:
    """Raise unless a game can be filtered so."""
    kind = game.get_type()
    if str(kind.dynamics).rpartition(".")[2] != "SEQUENTIAL":
        raise InputError(
            f"In {game} players move at the same time: filter pyspiel.convert_to_turn_based(game), in which they move "
            "in turn, and nobody sees the others' moves before all are made."
        )
    if str(kind.chance_mode).rpartition(".")[2] == "SAMPLED_STOCHASTIC":
        raise InputError(
            f"{game} draws its chance outcomes itself, so a history does not say what happened: load it with explicit "
            "chance outcomes, if it has a parameter for that."
        )
    if not 0 <= observer < game.num_players():
        raise InputError(f"The game {game} has players 0..{game.num_players() - 1}; got observer={observer}.")
    if clock not in ("own", "public"):
        raise InputError(f"`clock` is 'own' or 'public'; got {clock!r}.")
    if reveals is not None and clock != "public":
        raise InputError("`reveals` needs clock='public': else the place of an action in a history is not known.")
    if limit < 1 or (length is not None and length < 1):
        raise InputError(f"`limit` and `length` are at least 1; got limit={limit}, length={length}.")
