"""The command line `nbf`. Needs the extra `cli`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nbf.errors import MissingExtraError, optional_imports


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `nbf`, or say which extra it needs.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        The exit code, see `nbf.cli.command.run`.
    """
    try:
        with optional_imports("The command line", command_line=True):
            from nbf.cli.main import main as run
    except MissingExtraError as error:
        print(f"nbf: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return run(argv)
