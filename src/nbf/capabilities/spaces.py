"""What a state space can offer beyond its contract, and what each offer buys."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from nbf.capability import Capability
from nbf.contracts import State, StateSpace


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
