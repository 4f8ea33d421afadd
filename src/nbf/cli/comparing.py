"""The command `nbf compare`: every filter that applies to a problem of one's own, and which to take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from nbf.cli.command import INTERRUPTED, Command, Flag
from nbf.files.atomic import check_replaceable, check_writable

if TYPE_CHECKING:
    from nbf.contracts import BeliefModel
    from nbf.fitting.fitted import FittedModel

SUBJECT = (
    "The problem, as module:object; worlds:corridor is `corridor` of worlds.py in this folder. It may be a family of "
    "environments, an environment (its policy is then None), or (environment, policy)."
)


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Run every filter that applies to a problem on fresh episodes: a table, and which filter to take."""

    subject: Annotated[Positional[str], arg(metavar="SUBJECT", help=SUBJECT)]
    model: Annotated[Path | None, arg(help_behavior_hint="(default: none, compare without a network)")] = None
    """A model file, as FittedModel.save or nbf.save_model wrote it. Nothing in it is executed."""
    episodes: int = 32
    """Episodes, at least 2."""
    horizon: int = 20
    """Steps of an episode."""
    budgets: tuple[int, ...] = (16, 32, 128)
    """Particle counts of neural, regularised and branching filters."""
    particles: tuple[int, ...] = (512, 2048, 8192)
    """More sizes of particle filters."""
    reference: int = 16384
    """Size of the particle filter whose beliefs are the reference where the exact filter is not affordable."""
    call_cost: float = 0.0
    """What a call of the simulator costs beyond what it costs here, in microseconds."""
    seed: int = 0
    """Seed of episodes and filters."""
    quick: Flag = False
    """Leave out the times."""
    figure: Annotated[Path | None, arg(help_behavior_hint="(default: none)")] = None
    """A PNG file to draw."""

    def answer(self) -> dict[str, Any]:
        if self.figure is not None:
            check_replaceable(self.figure)
            check_writable(self.figure.parent)
        from nbf.fitting.compare import ComparisonStopped, compare
        from nbf.prng import seed
        from nbf.testing import load

        fitted = None if self.model is None else _model(self.model)
        try:
            found = compare(
                load(self.subject), fitted, budgets=self.budgets, particles=self.particles, episodes=self.episodes,
                horizon=self.horizon, seed=seed(self.seed), reference=self.reference, call_cost=self.call_cost,
                quick=self.quick, progress=True,
            )  # fmt: skip
        except ComparisonStopped as stop:
            if stop.comparison is None:
                raise
            found = stop.comparison
        if self.figure is not None:
            found.plot(self.figure)
        figure = None if self.figure is None else str(self.figure)
        return {**found.to_dict(), "subject": self.subject, "figure": figure, "text": str(found)}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        print(answer["text"])
        if answer["figure"] is not None:
            print(f"\nfigure  {answer['figure']}")

    def code(self, answer: dict[str, Any]) -> int:
        return INTERRUPTED if answer["unfinished"] else 0


def _model(path: Path) -> FittedModel | BeliefModel:
    """What `FittedModel.save` wrote, or a bare model."""
    from nbf.files.checkpoint import load_model
    from nbf.fitting.fitted import FittedModel
    from nbf.models.belief_model import MODELS

    model, _, metadata = load_model(path, MODELS)
    if "fitted" not in metadata:
        return model
    return FittedModel.load(path)
