"""pomdp-py: turn a finite model into tables, and a belief into the root of a planner.

    model = from_pomdp_py(agent)                                # T, O and the belief of a pomdp_py.Agent
    filter = nbf.ExactFilter()
    state = filter.init(key, model.environment)
    state, info = filter.step(key, state, model.observation(heard), model.environment, model.action(listen))
    agent.set_belief(to_pomdp_py(key, filter.belief(state, model.environment), 1000, model.state))
    planner.plan(agent)

pomdp-py's emission O(x', a)[y] may depend on the action; ours depends on states only. If it does, the last action is
made part of the state: state x·A + a is the pomdp-py state x, reached by action a of A.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf.contracts import Belief, State
from nbf.environments.matrices import FiniteEnvironment, from_matrices
from nbf.errors import InputError, optional_imports

LIMIT = 50_000_000
"""Entries of the largest table that may be built: 200 MB."""


@dataclasses.dataclass(frozen=True)
class PomdpPyModel:
    """A pomdp-py model as a finite environment, with the pomdp-py object behind each index."""

    environment: FiniteEnvironment
    states: tuple[Any, ...]
    """pomdp-py's states, in the order of the environment's."""
    actions: tuple[Any, ...]
    """pomdp-py's actions, in the order of the environment's."""
    observations: tuple[Any, ...]
    """pomdp-py's observations, in the order of the environment's."""
    remembered: int
    """Number of last actions that a state distinguishes: all, or 1 if observations do not depend on the action."""

    def action(self, action: Any) -> int:
        """Find the policy that takes a pomdp-py action.

        Args:
            action: One of `actions`.

        Returns:
            Its index. Probabilities `Float[A]` in the order of `actions` are policies as well.
        """
        return place_of("action", self.actions, action)

    def at(self, action: Any) -> tuple[FiniteEnvironment, int]:
        """Find the environment and the policy of a step.

        Args:
            action: pomdp-py's action, one of `actions`.

        Returns:
            Both, as a filter's `step` takes them.
        """
        return self.environment, self.action(action)

    def observation(self, observation: Any) -> int:
        """Find the index of a pomdp-py observation.

        Args:
            observation: One of `observations`.

        Returns:
            Its index: an observation of the environment.
        """
        return place_of("observation", self.observations, observation)

    def state(self, state: Int[np.ndarray | Array, " 1"]) -> Any:
        """Find the pomdp-py state of a state of the environment.

        Args:
            state: The state.

        Returns:
            One of `states`.
        """
        return self.states[int(state[0]) // self.remembered]

    def probabilities(self, probs: Float[np.ndarray | Array, " S"]) -> dict[Any, float]:
        """Convert probabilities of the environment's states to those of pomdp-py's.

        Args:
            probs: The state of an `ExactFilter`.

        Returns:
            The probability of each pomdp-py state, as `pomdp_py.Histogram` takes it.
        """
        totals = np.asarray(probs, np.float64).reshape(len(self.states), self.remembered).sum(axis=1)
        return dict(zip(self.states, totals.tolist(), strict=True))


def from_pomdp_py(
    model: Any,
    *,
    states: Iterable[Any] | None = None,
    actions: Iterable[Any] | None = None,
    observations: Iterable[Any] | None = None,
) -> PomdpPyModel:
    """Turn a pomdp-py model into a finite environment that starts from the agent's present belief.

    T is evaluated for every action and every pair of states, so this is for models of up to some hundreds of states.

    Args:
        model: A `pomdp_py.Agent`, or (transition model, observation model, initial belief); the models must implement
            `probability`.
        states: All states; by default the agent's `all_states`.
        actions: All actions; by default the agent's `all_actions`.
        observations: All observations; by default the agent's `all_observations`.

    Returns:
        The environment, with pomdp-py's objects.
    """
    transition, emission, belief = (
        model if isinstance(model, tuple) else (model.transition_model, model.observation_model, model.belief)
    )
    if transition is None or emission is None or belief is None:
        raise InputError(
            "Tables need a transition model, an observation model and a belief; this agent has a black box instead."
        )
    listed = {"states": states, "actions": actions, "observations": observations}
    xs, acts, ys = (listed_of(name, given, model) for name, given in listed.items())
    _check_size(len(xs), len(acts))
    T = np.array([[[transition.probability(end, x, a) for end in xs] for x in xs] for a in acts])  # noqa: N806
    O = np.array([[[emission.probability(y, x, a) for y in ys] for x in xs] for a in acts])  # noqa: E741, N806
    p0 = np.array([belief[x] for x in xs])
    remembered = 1 if np.array_equal(O, np.broadcast_to(O[:1], O.shape)) else len(acts)
    if remembered == 1:
        return PomdpPyModel(from_matrices(T, O[0], p0), xs, acts, ys, 1)
    _check_size(len(xs) * len(acts), len(acts))
    size, mark = len(xs) * len(acts), np.eye(len(acts))
    # T[a, (x, ·), (x', a')] = T[a, x, x'] where a' = a.
    moves = np.einsum("axy,ab->axyb", T, mark).reshape(len(acts), len(xs), 1, size)
    moves = np.broadcast_to(moves, (len(acts), len(xs), len(acts), size)).reshape(len(acts), size, size)
    symbols = O.transpose(1, 0, 2).reshape(size, len(ys))
    # There is no last action at the start; any will do, because the start emits nothing.
    return PomdpPyModel(from_matrices(moves, symbols, np.kron(p0, mark[0])), xs, acts, ys, remembered)


def to_pomdp_py(key: Key[Array, ""], belief: Belief, n: int, state: Callable[[State], Any]) -> Any:
    """Sample a belief as `pomdp_py.Particles`, for `agent.set_belief`: the root of POUCT or POMCP.

    Args:
        key: The randomness of the samples.
        belief: Any belief.
        n: Number of particles.
        state: Makes a `pomdp_py.State` of a state with NumPy leaves; `model.state` after `from_pomdp_py`.

    Returns:
        The particles.
    """
    with optional_imports("to_pomdp_py"):
        import pomdp_py  # pyright: ignore[reportMissingImports]
    return pomdp_py.Particles(particles_of(key, belief, n, state))


def particles_of(key: Key[Array, ""], belief: Belief, n: int, state: Callable[[State], Any]) -> list[Any]:
    """Sample a belief as pomdp-py's states.

    Args:
        key: The randomness of the samples.
        belief: Any belief.
        n: Number of particles.
        state: Makes a `pomdp_py.State` of a state with NumPy leaves.

    Returns:
        The states.
    """
    with optional_imports("particles_of"):
        import pomdp_py  # pyright: ignore[reportMissingImports]

    if n < 1:
        raise InputError(f"A root needs at least 1 particle; got n={n}.")
    leaves, structure = jax.tree.flatten(jax.device_get(belief.sample(key, n)))
    particles = [state(structure.unflatten([leaf[place] for leaf in leaves])) for place in range(n)]
    for particle in particles:
        if not isinstance(particle, pomdp_py.State):  # pyright: ignore[reportAttributeAccessIssue]
            raise InputError(
                f"pomdp-py plans from instances of pomdp_py.State; `state` gave a {type(particle).__name__}."
            )
    return particles


def listed_of(name: str, given: Iterable[Any] | None, model: Any) -> tuple[Any, ...]:
    """List all states, actions or observations, without duplicates.

    Args:
        name: states, actions or observations.
        given: What a caller listed, or None.
        model: An agent that may list them.

    Returns:
        All of them.
    """
    if given is None and isinstance(model, tuple):
        raise InputError(f"Models without an agent do not list their {name}; pass {name}=[...].")
    try:
        found = tuple(getattr(model, f"all_{name}") if given is None else given)
    except (NotImplementedError, TypeError, AttributeError) as error:
        raise InputError(f"This agent does not list its {name} (all_{name}); pass {name}=[...].") from error
    if not found or not all(isinstance(each, Hashable) for each in found) or len(set(found)) < len(found):
        raise InputError(f"The {name} must be hashable, at least one, and each of them once; got {found}.")
    return found


def _check_size(states: int, actions: int) -> None:
    entries = actions * states * states
    if entries > LIMIT:
        raise InputError(
            f"A table of {actions} actions and {states} x {states} states (each with its last action, where "
            f"observations depend on it) has {entries} entries, more than {LIMIT}. Use a particle filter on "
            "nbf.adapters.pomdp_py_simulated.simulate_pomdp_py instead."
        )


def place_of(kind: str, known: Sequence[Any], one: Any) -> int:
    """Find the index of an object.

    Args:
        kind: What it is, for an error.
        known: All there are.
        one: Which.

    Returns:
        Its index.
    """
    try:
        return known.index(one)
    except ValueError:
        raise InputError(f"The {kind} {one!r} is none of {list(known)}.") from None
