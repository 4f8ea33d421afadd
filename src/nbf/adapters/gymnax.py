"""A gymnax environment with an observation that hides part of its state.

    env, params = gymnax.make("Pendulum-v1")
    world = from_gymnax(
        env,
        params,
        space=nbf.Box((-3.2, -8.0), (3.2, 8.0), bounded=False),
        hidden=lambda state: jnp.stack([state.theta, state.theta_dot]),
        restore=lambda vector: EnvState(theta=vector[0], theta_dot=vector[1], last_u=0.0, time=0),
        observe=lambda key, state, next_state, params: ...,                     # y ~ H(x, x')
        log_likelihood=lambda observation, state, next_state, params: ...,      # log H(x, x')[y]
    )

gymnax has no likelihood of an observation, so you give the emission: either `observe` and `log_likelihood`, or
`noise`, the standard deviation of a normal error on gymnax's own observation of the next state (which must be neither
random nor dependent on the action).

A state is gymnax's own pytree, which `space` describes; or `hidden(state)` extracts the part to be modelled, `space`
describes that part, and `restore` makes a full state of it. Whatever `hidden` leaves out must be known or irrelevant.
The functions of the emission are given full states.

A policy is an action; or, for discrete actions, their probabilities `Float[A]` (if all are zero, the state stays); or a
callable pytree such as `jax.tree_util.Partial(f)`, where `policy(key, state)` returns an action.

`step` returned 5 values before gymnax 1.0 (obs, state, reward, done, info) and returns 6 since then (terminated and
truncated instead of done). Both work, and so does any environment with the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key, PyTree

from nbf import prng
from nbf.contracts import Policy, StateSpace
from nbf.environments.functional import FunctionalEnvironment, environment
from nbf.errors import InputError

Scale = float | Sequence[float] | np.ndarray | Array
"""One standard deviation, or one for each component of the observation."""


def from_gymnax(
    env: Any,
    params: PyTree = None,
    *,
    space: StateSpace,
    noise: Scale | None = None,
    observe: Callable | None = None,
    log_likelihood: Callable | None = None,
    hidden: Callable | None = None,
    restore: Callable | None = None,
    restart: bool = False,
) -> FunctionalEnvironment:
    """Turn a gymnax environment into an `Environment` whose `parameters` are gymnax's `params`.

    Args:
        env: The gymnax environment.
        params: Its parameters; by default `env.default_params`.
        space: The space of the states, or of what `hidden` extracts from them.
        noise: Standard deviation of a normal error on gymnax's own observation; excludes the next two.
        observe: `observe(key, state, next_state, params)` draws an observation.
        log_likelihood: `log_likelihood(observation, state, next_state, params)` of an observation.
        hidden: `hidden(state)` extracts the part of a state to be modelled; by default all of it.
        restore: `restore(part)` makes a full state of it; given exactly if `hidden` is.
        restart: Begin a new episode after the last state, as gymnax's `step` does; by default that state is absorbing.

    Returns:
        The environment.
    """
    if (hidden is None) != (restore is None):
        raise InputError("`hidden` and `restore` are each other's inverse: pass both, or neither.")
    take, full = hidden or _same, restore or _same
    params = env.default_params if params is None else params
    emit, score = _emission(env, noise, observe, log_likelihood)
    init, transition = _dynamics(env, params, take, full, restart)
    if not restart:
        _check_end(env, lambda key: _over(env, full(init(key, params)), params))
    return environment(
        init=init,
        transition=transition,
        observe=lambda key, state, after, params: emit(key, full(state), full(after), params),
        log_likelihood=lambda seen, state, after, params: score(seen, full(state), full(after), params),
        space=space,
        parameters=params,
    )


def _dynamics(env: Any, params: PyTree, take: Callable, full: Callable, restart: bool) -> tuple[Callable, Callable]:
    """The functions `init` and `transition`."""
    actions = getattr(env.action_space(params), "n", None)

    def init(key: Key[Array, ""], params: PyTree) -> PyTree:
        return take(env.reset(key, params)[1])

    def transition(key: Key[Array, ""], state: PyTree, policy: Policy, params: PyTree) -> PyTree:
        act_key, step_key = jax.random.split(key)
        before = full(state)
        action, moves = _action(act_key, before, policy, actions)
        step = env.step if restart else env.step_env
        after = _next_state(step(step_key, before, action, params))
        moves = moves if restart else moves & ~_over(env, before, params)
        # gymnax's states hold Python numbers too; every leaf keeps the type it had.
        kept = lambda old, new: jnp.where(moves, new, old).astype(jnp.result_type(old))  # noqa: E731
        return take(jax.tree.map(kept, before, after))

    return init, transition


def _emission(
    env: Any, noise: Scale | None, observe: Callable | None, log_likelihood: Callable | None
) -> tuple[Callable, Callable]:
    """The functions `observe` and `log_likelihood`."""
    if noise is None and observe is not None and log_likelihood is not None:
        return observe, log_likelihood
    if noise is None or observe is not None or log_likelihood is not None:
        raise InputError(
            "The emission needs both `observe` and `log_likelihood`, or `noise` alone; got "
            f"observe={observe}, log_likelihood={log_likelihood}, noise={noise}."
        )
    scale = np.asarray(noise, np.float32)
    if not np.all((scale > 0) & np.isfinite(scale)):
        raise InputError(f"`noise` must be a standard deviation, finite and above 0; got {noise}.")

    def own(key: Key[Array, ""], state: PyTree, params: PyTree) -> Array:
        newer = hasattr(env, "observe")
        seen = env.observe(key, state, None, params) if newer else env.get_obs(state, params=params, key=key)
        clean = jnp.asarray(seen)
        if scale.shape not in ((), clean.shape):
            raise InputError(f"`noise` must be one number, or of shape {clean.shape} like an observation; got {noise}.")
        return clean

    def emit(key: Key[Array, ""], state: PyTree, next_state: PyTree, params: PyTree) -> Array:
        clean = own(key, next_state, params)
        return clean + scale * jax.random.normal(key, clean.shape)

    def score(observation: Array, state: PyTree, next_state: PyTree, params: PyTree) -> Array:
        clean = own(jax.random.key(0), next_state, params)
        return jnp.sum(jax.scipy.stats.norm.logpdf(observation, clean, scale))

    return emit, score


def _action(key: Key[Array, ""], state: PyTree, policy: Policy, actions: int | None) -> tuple[PyTree, Bool[Array, ""]]:
    """The action of a policy in a state, and whether there is one."""
    if callable(policy):
        return policy(key, state), jnp.bool_(True)
    if policy is None:
        raise InputError("A gymnax environment needs an action at every step; got policy=None.")
    if actions is None:
        return policy, jnp.bool_(True)
    control = jnp.asarray(policy)
    if control.shape == () and jnp.issubdtype(control.dtype, jnp.integer):
        return control, jnp.bool_(True)
    if control.shape != (actions,) or not jnp.issubdtype(control.dtype, jnp.floating):
        raise InputError(
            f"A policy over {actions} actions must be an integer action, probabilities of shape ({actions},), or a "
            f"callable pytree; got {policy!r}."
        )
    return prng.categorical(key, control), jnp.sum(control) > 0


def _next_state(values: tuple) -> PyTree:
    """The state among the 5 or 6 values that a step returns."""
    if len(values) not in (5, 6):
        raise InputError(
            "A gymnax step must return (obs, state, reward, done, info) or (obs, state, reward, terminated, truncated, "
            f"info); this one returned {len(values)} values."
        )
    return values[1]


def _over(env: Any, state: PyTree, params: PyTree) -> Bool[Array, ""]:
    """Whether an episode ends with this state. Since gymnax 1.0 the time limit is a method of its own."""
    over = jnp.asarray(env.is_terminal(state, params), bool)
    return over | env.is_truncated(state, params) if hasattr(env, "is_truncated") else over


def _check_end(env: Any, first: Callable) -> None:
    try:
        jax.eval_shape(first, jax.random.key(0))
    except (NotImplementedError, AttributeError) as error:
        raise InputError(
            f"{type(env).__name__} does not say when an episode is over (is_terminal: {error}), so its last state "
            "cannot be made absorbing; pass restart=True, or an environment that says so."
        ) from error


def _same(state: PyTree) -> PyTree:
    return state
