"""The command line `nbf`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nbf.errors import missing_extra


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; what it needs beyond the library is the extra `cli`."""
    try:
        from nbf.cli.main import main as run
    except ModuleNotFoundError as error:
        sentence = missing_extra(error, "The command line")
        if sentence is None:
            raise
        print(f"nbf: {sentence}", file=sys.stderr)
        return 2
    return run(argv)
