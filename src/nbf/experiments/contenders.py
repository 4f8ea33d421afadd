"""One row of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from nbf.contracts import Filter


@dataclass(frozen=True)
class Contender:
    """A filter under the names that its records carry."""

    filter: Filter
    name: str
    arm: str
    particles: int
    calls: int
    smooth: bool = False
    """Whether its particles are scored as a kernel density."""

    @property
    def label(self) -> str:
        """For progress and tables."""
        return f"{self.name}({self.particles})" if self.particles else self.name
