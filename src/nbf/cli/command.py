"""Commands and how to run them, for `nbf` and `nbf-paper` alike.

A command is a frozen dataclass: its fields are the options, its docstrings the help. `answer` does the work and
returns what `--json` prints; `show` prints the same for a reader. The answer goes to stdout, progress and errors to
stderr. A command imports JAX when it runs, so that the help appears at once.
"""

from __future__ import annotations

import json
import os
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

from nbf.cli.streams import ERROR, FAILED, INTERRUPTED, AnswersConsole, guarded, say, visible_answer, wide_enough
from nbf.compiling import without_alarms
from nbf.errors import InputError, optional_imports

__all__ = ["ERROR", "FAILED", "INTERRUPTED", "Command", "Flag", "is_mistake", "run", "say", "sentence", "table_of"]

Flag = Annotated[bool, arg(help_behavior_hint="")]
"""An option without a value."""


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
        True for bad input, for a loss that is not finite, and for what the system refuses: a file, or memory. False for
        a reader that has gone.
    """
    return isinstance(error, InputError | FloatingPointError | OSError | MemoryError) and not isinstance(
        error, BrokenPipeError
    )


def sentence(error: BaseException) -> str:
    """Say an error that is the caller's to mend.

    Args:
        error: The error.

    Returns:
        One sentence or more.
    """
    if isinstance(error, MemoryError):
        return f"The memory of this machine does not suffice ({error or 'no more is told'}). Ask for less."
    if isinstance(error, OSError) and not isinstance(error, InputError):
        of = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{of}{error.strerror or error}. Check that file or folder."
    return str(error)


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
        The exit code: 0 for success, 1 if a check failed, 2 for bad input, a missing extra or an answer that cannot be
        written, 130 if interrupted, 141 if the reader of the answer has gone.
    """

    def work() -> int:
        arguments = list(sys.argv[1:] if argv is None else argv)
        if arguments == ["--version"]:
            print(f"{prog} {version(distribution)}")
            return 0
        more = f"`{prog} COMMAND --help` explains a command; `{prog} --version` prints the version."
        with wide_enough():
            command = tyro.extras.subcommand_cli_from_dict(
                dict(commands),
                prog=prog,
                description=f"{about} {more}",
                args=arguments or ["--help"],
                config=(
                    FlagCreatePairsOff,
                    DisallowNone,
                    OmitArgPrefixes,
                    OmitSubcommandPrefixes,
                    CascadeSubcommandArgs,
                ),
            )
        return _answered(command, prog, shlex.join([prog, *arguments]))

    return guarded(work, prog)


def _answered(command: Command, prog: str, typed: str) -> int:
    """Run a command and print its answer; returns the exit code."""
    if any(field.name == "command" for field in fields(command)):
        command = replace(command, command=typed)
    try:
        _check_working_folder()
        with without_alarms(), optional_imports(f"`{prog} {type(command).__name__.lower()}`", command_line=True):
            answer = command.answer()
    except KeyboardInterrupt as stop:
        done = f"training {stop}; it goes on with" if str(stop) else "stopped; no file is incomplete. Go on with"
        say(f"{prog}: {done}: {typed}")
        return INTERRUPTED
    except Exception as error:
        if not is_mistake(error):
            raise
        say(f"{prog}: {sentence(error)}")
        return ERROR
    try:
        if command.json:
            print(json.dumps(answer, indent=1, allow_nan=False))
        else:
            command.show(visible_answer(answer), AnswersConsole())
    except InputError as error:
        say(f"{prog}: {error}")
        return ERROR
    return command.code(answer)


def _check_working_folder() -> None:
    try:
        os.getcwd()
    except OSError:
        raise InputError("The working folder is no longer there. Change to one that is, and try again.") from None
