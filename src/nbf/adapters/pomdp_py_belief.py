"""pomdp-py: a belief that goes on by any filter, for a planner's whole episode.

    belief = FilterBelief(key, filter, model)               # of from_pomdp_py or simulate_pomdp_py
    agent.set_belief(belief, prior=True)
    planner = pomdp_py.POUCT(...)
    while ...:
        action = planner.plan(agent)                        # searches from the belief's particles
        observation = ...                                   # of the world, or env.provide_observation(...)
        belief.advance(agent, planner, action, observation)

pomdp-py's own beliefs are a histogram over all states, or the particles that POMCP's search happened to bring to the
observation: where it brought none, the episode ends with an error ("Particle deprivation"). Here the filter makes the
belief and the planner plans.
"""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Key

from nbf.adapters.pomdp_py import PomdpPyModel, particles_of
from nbf.adapters.pomdp_py_simulated import SimulatedPomdpPy
from nbf.contracts import Belief, Filter, FilterInfo, FilterState
from nbf.errors import InputError, optional_imports

with optional_imports("nbf.adapters.pomdp_py_belief"):
    import pomdp_py  # pyright: ignore[reportMissingImports]


class FilterBelief(pomdp_py.Particles):  # pyright: ignore[reportAttributeAccessIssue]
    """Particles of a filter's belief, drawn anew after each step. POUCT and POMCP search from them."""

    def __init__(
        self, key: Key[Array, ""], filter: Filter, model: PomdpPyModel | SimulatedPomdpPy, particles: int = 1000
    ) -> None:
        """Begin with the model's initial belief.

        Args:
            key: The randomness of the filter, and of the particles.
            filter: Any filter of the model's environment.
            model: What `from_pomdp_py` or `simulate_pomdp_py` gave.
            particles: How many a planner sees; how many the filter has is its own affair.
        """
        if particles < 1:
            raise InputError(f"A planner needs at least 1 particle; got particles={particles}.")
        self.filter, self.model = filter, model
        self._key, start_key = jax.random.split(key)
        self._count, self._environment = particles, model.environment
        self.state: FilterState = filter.init(start_key, model.environment)
        self.info: FilterInfo | None = None
        self.recovered = 0
        super().__init__(self._drawn())

    @property
    def belief(self) -> Belief:
        """What the particles are drawn from: the filter's belief over states of the model's environment."""
        return self.filter.belief(self.state, self._environment)

    def update(self, action: Any, observation: Any) -> None:
        """Go on to the belief after a step. `info` is what the filter told of it; `recovered` counts the steps whose
        observation it could not explain, in which it predicts.

        Args:
            action: pomdp-py's, which was taken.
            observation: pomdp-py's, which was made; None if there was none.
        """
        environment, policy = self.model.at(action)
        seen = None if observation is None else self.model.observation(observation)
        self.state, self.info = self.filter.step(self._next_key(), self.state, seen, environment, policy)
        self._environment = environment
        self.recovered += int(self.info.recovered)
        # pomdp-py keeps the particles where only its own code can set them.
        super().__init__(self._drawn())

    def advance(self, agent: Any, planner: Any, action: Any, observation: Any) -> None:
        """Tell all three of a step: this belief, the agent's history, and the planner's tree. A POMCP keeps no tree:
        its own would bring its own belief.

        Args:
            agent: pomdp-py's, whose belief this is.
            planner: That chose the action.
            action: pomdp-py's, which was taken.
            observation: pomdp-py's, which was made.
        """
        if agent.belief is not self:
            raise InputError(
                f"The agent's belief is a {type(agent.belief).__name__}, not this one: agent.set_belief(belief, "
                "prior=True) before the first step."
            )
        self.update(action, observation)
        agent.update_history(action, observation)
        if isinstance(planner, pomdp_py.POMCP):  # pyright: ignore[reportAttributeAccessIssue]
            agent.tree = None
        else:
            planner.update(agent, action, observation)

    def __deepcopy__(self, memo: Any) -> Any:
        """Copy the particles alone, as POMCP does for the root of its tree."""
        return pomdp_py.Particles(list(self.particles))  # pyright: ignore[reportAttributeAccessIssue]

    def _next_key(self) -> Key[Array, ""]:
        self._key, key = jax.random.split(self._key)
        return key

    def _drawn(self) -> list[Any]:
        return particles_of(self._next_key(), self.belief, self._count, self.model.state)
