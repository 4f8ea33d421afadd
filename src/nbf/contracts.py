"""The theory on one page: what every part of the library promises to the others.

The words are the paper's (arXiv 2510.03614, section "Notation"). Every object is an `equinox.Module`,
hence a pytree: a thousand environments, policies, filters or beliefs are one `jax.vmap`. Methods
are written for one example; callers batch. A class here is abstract; whatever implements it is final.
What an object may offer beyond its contract is a capability (`nbf.capabilities`).

    environment --> belief samples --> belief model --> filter --> evaluation

Shapes: `n` particles or samples, `m` embedding size, `d` numbers per state, `b` branches.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from nbf import dispatch
from nbf.calls import check_is_environment, check_key, check_policy, check_state, missing_policy_explained
from nbf.capability import Capable

State = PyTree
"""One hidden state x. A set of states has a leading axis on every leaf."""
Observation = PyTree
"""One observation y."""
Policy = PyTree
"""The control variable π: whatever the environment's `transition` understands."""
Embedding = Float[Array, " m"]
"""θ, the vector that stands for a belief."""


class StateSpace(Capable):
    """How a state becomes numbers for a network and back, and which states are legal.

    A space travels with its environment, so what is legal may change from step to step. So may its
    `context`.

    Arguments of the methods:
        state: One state.
        numbers: The encoding of a state.
    """

    @property
    @abstractmethod
    def context(self) -> Float[Array, " c"] | None:
        """Numbers that are known where a belief arises (features of the environment, of the policy, of
        a public history), on which a model may condition. None for the paper's models. A field."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """What a model must share with an environment to be used on it, for example `lattice(8, 8)`."""

    @property
    def state_signature(self) -> str:
        """What an environment must share with a filter's state to go on with it: the signature, unless overridden."""
        return self.signature

    @property
    @abstractmethod
    def num_features(self) -> int:
        """How many numbers `encode` gives."""

    @abstractmethod
    def encode(self, state: State) -> Float[Array, " d"]:
        """The state as `num_features` numbers of order one."""

    @abstractmethod
    def decode(self, numbers: Float[Array, " d"]) -> State:
        """The state that is encoded nearest to these numbers; the inverse of `encode`."""

    @abstractmethod
    def contains(self, state: State) -> Bool[Array, ""]:
        """Whether the state is legal."""


class Environment(Capable):
    """G = (X, Y, T, H, p0), one instance. Its arrays are leaves, so a family is a `vmap`.

    To bring your own, subclass and implement the members below. An emission that depends on the
    action taken keeps that action in the state.

    Arguments of the methods:
        key: Random key.
        state: x, the state before a step.
        next_state: x', the state after it.
        policy: π.
        observation: y.
    """

    space: eqx.AbstractVar[StateSpace]

    @abstractmethod
    def init(self, key: Key[Array, ""]) -> State:
        """x0 ~ p0."""

    @abstractmethod
    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        """x' ~ T(x, π)."""

    @abstractmethod
    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        """y ~ H(x, x')."""

    @abstractmethod
    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        """log H(x, x')[y]; -inf where the observation is impossible."""

    @abstractmethod
    def check_observation(self, observation: Observation) -> None:
        """Raise `InputError` unless a concrete observation lies in Y. Called outside jit only."""

    def check_policy(self, policy: Policy) -> None:
        """Raise `InputError` if a concrete policy is none of this environment's. Called outside jit only. Unless
        overridden, any policy is taken."""


class Family(Capable):
    """A distribution over environments with their policies: what a belief model is trained for.

    Arguments of the methods:
        key: Random key.
    """

    @abstractmethod
    def sample(self, key: Key[Array, ""]) -> tuple[Environment, Policy]:
        """One environment and one policy."""


class Belief(eqx.Module):
    """A distribution over hidden states.

    Called from Python, `sample`, `log_prob` and `log_probs` run compiled, once for all beliefs of the same structure;
    inside a trace they are what they are. `expectation` calls its function anew each time, so that it may be any.

    Arguments of the methods:
        key: Random key.
        n: How many states.
        state: One state.
        states: A set of states.
        function: Of one state; gives a pytree of arrays.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dispatch.compile_methods(cls, sample=("n",), log_prob=(), log_probs=())

    @abstractmethod
    def sample(self, key: Key[Array, ""], n: int) -> State:
        """n states, independent and identically distributed."""

    @abstractmethod
    def log_prob(self, state: State) -> Float[Array, ""]:
        """The log of the probability (or the density) of one state."""

    @dispatch.from_python
    def log_probs(self, states: State) -> Float[Array, " n"]:
        """`log_prob` of each state of a set. A belief that knows a faster way overrides this."""
        return jax.vmap(self.log_prob)(states)

    @abstractmethod
    def expectation(self, function: Callable[[State], Any]) -> Any:
        """E[function(x)], a pytree like the one that the function gives."""


class BeliefSource(Capable):
    """Beliefs to train on, known through samples.

    Arguments of the methods:
        key: Random key.
        n: How many samples.
    """

    @abstractmethod
    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        """n samples of one random belief, and the space of the environment in which it arose."""


class BeliefModel(Capable):
    """The embedding function E_φ and the generative model f_ψ (section "Model Definition").

    `space` is the one of the environment at that step: a decoder that can, keeps off illegal states.

    Arguments of the methods:
        key: Random key.
        states: A set of n states.
        log_weights: Of the states, unnormalised.
        space: Of the environment at this step.
        embedding: θ.
        embeddings: θ of each belief of a batch.
        n: How many states.
    """

    space: eqx.AbstractVar[StateSpace]

    @abstractmethod
    def embed(self, states: State, log_weights: Float[Array, " n"], space: StateSpace | None = None) -> Embedding:
        """θ = E_φ(x_1:n, w_1:n). Invariant to order and size; entries of weight zero are padding. `space` matters to a
        model with a context alone."""

    @abstractmethod
    def sample(self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace) -> State:
        """n independent states from p_θ."""

    @abstractmethod
    def log_prob(self, embedding: Embedding, states: State, space: StateSpace) -> Float[Array, " n"]:
        """log p_θ of each state."""

    def objective(
        self, key: Key[Array, ""], embeddings: Float[Array, "b m"], states: State, space: StateSpace
    ) -> Float[Array, "b n"]:
        """What training maximises for b beliefs of n states each: log p_θ, or, if overridden, an unbiased estimate of a
        lower bound of it. The one method that takes a batch, since one product over all samples of all beliefs is
        faster than the same under `vmap`."""
        return jax.vmap(self.log_prob)(embeddings, states, space)

    def draw(
        self, key: Key[Array, ""], embedding: Embedding, n: int, space: StateSpace
    ) -> tuple[State, Float[Array, " n"]]:
        """n states with log weights that stand for p_θ: the weighted mean of any function is unbiased, with as little
        variance as the model can reach. Unless a model does better, the states are independent."""
        return self.sample(key, embedding, n, space), jnp.zeros(n)

    def prepared(self) -> BeliefModel:
        """The same model with whatever does not depend on a belief computed once: itself, unless overridden."""
        return self


class FilterInfo(eqx.Module):
    """What one step tells; looked at, never carried."""

    ess: Float[Array, ""]
    """Effective sample size of the weights, 0 when all of them were zero."""
    log_evidence: Float[Array, ""]
    """log p(y_t | y_1:t-1) as the filter estimates it."""
    attempts: Int[Array, ""]
    """How often the step was simulated: more than 1 after a set whose weights were all zero."""
    recovered: Bool[Array, ""]
    """Every attempt failed, and the belief is the prediction without the observation."""
    invalid: Int[Array, ""] = eqx.field(default_factory=lambda: jnp.int32(0))
    """How many particles had a likelihood of NaN or +inf, which no likelihood should be; they count as impossible. Of a
    filter that lists its states, how many branches (or moves, cells, symbols) had; 0 where nothing is weighed."""

    def __repr__(self) -> str:
        """The numbers of one step; of many, or inside a trace, their shapes."""
        told = [(each.name, getattr(self, each.name)) for each in dataclasses.fields(self)]
        if any(isinstance(value, Tracer) or np.ndim(value) for _, value in told):
            return f"FilterInfo({', '.join(f'{name}={eqx.tree_pformat(value)}' for name, value in told)})"
        numbers = {name: np.asarray(value).item() for name, value in told}
        shown = (
            f"{name}={value:.4g}" if type(value) is float else f"{name}={value}" for name, value in numbers.items()
        )
        return f"FilterInfo({', '.join(shown)})"


FilterState = PyTree
"""What a filter carries from one step to the next."""


class Filter(eqx.Module):
    """Tracks a belief. Environment and policy are inputs of every step: both may change at any time.

    From Python call `step(key, state, observation, environment, policy)`, which checks the observation
    and runs `update` compiled; inside a compiled function of your own call `update` itself. `belief` is compiled too
    where it is called from Python.

    Arguments of the methods:
        key: Random key.
        state: Of the filter.
        observation: y; None is a missing one, and the step predicts.
        environment: Of this step.
        policy: π of this step.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dispatch.compile_methods(cls, belief=())

    @property
    def step(self) -> Callable[..., tuple[FilterState, FilterInfo]]:
        """`step(key, state, observation, environment, policy) -> (state, info)`, for Python loops.

        Compiled once for all environments and policies of the same structure. An observation
        outside Y is an `InputError`; None is a missing one, and the step predicts. So is a state unlike
        that of `init`, a policy of None where the environment needs one, or one that its `check_policy` refuses.
        """
        # A partial, not a method: looking up a method of an equinox module costs 27 µs, half of what
        # a small particle filter's whole step does.
        return functools.partial(_step, self)

    @abstractmethod
    def init(self, key: Key[Array, ""], environment: Environment) -> FilterState:
        """The state before any observation."""

    @abstractmethod
    def update(
        self,
        key: Key[Array, ""],
        state: FilterState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[FilterState, FilterInfo]:
        """One step as pure mathematics, to be traced: inside `jit`, `vmap` and `scan`."""

    @abstractmethod
    def belief(self, state: FilterState, environment: Environment) -> Belief:
        """The belief that a state stands for."""


def _step(
    self: Filter,
    key: Key[Array, ""],
    state: FilterState,
    observation: Observation,
    environment: Environment,
    policy: Policy,
) -> tuple[FilterState, FilterInfo]:
    check_is_environment(environment, Environment)
    if observation is not None and not isinstance(observation, Tracer):
        type(environment).check_observation(environment, observation)
        observation = dispatch.arrays(observation)
    check_policy(environment, policy)
    return dispatch.call(_update, (self, environment, policy), state, (key, observation))


def _update(
    filter: Filter, environment: Environment, policy: Policy, state: FilterState, key: Key[Array, ""], observation: Any
) -> tuple[FilterState, FilterInfo]:
    # Here is only what happens once for each kind of call: the result is compiled.
    check_key(key)
    check_state(filter, key, state, environment)
    with missing_policy_explained(environment, policy):
        return filter.update(key, state, observation, environment, policy)
