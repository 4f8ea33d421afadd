"""The command line `nbf-paper`: the one place where the experiments, their records and the report meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from nbf.cli.command import Command, run, say, table_of
from nbf.cli.main import Checkpoint
from nbf.files.atomic import check_writable
from nbf_paper.cli.audit import Audit
from nbf_paper.cli.cost import Cost
from nbf_paper.cli.report import Report
from nbf_paper.cli.reproduce import Reproduce
from nbf_paper.cli.selfplay import Selfplay
from nbf_paper.names import EXAMPLE
from nbf_paper.records import ALL, Record
from nbf_paper.report.labels import label, row_order


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a belief model, or go on with a training that was stopped."""

    config: str = EXAMPLE
    """Gridworld configuration, as the paper names it."""
    arm: str = "faithful"
    """faithful: the paper's model; enumerated: a softmax over all cells in place of its flow."""
    seed: int = 0
    """Training seed."""
    steps: Annotated[int | None, arg(help_behavior_hint="(default: 100000, as in the paper)")] = None
    """Gradient steps."""
    runs: Path = Path("runs")
    """Folder that keeps the trainings; a model goes to RUNS/gridworld/CONFIG/ARM-SEED."""

    def answer(self) -> dict[str, Any]:
        from nbf.prng import seed
        from nbf_paper.experiments.choices.experiment import at_least
        from nbf_paper.experiments.demands import Demand, announcement, require
        from nbf_paper.experiments.gridworld import GridworldEvaluation, trained_jobs
        from nbf_paper.experiments.model_files import described

        steps = None if self.steps is None else at_least(1, steps=self.steps)
        (job,) = trained_jobs([self.config], [self.arm], [seed(self.seed)], steps, GridworldEvaluation())
        told = announcement(sum((require(size) for size in job.sizes() if size.what != "--episodes"), Demand()).seconds)
        job.check(self.runs)
        check_writable(self.runs)
        if told:
            say(f"nbf-paper: {told}")
        path = job.training_run(self.runs).train()
        return {"model": str(path), **described(path)[1]}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        loss, seconds = answer["loss"], answer["seconds"]
        console.print(f"{answer['model']}", soft_wrap=True, highlight=False)
        console.print(
            f"final loss {loss:.4f} nats per sample after {answer['training']['steps']} steps, {seconds:.0f} s"
        )


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Compare the filters of one model, and those without a model, with the exact posterior."""

    checkpoint: Checkpoint
    """A model that `nbf-paper train` or `nbf-paper reproduce` made."""
    config: Annotated[str | None, arg(help_behavior_hint="(default: what the model was trained for)")] = None
    """Gridworld configuration."""
    episodes: int = 500
    """Episodes; every filter sees the same ones."""
    seed: Annotated[int | None, arg(help_behavior_hint="(default: the training seed)")] = None
    """Seed of the episodes and, for a fixed configuration, of the grid."""

    def answer(self) -> dict[str, Any]:
        from nbf.plot.terminal import Meter
        from nbf.prng import seed
        from nbf_paper.experiments.choices.experiment import at_least
        from nbf_paper.experiments.demands import Demand, announcement, require
        from nbf_paper.experiments.gridworld import GridworldEvaluation, evaluate, sizes_of
        from nbf_paper.experiments.model_files import described, fitting_config

        model, about = described(self.checkpoint)
        config = fitting_config(self.checkpoint, about, self.config)
        drawn = seed(self.seed if self.seed is not None else about["seed"] or 0)
        settings = GridworldEvaluation(episodes=at_least(2, episodes=self.episodes))
        told = announcement(sum(map(require, sizes_of(config, settings.episodes, None)), Demand()).seconds)
        if told:
            say(f"nbf-paper: {told}")
        with Meter(settings.episodes) as meter:
            # As the faithful arm, since that one brings the filters without a model; then under its own name.
            records = evaluate(config, "faithful", drawn, model, settings, _Last(meter))
        records = [replace(record, arm=about["arm"]) if record.arm else record for record in records]
        head = {"checkpoint": str(self.checkpoint), "config": config.name, "arm": about["arm"], "seed": drawn}
        return {**head, "episodes": settings.episodes, "filters": _means(records)}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        table = table_of("filter", "JS", "ESS", "calls/update")
        for row in answer["filters"]:
            ess = "–" if row["ess"] is None else f"{row['ess']:.1f}"
            name = label(row["filter"], row["arm"], row["particles"])
            table.add_row(name, f"{row['js']:.4f} ± {row['js_se']:.4f}", ess, str(row["calls"]))
        console.print(
            f"{answer['config']}, seed {answer['seed']}, {answer['episodes']} episodes; JS to the truth, in nats\n"
        )
        console.print(table)


COMMANDS: dict[str, type[Command]] = {
    kind.__name__.lower(): kind for kind in (Reproduce, Report, Audit, Cost, Train, Evaluate, Selfplay)
}


@dataclass(frozen=True)
class _Last:
    """A meter that shows only the last part of each description."""

    meter: Any

    def describe(self, text: str) -> None:
        self.meter.describe(text.rpartition(": ")[2])

    def advance(self, done: int) -> None:
        self.meter.advance(done)


def _means(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The means over all steps, one entry per filter."""
    found = {(record.row, record.metric): record for record in records if record.step == ALL}
    rows = []
    for row in sorted({row for row, _ in found}, key=row_order):
        js, ess = found[row, "js"], found.get((row, "ess"))
        head = {"filter": js.filter, "arm": js.arm, "particles": js.particles, "calls": js.calls}
        rows.append({**head, "js": js.value, "js_se": js.se, "ess": ess and ess.value})
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit codes are those of `nbf`."""
    about = "The experiments of the paper Neural Bayesian Filtering, recorded, and the pages drawn from the records."
    return run(COMMANDS, argv, prog="nbf-paper", distribution="nbf-paper", about=about)
