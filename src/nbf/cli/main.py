"""The commands of `nbf`: `demo`, `check`, `compare`, `info`, `play`. The paper's experiments have `nbf-paper`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from nbf.cli.command import FAILED, Command, Flag, run, say, table_of
from nbf.cli.comparing import Compare
from nbf.errors import InputError
from nbf.files.atomic import check_writable

Checkpoint = Annotated[Positional[Path], arg(metavar="CHECKPOINT")]
"""The path of a model file, as a positional argument."""


SUBJECT = (
    "What to check, as module:object; worlds:corridor is `corridor` of worlds.py in this folder. It may be an "
    "environment (its policy is then None), (environment, policy), a family of environments, a belief model, "
    "(model, environment), or (filter, environment, policy)."
)


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Compare filters in an 8 x 8 Gridworld with the shipped model: a live view, two tables, a picture and a GIF."""

    seed: int = 0
    """Seed of the random grids, goals and episodes."""
    steps: int = 20
    """Steps of an episode, 1 to 200."""
    particles: tuple[int, ...] = (32, 128)
    """Particle counts of the neural filters; the first of them is drawn."""
    out: Path = Path("demo-output")
    """Folder for belief.png and belief.gif."""
    live: Flag = True
    """Do not play the episode on the terminal."""

    def answer(self) -> dict[str, Any]:
        from nbf.plot.episode import write_beliefs
        from nbf.plot.terminal import Meter, play

        with Meter() as meter:
            meter.describe("importing JAX")
            from nbf.cli.demonstration import DemoConfig, demonstrate
            from nbf.prng import seed

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
            "equal_time": [asdict(row) for row in demo.equal_time],
            "picture": str(picture),
            "animation": str(animation),
        }

    def show(self, answer: dict[str, Any], console: Console) -> None:
        print(EXPLAINED)
        console.print(_at_equal_calls(answer))
        print(TIMED)
        console.print(_at_equal_time(answer))
        console.print(f"\nanimation  {answer['animation']}\npicture    {answer['picture']}", soft_wrap=True)
        print("\nNext:")
        for command, purpose in NEXT:
            print(f"  {f'{_program()} {command}':<{len(_program()) + 31}} {purpose}")


EXPLAINED = """
An agent walks through an 8 x 8 grid; only a symbol for each move is seen, wrong one time in ten. JS is
the Jensen-Shannon divergence from the exact posterior, 0 to 0.693 nats: on the episode that is shown,
which is the one with the most moves and hard for few particles, and over all. calls: of the simulator,
per update. ESS: effective sample size of the weighted particles, small where few of them explain what
was seen. Prior: no observation is used. Approx Beliefs: the exact posterior, embedded and decoded at
every step, so its JS is the model's error alone. A neural filter of 64 calls and more follows every
branch here and no longer needs its model.
"""
TIMED = """
At equal time. Here a call of the simulator costs next to nothing, so particles are cheap, and the exact
filter, which knows all 64 cells, is the best of all. Where a call costs more, a particle filter can
afford fewer of them in the time of the neural filter. Beside each stands the largest particle filter of
those above that takes no longer (–: none of them is so fast):
"""
NEXT = (
    ("play", "steer the agent yourself, in the browser"),
    ("demo --seed 1 --particles 16", "other grids, fewer particles"),
    ("compare MODULE:FAMILY", "every filter on a problem of your own, such as the README's"),
)
"""What to do after the demo."""


def _program() -> str:
    """How the shell finds `nbf`: by its name, or where it was started from."""
    return "nbf" if shutil.which("nbf") else os.path.relpath(sys.argv[0])


def _at_equal_calls(answer: dict[str, Any]) -> Table:
    table = table_of("filter", "calls", "JS, shown", f"JS, {answer['config']['episodes']} episodes", "ESS", "µs/update")
    for row in answer["filters"]:
        mean = f"{row['js']:.3f} ± {row['js_se']:.3f}"
        ess = "–" if row["ess"] is None else f"{row['ess']:.1f}"
        numbers = (str(row["calls"]), f"{row['js_episode']:.3f}", mean, ess, f"{row['microseconds']:.0f}")
        table.add_row(row["filter"], *numbers)
    return table


def _at_equal_time(answer: dict[str, Any]) -> Table:
    table = table_of("a call costs", "filter", "µs/update", "JS", "PF in that time", "its JS")
    for row in answer["equal_time"]:
        cost = f"+ {row['call_cost']:.0f} µs" if row["call_cost"] else "as here"
        other = ("–", "–") if row["other"] is None else (row["other"], f"{row['other_js']:.3f}")
        table.add_row(cost, row["filter"], f"{row['microseconds']:.0f}", f"{row['js']:.3f}", *other)
    return table


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Describe a model file: its architecture, its state space, and how it was trained."""

    checkpoint: Checkpoint
    """A model file, as written by FittedModel.save, nbf.save_model or nbf-paper train. Nothing in it is executed."""

    def answer(self) -> dict[str, Any]:
        from nbf.files.description import described

        answer = {"checkpoint": str(self.checkpoint), **described(self.checkpoint)[1]}
        if answer.pop("fitted", False):
            from nbf.fitting.fitted import FittedModel

            answer["fitted"] = str(FittedModel.load(self.checkpoint))
        return answer

    def show(self, answer: dict[str, Any], console: Console) -> None:
        table = Table.grid(padding=(0, 2))
        fitted = answer.pop("fitted", None)
        for name, value in answer.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {part}" for key, part in value.items())
            table.add_row(name.replace("_", " "), "unknown" if value is None else str(value))
        console.print(table, highlight=False)
        if fitted is not None:
            print(f"\n{fitted}")


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Check that your environment, belief model or filter keeps its contract; the exit code is 1 if it does not."""

    subject: Annotated[Positional[str], arg(metavar="SUBJECT", help=SUBJECT)]

    def answer(self) -> dict[str, Any]:
        from nbf.compiling import after_a_while
        from nbf.testing import check, load

        with after_a_while(lambda: say(f"nbf: compiling and checking {self.subject}; every check has its program")):
            report = check(load(self.subject))
        return {**asdict(report), "subject": self.subject, "passed": report.passed, "text": str(report)}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        print(answer["text"])

    def code(self, answer: dict[str, Any]) -> int:
        return 0 if answer["passed"] else FAILED


@dataclass(frozen=True, kw_only=True)
class Play(Command):
    """Steer an agent on a page in your browser, and watch what an exact, a particle and a neural filter believe."""

    port: int = 8765
    """Port of the server, which listens on this machine alone until Ctrl-C; if it is in use, the next one; 0 is any."""
    open: Flag = False
    """Open the page in the browser of this system."""

    def answer(self) -> dict[str, Any]:
        if not 0 <= self.port < 65536:
            raise InputError(f"A port is a number from 0 to 65535; got {self.port}.")
        say("nbf play: importing JAX")
        import webbrowser

        from nbf.play.command import played

        address = played(self.port, lambda text: say(f"nbf play: {text}"), webbrowser.open if self.open else None)
        return {"address": address}

    def show(self, answer: dict[str, Any], console: Console) -> None:
        say("nbf play: stopped")


COMMANDS: dict[str, type[Command]] = {kind.__name__.lower(): kind for kind in (Demo, Check, Compare, Info, Play)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `nbf`.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code, see `nbf.cli.command.run`.
    """
    about = "Neural Bayesian Filtering: track beliefs over hidden states."
    return run(COMMANDS, argv, prog="nbf", distribution="neural-bayesian-filtering", about=about)
