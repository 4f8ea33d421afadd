"""Gymnasium's environments one by one: how the state of each kind is set and read, and what an action is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nbf.errors import InputError, optional_imports

HARMLESS = frozenset({"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"})
"""Wrappers of `gymnasium.make`, which change neither actions nor observations."""


class Access(NamedTuple):
    """How the state of a kind of environments is set and read."""

    get: Callable[[Any], np.ndarray]
    set: Callable[[Any, np.ndarray], None]
    observation: Callable[[Any], np.ndarray] | None
    """Gymnasium's own observation of the state that is set; None if it is not known."""
    listed: int | None = None
    """Number of states, where they are listed."""


class Same(NamedTuple):
    """A function that gives the environment it was made with."""

    env: Any

    def __call__(self) -> Any:
        """Give it."""
        return self.env


class Named(NamedTuple):
    """A function that makes an environment by its name."""

    name: str

    def __call__(self) -> Any:
        """Make it."""
        import gymnasium

        return gymnasium.make(self.name)


def maker(env: Any) -> Callable[[], Any]:
    """Find what makes an environment.

    Args:
        env: A name, a function or an environment.

    Returns:
        The function.
    """
    with optional_imports("GymnasiumSimulator"):
        import gymnasium

    if isinstance(env, str):
        return Named(env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise InputError(
            f"{type(env).__name__} is a vector environment, of a fixed number of states: pass the single environment; "
            "n states are one call anyway."
        )
    if isinstance(env, gymnasium.Env):
        return Same(env)
    if callable(env):
        return env
    raise InputError(f"`env` is the name of an environment, a function that makes one, or one; got {env!r}.")


def bare(env: Any) -> Any:
    """Take the wrappers off an environment; an error if that would change what it does.

    Args:
        env: The environment.

    Returns:
        What is inside.
    """
    import gymnasium

    if not isinstance(env, gymnasium.Env):
        raise InputError(f"`env` must make a gymnasium.Env; it made a {type(env).__name__}.")
    while env is not env.unwrapped:
        if type(env).__name__ not in HARMLESS:
            raise InputError(
                f"{name_of(env)} is wrapped by {type(env).__name__}, which cannot be kept: wrappers may end an "
                "episode, or remember. Pass env.unwrapped, and do in `act`, `observe` and `init` what the wrapper did."
            )
        env = getattr(env, "env")  # noqa: B009  (a wrapper's)
    return env


def name_of(env: Any) -> str:
    """Name an environment, for an error.

    Args:
        env: The environment.

    Returns:
        Its name.
    """
    spec = getattr(env, "spec", None)
    return type(env.unwrapped).__name__ if spec is None else str(spec.id)


def access_of(env: Any) -> Access:
    """Find how the state is set and read, by the kind of environment.

    Args:
        env: The environment, without wrappers.

    Returns:
        How.
    """
    from gymnasium.envs import classic_control as classic

    vector = {
        classic.CartPoleEnv: _own_state, classic.MountainCarEnv: _own_state,
        classic.Continuous_MountainCarEnv: _own_state, classic.PendulumEnv: lambda env: env._get_obs(),
        classic.AcrobotEnv: lambda env: env._get_ob(),
    }  # fmt: skip
    for kind, observation in vector.items():
        if isinstance(env, kind):
            return Access(_own_state, _set_own_state, observation)
    table = getattr(env, "P", None)
    if isinstance(table, dict) and hasattr(env, "s"):
        return Access(_own_number, _set_own_number, _own_number, len(table))
    if hasattr(env, "set_state") and hasattr(env, "data") and hasattr(env, "model"):
        return Access(_physics, _set_physics, lambda env: env._get_obs())
    raise InputError(
        f"How to set the state of {name_of(env)} ({type(env).__name__}) is not known: it is neither classic control, "
        "nor toy text with a table P, nor MuJoCo's. If all of its state is a vector that can be set, pass "
        "GymnasiumSimulator(env, get_state=..., set_state=...); otherwise it cannot be filtered."
    )


def _own_state(env: Any) -> np.ndarray:
    return np.asarray(env.state, np.float64)


def _set_own_state(env: Any, state: np.ndarray) -> None:
    env.state = np.asarray(state, np.float64)
    if hasattr(env, "steps_beyond_terminated"):
        env.steps_beyond_terminated = None  # else CartPole warns that an episode goes on


def _own_number(env: Any) -> np.ndarray:
    return np.asarray([env.s], np.int32)


def _set_own_number(env: Any, state: np.ndarray) -> None:
    env.s = int(state[0])


def _physics(env: Any) -> np.ndarray:
    return np.concatenate([env.data.qpos, env.data.qvel])


def _set_physics(env: Any, state: np.ndarray) -> None:
    import mujoco

    mujoco.mj_resetData(env.model, env.data)  # time, activations and the solver's warm start are no part of the state
    split = env.model.nq
    env.set_state(np.asarray(state[:split], np.float64), np.asarray(state[split:], np.float64))
    env.data.qacc_warmstart[:] = 0.0  # which `set_state` fills


def action_of(env: Any, action: Any) -> Any:
    """Turn a policy into an action of Gymnasium's type; an error if it is none.

    Args:
        env: The environment.
        action: Numbers.

    Returns:
        The action.
    """
    kind = env.action_space
    if action is None:
        raise InputError(f"{name_of(env)} needs an action at every step, from {kind}; got None.")
    array = np.asarray(action)
    if hasattr(kind, "n") and hasattr(kind, "start"):
        if array.shape == () and array.dtype.kind in "iu" and kind.start <= int(array) < kind.start + kind.n:
            return int(array)
    elif hasattr(kind, "low"):
        if array.shape == kind.shape and array.dtype.kind in "iuf" and np.isfinite(array).all():
            return array.astype(kind.dtype)
    elif kind.contains(action):
        return action
    raise InputError(
        f"An action of {name_of(env)} is one of {kind}; got {action!r}. If it depends on the state: `act`."
    )
