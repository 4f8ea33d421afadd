"""What an environment, a family, a model or a space can offer beyond its contract, and what each offer buys.

Claim a capability by subclassing it, ask for it with `nbf.capability.capability(subject, kind)`; `nbf check` and
`nbf.testing.check_environment` list what an object claims.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf.capability import Capability
from nbf.contracts import BeliefSource, Embedding, Environment, Family, Observation, Policy, State, StateSpace

if TYPE_CHECKING:
    from nbf.beliefs.categorical import CategoricalBelief
    from nbf.spaces import Lattice


class Enumerable(Environment, Capability):
    """Finitely many states with finite branching. Buys exact posteriors: `ExactFilter`, exact beliefs to train on.

    Arguments of the methods:
        state: x.
        policy: π.
    """

    @abstractmethod
    def states(self) -> State:
        """Every state, illegal ones included, along a leading axis whose length is static."""

    @abstractmethod
    def index(self, state: State) -> Int[Array, ""]:
        """The position of a state in `states()`."""

    @abstractmethod
    def initial_log_probs(self) -> Float[Array, " states"]:
        """log p0 of every state."""

    @abstractmethod
    def successors(self, state: State, policy: Policy) -> tuple[State, Float[Array, " b"]]:
        """Every branch out of a state, and log T of each. A state may appear in several branches."""


class KnownTransitions(Enumerable, Capability):
    """Transition probabilities that are known before a branch is followed: what `transition` looks up before it draws.
    Buys filters that follow the likeliest branches (`BranchProposal`, `BranchingFilter`).

    Arguments of the methods:
        state: x.
        policy: π.
        branch: The position of a branch in `transition_log_probs`.
    """

    @property
    @abstractmethod
    def num_branches(self) -> int:
        """How many branches leave a state, impossible ones included; static."""

    @abstractmethod
    def transition_log_probs(self, state: State, policy: Policy) -> Float[Array, " b"]:
        """log T of every branch out of a state, without following one."""

    def follow(self, state: State, policy: Policy, branch: Int[Array, ""]) -> State:
        """Where one branch leads. Unless overridden, the branches are those of `successors`."""
        return jax.tree.map(lambda leaf: leaf[branch], self.successors(state, policy)[0])


class Stencil(KnownTransitions, Capability):
    """States on a lattice that move by one of a few fixed offsets, with an emission that depends on the offset alone.
    Buys exact updates by a few shifted products, ten times faster than a scatter for many posteriors at once.

    Arguments of the methods:
        state: x.
        policy: π.
    """

    space: eqx.AbstractVar[Lattice]

    @property
    @abstractmethod
    def offsets(self) -> tuple[tuple[int, ...], ...]:
        """The offsets; static."""

    @abstractmethod
    def offset_log_probs(self, state: State, policy: Policy) -> Float[Array, " b"]:
        """log probability of moving by each offset; -inf where the move would leave the legal states."""

    @property
    def num_branches(self) -> int:
        return len(self.offsets)

    def transition_log_probs(self, state: State, policy: Policy) -> Float[Array, " b"]:
        return self.offset_log_probs(state, policy)

    def follow(self, state: State, policy: Policy, branch: Int[Array, ""]) -> State:
        return state + jnp.asarray(self.offsets, jnp.int32)[branch]


class LookAhead(Environment, Capability):
    """A cheap guess at log p(y | x), made without simulating. Buys an auxiliary filter (`LookAheadProposal`), which
    simulates the states from which the observation is likely. However wrong the guess, the filter stays consistent;
    the better it is, the lower the variance.

    Arguments of the methods:
        observation: y.
        state: x.
        policy: π.
    """

    @abstractmethod
    def look_ahead(self, observation: Observation, state: State, policy: Policy) -> Float[Array, ""]:
        """The look-ahead log weight of one state."""


class Prefixes(Enumerable, Capability):
    """States that are sequences, listed by length and then lexicographically, all of one length at any time. Buys
    `PrefixFilter`: an exact update with one policy call for each distinct choice and no scatter.

    Arguments of the methods:
        policy: π.
        observation: y.
    """

    @property
    @abstractmethod
    def branches(self) -> tuple[Int[np.ndarray, "_ _"], ...]:
        """For each length but the last, and each state of it, the (flat) entries of `choice_log_probs` for the
        states that it may become; static."""

    @property
    @abstractmethod
    def over(self) -> Bool[Array, ""]:
        """Whether this step adds nothing any more."""

    @abstractmethod
    def choice_log_probs(self, policy: Policy) -> Float[Array, "choices k"]:
        """log probability of each symbol in each distinct choice of this step."""

    @abstractmethod
    def choice_log_likelihoods(self, observation: Observation) -> Float[Array, " k"]:
        """log likelihood of an observation of this step after each symbol."""


class Drifting(Environment, Capability):
    """A position in a bounded plane, uniform at first, that moves by x' = clip(x + mean + σ·ε), with an emission that
    depends on x' alone. Buys `PointMassFilter`, a reference posterior on a fine grid.

    Arguments of the methods:
        policy: π.
    """

    @abstractmethod
    def drift(self, policy: Policy) -> tuple[Float[Array, " 2"], Float[Array, ""]]:
        """mean and σ; both may be 0."""


class GaussianDynamics(Environment, Capability):
    """Real vectors with Gaussian noise, or noise that is taken for it. Means are differentiable; a root of a covariance
    is any F with F Fᵀ equal to it. Buys the Kalman filters (extra `classical`).

    Arguments of the methods:
        state: x.
        next_state: x'.
        policy: π.
        observation: y.
    """

    @property
    @abstractmethod
    def linear(self) -> bool:
        """Whether the means are affine in the state and the roots do not depend on it."""

    @abstractmethod
    def initial_moments(self) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and root of p0."""

    @abstractmethod
    def moments(self, state: Float[Array, " d"], policy: Policy) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and root of x' given x."""

    @abstractmethod
    def observation_moments(self, next_state: Float[Array, " d"]) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        """Mean and root of the reading given x', on which alone it depends."""

    @abstractmethod
    def reading(self, observation: Observation) -> Float[Array, " k"]:
        """The observation as the vector that `observation_moments` speaks of; NaN where this step reads nothing."""


class Scheduled(Family, Capability):
    """Environments or policies that change within an episode, independently of the hidden states. Buys beliefs to
    train on in which they change.

    Arguments of the methods:
        key: Random key.
        steps: Length of the episode.
    """

    @abstractmethod
    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Environment, Policy]:
        """The environment and the policy of each step of one random episode, with a leading axis."""


class Episodic(Family, Capability):
    """Environments that follow from earlier observations, as when the observer acts on them: an episode is made whole.
    Buys `EpisodePosteriors`.

    Arguments of the methods:
        key: Random key.
    """

    @abstractmethod
    def episode(self, key: Key[Array, ""]) -> tuple[Environment, Policy, Observation, State]:
        """The environment, the policy and the observation of each step of one random episode, with a leading axis,
        and the true states x_0..x_T."""


class ExactSource(BeliefSource, Capability):
    """Beliefs that are known exactly, not through samples alone. Buys divergences to the truth in `calibrate`.

    Arguments of the methods:
        key: Random key.
    """

    @abstractmethod
    def posterior(self, key: Key[Array, ""]) -> CategoricalBelief:
        """One random belief; `sample` splits its key into this one's and that of the samples."""


class MeanFeatures(Capability):
    """An embedding that is the weighted mean of features of the states. Buys `MomentMatching`.

    Arguments of the methods:
        states: n states.
        space: Of the environment.
    """

    @abstractmethod
    def features(self, states: State, space: StateSpace) -> Float[Array, "m n"]:
        """φ of each state, as columns."""


class ListedStates(Capability):
    """A decoder that computes the probability of all states of a finite space together. Buys proposals without
    sampling error: all states are candidates.

    Arguments of the methods:
        embedding: θ, of a decoder followed by the context if there is one.
        space: Of the environment; its `points()` are the states.
    """

    @abstractmethod
    def all_log_probs(self, embedding: Embedding, space: StateSpace) -> Float[Array, " states"]:
        """log p_θ of all states."""


class Reader(Capability):
    """A network that reads observations one after the other, in the encoder's place. Buys `RecurrentFilter`.

    Arguments of the methods:
        memory: What was read so far.
        observation: y; None is a missing one, and the memory stays as it was.
        space: Of the environment.
        observations: Of a whole history.
        spaces: Of each of its steps.
        seen: Which of them were observed; None is all.
    """

    context: eqx.AbstractVar[int]
    """Numbers of the space's context that are read at every step."""

    @abstractmethod
    def start(self) -> Float[Array, "layers 2 width"]:
        """The memory before anything is read."""

    @abstractmethod
    def read(
        self, memory: Float[Array, "layers 2 width"], observation: Observation, space: StateSpace
    ) -> Float[Array, "layers 2 width"]:
        """The memory after one more step."""

    @abstractmethod
    def embedding(self, memory: Float[Array, "layers 2 width"]) -> Embedding:
        """The embedding that the memory stands for."""

    @abstractmethod
    def embeddings(
        self, observations: Observation, spaces: StateSpace, seen: Bool[Array, " steps"] | None
    ) -> Float[Array, "depths m"]:
        """The embeddings before the first and after each step of a history."""


class RecurrentModel(Capability):
    """A model whose embedding is read off the observations. Buys `RecurrentFilter` and `FineTunedFilter`."""

    @property
    @abstractmethod
    def reader(self) -> Reader:
        """The network that reads them."""


class FiniteSpace(StateSpace, Capability):
    """A space whose states can be listed. Buys expectations and moment matching by sums over all states.

    Arguments of the methods:
        state: One state.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """How many states there are, illegal ones included; static."""

    @abstractmethod
    def points(self) -> Int[np.ndarray, "cells d"]:
        """Every state."""

    @abstractmethod
    def index(self, state: State) -> Int[Array, ""]:
        """The position of a state in `points()`; that of the nearest one for a point outside."""


class ContinuousSpace(StateSpace, Capability):
    """Real vectors: a model has a density, which may reach beyond the bounds that clipping keeps states within. Buys
    the Gaussian filters and kernel densities."""

    low: eqx.AbstractVar[tuple[float, ...]]
    high: eqx.AbstractVar[tuple[float, ...]]
    bounded: eqx.AbstractVar[bool]
