"""What a problem of the zoo is."""

from __future__ import annotations

from dataclasses import dataclass

from nbf.contracts import Family, Filter
from nbf_paper.names import ZOO


@dataclass(frozen=True)
class Problem:
    """A family of small environments, and the filter that its posteriors are taken from. Its kind and its split stand
    in `nbf_paper.names.ZOO`, where a report reads them without JAX."""

    name: str
    family: Family
    horizon: int
    """Steps of an episode."""
    reference: Filter
    """The filter that stands for the truth. Its beliefs have a `log_prob` that is a density (a probability, where
    states are listed)."""
    accuracy: str
    """What the reference is, and what is approximate in it."""

    @property
    def kind(self) -> str:
        """One of smooth, curved, many-moded, discrete, constrained."""
        return ZOO[self.name].kind

    @property
    def split(self) -> str:
        """exploration (tuning is allowed) or confirmation."""
        return ZOO[self.name].split
