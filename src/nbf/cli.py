"""The command line `nbf`: the one place where everything meets.

Every command is a frozen dataclass: its fields are the options, its docstrings the help. `answer`
does the work and returns what `--json` prints; `show` prints the same for a reader. The answer goes
to stdout, progress and errors to stderr. JAX is imported by the commands that need it, when they run.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.box
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
    Suppress,
    arg,
    subcommand,
)

from nbf.evaluation.records import ALL, Record, RecordError, check_writable
from nbf.experiments import choices
from nbf.report.tables import label, row_of, row_order

Flag = Annotated[bool, arg(help_behavior_hint="")]
Checkpoint = Annotated[Positional[Path], arg(metavar="CHECKPOINT")]
FAILED, ERROR, INTERRUPTED = 1, 2, 130


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every command does."""

    json: Flag = False
    """Print the answer as JSON."""

    def answer(self) -> dict[str, Any]:
        """Do the work."""
        raise NotImplementedError

    def show(self, answer: dict[str, Any], console: Console) -> None:
        """Print an answer for a reader."""
        raise NotImplementedError

    def code(self, answer: dict[str, Any]) -> int:
        """The exit code."""
        return 0


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
        table = _table("filter", "JS, shown", f"JS, {episodes} episodes", "ESS", "µs/update", "calls/update")
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
        table = _table("filter", "JS", "ESS", "calls/update")
        for row in answer["filters"]:
            ess = "–" if row["ess"] is None else f"{row['ess']:.1f}"
            name = label(row["filter"], row["arm"], row["particles"])
            table.add_row(name, f"{row['js']:.4f} ± {row['js_se']:.4f}", ess, str(row["calls"]))
        console.print(
            f"{answer['config']}, seed {answer['seed']}, {answer['episodes']} episodes; JS to the truth, in nats\n"
        )
        console.print(table)


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Train, evaluate and record an experiment of the paper; what is recorded already is not run again."""

    experiment: (
        Annotated[choices.Gridworld, subcommand("gridworld")]
        | Annotated[choices.Donuts, subcommand("donuts")]
        | Annotated[choices.Goofspiel, subcommand("goofspiel")]
        | Annotated[choices.Triangulation, subcommand("triangulation")]
    )
    """Which experiment."""
    seeds: int = 1
    """How many training seeds."""
    first_seed: int = 0
    """The first of them."""
    steps: Annotated[int | None, arg(help_behavior_hint="(default: as in the paper; 1000 with --quick)")] = None
    """Gradient steps."""
    episodes: Annotated[int | None, arg(help_behavior_hint="(default: 500; 20 with --quick)")] = None
    """Episodes, or beliefs, of an evaluation."""
    quick: Flag = False
    """Try the whole path in a few minutes, in folders of its own."""
    results: Annotated[Path | None, arg(help_behavior_hint="(default: results; results-quick with --quick)")] = None
    """Folder of the records."""
    runs: Annotated[Path | None, arg(help_behavior_hint="(default: runs; runs-quick with --quick)")] = None
    """Folder of the trainings."""
    command: Suppress[str] = ""
    """The command as it was typed, for the record."""

    def answer(self) -> dict[str, Any]:
        from nbf.evaluation.records import completed
        from nbf.experiments.requests import at_least

        seeds = range(self.first_seed, self.first_seed + at_least(1, seeds=self.seeds))
        steps = self.steps if self.steps is not None else 1000 if self.quick else None
        episodes = self.episodes if self.episodes is not None else 20 if self.quick else None
        ending = "-quick" if self.quick else ""
        results, runs = self.results or Path(f"results{ending}"), self.runs or Path(f"runs{ending}")
        todo = self.experiment.jobs(choices.Amount(seeds, steps, episodes))
        folder = results / type(self.experiment).__name__.lower()
        check_writable(folder)
        check_writable(runs)
        recorded = [completed(folder, job.key) for job in todo]
        for job, finished in zip(todo, recorded, strict=True):
            if not finished:
                job.check(runs)
        done = []
        for number, job in enumerate(todo, start=1):
            state = "recorded already" if recorded[number - 1] else "to do"
            _say(f"[{number}/{len(todo)}] {job.title}: {state}")
            done.append(self._run(job, folder, runs))
        return {"results": str(folder), "runs": done}

    def _run(self, job: choices.Job, folder: Path, runs: Path) -> dict[str, Any]:
        from nbf.report.live import Meter

        begin = time.monotonic()
        with Meter(job.evaluated) as meter:
            new = job.run(folder, runs, command=self.command, bar=meter)
        return {"run": job.title, "key": job.key, "new": new, "seconds": round(time.monotonic() - begin, 1)}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        from nbf.report.pages import EXPERIMENTS

        folder = Path(answer["results"])
        for table in EXPERIMENTS[folder.name](folder).tables.values():
            print(f"\n{table}")
        print(f"\nrecords in {folder}; draw them with: nbf report --results {folder.parent}")


@dataclass(frozen=True, kw_only=True)
class Selfplay(Command):
    """Make a pool of policies by self-play, or go on with one that was stopped, and say what it is like."""

    game: Positional[Literal["goofspiel"]]
    """Which game."""
    cards: int = 5
    """Cards of the game."""
    seed: int = 0
    """Seed of the pool."""
    checkpoints: int = 128
    """Policies that each of the four runs leaves."""
    out: Annotated[Path | None, arg(help_behavior_hint="(default: where `nbf reproduce goofspiel` looks for it)")] = (
        None
    )
    """File of the pool."""

    def answer(self) -> dict[str, Any]:
        from nbf.experiments.goofspiel import pool_path
        from nbf.experiments.requests import seed
        from nbf.experiments.selfplay import SelfPlayConfig, describe, make_pool

        config = SelfPlayConfig(cards=self.cards, checkpoints=self.checkpoints, seed=seed(self.seed))
        path = self.out or pool_path(Path("runs"), config)
        check_writable(path.parent)
        return {"pool": str(path), "config": asdict(config), **describe(make_pool(config, path))}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        runs = answer["config"]["runs"]
        table = _table("run", "entropy, first", "last", "against random, first", "last", "against its first, last")
        size = answer["policies"] // runs
        for run in range(runs):
            first, last = run * size, (run + 1) * size - 1
            cells = [answer[name][at] for name in ("entropy", "against_random") for at in (first, last)]
            table.add_row(str(run + 1), *(f"{cell:.2f}" for cell in (*cells, answer["against_first"][last])))
        console.print(f"{answer['policies']} policies in {answer['seconds']:.0f} s: {answer['pool']}", soft_wrap=True)
        console.print("entropy of a bid in nats; results from -1 (all lost) to 1 (all won)\n")
        console.print(table)
        if "belief_js_any" in answer:
            near, far = answer["belief_js_neighbours"], answer["belief_js_any"]
            console.print(f"\nJS between the beliefs of two policies: neighbours {near:.3f}, any two {far:.3f}")


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Draw the figures of the documentation from the records, and fill in its tables."""

    results: Path = Path("results")
    """Folder of the records."""
    docs: Path = Path("docs")
    """Folder of the documentation: figures go to DOCS/figures, tables into its Markdown files."""
    readme: Path = Path("README.md")
    """Another Markdown file with tables."""
    beliefs: Flag = True
    """Leave the picture and animation of beliefs as they are; they take half a minute."""

    def answer(self) -> dict[str, Any]:
        from nbf.report.live import Meter
        from nbf.report.pages import write_beliefs, write_pages

        documents = [path for path in (*sorted(self.docs.glob("*.md")), self.readme) if path.exists()]
        with Meter() as meter:
            meter.describe("drawing figures from the records")
            written = write_pages(self.results, self.docs, documents)
            if self.beliefs:
                from nbf.experiments.demo import DemoConfig, example_episode

                written += write_beliefs(example_episode(DemoConfig(), meter), self.docs / "figures")
        return {"written": [str(path) for path in written]}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        print("\n".join(answer["written"]))


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


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


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
        _say(f"nbf: {about} with: {shlex.join(['nbf', *arguments])}")
        return INTERRUPTED
    except (ValueError, FloatingPointError) as error:
        if not _is_mistake(error):
            raise
        _say(f"nbf: {error}")
        return ERROR
    return command.code(answer)


def _is_mistake(error: Exception) -> bool:
    """Whether an error tells the caller what to do, rather than that the library is wrong."""
    from nbf.contracts import InputError

    return isinstance(error, InputError | RecordError | FloatingPointError)
