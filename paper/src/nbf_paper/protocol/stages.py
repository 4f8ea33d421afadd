"""What the paper trains and evaluates, with its seeds, gradient steps and episodes."""

from __future__ import annotations

from dataclasses import dataclass

from nbf_paper.experiments.choices import Donuts, Experiment, Goofspiel, Gridworld, Part, Triangulation
from nbf_paper.names import CARDS, GRIDWORLDS, TRIANGULATION


@dataclass(frozen=True)
class Stage:
    """Models that the paper trains with the same settings."""

    experiment: Experiment
    configs: tuple[str, ...]
    arm: str
    seeds: int
    steps: int
    """Gradient steps of each training."""
    episodes: int
    """Episodes, or beliefs, of each evaluation."""
    like: str = ""
    """Another arm with a network of the same size, whose times are taken where this one has none on record."""

    @property
    def part(self) -> Part:
        """The stage for `nbf-paper reproduce`."""
        return Part(self.experiment, self.seeds, self.steps, self.episodes)


def _gridworld(arm: str) -> Stage:
    return Stage(Gridworld(config=GRIDWORLDS, arm=(arm,)), GRIDWORLDS, arm, 100, 100_000, 500)


def _goofspiel(arm: str, steps: int, like: str = "") -> Stage:
    configs = tuple(f"k={cards}" for cards in CARDS)
    return Stage(Goofspiel(cards=CARDS, arm=(arm,)), configs, arm, 5, steps, 10 * 500, like)


PROTOCOL = (
    _gridworld("faithful"),
    _gridworld("recurrent"),
    _goofspiel("paper", 150_000, like="faithful"),
    _goofspiel("recurrent", 16_000),
    Stage(Triangulation(), (TRIANGULATION,), "faithful", 20, 30_000, 100),
    *(
        Stage(Donuts(decoder=(decoder,)), ("donuts",), decoder, 1, 30_000, 500)
        for decoder in ("flow-paper", "cfm-independent-paper", "cfm-ot-paper")
    ),
)
"""Seeds, gradient steps and episodes as the paper gives them. In Goofspiel each model is evaluated ten
times in 500 games. Of donuts the paper shows one training of each decoder."""
