"""What an environment can offer beyond its contract, and what each offer buys."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nbf.capabilities.spaces import FiniteSpace, SequenceSpace
from nbf.capability import Capability
from nbf.contracts import Environment, Observation, Policy, State


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

    space: eqx.AbstractVar[FiniteSpace]

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


class TransitionMatrix(KnownTransitions, Capability):
    """A table of all transition probabilities, whose rows and columns are in the order of `states()`. Buys exact
    updates by products of matrices, many times as fast as a scatter over all pairs of states.

    Arguments of the methods:
        policy: π.
        observation: y.
    """

    @abstractmethod
    def transition_matrix(self, policy: Policy) -> Float[Array, "states states"]:
        """T(x, π)[x'] of every state x and next state x'."""

    @abstractmethod
    def log_likelihood_table(self, observation: Observation) -> Float[Array, " states"] | Float[Array, "states states"]:
        """log H(x, x')[y] of every x'; where it depends on x too, of every x and x'."""


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


class StateEmission(Environment, Capability):
    """An observation that depends on the new state alone, as in every state-space model. Buys particles that are drawn
    anew without a call of the simulator (`RegeneratingProposal`): candidates for the new state are weighed as they are.

    Arguments of the methods:
        observation: y.
        next_state: x'.
    """

    def state_log_likelihood(self, observation: Observation, next_state: State) -> Float[Array, ""]:
        """log H(x')[y]: `log_likelihood`, whatever the state before."""
        return self.log_likelihood(observation, next_state, next_state)


class StaticState(Environment, Capability):
    """A hidden state that never moves: `transition` returns it as it is. Buys many states that are weighed by few calls
    (`InterpolatingProposal`), where a call of the likelihood is what costs.

    Arguments of the methods:
        state: x.
    """

    @abstractmethod
    def relevant(self, state: State) -> Float[Array, " k"]:
        """The numbers on which the likelihood of this step depends: states with near numbers have near likelihoods."""


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


class Lumpable(Environment, Capability):
    """Sequences of different symbols 0..k-1, padded with k, that grow by one at every step and whose order does not
    matter: the next symbol depends on the *set* of those so far, an observation on the newest one. Then the first
    symbol and the set of the others are a sufficient state: the chain is lumpable (Kemeny and Snell, 1960). Buys
    `LumpedFilter`: their exact posterior, with one policy call for each set, not for each sequence.

    Arguments of the methods:
        left: The symbols that a state does not have yet, multi-hot.
        policy: π.
        observation: y.
    """

    space: eqx.AbstractVar[SequenceSpace]

    @property
    @abstractmethod
    def over(self) -> Bool[Array, ""]:
        """Whether this step adds nothing any more."""

    @abstractmethod
    def first_log_probs(self) -> Float[Array, " k"] | None:
        """log p0 of the symbol that a state begins with; None where states begin without any."""

    @abstractmethod
    def symbol_log_probs(self, left: Bool[Array, " k"], policy: Policy) -> Float[Array, " k"]:
        """log probability of each symbol at this step; -inf for symbols that are not left, hence for all if none is."""

    @abstractmethod
    def choice_log_likelihoods(self, observation: Observation) -> Float[Array, " k"]:
        """log likelihood of an observation of this step after each symbol; the same for all once nothing is added."""


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
