"""What every command is, of `nbf` and of `nbf-paper`, and how a command line runs one.

A command is a frozen dataclass: its fields are the options, its docstrings the help. `answer` does the
work and returns what `--json` prints; `show` prints the same for a reader. The answer goes to stdout,
progress and errors to stderr. JAX is imported by the commands that need it, when they run.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from typing import Annotated, Any

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
    arg,
)

from nbf.errors import InputError

Flag = Annotated[bool, arg(help_behavior_hint="")]
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


def say(text: str) -> None:
    """A line of progress, or an error."""
    print(text, file=sys.stderr, flush=True)


def table_of(first: str, *others: str) -> Table:
    """An empty table: names to the left, numbers to the right."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def is_mistake(error: BaseException) -> bool:
    """Whether an error tells the caller what to do, rather than that the library is wrong."""
    return isinstance(error, InputError | FloatingPointError)


def run(
    commands: Mapping[str, type[Command]], argv: Sequence[str] | None, *, prog: str, distribution: str, about: str
) -> int:
    """Run one of some commands; the exit code is 0, 1 if a check failed, 2 for a mistake of the caller, 130 if stopped."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"{prog} {version(distribution)}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        dict(commands),
        prog=prog,
        description=f"{about} `{prog} COMMAND --help` explains a command, `{prog} --version` tells the version.",
        args=arguments or ["--help"],
        config=(FlagCreatePairsOff, DisallowNone, OmitArgPrefixes, OmitSubcommandPrefixes, CascadeSubcommandArgs),
    )
    typed = shlex.join([prog, *arguments])
    if any(field.name == "command" for field in fields(command)):
        command = replace(command, command=typed)
    try:
        answer = command.answer()
        if command.json:
            print(json.dumps(answer, indent=1, allow_nan=False))
        else:
            command.show(answer, Console())
    except KeyboardInterrupt as stop:
        done = f"training {stop}; it goes on" if str(stop) else "stopped, nothing is half-written; go on"
        say(f"{prog}: {done} with: {typed}")
        return INTERRUPTED
    except (ValueError, FloatingPointError) as error:
        if not is_mistake(error):
            raise
        say(f"{prog}: {error}")
        return ERROR
    return command.code(answer)
