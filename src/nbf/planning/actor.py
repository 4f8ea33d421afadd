"""A policy and a value function: two perceptrons of what is seen, behind a memory if there is one."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from nbf.environments.goofspiel_game import legal_log_probs
from nbf.models.networks import Perceptron
from nbf.models.recurrent import LSTM

SMALLEST_DEVIATION = 1e-2
"""An input that varies less than this is not scaled up any further."""


class Actor(eqx.Module):
    """π(a | inputs) and V(inputs). With a memory both see the inputs and the output of an LSTM that reads them."""

    policy: Perceptron
    value: Perceptron
    memory: LSTM | None
    mean: Float[Array, " inputs"]
    """By which inputs are centred, and `deviation`, by which they are scaled: not trained."""
    deviation: Float[Array, " inputs"]

    @classmethod
    def new(cls, key: Key[Array, ""], inputs: int, actions: int, *, width: int, depth: int, recurrent: bool) -> Actor:
        """Draw the parameters: nearly the uniform policy, and a value of 0.

        Args:
            key: Random key.
            inputs: How many numbers are seen.
            actions: How many there are.
            width: Units of a hidden layer, and of the memory.
            depth: Hidden layers.
            recurrent: Whether there is a memory.

        Returns:
            The actor.
        """
        policy_key, value_key, memory_key = jax.random.split(key, 3)
        read, sizes = inputs + width * recurrent, {"width": width, "depth": depth, "activation": "silu"}
        policy = Perceptron(policy_key, read, actions, **sizes)
        policy = eqx.tree_at(lambda network: network.weights[-1], policy, 0.01 * policy.weights[-1])
        value = Perceptron(value_key, read, 1, **sizes, zero_output=True)
        memory = LSTM(memory_key, inputs, width) if recurrent else None
        return cls(policy, value, memory, jnp.zeros(inputs), jnp.ones(inputs))

    def scaled_to(self, inputs: Float[Array, "n inputs"], counts: Bool[Array, " n"]) -> Actor:
        """Standardise inputs from now on.

        Args:
            inputs: Examples.
            counts: Which of them count.

        Returns:
            The same actor, by whose scale the examples have mean 0 and deviation 1.
        """
        weights = counts[:, None] / jnp.maximum(jnp.sum(counts), 1)
        mean = jnp.sum(weights * inputs, axis=0)
        deviation = jnp.sqrt(jnp.sum(weights * (inputs - mean) ** 2, axis=0))
        made = mean, jnp.maximum(deviation, SMALLEST_DEVIATION)
        return eqx.tree_at(lambda actor: (actor.mean, actor.deviation), self, made)

    def start(self) -> Float[Array, "..."]:
        """Make the memory at the beginning of an episode.

        Returns:
            h and c of the LSTM; nothing without one.
        """
        return jnp.zeros(0) if self.memory is None else jnp.zeros((2, self.memory.recurrent.shape[1]))

    def __call__(
        self, memory: Float[Array, "..."], inputs: Float[Array, " inputs"], allowed: Bool[Array, " actions"]
    ) -> tuple[Float[Array, "..."], Float[Array, " actions"], Float[Array, ""]]:
        """Decide one step.

        Args:
            memory: Before it.
            inputs: What is seen.
            allowed: Which actions may be taken.

        Returns:
            The memory after it, log π of each action, and V.
        """
        read = self._scaled(inputs)
        if self.memory is not None:
            memory = self.memory.step(memory, self.memory.project(read))
            read = jnp.concatenate([memory[0], read])
        return memory, legal_log_probs(self.policy(read), allowed), self.value(read)[0]

    def of_episode(
        self, inputs: Float[Array, "t inputs"], allowed: Bool[Array, "t actions"]
    ) -> tuple[Float[Array, "t actions"], Float[Array, " t"]]:
        """Decide all steps of an episode again; without a memory, any steps.

        Args:
            inputs: What was seen.
            allowed: Which actions could be taken.

        Returns:
            log π of each action and V, of each step.
        """
        read = self._scaled(inputs)
        if self.memory is not None:
            lstm = self.memory

            def step(memory: Array, gates: Array) -> tuple[Array, Array]:
                after = lstm.step(memory, gates)
                return after, after[0]

            _, remembered = jax.lax.scan(step, self.start(), lstm.project(read))
            read = jnp.concatenate([remembered, read], axis=1)
        return jax.vmap(legal_log_probs)(self.policy(read.T).T, allowed), self.value(read.T)[0]

    def _scaled(self, inputs: Float[Array, "*steps inputs"]) -> Float[Array, "*steps inputs"]:
        return (inputs - jax.lax.stop_gradient(self.mean)) / jax.lax.stop_gradient(self.deviation)
