"""The command line `nbf-paper`."""

from nbf_paper.cli.main import main

__all__ = ["main"]
