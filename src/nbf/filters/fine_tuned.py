"""Fine-tuning at test time, a baseline that the paper discusses (Sokota et al., "A Fine-Tuning Approach to Belief
State Modeling"): a recurrent model that is adapted to the current environment and policy at every step.

    x_0:t, y_1:t  simulated with the current environment and policy, from p0, a new batch for each gradient step
    ψ <- ψ - η ∇ mean over s <= t of  -log p_ψ(x_s | y_1:s)                        m times at every filter step
    belief = p_ψ(· | the true y_1:t)

It has the same information as a neural filter, and makes batch · t · m simulator calls at step t.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf.beliefs.model import ModelBelief
from nbf.contracts import BeliefModel, Environment, Filter, FilterInfo, Observation, Policy, State
from nbf.errors import InputError
from nbf.filters.checks import check_counts, check_space
from nbf.filters.recurrent import RecurrentState, reader, remembered, sound


class FineTunedState(eqx.Module):
    """The adapted parameters, and the observations so far."""

    parameters: PyTree
    optimizer: PyTree
    observations: Int[Array, " longest"]
    seen: Bool[Array, " longest"]
    """Which steps had an observation."""
    length: Int[Array, ""]
    """Steps so far."""
    remembered: RecurrentState
    """The memory after them."""


class FineTunedFilter(Filter):
    """A recurrent filter whose parameters take `steps` gradient steps (m) at every filter step; with m = 0 it is
    `RecurrentFilter`, bit for bit.

    Histories are simulated as if environment and policy had been the current ones from the start. The model must read
    symbols alone: the context of a simulated history is not known. Up to `longest` steps the whole history is read
    again with the adapted parameters; after that the memory is carried on, and simulated histories have that length.
    A step without an observation has none in the simulated histories either.
    """

    model: BeliefModel
    steps: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    learning_rate: float = eqx.field(static=True)
    longest: int = eqx.field(static=True)

    def __init__(
        self,
        model: BeliefModel,
        steps: int,
        *,
        batch: int = 32,
        learning_rate: float = 3e-2,
        longest: int = 20,
    ):
        """Build a filter.

        Args:
            model: A trained recurrent model without a context.
            steps: Gradient steps at each filter step.
            batch: Simulated trajectories of a gradient step.
            learning_rate: Of Adam, whose moments are carried from step to step. In so few steps it reaches a lower
                loss than AdaGrad, with which the model was trained.
            longest: Steps of the history that are simulated and read again, at most.
        """
        check_counts("Fine-tuning", least=0, steps=steps)
        check_counts("Fine-tuning", batch=batch, longest=longest)
        if not learning_rate > 0:
            raise InputError(f"Fine-tuning needs a learning_rate above 0; got {learning_rate}.")
        read = reader(model).context
        if read:
            raise InputError(
                f"This recurrent model reads a context of {read} numbers, which cannot be simulated: fine-tuning needs "
                "a model that reads symbols alone (context=0)."
            )
        self.model, self.steps, self.batch = model, steps, batch
        self.learning_rate, self.longest = learning_rate, longest

    def calls(self, time: int) -> int:
        """Count the simulator calls of one filter step.

        Args:
            time: The number of the step, from 1.

        Returns:
            How many there are.
        """
        return self.steps * self.batch * min(time, self.longest)

    def init(self, key: Key[Array, ""], environment: Environment) -> FineTunedState:
        check_space(self.model, environment)
        parameters = eqx.filter(self.model, eqx.is_inexact_array)
        return FineTunedState(
            parameters=parameters,
            optimizer=self._optimizer.init(parameters),
            observations=jnp.zeros(self.longest, jnp.int32),
            seen=jnp.zeros(self.longest, bool),
            length=jnp.int32(0),
            remembered=remembered(self.model, reader(self.model).start()),
        )

    def update(
        self,
        key: Key[Array, ""],
        state: FineTunedState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[FineTunedState, FilterInfo]:
        check_space(self.model, environment)
        fits = (jnp.arange(self.longest) == state.length) & (observation is not None)
        symbol = jnp.int32(0 if observation is None else observation)
        observations, seen = jnp.where(fits, symbol, state.observations), state.seen | fits
        length = jnp.minimum(state.length + 1, self.longest)
        parameters, optimizer = state.parameters, state.optimizer

        def step(carry: tuple[PyTree, PyTree], key: Key[Array, ""]) -> tuple[tuple[PyTree, PyTree], None]:
            data_key, loss_key = jax.random.split(key)
            pairs = simulated(data_key, environment, policy, self.batch, self.longest, length)
            gradient = jax.grad(self.loss)(carry[0], loss_key, *pairs, seen, length)
            changes, after = self._optimizer.update(gradient, carry[1], carry[0])
            return (optax.apply_updates(carry[0], changes), after), None

        if self.steps:
            keys = jax.random.split(key, self.steps)
            (parameters, optimizer), _ = jax.lax.scan(step, (parameters, optimizer), keys)
        model = self._adapted(parameters)
        memory = reader(model).read(state.remembered.memory, observation, environment.space)
        if self.steps:
            memory = jnp.where(state.length < self.longest, self._reread(model, observations, seen), memory)
        after = FineTunedState(parameters, optimizer, observations, seen, state.length + 1, remembered(model, memory))
        return sound(after, state)

    def belief(self, state: FineTunedState, environment: Environment) -> ModelBelief:
        return ModelBelief(self._adapted(state.parameters), state.remembered.embedding, self.model.space)

    def loss(
        self,
        parameters: PyTree,
        key: Key[Array, ""],
        states: State,
        observations: Int[Array, "batch longest"],
        seen: Bool[Array, " longest"],
        length: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Compute the loss of simulated trajectories: minus the mean of log p(x_s | y_1:s) over s = 0..t, or a bound.

        Args:
            parameters: Of the model.
            key: Random key of the objective.
            states: x_0..x_longest of each trajectory; leading axes (batch, longest + 1).
            observations: y_1..y_longest of each trajectory.
            seen: Which observations the model reads.
            length: t; what follows does not count.

        Returns:
            The loss.
        """
        model = self._adapted(parameters)
        embeddings = jax.vmap(lambda row: reader(model).embeddings(row, model.space, seen))(observations)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, 1, *leaf.shape[2:]), states)
        scores = model.objective(key, embeddings.reshape(-1, embeddings.shape[-1]), flat, model.space)
        happened = jnp.arange(self.longest + 1) <= length
        return -jnp.sum(jnp.where(happened, scores.reshape(self.batch, -1), 0.0)) / (self.batch * (length + 1.0))

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)

    def _adapted(self, parameters: PyTree) -> BeliefModel:
        return eqx.combine(parameters, self.model)

    def _reread(self, model: BeliefModel, observations: Array, seen: Array) -> Float[Array, "layers 2 width"]:
        """The memory after a whole history."""

        def step(memory: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
            observation, was_seen = inputs
            return jnp.where(was_seen, reader(model).read(memory, observation, model.space), memory), None

        return jax.lax.scan(step, reader(model).start(), (observations, seen))[0]


def simulated(
    key: Key[Array, ""], environment: Environment, policy: Policy, batch: int, longest: int, length: Int[Array, ""]
) -> tuple[State, Observation]:
    """Simulate a batch of trajectories.

    Args:
        key: Random key.
        environment: Of all steps.
        policy: Of all steps.
        batch: How many trajectories.
        longest: The length of the arrays.
        length: Steps that are simulated; behind them the arrays are filled with x_0 and the symbol 0.

    Returns:
        The states x_0..x_longest and the observations y_1..y_longest, with leading axes (batch, time).
    """
    start_key, walk_key = jax.random.split(key)
    start = jax.vmap(environment.init)(jax.random.split(start_key, batch))
    states = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], longest + 1, axis=1), start)

    def step(time: Int[Array, ""], carry: tuple[State, State, Array]) -> tuple[State, State, Array]:
        now, states, observations = carry
        keys = jax.random.split(jax.random.fold_in(walk_key, time), (batch, 2))
        after = jax.vmap(environment.transition, (0, 0, None))(keys[:, 0], now, policy)
        observed = jax.vmap(environment.observe)(keys[:, 1], now, after)
        states = jax.tree.map(lambda leaf, new: leaf.at[:, time + 1].set(new), states, after)
        return after, states, observations.at[:, time].set(observed)

    observations = jnp.zeros((batch, longest), jnp.int32)
    _, states, observations = jax.lax.fori_loop(0, length, step, (start, states, observations))
    return states, observations
