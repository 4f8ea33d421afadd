"""What the network of a policy sees of the hidden state: a belief's embedding, its moments, the observations, ...

A view is carried through an episode as a filter is. What it shows is numbers, to which the rollout adds the public
context and the time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf.capabilities import Enumerable
from nbf.capability import require
from nbf.contracts import Environment, Filter, FilterState, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.neural import NeuralBayesianFilter

Memory = PyTree
"""What a view carries from one step to the next."""


class Told(eqx.Module):
    """What a step tells."""

    observation: Observation
    environment: Environment
    """Of the step."""
    policy: Policy
    """Of the step."""
    action: Int[Array, ""]


class View(eqx.Module):
    """What a policy sees. For one example; callers batch.

    Arguments of the methods:
        key: Random key.
        environment: In which the episode begins, or of the last step.
        memory: Of the view.
        told: What the step told.
        state: The true state, which a ceiling alone looks at.
    """

    @abstractmethod
    def start(self, key: Key[Array, ""], environment: Environment) -> Memory:
        """The memory before any observation."""

    @abstractmethod
    def update(self, key: Key[Array, ""], memory: Memory, told: Told) -> Memory:
        """The memory after a step."""

    @abstractmethod
    def look(self, memory: Memory, environment: Environment, state: State) -> Float[Array, " k"]:
        """What is seen, as numbers."""


class FilterView(View):
    """A view that carries a filter's state."""

    filter: eqx.AbstractVar[Filter]

    def start(self, key: Key[Array, ""], environment: Environment) -> FilterState:
        return self.filter.init(key, environment)

    def update(self, key: Key[Array, ""], memory: FilterState, told: Told) -> FilterState:
        return self.filter.update(key, memory, told.observation, told.environment, told.policy)[0]


class EmbeddingView(FilterView):
    """θ, the embedding of the filter's belief: of a neural filter, a recurrent one, or `ApproxBeliefs`."""

    filter: Filter

    def look(self, memory: FilterState, environment: Environment, state: State) -> Float[Array, " m"]:
        embedding = getattr(memory, "embedding", None)
        if embedding is None:
            raise InputError(
                f"A {type(self.filter).__name__} has no embedding: its state is a {type(memory).__name__}. Take a "
                "NeuralBayesianFilter, or show the policy the belief's moments (MomentsView)."
            )
        return embedding


class MomentsView(FilterView):
    """The mean of the belief and the upper triangle of its covariance, both of the encoded state. Those of a neural
    filter are its own estimate, from the particles of the step."""

    filter: Filter

    def look(self, memory: FilterState, environment: Environment, state: State) -> Float[Array, " k"]:
        space = environment.space

        def parts(state: State) -> tuple[Array, Array]:
            numbers = space.encode(state)
            return numbers, numbers[:, None] * numbers

        if isinstance(self.filter, NeuralBayesianFilter):
            mean, square = self.filter.estimate(memory, parts)
        else:
            mean, square = self.filter.belief(memory, environment).expectation(parts)
        upper = np.triu_indices(space.num_features)
        return jnp.concatenate([mean, (square - mean[:, None] * mean)[upper]])


class ProbabilitiesView(FilterView):
    """The probability of every state, where states can be listed."""

    filter: Filter

    def look(self, memory: FilterState, environment: Environment, state: State) -> Float[Array, " states"]:
        instead = "Show the policy the embedding of the belief (EmbeddingView) or its moments (MomentsView)."
        listed = require(environment, Enumerable, "A view of all probabilities", instead)
        return jnp.exp(self.filter.belief(memory, environment).log_probs(listed.states()))


class StateView(View):
    """The true state, encoded: the ceiling."""

    def start(self, key: Key[Array, ""], environment: Environment) -> None:
        return None

    def update(self, key: Key[Array, ""], memory: None, told: Told) -> None:
        return None

    def look(self, memory: None, environment: Environment, state: State) -> Float[Array, " d"]:
        return environment.space.encode(state)


class HistoryView(View):
    """The last observation and the action before it: what a network with a memory reads. Zeros at the beginning."""

    num_actions: int = eqx.field(static=True)
    encode: Callable[..., Any] | None = eqx.field(static=True, default=None)
    """`encode(observation, environment)` gives numbers of order one; None: those of the observation itself, which must
    be real."""

    def start(self, key: Key[Array, ""], environment: Environment) -> Float[Array, " k"]:
        def seen(key: Key[Array, ""]) -> Float[Array, " k"]:
            state = environment.init(key)
            return self._numbers(environment.observe(key, state, state), environment)

        return jnp.zeros(jax.eval_shape(seen, key).shape[0] + self.num_actions)

    def update(self, key: Key[Array, ""], memory: Float[Array, " k"], told: Told) -> Float[Array, " k"]:
        action = jax.nn.one_hot(told.action, self.num_actions)
        return jnp.concatenate([self._numbers(told.observation, told.environment), action])

    def look(self, memory: Float[Array, " k"], environment: Environment, state: State) -> Float[Array, " k"]:
        return memory

    def _numbers(self, observation: Observation, environment: Environment) -> Float[Array, " k"]:
        if self.encode is not None:
            return jnp.ravel(jnp.asarray(self.encode(observation, environment), jnp.float32))
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(observation)]
        if not leaves or not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
            raise InputError(
                f"An observation of types {[str(leaf.dtype) for leaf in leaves]} is no number for a network: give "
                "HistoryView an `encode`, such as lambda symbol, environment: jax.nn.one_hot(symbol, 5)."
            )
        return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])
