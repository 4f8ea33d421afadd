"""The command line `nbf`: the one place where everything meets.

The commands that make and draw records have files of their own in `nbf.commands`, which also says what
a command is.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import (
    CascadeSubcommandArgs,
    DisallowNone,
    FlagCreatePairsOff,
    OmitArgPrefixes,
    OmitSubcommandPrefixes,
    Positional,
    arg,
)

from nbf.commands import ERROR, FAILED, INTERRUPTED, Command, Flag, is_mistake, say, table_of
from nbf.commands.report import Report
from nbf.commands.reproduce import Reproduce
from nbf.commands.selfplay import Selfplay
from nbf.evaluation.records import ALL, Record, check_writable
from nbf.report.tables import label, row_of, row_order

Checkpoint = Annotated[Positional[Path], arg(metavar="CHECKPOINT")]


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Track an agent in an 8 x 8 grid with the shipped model: a live view, a table, a GIF."""

    seed: int = 0
    """Which grids, goals and episodes are drawn."""
    steps: int = 20
    """Length of an episode."""
    particles: tuple[int, ...] = (16, 32)
    """Particle counts of the neural filters; the first one is drawn."""
    out: Path = Path("demo-output")
    """Folder for the pictures."""
    live: Flag = True
    """Leave out the live view; it is shown only on a terminal in any case."""

    def answer(self) -> dict[str, Any]:
        from nbf.report.live import Meter, play
        from nbf.report.pages import write_beliefs

        with Meter() as meter:
            meter.describe("importing JAX")
            from nbf.experiments.demo import DemoConfig, demonstrate
            from nbf.experiments.requests import seed

            config = DemoConfig(seed(self.seed), self.steps, self.particles)
            check_writable(self.out)
            demo = demonstrate(config, meter)
        console = Console()
        if self.live and not self.json and console.is_terminal:
            play(demo.episode, console)
        with Meter() as meter:
            meter.describe("drawing the episode")
            picture, animation = write_beliefs(demo.episode, self.out)
        return {
            "config": asdict(demo.config),
            "filters": [asdict(row) for row in demo.rows],
            "picture": str(picture),
            "animation": str(animation),
        }

    def show(self, answer: dict[str, Any], console: Console) -> None:
        episodes = answer["config"]["episodes"]
        table = table_of("filter", "JS, shown", f"JS, {episodes} episodes", "ESS", "µs/update", "calls/update")
        for row in answer["filters"]:
            mean = f"{row['js']:.3f} ± {row['js_se']:.3f}"
            ess = "–" if row["ess"] is None else f"{row['ess']:.1f}"
            numbers = (f"{row['js_episode']:.3f}", mean, ess, f"{row['microseconds']:.0f}", str(row["calls"]))
            table.add_row(row["filter"], *numbers)
        print("\nJS: divergence (Jensen-Shannon, at most 0.693 nats) to the exact posterior, mean")
        print("over the steps of the episode that is shown, and of all with its standard error.\n")
        console.print(table)
        console.print(f"\nanimation  {answer['animation']}\npicture    {answer['picture']}", soft_wrap=True)


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a belief model, or go on with a training that was stopped."""

    config: str = "8-2D-random"
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
        from nbf.experiments.gridworld import train
        from nbf.experiments.requests import described, jobs

        job = jobs([self.config], [self.arm], [self.seed], self.steps, 2)[0]
        job.check(self.runs)
        check_writable(self.runs)
        path = train(job.config, job.arm, job.seed, self.runs, steps=job.steps)
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
    """A model that `nbf train` or `nbf reproduce` made."""
    config: Annotated[str | None, arg(help_behavior_hint="(default: what the model was trained for)")] = None
    """Gridworld configuration."""
    episodes: int = 500
    """Episodes; every filter sees the same ones."""
    seed: Annotated[int | None, arg(help_behavior_hint="(default: the training seed)")] = None
    """Seed of the episodes and, for a fixed configuration, of the grid."""

    def answer(self) -> dict[str, Any]:
        from nbf.experiments.gridworld import EvaluationConfig, evaluate
        from nbf.experiments.requests import at_least, described, fitting_config, seed
        from nbf.report.live import Meter

        model, about = described(self.checkpoint)
        config = fitting_config(self.checkpoint, about, self.config)
        drawn = seed(self.seed if self.seed is not None else about["seed"] or 0)
        settings = EvaluationConfig(episodes=at_least(2, episodes=self.episodes))
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


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Say what a checkpoint is, after checking that it is whole."""

    checkpoint: Checkpoint
    """A model file."""

    def answer(self) -> dict[str, Any]:
        from nbf.experiments.requests import described

        return {"checkpoint": str(self.checkpoint), **described(self.checkpoint)[1]}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        table = Table.grid(padding=(0, 2))
        for name, value in answer.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {part}" for key, part in value.items())
            table.add_row(name.replace("_", " "), "unknown" if value is None else str(value))
        console.print(table, highlight=False)


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Check an environment, a belief model or a filter of your own; the exit code is 1 if something failed."""

    subject: Annotated[Positional[str], arg(metavar="SUBJECT")]
    """What to check, as module:object: an environment, (environment, policy), a family, a belief model, (model,
    environment), or (filter, environment, policy)."""

    def answer(self) -> dict[str, Any]:
        from nbf.testing import check, load

        report = check(load(self.subject))
        return {**asdict(report), "subject": self.subject, "passed": report.passed, "text": str(report)}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        print(answer["text"])

    def code(self, answer: dict[str, Any]) -> int:
        return 0 if answer["passed"] else FAILED


COMMANDS: dict[str, type[Command]] = {
    kind.__name__.lower(): kind for kind in (Demo, Train, Evaluate, Reproduce, Selfplay, Report, Info, Check)
}


# --- what several commands need ------------------------------------------------------------------


@dataclass(frozen=True)
class _Last:
    """A meter that is told only the last part of each description."""

    meter: Any

    def describe(self, text: str) -> None:
        self.meter.describe(text.rpartition(": ")[2])

    def advance(self, done: int) -> None:
        self.meter.advance(done)


def _means(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry per filter, of the means over all steps."""
    found = {(row_of(record), record.metric): record for record in records if record.step == ALL}
    rows = []
    for row in sorted({row for row, _ in found}, key=row_order):
        js, ess = found[row, "js"], found.get((row, "ess"))
        head = {"filter": js.filter, "arm": js.arm, "particles": js.particles, "calls": js.calls}
        rows.append({**head, "js": js.value, "js_se": js.se, "ess": ess and ess.value})
    return rows


# --- main ----------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 if a check failed, 2 for a caller's mistake, 130 if interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"nbf {version('neural-bayesian-filtering')}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="nbf",
        description="Track beliefs over hidden states: Neural Bayesian Filtering. `nbf COMMAND --help` explains a "
        "command, `nbf --version` tells the version.",
        args=arguments or ["--help"],
        config=(FlagCreatePairsOff, DisallowNone, OmitArgPrefixes, OmitSubcommandPrefixes, CascadeSubcommandArgs),
    )
    if isinstance(command, Reproduce):
        command = replace(command, command=shlex.join(["nbf", *arguments]))
    try:
        answer = command.answer()
        if command.json:
            print(json.dumps(answer, indent=1, allow_nan=False))
        else:
            command.show(answer, Console())
    except KeyboardInterrupt as stop:
        about = f"training {stop}; it goes on" if str(stop) else "stopped, nothing is half-written; go on"
        say(f"nbf: {about} with: {shlex.join(['nbf', *arguments])}")
        return INTERRUPTED
    except (ValueError, FloatingPointError) as error:
        if not is_mistake(error):
            raise
        say(f"nbf: {error}")
        return ERROR
    return command.code(answer)
