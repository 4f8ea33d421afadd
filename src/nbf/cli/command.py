"""Commands and how to run them, for `nbf` and `nbf-paper` alike.

A command is a frozen dataclass: its fields are the options, its docstrings the help. `answer` does the work and
returns what `--json` prints; `show` prints the same for a reader. The answer goes to stdout, progress and errors to
stderr. A command imports JAX when it runs, so that the help appears at once.
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

from nbf.errors import InputError, optional_imports

Flag = Annotated[bool, arg(help_behavior_hint="")]
"""An option without a value."""
FAILED, ERROR, INTERRUPTED = 1, 2, 130
"""Exit codes."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its options, its work, and how its answer is printed."""

    json: Flag = False
    """Print the answer as JSON on stdout, and nothing else."""

    def answer(self) -> dict[str, Any]:
        """Do the work, and return the answer, ready for JSON."""
        raise NotImplementedError

    def show(self, answer: dict[str, Any], console: Console) -> None:
        """Print an answer for a reader.

        Args:
            answer: What `answer` returned.
            console: Where to print.
        """
        raise NotImplementedError

    def code(self, answer: dict[str, Any]) -> int:
        """Choose the exit code.

        Args:
            answer: What `answer` returned.

        Returns:
            The exit code, 0 by default.
        """
        return 0


def say(text: str) -> None:
    """Print a line of progress, or an error, to stderr.

    Args:
        text: The line.
    """
    print(text, file=sys.stderr, flush=True)


def table_of(first: str, *others: str) -> Table:
    """Make an empty table with a column of names and columns of numbers.

    Args:
        first: Head of the column of names.
        others: Heads of the columns of numbers.

    Returns:
        The table.
    """
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def is_mistake(error: BaseException) -> bool:
    """Whether an error is the caller's to mend, and so needs no traceback.

    Args:
        error: The error.

    Returns:
        True for bad input and for a loss that is not finite.
    """
    return isinstance(error, InputError | FloatingPointError)


def run(
    commands: Mapping[str, type[Command]], argv: Sequence[str] | None, *, prog: str, distribution: str, about: str
) -> int:
    """Parse the arguments, run the command that they name, and print its answer.

    Args:
        commands: The commands by name.
        argv: The arguments; None stands for those of the process.
        prog: Name of the program.
        distribution: The installed distribution whose version `--version` prints.
        about: What the program is for, in a sentence.

    Returns:
        The exit code: 0 for success, 1 if a check failed, 2 for bad input or a missing extra, 130 if interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"{prog} {version(distribution)}")
        return 0
    command = tyro.extras.subcommand_cli_from_dict(
        dict(commands),
        prog=prog,
        description=f"{about} `{prog} COMMAND --help` explains a command; `{prog} --version` prints the version.",
        args=arguments or ["--help"],
        config=(FlagCreatePairsOff, DisallowNone, OmitArgPrefixes, OmitSubcommandPrefixes, CascadeSubcommandArgs),
    )
    typed = shlex.join([prog, *arguments])
    if any(field.name == "command" for field in fields(command)):
        command = replace(command, command=typed)
    try:
        with optional_imports(f"`{prog} {type(command).__name__.lower()}`", command_line=True):
            answer = command.answer()
        if command.json:
            print(json.dumps(answer, indent=1, allow_nan=False))
        else:
            command.show(answer, Console())
    except KeyboardInterrupt as stop:
        done = f"training {stop}; it goes on with" if str(stop) else "stopped; no file is incomplete. Go on with"
        say(f"{prog}: {done}: {typed}")
        return INTERRUPTED
    except (ValueError, FloatingPointError) as error:
        if not is_mistake(error):
            raise
        say(f"{prog}: {error}")
        return ERROR
    return command.code(answer)
