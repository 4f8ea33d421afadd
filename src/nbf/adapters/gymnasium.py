"""Gymnasium: an environment whose state can be set and read, with an observation that hides part of it.

    world = from_gymnasium(
        "Pendulum-v1",
        space=nbf.Box((-np.pi, -8.0), (np.pi, 8.0), bounded=False),
        entries=(0, 1),                                   # of Gymnasium's observation: cosine and sine of the angle
        noise=0.1,                                        # ... with normal noise
        process=(0.0, 0.05),                              # noise on the state after each step
    )

| environments | state | set and read |
|---|---|---|
| classic control: CartPole, Pendulum, Acrobot, MountainCar, MountainCarContinuous | a vector | `state` |
| toy text: FrozenLake, CliffWalking, Taxi | an integer, as `Int[1]` | `s` |
| MuJoCo: whatever is a `MujocoEnv` | qpos, then qvel | `set_state` |
| any other, as `GymnasiumSimulator(env, get_state=..., set_state=...)` | a vector | by those |

Others cannot be used: in Box2D (LunarLander, BipedalWalker, CarRacing) the state of the solver cannot be set, Blackjack
and the Atari games have no vector of numbers to set. Vector environments are not needed: n states are one call anyway,
in which one environment is set and stepped n times. `nbf.adapters.mujoco` is faster where the model is MuJoCo's.

A filter needs a likelihood, and Gymnasium's observations have none: say how exact they are (`noise`), or give `observe`
and `log_likelihood`. The wrappers of `gymnasium.make` are taken off, so there is no time limit and no reset: an episode
never ends. Where `terminated` would be true the dynamics go on as the environment computes them (a pole that fell goes
on falling); `GymnasiumSimulator(env, absorbing=...)` says which states stay as they are. A policy is the action, or
whatever the simulator's `act` makes actions of. Random numbers of the environment (`np_random`) follow from the key of
the step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nbf.adapters.gymnasium_states import Access, access_of, action_of, bare, maker, name_of
from nbf.adapters.readings import Scale, emission_of, process_of
from nbf.contracts import StateSpace
from nbf.environments.host import HostEnvironment, host_environment
from nbf.errors import InputError


class GymnasiumSimulator:
    """One environment that is set and stepped for n states in turn. It can be sent to other processes.

    Args:
        env: The name of an environment, a function that makes one, or an environment, which must not be used otherwise
            while filters run. Other processes (`executor`) make their own, so they need a name or a function.
        get_state: `get_state(env)` reads the state as a vector, for environments that are not in the table above.
        set_state: `set_state(env, state)` sets it, all of it: what is left over from the last step must not matter.
        absorbing: `absorbing(states)` tells which of n states are never left; None: no state is.
        act: `act(rng, states, policy)` gives n actions; None: the policy is the action of all.
    """

    def __init__(
        self,
        env: Any,
        *,
        get_state: Callable | None = None,
        set_state: Callable | None = None,
        absorbing: Callable | None = None,
        act: Callable | None = None,
    ) -> None:
        if (get_state is None) != (set_state is None):
            raise InputError("`get_state` and `set_state` belong together: pass both, or neither.")
        self.make, self.get_state, self.set_state = maker(env), get_state, set_state
        self.absorbing, self.act = absorbing, act
        self._env, self._lock = None, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._env, self._lock = None, threading.Lock()

    @property
    def env(self) -> Any:
        """Gymnasium's environment, without wrappers."""
        if self._env is None:
            self._env = bare(self.make())
            self._env.reset(seed=0)
        return self._env

    @property
    def access(self) -> Access:
        """How its state is set and read."""
        if self.get_state is None or self.set_state is None:
            return access_of(self.env)
        return Access(self.get_state, self.set_state, None)

    def init(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw first states, by `reset`.

        Args:
            rng: Random generator.
            n: How many.

        Returns:
            n states.
        """
        with self._lock:
            env, access, found = self.env, self.access, []
            env.np_random = rng
            for _ in range(n):
                env.reset()
                found.append(np.array(access.get(env)))
        return _stacked(found)

    def check(self) -> int:
        """See that a state that is set is there, and decides what comes next; an error if not.

        Returns:
            Entries of a state.
        """
        state, access = self.init(np.random.default_rng(0), 1)[0], self.access
        self.env.action_space.seed(0)
        action = self.env.action_space.sample()
        ends = []
        for start in (state, None, state):
            if start is not None:
                access.set(self.env, start)
                if not np.array_equal(access.get(self.env), start):
                    raise InputError(
                        f"The state of {name_of(self.env)} was set to {start}, and is read as {access.get(self.env)}."
                    )
            self.env.np_random = np.random.default_rng(0)
            self.env.step(action)
            ends.append(np.array(access.get(self.env)))
        if not np.array_equal(ends[0], ends[2]):
            raise InputError(
                f"{name_of(self.env)} goes from {state} to {ends[0]} and, when that state is set again, to {ends[2]}: "
                "`set_state` leaves something as it was. It must set all that the next step depends on."
            )
        return len(state)

    def transition(self, rng: np.random.Generator, states: np.ndarray, policy: Any) -> np.ndarray:
        """Step from each of n states.

        Args:
            rng: Random generator.
            states: n states.
            policy: Of the step.

        Returns:
            n states. One that is NaN stays so.
        """
        with self._lock:
            env, access = self.env, self.access
            env.np_random = rng
            actions = self._actions(env, rng, states, policy)
            stays = np.zeros(len(states), bool) if self.absorbing is None else np.asarray(self.absorbing(states))
            after = np.array(states, np.float64 if states.dtype.kind == "f" else states.dtype)
            for place, action in enumerate(actions):
                if stays[place] or (states.dtype.kind == "f" and not np.isfinite(states[place]).all()):
                    continue
                access.set(env, states[place])
                env.step(action)
                after[place] = access.get(env)
        return after

    def observation(self, states: np.ndarray) -> np.ndarray:
        """Find Gymnasium's own observation in each of n states.

        Args:
            states: n states.

        Returns:
            Of shape (n, entries); NaN where a state is.
        """
        with self._lock:
            env, access = self.env, self.access
            if access.observation is None:
                raise InputError(
                    f"With `get_state` and `set_state` of your own, {name_of(env)} does not tell its observation in a "
                    "state that was set: pass `observe` and `log_likelihood`."
                )
            rows = []
            for state in states:
                sound = bool(np.isfinite(state).all())
                access.set(env, state if sound else np.zeros_like(state))
                row = np.asarray(access.observation(env), np.float64).reshape(-1)
                rows.append(row if sound else np.full_like(row, np.nan))
        return np.stack(rows)

    def _actions(self, env: Any, rng: np.random.Generator, states: np.ndarray, policy: Any) -> list[Any]:
        if self.act is None:
            return [action_of(env, policy)] * len(states)
        made = list(self.act(rng, states, policy))
        if len(made) != len(states):
            raise InputError(f"`act` must give an action for each of {len(states)} states; it gave {len(made)}.")
        return [action_of(env, one) for one in made]


def from_gymnasium(
    env: Any,
    *,
    space: StateSpace,
    noise: Scale | None = None,
    entries: Sequence[int] | None = None,
    observe: Callable | None = None,
    log_likelihood: Callable | None = None,
    process: Scale | Callable | None = None,
    init: Callable | None = None,
    **options: Any,
) -> HostEnvironment:
    """Build an environment from one of Gymnasium's. Arrays are NumPy's, with a leading axis of n states.

    Args:
        env: A `GymnasiumSimulator`, or what one is made of: a name, a function that makes an environment, or one.
        space: Of the states: see the table above.
        noise: Standard deviation of normal noise on Gymnasium's observation of the new state; else give `observe` and
            `log_likelihood`.
        entries: Of that observation, those that are seen; by default all.
        observe: `observe(rng, states, next_states)` draws n observations.
        log_likelihood: `log_likelihood(observation, states, next_states)`, n numbers.
        process: Noise after each step: standard deviations of normal noise, one or one for each entry of the state;
            or `process(rng, states)`, which returns the states after it. None: there is none.
        init: `init(rng, n)` draws n first states; by default `reset` does.
        **options: `emission` and `symbols` of `observe`, `chunk`, `executor`: see `nbf.host_environment`.

    Returns:
        The environment.
    """
    simulator = env if isinstance(env, GymnasiumSimulator) else GymnasiumSimulator(env)
    name, listed = name_of(simulator.env), simulator.access.listed
    if listed is not None and (noise is not None or not (process is None or callable(process))):
        raise InputError(
            f"The states of {name} are integers, to which no normal noise is added: pass `observe` and "
            "`log_likelihood`, and `process` as a function if there is one."
        )
    size = simulator.check()
    emission = emission_of(
        simulator.observation, noise, entries, observe, log_likelihood, whose=f"The observations of {name}"
    )
    return host_environment(
        init=simulator.init if init is None else init, transition=Moves(simulator, process_of(process, size)),
        space=space, **emission, **options,
    )  # fmt: skip


class Moves(NamedTuple):
    """The function `transition`: Gymnasium's step, then noise."""

    simulator: GymnasiumSimulator
    process: Callable

    def __call__(self, rng: np.random.Generator, states: np.ndarray, policy: Any) -> np.ndarray:
        """Draw the next states."""
        return self.process(rng, self.simulator.transition(rng, states, policy))


def _stacked(found: list[np.ndarray]) -> np.ndarray:
    if any(each.ndim != 1 for each in found):
        raise InputError(f"A state is a vector; `get_state` gave an array of shape {found[0].shape}.")
    return np.stack(found)
