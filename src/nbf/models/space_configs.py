"""Configs of the state spaces: what a model file says of the space that its model is for."""

from __future__ import annotations

from dataclasses import dataclass

from nbf.capabilities import ContinuousSpace, FiniteSpace, SequenceSpace
from nbf.capability import capability
from nbf.contracts import StateSpace
from nbf.errors import InputError
from nbf.spaces import Box, Lattice, Tokens


@dataclass(frozen=True)
class BoxConfig:
    """Config of a `Box`."""

    low: tuple[float, ...]
    """Lower ends."""
    high: tuple[float, ...]
    """Upper ends."""
    bounded: bool = True
    """Whether states stay between the ends."""

    def build(self) -> Box:
        """Build the space."""
        return Box(self.low, self.high, self.bounded)


@dataclass(frozen=True)
class CircularBoxConfig:
    """Config of a `Box` with circular coordinates."""

    low: tuple[float, ...]
    """Lower ends."""
    high: tuple[float, ...]
    """Upper ends."""
    bounded: bool
    """Whether states stay between the ends."""
    circular: tuple[int, ...]
    """Indices of the circular coordinates."""

    def build(self) -> Box:
        """Build the space."""
        return Box(self.low, self.high, self.bounded, circular=self.circular)


@dataclass(frozen=True)
class LatticeConfig:
    """Config of a `Lattice`."""

    shape: tuple[int, ...]
    """Sides of the lattice."""

    def build(self) -> Lattice:
        """Build the space."""
        return Lattice(self.shape)


@dataclass(frozen=True)
class TokensConfig:
    """Config of `Tokens`."""

    length: int
    """Symbols of a state."""
    categories: int
    """Values of a symbol."""

    def build(self) -> Tokens:
        """Build the space."""
        return Tokens(self.length, self.categories)


AnySpace = BoxConfig | CircularBoxConfig | LatticeConfig | TokensConfig
"""Configs of the library's spaces. That of boxes without circular coordinates is as it always was: its fields are in
model files, and its text is in the purpose of runs."""


def space_config(space: StateSpace) -> AnySpace:
    """The config of a space: what a model must know of it, without what changes from step to step.

    Args:
        space: Space of the states.

    Returns:
        Its config.
    """
    config: AnySpace | None = None
    if (continuous := capability(space, ContinuousSpace)) is not None:
        ends = continuous.low, continuous.high, continuous.bounded
        config = CircularBoxConfig(*ends, continuous.circular) if continuous.circular else BoxConfig(*ends)
    elif (finite := capability(space, FiniteSpace)) is not None:
        config = LatticeConfig(finite.shape)
    elif (sequences := capability(space, SequenceSpace)) is not None:
        config = TokensConfig(sequences.length, sequences.categories)
    if config is None or config.build().signature != space.signature:
        raise InputError(f"No config is known for {space.signature}; a model needs a Box, a Lattice or Tokens.")
    return config
