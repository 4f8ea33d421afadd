"""pomdp-py: a model too large for tables, by its own `sample` and `probability`.

    model = simulate_pomdp_py(
        agent,                                              # or (transition model, observation model, belief)
        space=nbf.Lattice((11, 11, *[2] * 11)),
        encode=lambda state: [*state.position, *state.rocks],    # a pomdp-py state as numbers
        decode=lambda numbers: State(...),                       # ... and back, from a list of Python's numbers
        actions=[...], observations=[...],
    )
    filter = nbf.ParticleFilter(1000)
    state = filter.init(key, model.at(move)[0])
    state, info = filter.step(key, state, model.observation(heard), *model.at(check))

pomdp-py's emission O(x', a)[y] may depend on the action, so the action is a parameter of the environment as well as the
policy: `at` gives both. n states are one call, in which pomdp-py is asked n times. It draws from Python's `random`,
which is seeded for each call and then put back, so that the same key gives the same numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from nbf.adapters.pomdp_py import listed_of, place_of
from nbf.contracts import StateSpace
from nbf.environments.host import HostEnvironment, host_environment
from nbf.errors import InputError


@dataclasses.dataclass(frozen=True)
class SimulatedPomdpPy:
    """A pomdp-py model as an environment, with the pomdp-py object behind each index."""

    environment: HostEnvironment
    """Its parameter is the index of the action that was taken."""
    actions: tuple[Any, ...]
    """pomdp-py's actions."""
    observations: tuple[Any, ...]
    """pomdp-py's observations, in the order of the environment's."""
    state: Callable[[Any], Any]
    """Makes a pomdp-py state of one of the environment: for `to_pomdp_py`."""

    def at(self, action: Any) -> tuple[HostEnvironment, Any]:
        """Find the environment and the policy of a step.

        Args:
            action: pomdp-py's action, one of `actions`.

        Returns:
            Both, as a filter's `step` takes them.
        """
        place = jnp.int32(place_of("action", self.actions, action))
        return dataclasses.replace(self.environment, parameters=place), place

    def observation(self, observation: Any) -> int:
        """Find the index of a pomdp-py observation.

        Args:
            observation: One of `observations`.

        Returns:
            Its index: an observation of the environment.
        """
        return place_of("observation", self.observations, observation)


def simulate_pomdp_py(
    model: Any,
    *,
    space: StateSpace,
    encode: Callable[[Any], Sequence[float]],
    decode: Callable[[list], Any],
    actions: Sequence[Any] | None = None,
    observations: Sequence[Any] | None = None,
    **options: Any,
) -> SimulatedPomdpPy:
    """Build an environment from a pomdp-py model that starts from the agent's present belief.

    Args:
        model: A `pomdp_py.Agent`, or (transition model, observation model, initial belief). The first needs `sample`,
            the second `sample` and `probability`, the belief `random`.
        space: Of the numbers that `encode` gives; whole numbers for a `Lattice`.
        encode: Makes numbers of a pomdp-py state: all that it consists of.
        decode: Makes a pomdp-py state of them.
        actions: All actions; by default the agent's `all_actions`.
        observations: All observations; by default the agent's `all_observations`.
        **options: `chunk`, `executor` of `nbf.host_environment`.

    Returns:
        The environment, with pomdp-py's objects.
    """
    transition, emission, belief = (
        model if isinstance(model, tuple) else (model.transition_model, model.observation_model, model.belief)
    )
    if transition is None or emission is None or belief is None:
        raise InputError("A simulation needs a transition model, an observation model and a belief.")
    acts, seen = listed_of("actions", actions, model), listed_of("observations", observations, model)
    calls = Calls(transition, emission, belief, encode, decode, acts, seen)
    made = host_environment(
        init=calls.init, transition=calls.transition, observe=calls.observe, log_likelihood=calls.log_likelihood,
        space=space, parameters=jnp.int32(0), symbols=len(seen), emission="state", **options,
    )  # fmt: skip
    return SimulatedPomdpPy(made, acts, seen, lambda state: decode(np.asarray(state).tolist()))


@dataclasses.dataclass(frozen=True)
class Calls:
    """pomdp-py's models as functions of n states.

    Arguments of the methods:
        rng: Random generator.
        n: How many states.
        states: n states.
        next_states: n states.
        policy: Index of the action.
        action: Index of the action.
        observation: Index of the observation.
    """

    transitions: Any
    emissions: Any
    belief: Any
    encode: Callable
    decode: Callable
    actions: tuple[Any, ...]
    observations: tuple[Any, ...]

    def init(self, rng: np.random.Generator, n: int, action: Any) -> np.ndarray:
        """Draw n states of the belief."""
        with _seeded(rng):
            return self._rows([self.belief.random() for _ in range(n)])

    def transition(self, rng: np.random.Generator, states: np.ndarray, policy: Any, action: Any) -> np.ndarray:
        """Draw the next states."""
        if policy is None or int(policy) != int(action):
            raise InputError(f"The policy and the environment's parameter are the same action; got {policy}, {action}.")
        taken = self.actions[int(action)]
        with _seeded(rng):
            return self._rows([self.transitions.sample(self.decode(row), taken) for row in states.tolist()])

    def observe(self, rng: np.random.Generator, states: Any, next_states: np.ndarray, action: Any) -> np.ndarray:
        """Draw observations."""
        taken = self.actions[int(action)]
        with _seeded(rng):
            drawn = [self.emissions.sample(self.decode(row), taken) for row in next_states.tolist()]
        return np.array([place_of("observation", self.observations, one) for one in drawn], np.int32)

    def log_likelihood(self, observation: Any, states: Any, next_states: np.ndarray, action: Any) -> np.ndarray:
        """Compute log probabilities of an observation."""
        heard, taken = self.observations[int(observation)], self.actions[int(action)]
        found = [self.emissions.probability(heard, self.decode(row), taken) for row in next_states.tolist()]
        with np.errstate(divide="ignore"):
            return np.log(np.array(found, np.float64)).astype(np.float32)

    def _rows(self, states: Sequence[Any]) -> np.ndarray:
        rows = np.array([self.encode(state) for state in states])
        return rows.astype(np.float32 if rows.dtype.kind == "f" else np.int32)


@contextlib.contextmanager
def _seeded(rng: np.random.Generator) -> Iterator[None]:
    """Python's random numbers follow from a generator, and are afterwards as they were."""
    before = random.getstate()
    random.seed(int(rng.integers(2**62)))
    try:
        yield
    finally:
        random.setstate(before)
