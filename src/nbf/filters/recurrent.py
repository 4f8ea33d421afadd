"""The paper's "Recurrent" baseline: a belief that a network reads off the observations so far."""

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


def reader(model: BeliefModel) -> Reader:
    """Find what reads observations in a recurrent model.

    Args:
        model: A recurrent model.

    Returns:
        Its reader.
    """
    instead = "Build one with ModelConfig(space, decoder, RecurrentConfig(...)), or use NeuralBayesianFilter."
    return require(model, RecurrentModel, "This filter", instead).reader


class RecurrentState(eqx.Module):
    """What the network remembers, and what that stands for."""

    memory: Memory
    embedding: Embedding


class RecurrentFilter(Filter):
    """Carries the memory of a recurrent model. Environment and policy are arguments that it cannot use, except for
    what is public (the context of the environment's space), if the model reads that.

    It asks the simulator for nothing and weighs nothing: its `ess` is 1 and its `log_evidence` 0 at every step, and
    it does not notice an observation that the environment thinks impossible. A missing observation leaves the belief
    as it is, since the network was never shown one.
    """

    model: BeliefModel

    def __init__(self, model: BeliefModel):
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
        # The model's own space: that of the environment would say which states are legal, hence what the grid is.
        return ModelBelief(self.model, state.embedding, self.model.space)


def remembered(model: BeliefModel, memory: Memory) -> RecurrentState:
    """The state of a memory."""
    return RecurrentState(memory, reader(model).embedding(memory))


def sound(after: PyTree, before: PyTree) -> tuple[PyTree, FilterInfo]:
    """The state after a step, or the one before it if the network left something that is no number."""
    numbers = [leaf for leaf in jax.tree.leaves(after) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in numbers]))
    info = FilterInfo(jnp.where(good, 1.0, 0.0), jnp.where(good, 0.0, -jnp.inf), jnp.int32(1), ~good)
    return jax.tree.map(lambda new, old: jnp.where(good, new, old), after, before), info
