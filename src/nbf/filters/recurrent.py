"""The paper's "Recurrent" baseline: a recurrent network embeds the belief from the observations alone."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from nbf.beliefs.model import ModelBelief
from nbf.capabilities import Reader, RecurrentModel
from nbf.capability import require
from nbf.contracts import BeliefModel, Embedding, Environment, Filter, FilterInfo, Observation, Policy
from nbf.filters.checks import check_space

Memory = Float[Array, "layers 2 width"]
"""The hidden state of the network."""


def reader(model: BeliefModel) -> Reader:
    """Get the network of a recurrent model that reads observations.

    Args:
        model: A recurrent model.

    Returns:
        Its reader.
    """
    instead = "Build one with ModelConfig(space, decoder, RecurrentConfig(...)), or use NeuralBayesianFilter."
    return require(model, RecurrentModel, "This filter", instead).reader


class RecurrentState(eqx.Module):
    """The memory of the network, and the embedding of the belief after it."""

    memory: Memory
    embedding: Embedding


class RecurrentFilter(Filter):
    """Carries the memory of a recurrent model. It uses nothing of environment and policy but the context of the
    environment's space, if the model reads that.

    It simulates and weighs nothing: `ess` is 1 and `log_evidence` 0 at every step, and an impossible observation is not
    noticed. A missing observation leaves the belief as it is, since the network was not trained with any.
    """

    model: BeliefModel

    def __init__(self, model: BeliefModel):
        """Build a filter.

        Args:
            model: A trained recurrent model.
        """
        reader(model)
        self.model = model

    def init(self, key: Key[Array, ""], environment: Environment) -> RecurrentState:
        check_space(self.model, environment)
        return remembered(self.model, reader(self.model).start())

    def update(
        self,
        key: Key[Array, ""],
        state: RecurrentState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[RecurrentState, FilterInfo]:
        check_space(self.model, environment)
        memory = reader(self.model).read(state.memory, observation, environment.space)
        return sound(remembered(self.model, memory), state)

    def belief(self, state: RecurrentState, environment: Environment) -> ModelBelief:
        # In the model's own space: that of the environment would reveal which states are legal.
        return ModelBelief(self.model, state.embedding, self.model.space)


def remembered(model: BeliefModel, memory: Memory) -> RecurrentState:
    """Embed a memory.

    Args:
        model: A recurrent model.
        memory: Of its network.

    Returns:
        The state of the filter.
    """
    return RecurrentState(memory, reader(model).embedding(memory))


def sound(after: PyTree, before: PyTree) -> tuple[PyTree, FilterInfo]:
    """Keep the state before a step where the network has produced NaN or infinity.

    Args:
        after: The state after the step.
        before: The state before it.

    Returns:
        The state to carry on, and the info of the step.
    """
    numbers = [leaf for leaf in jax.tree.leaves(after) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in numbers]))
    info = FilterInfo(jnp.where(good, 1.0, 0.0), jnp.where(good, 0.0, -jnp.inf), jnp.int32(1), ~good)
    return jax.tree.map(lambda new, old: jnp.where(good, new, old), after, before), info
