"""The environments of the experiments: frozen dataclasses whose settings are recorded with every run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from nbf.contracts import Policy
from nbf.environments.goofspiel_family import GoofspielFamily
from nbf.environments.goofspiel_game import GoofspielGame
from nbf.environments.triangulation import BEACONS, TriangulationFamily
from nbf.errors import InputError
from nbf_paper.names import GRIDWORLD_NAMES, game_name

DIFFUSE_TEMPERATURE = 1.0


@dataclass(frozen=True)
class GridworldConfig:
    """One Gridworld configuration, under the name that the paper gives it."""

    name: str
    size: int
    dimension: int
    fixed: bool
    """One grid and policy per training seed, instead of new ones in every episode."""
    temperature: float = 1e-5
    """Softmax temperature of the agent's policy; ties stay random."""
    error: float = 0.1
    """Probability of a wrong observation."""
    horizon: int = 20
    """Steps of an episode."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sides of the grid."""
        return (self.size,) * self.dimension

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "name": self.name,
            "size": self.size,
            "dimension": self.dimension,
            "fixed": self.fixed,
            "temperature": self.temperature,
            "error": self.error,
            "horizon": self.horizon,
        }

    @classmethod
    def parse(cls, name: str) -> GridworldConfig:
        """From a name such as `8-2D-random` or `8-2D-random-diffuse`."""
        match = re.fullmatch(r"([0-9]{1,9})-([0-9])D-(fixed|random)(-diffuse)?", name)
        if match is None or not 1 <= int(match[1]) <= 64 or not 1 <= int(match[2]) <= 4:
            raise InputError(
                f"There is no Gridworld configuration {name!r}. The paper's are {', '.join(GRIDWORLD_NAMES)}; "
                "others follow the pattern SIZE-DIMENSIOND-fixed|random[-diffuse], sizes 1 to 64, dimensions 1 to 4."
            )
        temperature = DIFFUSE_TEMPERATURE if match[4] else 1e-5
        return cls(name, int(match[1]), int(match[2]), match[3] == "fixed", temperature)


@dataclass(frozen=True)
class DonutsConfig:
    """The distribution of donuts: each parameter is uniform in its range. The paper does not state its ranges."""

    offset: float = 1.0
    """Means lie in [-offset, offset]²."""
    radius: tuple[float, float] = (1.0, 2.0)
    width: tuple[float, float] = (0.2, 0.5)
    """Standard deviation of the distance from the mean."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {"offset": self.offset, "radius": self.radius, "width": self.width}


@dataclass(frozen=True)
class TriangulationConfig:
    """Triangulation. The paper does not state noises and horizon; these reproduce its particle filters' numbers."""

    half_width: float = 5.0
    """Positions lie in [-half_width, half_width]²."""
    step: float = 0.5
    """Length of a move."""
    motion_noise: float = 0.1
    """Standard deviation of a move, along each axis."""
    range_noise: float = 0.5
    """Standard deviation of a reading."""
    beacons: tuple[tuple[float, float], ...] = BEACONS
    """Positions of the beacons, in the order in which they are active."""
    horizon: int = 10
    """Steps of an episode."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {
            "half_width": self.half_width,
            "step": self.step,
            "motion_noise": self.motion_noise,
            "range_noise": self.range_noise,
            "beacons": self.beacons,
            "horizon": self.horizon,
        }

    def family(self) -> TriangulationFamily:
        """The environments and policies."""
        return TriangulationFamily(self.half_width, self.step, self.motion_noise, self.range_noise, self.beacons)


@dataclass(frozen=True)
class GoofspielConfig:
    """Goofspiel. The paper's sizes are 4 to 7 cards."""

    cards: int = 4
    """k, the cards that there are."""
    standard: bool = False
    """Every player holds all k cards, instead of a random k - 1 of them."""

    @property
    def name(self) -> str:
        """As records name it."""
        return game_name(self.cards) + ("-standard" if self.standard else "")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings under their stable names in run keys."""
        return {"cards": self.cards, "standard": self.standard}

    @property
    def game(self) -> GoofspielGame:
        """The rules."""
        return GoofspielGame(self.cards, self.standard)

    @property
    def horizon(self) -> int:
        """Rounds of a game."""
        return self.game.rounds

    def family(self, pool: Policy) -> GoofspielFamily:
        """Games between policies of a pool, whose leaves have a leading axis."""
        return GoofspielFamily(pool, self.game)
