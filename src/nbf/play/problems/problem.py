"""What every problem of the playground tells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.contracts import Belief, Environment, Filter, Observation, Policy

PARTICLE_COUNTS = (32, 128, 512, 2048)
"""Of the particle filter. Few, since each is a program to compile."""
NEURAL_COUNTS = (16, 32, 64, 128)
"""Of the neural filter."""
EXACT, PARTICLE, NEURAL = "exact", "particle", "neural"
ROLES = (EXACT, PARTICLE, NEURAL)
"""The three filters of a page; the first is the truth, exact or on a fine grid."""
Settings = Mapping[str, Any]
"""What a user may change, as JSON has it."""
Told = Any
"""What the filters are told of one step besides the settings, as JSON has it."""


@dataclass(frozen=True)
class World:
    """Where things are."""

    hidden: np.ndarray
    """The true state, which the filters do not see."""
    public: tuple[float | int, ...] = ()
    """What is seen by all, such as where a boat is and where it heads."""


class Problem(ABC):
    """A problem. Everything is a function of its arguments; a problem keeps nothing.

    Arguments of the methods:
        key: Random key.
        settings: Checked by `checked`.
        world: Before the step.
        action: One of `actions`.
        time: Steps done before this one.
        told: What the filters are told of the step.
        environment: Of the step.
        policy: Of the step.
        belief: Of a filter.
        observed: What is observed, as JSON has it.
        role: One of `ROLES`.
        count: Of the filter's particles.
        states: A set of n states, as numbers.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    actions: ClassVar[tuple[str, ...]]
    """What a user may do in a step; the last one leaves the choice to the agent."""
    shape: ClassVar[tuple[int, int]]
    """Cells of the picture of a belief: rows, from the top, and columns."""
    picture: ClassVar[str] = "map"
    """How a belief is shown: as a map, or as a table, whose rows are distributions over its columns."""
    reference: ClassVar[str]
    """What the first filter is, for the page."""

    @abstractmethod
    def defaults(self) -> dict[str, Any]:
        """The settings of a new episode."""

    @abstractmethod
    def checked(self, settings: Any) -> dict[str, Any]:
        """The settings in full; raises `InputError` unless each is one that can be played."""

    @abstractmethod
    def start(self, key: Key[Array, ""], settings: Settings) -> World:
        """The world of a new episode."""

    @abstractmethod
    def told(self, key: Key[Array, ""], settings: Settings, world: World, action: str, time: int) -> Told:
        """What the filters are told before the step."""

    @abstractmethod
    def at(self, settings: Settings, told: Told) -> tuple[Environment, Policy]:
        """The environment and the policy of a step, as the filters are told them."""

    @abstractmethod
    def moved(
        self, key: Key[Array, ""], world: World, action: str, told: Told, environment: Environment, policy: Policy
    ) -> tuple[World, int | float]:
        """The world after the step, and what is observed, as JSON has it."""

    @abstractmethod
    def observation(self, observed: int | float) -> Observation:
        """What is observed, as the filters take it."""

    @abstractmethod
    def filter(self, role: str, count: int) -> Filter:
        """The filter of a role."""

    @abstractmethod
    def cells(self, belief: Belief, environment: Environment) -> Float[Array, " cells"]:
        """The probability of each cell of the picture, row by row; to be traced."""

    @abstractmethod
    def marks(self, settings: Settings, world: World, time: int) -> dict[str, Any]:
        """What else is drawn. On a map, in the picture's coordinates, (row, column): `agent`, and what the problem has.
        Beside a table: `owners` of the columns, `cards` of the rows, `truth` (the column of each row), and more."""

    @abstractmethod
    def said(self, settings: Settings, action: str, told: Told, observed: int | float) -> str:
        """What happened in a step, for a reader."""

    def places(self, states: Float[Array, "n d"]) -> Float[Array, "n 2"] | None:
        """Where states are on a map, as (row, column); the upper left corner is (0, 0). To be traced. None, unless
        overridden: they are nowhere."""
        return None

    def silent(self, told: Told) -> bool:
        """Whether a step tells the filters nothing, who then stay as they are; unless overridden, no step is."""
        return False

    def ahead(self, environment: Environment) -> Environment:
        """The environment as it is known before the step's observation, which predictions are made in; the same,
        unless overridden. To be traced."""
        return environment

    def stands(self, settings: Settings, world: World) -> None:
        """Raise `InputError` unless the true state is possible with these settings; unless overridden, it is."""
        return

    def counts(self, settings: Settings) -> dict[str, int]:
        """How many particles each filter has; the truth has none, told as 0."""
        return {EXACT: 0, PARTICLE: settings["particle"], NEURAL: settings["neural"]}

    def filters(self, settings: Settings) -> dict[str, Filter]:
        """The filters by role."""
        return {role: self.filter(role, count) for role, count in self.counts(settings).items()}


def filter_key(seed: int, role: str, time: int) -> Key[Array, ""]:
    """Make the key of one filter at one step, the same in a session and in the script that it exports.

    Args:
        seed: Of the episode.
        role: One of `ROLES`.
        time: Steps done before this one; -1 for the start.

    Returns:
        The key.
    """
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1 + ROLES.index(role)), time + 1)


def world_key(seed: int, time: int) -> Key[Array, ""]:
    """Make the key of the world at one step.

    Args:
        seed: Of the episode.
        time: Steps done before this one; -1 for the start.

    Returns:
        The key.
    """
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 0), time + 1)
