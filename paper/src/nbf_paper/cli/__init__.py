"""The command line `nbf-paper`."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit codes are those of `nbf`. Stopped while it starts, it ends quietly."""
    try:
        from nbf_paper.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    return run(argv)
