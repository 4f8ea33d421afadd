"""A gymnax environment, seen through an observation that hides part of its state.

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

gymnax says how a state moves, and not how likely an observation is: that is yours to say. `step` gave 5 values before
gymnax 1.0 (obs, state, reward, done, info) and gives 6 since (terminated and truncated for done); both are understood,
and so is any environment that has the same methods.
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
"""One standard deviation, or one for each number of an observation."""


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
    """The environment of a gymnax one. Its `parameters` are gymnax's `params`, by default those of the environment.

    The emission is one of two. Either `observe(key, state, next_state, params)` and `log_likelihood(observation, state,
    next_state, params)`; or `noise`, for what gymnax itself observes of the next state (which must not be random, nor
    depend on the action) plus a normal error of that standard deviation.

    A state is gymnax's own pytree, which `space` describes. Or `hidden(state)` takes out of it what is to be modelled,
    `space` describes that, and `restore` makes a whole state of it again; so what is left out must be known, or not
    matter. The functions of the emission are given whole states.

    A policy is an action; or, where actions are numbered, their probabilities `Float[A]`, and where these are all zero
    nothing moves; or a pytree that can be called, such as `jax.tree_util.Partial(f)`: `policy(key, state)` gives an
    action. An episode's last state is absorbing; with `restart` a new episode begins, as by gymnax's own `step`.
    """
    if (hidden is None) != (restore is None):
        raise InputError("`hidden` and `restore` are each other's inverse: pass both, or neither.")
    take, whole = hidden or _same, restore or _same
    params = env.default_params if params is None else params
    emit, score = _emission(env, noise, observe, log_likelihood)
    actions = getattr(env.action_space(params), "n", None)

    def init(key: Key[Array, ""], params: PyTree) -> PyTree:
        return take(env.reset(key, params)[1])

    def transition(key: Key[Array, ""], state: PyTree, policy: Policy, params: PyTree) -> PyTree:
        act_key, step_key = jax.random.split(key)
        before = whole(state)
        action, moves = _action(act_key, before, policy, actions)
        step = env.step if restart else env.step_env
        after = _next_state(step(step_key, before, action, params))
        moves = moves if restart else moves & ~_over(env, before, params)
        # gymnax's states hold Python numbers too; the types of the first one are kept.
        kept = lambda old, new: jnp.where(moves, new, old).astype(jnp.result_type(old))  # noqa: E731
        return take(jax.tree.map(kept, before, after))

    if not restart:
        _check_end(env, lambda key: _over(env, whole(init(key, params)), params))
    return environment(
        init=init,
        transition=transition,
        observe=lambda key, state, next_state, params: emit(key, whole(state), whole(next_state), params),
        log_likelihood=lambda observation, state, next_state, params: score(
            observation, whole(state), whole(next_state), params
        ),
        space=space,
        parameters=params,
    )


def _emission(
    env: Any, noise: Scale | None, observe: Callable | None, log_likelihood: Callable | None
) -> tuple[Callable, Callable]:
    """The two functions of the emission."""
    if noise is None and observe is not None and log_likelihood is not None:
        return observe, log_likelihood
    if noise is None or observe is not None or log_likelihood is not None:
        raise InputError(
            "Say what is observed by both `observe` and `log_likelihood`, or by `noise` alone; got "
            f"observe={observe}, log_likelihood={log_likelihood}, noise={noise}."
        )
    scale = np.asarray(noise, np.float32)
    if not np.all((scale > 0) & np.isfinite(scale)):
        raise InputError(f"`noise` is a standard deviation, finite and above 0; got {noise}.")

    def own(key: Key[Array, ""], state: PyTree, params: PyTree) -> Array:
        newer = hasattr(env, "observe")
        seen = env.observe(key, state, None, params) if newer else env.get_obs(state, params=params, key=key)
        clean = jnp.asarray(seen)
        if scale.shape not in ((), clean.shape):
            raise InputError(f"`noise` is one number, or of shape {clean.shape} as observations are; got {noise}.")
        return clean

    def emit(key: Key[Array, ""], state: PyTree, next_state: PyTree, params: PyTree) -> Array:
        clean = own(key, next_state, params)
        return clean + scale * jax.random.normal(key, clean.shape)

    def score(observation: Array, state: PyTree, next_state: PyTree, params: PyTree) -> Array:
        clean = own(jax.random.key(0), next_state, params)
        return jnp.sum(jax.scipy.stats.norm.logpdf(observation, clean, scale))

    return emit, score


def _action(key: Key[Array, ""], state: PyTree, policy: Policy, actions: int | None) -> tuple[PyTree, Bool[Array, ""]]:
    """What a policy does in a state, and whether it does anything."""
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
            f"The policy of {actions} actions is an integer action, probabilities of shape ({actions},), or a pytree "
            f"that can be called; got {policy!r}."
        )
    return prng.categorical(key, control), jnp.sum(control) > 0


def _next_state(values: tuple) -> PyTree:
    """The state among the 5 or 6 values of a step."""
    if len(values) not in (5, 6):
        raise InputError(
            "A gymnax step gives (obs, state, reward, done, info) or (obs, state, reward, terminated, truncated, "
            f"info); this one gave {len(values)} values."
        )
    return values[1]


def _over(env: Any, state: PyTree, params: PyTree) -> Bool[Array, ""]:
    """Whether an episode ends with this state. Since gymnax 1.0 a time limit is asked for by itself."""
    over = jnp.asarray(env.is_terminal(state, params), bool)
    return over | env.is_truncated(state, params) if hasattr(env, "is_truncated") else over


def _check_end(env: Any, first: Callable) -> None:
    try:
        jax.eval_shape(first, jax.random.key(0))
    except (NotImplementedError, AttributeError) as error:
        raise InputError(
            f"{type(env).__name__} does not say when an episode is over (is_terminal: {error}), so that its last state "
            "cannot be absorbing; pass restart=True, or an environment that does."
        ) from error


def _same(state: PyTree) -> PyTree:
    return state
