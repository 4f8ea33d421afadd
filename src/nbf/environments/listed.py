"""An environment from plain functions whose states can be listed, and whose transition probabilities are known.

    world = nbf.listed_environment(
        observe=lambda key, state, next_state: ...,                  # y ~ H(x, x')
        log_likelihood=lambda observation, state, next_state: ...,   # log H(x, x')[y]
        space=nbf.Lattice((24, 24)),
    )

That is a state which never moves: one of 24 x 24 cells. One that moves has `branches`, its possible next states and the
log probability of each. `transition` and `init` follow from them. Exact filters, exact beliefs to train on and filters
that follow the likeliest branches come with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from nbf import prng
from nbf.capabilities import Enumerable, FiniteSpace, KnownTransitions
from nbf.capability import Capability, capability
from nbf.contracts import Policy, State, StateSpace
from nbf.environments.functional import FunctionalEnvironment, environment
from nbf.errors import InputError


def _still(state: State, policy: Policy, *more: PyTree) -> tuple[State, Float[Array, " 1"]]:
    """The only branch of a state that never moves."""
    return jax.tree.map(lambda leaf: leaf[None], state), jnp.zeros(1)


class ListedEnvironment(FunctionalEnvironment, KnownTransitions):
    """What `listed_environment` builds."""

    listing: tuple[Callable, ...] = eqx.field(static=True, default=())
    """The functions states(), index(state) and initial()."""
    branches: Callable = eqx.field(static=True, default=_still)
    """Next states and log probabilities."""
    count: int = eqx.field(static=True, default=1)
    """How many branches leave a state."""

    @property
    def capabilities(self) -> frozenset[type[Capability]]:
        return super().capabilities | {Enumerable, KnownTransitions}

    def states(self) -> State:
        return self.listing[0]()

    def index(self, state: State) -> Int[Array, ""]:
        return self.listing[1](state)

    def initial_log_probs(self) -> Float[Array, " states"]:
        return self.listing[2]()

    def successors(self, state: State, policy: Policy) -> tuple[State, Float[Array, " b"]]:
        return self.branches(state, policy, *self._more)

    @property
    def num_branches(self) -> int:
        return self.count

    def transition_log_probs(self, state: State, policy: Policy) -> Float[Array, " b"]:
        return self.successors(state, policy)[1]


def listed_environment(
    *,
    observe: Callable,
    log_likelihood: Callable,
    space: StateSpace,
    branches: Callable | None = None,
    num_branches: int | None = None,
    states: State | Callable[[], State] | None = None,
    index: Callable | None = None,
    initial: Float[Array, " states"] | None = None,
    parameters: PyTree = None,
    symbols: int | None = None,
) -> ListedEnvironment:
    """Build an environment of listed states from functions. Check it with `nbf.testing.check_environment`.

    Args:
        observe: `observe(key, state, next_state)` draws y ~ H(x, x'). This and each other function that is not about
            the list takes `parameters` last, if there are any.
        log_likelihood: `log_likelihood(observation, state, next_state)` is log H(x, x')[y].
        space: Of the states.
        branches: `branches(state, policy)` gives the next states, along a leading axis, and log T of each. None is a
            state that never moves.
        num_branches: How many there are; None where nothing moves.
        states: All states along a leading axis, or a function without arguments that gives them. None is every point of
            a `Lattice`.
        index: `index(state)` is the position of a state in `states`; None on a `Lattice`.
        initial: log p0 of the states; None for all alike.
        parameters: A pytree that may change without compiling again; None if there is none.
        symbols: Where observations are integers 0..symbols - 1, their number.

    Returns:
        The environment.
    """
    every, place = _listing(space, states, index)
    count = _count(branches, num_branches)
    start = functools.partial(_initial, every, initial)
    move = _still if branches is None else branches
    init, transition = _draws(every, start, move, alike=initial is None, moves=count > 1)
    plain = environment(
        init=init, transition=transition, observe=observe, log_likelihood=log_likelihood, space=space,
        parameters=parameters, symbols=symbols,
    )  # fmt: skip
    return ListedEnvironment(
        plain.space, plain.parameters, plain.functions, plain.structure, plain.leaves, plain.symbols, plain.emission,
        (every, place, start), move, count,
    )  # fmt: skip


def _draws(every: Callable, start: Callable, move: Callable, *, alike: bool, moves: bool) -> tuple[Callable, Callable]:
    """`init` and `transition`, which draw from what is listed."""

    def init(key: Key[Array, ""], *more: PyTree) -> State:
        log_probs = start()
        drawn = jax.random.randint(key, (), 0, len(log_probs)) if alike else prng.categorical(key, jnp.exp(log_probs))
        return jax.tree.map(lambda leaf: leaf[drawn], every())

    def transition(key: Key[Array, ""], state: State, policy: Policy, *more: PyTree) -> State:
        ends, log_probs = move(state, policy, *more)
        branch = prng.categorical(key, jnp.exp(log_probs)) if moves else 0
        return jax.tree.map(lambda leaf: leaf[branch], ends)

    return init, transition


def _listing(
    space: StateSpace, states: State | Callable[[], State] | None, index: Callable | None
) -> tuple[Callable, Callable]:
    """Functions that give all states, and the position of one."""
    if (states is None) != (index is None):
        raise InputError(
            "`states`, all of them, and `index`, the position of one, belong together: give both, or neither."
        )
    if states is None or index is None:
        finite = capability(space, FiniteSpace)
        if finite is None:
            raise InputError(
                f"Only the points of a Lattice list themselves; for {space.signature} give `states` and `index`."
            )
        return (lambda: jnp.asarray(finite.points())), finite.index
    return states if callable(states) else (lambda: jax.tree.map(jnp.asarray, states)), index


def _count(branches: Callable | None, num_branches: int | None) -> int:
    if (branches is None) != (num_branches is None):
        raise InputError(
            "`branches` and `num_branches`, how many of them leave a state, belong together: give both, or neither."
        )
    if num_branches is None:
        return 1
    if isinstance(num_branches, bool) or not isinstance(num_branches, int) or num_branches < 1:
        raise InputError(f"A state needs one branch at least, as a whole number; got num_branches={num_branches!r}.")
    return num_branches


def _initial(states: Callable[[], State], log_probs: Float[Array, " states"] | None) -> Float[Array, " states"]:
    count = jax.tree.leaves(jax.eval_shape(states))[0].shape[0]
    if log_probs is None:
        return jnp.full(count, -jnp.log(float(count)))
    if log_probs.shape != (count,):
        raise InputError(f"`initial` has a number for each of the {count} states; got shape {log_probs.shape}.")
    return jax.nn.log_softmax(log_probs)
