"""What is to be decided in an environment: actions, reward, and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import prng
from nbf.contracts import Environment, State
from nbf.errors import InputError

Action = PyTree
"""What the environment's `transition` takes as its policy for one step."""


class Task(eqx.Module):
    """Makes a POMDP of an environment: an action is the environment's policy of one step.

        Task(reward, actions=jnp.array([-1, 0, 1]))                        # a choice
        Task(reward, sample_action=lambda key, state, environment: ...)    # any number of them, drawn

    Arguments of the methods:
        key: Random key.
        state: x, the state before a step.
        action: Of the step.
        next_state: x', the state after it.
        environment: Of the step.
        index: Which of the `actions`.
    """

    reward: Callable[..., Any] = eqx.field(static=True)
    """`reward(state, action, next_state, environment)`, a number."""
    actions: PyTree = None
    """All actions, with a leading axis; None if they are drawn."""
    sample_action: Callable[..., Any] | None = eqx.field(static=True, default=None)
    """`sample_action(key, state, environment)` draws an action, where they cannot be listed."""
    terminal: Callable[..., Any] | None = eqx.field(static=True, default=None)
    """`terminal(state, environment)`: whether the episode is over; None: it never is."""
    discount: float = eqx.field(static=True, default=0.95)
    """γ, by which a reward counts less for each step that it is away."""

    def __check_init__(self) -> None:
        if (self.actions is None) == (self.sample_action is None):
            raise InputError("A task has either `actions`, which are listed, or `sample_action`, which draws one.")
        if self.actions is not None:
            sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(self.actions)}
            if len(sizes) != 1 or sizes <= {(), (0,)}:
                raise InputError(
                    "`actions` has a leading axis of at least one action on every leaf; got leading axes of "
                    f"{', '.join(str(size[0]) if size else 'none' for size in sorted(sizes)) or 'no array at all'}."
                )
        if not 0.0 < self.discount <= 1.0:
            raise InputError(f"The discount lies above 0 and is at most 1; got {self.discount}.")

    @property
    def num_actions(self) -> int | None:
        """How many actions are listed; None if they are drawn."""
        return None if self.actions is None else jnp.shape(jax.tree.leaves(self.actions)[0])[0]

    def action(self, index: Int[Array, ""]) -> Action:
        """Look up one of the actions that are listed."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], self.actions)

    def random_action(self, key: Key[Array, ""], state: State, environment: Environment) -> Action:
        """Draw an action; of those that are listed all are equally likely."""
        if self.sample_action is not None:
            return jax.tree.map(jnp.asarray, self.sample_action(key, state, environment))
        number = jax.tree.leaves(self.actions)[0].shape[0]
        return self.action(jnp.floor(prng.uniform(key) * number).astype(jnp.int32))

    def reward_of(self, state: State, action: Action, next_state: State, environment: Environment) -> Float[Array, ""]:
        """Compute the reward of a step, as a number with decimals."""
        reward = self.reward(state, action, next_state, environment)
        if reward is None or jnp.shape(reward):
            got = "None" if reward is None else f"an array of shape {jnp.shape(reward)}"
            raise InputError(f"The reward of a step is one number; got {got}.")
        return jnp.asarray(reward, jnp.float32)

    def is_over(self, state: State, environment: Environment) -> Bool[Array, ""]:
        """Tell whether the episode is over."""
        over = jnp.asarray(False if self.terminal is None else self.terminal(state, environment), bool)
        if over.shape:
            raise InputError(f"`terminal` of the task says True or False; got an array of shape {over.shape}.")
        return over
